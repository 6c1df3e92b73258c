"""Train one network many times at once: all methods and seeds side by side.

The methods are what people do when a loss rises; the optimizers are those of torch, written for
many runs, each with its own momentum and step size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

METHODS = ("own", "0.85", "0.5", "clipping", "reset", "lr warm-up", "shuffle")
BUFFER = 64  # batches of the shuffle buffer
WARM = 100  # steps over which the step size rises


def shuffled(rows: np.ndarray, seed: int) -> np.ndarray:
    """Return rows, (steps, batch), as they leave a buffer in random order."""
    rng = np.random.default_rng([seed, 5])
    buffer, made = np.empty(0, rows.dtype), []
    for batch in rows:
        buffer = np.concatenate([buffer, batch])
        taken = rng.permutation(len(buffer))[: len(batch)]
        made.append(buffer[taken])
        if len(buffer) > BUFFER * len(batch):
            buffer = np.delete(buffer, taken)
    return np.stack(made)


class Optimizer:
    """SGD, Adam, AdamW or RMSprop with momentum, for weights with a leading axis of runs."""

    def __init__(self, name: str, lr: Tensor, momentum: Tensor):
        self.name, self.lr, self.momentum = name, lr, momentum
        self.first: dict[str, Tensor] = {}
        self.second: dict[str, Tensor] = {}
        self.count = torch.zeros_like(lr)

    def forget(self, runs: Tensor) -> None:
        """Begin anew in some runs."""
        self.count = torch.where(runs, 0.0, self.count)
        for held in (self.first, self.second):
            for one in held.values():
                one[runs] = 0

    def step(self, weights: dict[str, Tensor], grads: dict[str, Tensor], factor: Tensor) -> None:
        """Change the weights; ``factor`` is that of the step size of each run."""
        self.count = self.count + 1
        for key, weight in weights.items():
            shape = (-1, *[1] * (weight.ndim - 1))
            mu, lr = self.momentum.reshape(shape), (self.lr * factor).reshape(shape)
            count, grad = self.count.reshape(shape), grads[key]
            first = self.first.setdefault(key, torch.zeros_like(weight))
            second = self.second.setdefault(key, torch.zeros_like(weight))
            if self.name == "SGD":
                first.mul_(mu).add_(grad)
                change = first
            elif self.name == "RMSprop":
                second.mul_(0.99).addcmul_(grad, grad, value=0.01)
                first.mul_(mu).add_(grad / (second.sqrt() + 1e-8))
                change = first
            else:
                first.mul_(mu).add_((1 - mu) * grad)
                second.mul_(0.999).addcmul_(grad, grad, value=0.001)
                scale = (second / (1 - 0.999**count)).sqrt() + 1e-8
                change = first / (1 - mu**count) / scale
            if self.name == "AdamW":
                weight.mul_(1 - lr * 0.01)
            weight.sub_(lr * change)


def train(
    models: list[nn.Module],
    methods: list[str],
    loss_fn: Callable[[Tensor, Tensor], Tensor],
    data: tuple[Tensor, Tensor],
    rows: np.ndarray,
    optimizer: tuple[str, float, float],
    judge: Callable[[Callable[[Tensor], Tensor], int], None],
) -> Tensor:
    """Train all runs on ``rows`` of the data, (runs, steps, batch); whether each was lost.

    ``judge`` is called after each step with a function of inputs, (runs, ...) to (runs, ...).
    """
    device = data[0].device
    weights, buffers = stack_module_state([model.to(device) for model in models])
    weights = {key: one.detach() for key, one in weights.items()}
    name, lr, own = optimizer
    momenta = torch.tensor([float(m) if m[0] == "0" else own for m in methods], device=device)
    made = Optimizer(name, torch.full_like(momenta, lr), momenta)
    which = {m: torch.tensor([m == one for one in methods], device=device) for m in METHODS}
    mean, places = torch.full_like(momenta, torch.inf), torch.tensor(rows, device=device)

    def output(params: Any, x: Tensor) -> Tensor:
        return functional_call(models[0], (params, buffers), (x,))

    def loss_of(params: Any, x: Tensor, y: Tensor) -> Tensor:
        return loss_fn(output(params, x), y)

    for step in range(rows.shape[1]):
        chosen = places[:, step]
        grads, losses = vmap(grad_and_value(loss_of))(weights, data[0][chosen], data[1][chosen])
        norm = torch.stack([one.flatten(1).norm(dim=1) for one in grads.values()]).norm(dim=0)
        scale = torch.where(which["clipping"], 1 / torch.clamp(norm, min=1.0), 1.0)
        for one in grads.values():
            one.mul_(scale.reshape(-1, *[1] * (one.ndim - 1)))
        made.forget(which["reset"] & (losses > 10 * mean))
        mean = torch.where(torch.isinf(mean), losses, 0.99 * mean + 0.01 * losses)
        warm = 0.01 + 0.99 * min(step / WARM, 1.0)
        made.step(weights, grads, torch.where(which["lr warm-up"], warm, 1.0))
        judge(lambda x: vmap(output, in_dims=(0, None))(weights, x), step)
    finite = [torch.isfinite(one).flatten(1).all(dim=1) for one in weights.values()]
    return ~torch.stack(finite).all(dim=0)
