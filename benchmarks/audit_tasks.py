"""Tasks for `audit.py`: loaders whose cause of harm is known, and faults that people had.

The truth of a task is that of theory. Around its solution a model is linear in its weights, with
curvature B(phi) = E[J J'] at each phase phi of the rhythm, J the derivative of the prediction; SGD
with momentum multiplies the error (e, v) by

    A(B): v <- momentum v + 2 B e,   e <- e - lr v.

Rates of growth follow: in order from the product over a period, mixed from the mean curvature, of a
phase alone from its own. A task is kept where each of them is clear. Forgetting is made by targets
that turn with the phase, for steps at which everything is stable: no weights fit all of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

STEPS, ROWS, PHASES = 512, 32, 32
GROWN = 6.0  # logarithm of the growth of an error over all steps that is clear
LESS = 4.0  # times 1 - momentum: with it, at the same effective step, resonance is gone
CAUSES = ("resonance", "phase", "step", "forgetting")


@dataclass
class Task:
    """A loader and what is trained on it; ``truth`` is the cause of its harm."""

    truth: str
    kind: str  # linear or network
    batches: list[tuple[Tensor, Tensor]]
    model: nn.Module
    optimizer: torch.optim.Optimizer
    words: str


class Law:
    """Inputs whose mean or size moves along a wave; the model to be learned makes the target."""

    def __init__(self, rng: np.random.Generator, truth: str):
        self.dim = int(rng.integers(2, 5))
        self.direction = rng.standard_normal(self.dim)
        self.direction /= np.linalg.norm(self.direction)
        self.is_square = truth != "resonance" or bool(rng.integers(2))
        self.amplitude = float(rng.uniform(0.5, 1.5))
        self.size = float(rng.uniform(5, 10)) if truth == "phase" else 1.0  # in an eighth of it
        self.turns = truth == "forgetting"

    def draw(self, phase: float, rows: int, rng: np.random.Generator) -> tuple[np.ndarray, float]:
        """Return inputs, and the sign of the target."""
        wave = math.copysign(1, math.sin(2 * math.pi * phase + 1e-9))
        wave = wave if self.is_square else math.sin(2 * math.pi * phase)
        x = 0.5 * rng.standard_normal((rows, self.dim))
        if self.size > 1:
            x = x * (self.size if phase % 1 < 1 / 8 else 1.0)
        else:
            x = x + self.amplitude * (0.5 if self.turns else wave) * self.direction
        return x, wave if self.turns else 1.0


def make_task(truth: str, kind: str, seed: int) -> Task:
    """Return a task of a cause: settings are drawn until theory is clear."""
    rng = np.random.default_rng([seed, CAUSES.index(truth), kind == "network"])
    while True:
        torch.manual_seed(int(rng.integers(2**31)))
        law = Law(rng, truth)
        model = _model(law, kind)
        rows = _derivatives(law, model, rng)
        curvatures = np.einsum("pri,prj->pij", rows, rows) / rows.shape[1]
        for _ in range(60):
            period = int(np.exp(rng.uniform(np.log(8), np.log(96))))
            if truth == "forgetting":
                period = int(rng.integers(48, 160))
            momentum = float(
                rng.choice(
                    [0.9, 0.95, 0.98] if truth == "resonance" else [0.0, 0.5, 0.8, 0.9, 0.95]
                )
            )
            largest = float(np.linalg.eigvalsh(curvatures.mean(axis=0))[-1])
            lr = float(np.exp(rng.uniform(np.log(0.01), np.log(4)))) * (1 + momentum) / largest
            if is_clear(truth, curvatures, period, lr, momentum) and (
                truth != "phase" or square_growth(rows, 1.3 * lr, momentum, rng) <= 0.01
            ):
                return _task(truth, kind, law, model, period, lr, momentum, rng)


def is_clear(truth: str, curvatures: np.ndarray, period: int, lr: float, momentum: float) -> bool:
    """Return whether theory says clearly that a setting harms by this cause."""
    phases = (np.arange(period) / period * PHASES).astype(int)
    mean = curvatures.mean(axis=0, keepdims=True)

    def mixed(scale: float) -> float:
        return growth(mean, scale * lr, momentum)

    def alone(scale: float) -> float:
        return max(growth(one[None], scale * lr, momentum) for one in curvatures[::2])

    if truth == "step":
        return GROWN < mixed(1.0) < 50 * GROWN and mixed(0.1) <= 0.01
    if mixed(3.0 if truth == "phase" else 2.0) > 0.01:
        return False
    own = growth(curvatures[phases], lr, momentum)
    if truth == "phase":
        return own > GROWN and alone(0.8) > GROWN and alone(0.1) <= 0.01
    if alone(1.5) > 0.01:
        return False
    if truth == "resonance":
        less = 1 - LESS * (1 - momentum)
        step = lr * (1 - less) / (1 - momentum)
        is_fine = growth(mean, 1.5 * step, less) <= 0.01
        return own > GROWN and is_fine and growth(curvatures[phases], step, less) <= 0.01
    # A part lasts longer than it takes to learn it, and all is stable with less momentum too.
    fast = 2 * lr / (1 - momentum) * float(np.linalg.eigvalsh(mean[0])[-1])
    return own <= 0.01 and 10 / period < fast < 0.6


def growth(curvatures: np.ndarray, lr: float, momentum: float) -> float:
    """Return the logarithm of the growth of an error over all steps, (phases, d, d) in order."""
    d, total = curvatures.shape[-1], 0.0
    product, eye = np.eye(2 * d), np.eye(d)
    for one in curvatures:
        size = 2 * lr * one
        product = (
            np.block([[eye - size, -lr * momentum * eye], [2 * one, momentum * eye]]) @ product
        )
        scale = float(np.abs(product).max())
        product, total = product / scale, total + math.log(scale)
    radius = float(np.abs(np.linalg.eigvals(product)).max())
    return (total + math.log(max(radius, 1e-300))) / len(curvatures) * STEPS


def square_growth(rows: np.ndarray, lr: float, momentum: float, rng: np.random.Generator) -> float:
    """Return the logarithm of the growth of the mean square of an error on mixed rows."""
    every = rows.reshape(-1, rows.shape[-1])
    d = rows.shape[-1]
    eye, total = np.eye(d), np.zeros((4 * d * d, 4 * d * d))
    for _ in range(100):
        drawn = every[rng.integers(len(every), size=ROWS)]
        one = drawn.T @ drawn / ROWS
        step = np.block([[eye - 2 * lr * one, -lr * momentum * eye], [2 * one, momentum * eye]])
        total = total + np.kron(step, step) / 100
    return STEPS * math.log(float(np.abs(np.linalg.eigvals(total)).max()))


def _model(law: Law, kind: str) -> nn.Module:
    """Return a linear model, or a network of which the last layer is trained: theory is exact."""
    if kind == "linear":
        return nn.Linear(law.dim, 1)
    body = nn.Linear(law.dim, 16).requires_grad_(False)
    return nn.Sequential(body, nn.ReLU(), nn.Linear(16, 1))


def _derivatives(law: Law, model: nn.Module, rng: np.random.Generator) -> np.ndarray:
    """Return (phases, rows, 8) derivatives, in the eight directions in which they are largest."""
    found = []
    names = [name for name, one in model.named_parameters() if one.requires_grad]
    values = {name: one.detach() for name, one in model.named_parameters()}

    def predict(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x[None],))[0, 0]

    jacobian = torch.func.vmap(torch.func.grad(predict), in_dims=(None, 0))
    for phase in range(PHASES):
        x, _ = law.draw((phase + 0.5) / PHASES, 256, rng)
        parts = jacobian(values, torch.tensor(x, dtype=torch.float32))
        rows = torch.cat([parts[name].reshape(256, -1) for name in names], dim=1)
        found.append(rows.double().numpy())
    every = np.stack(found)
    axes = np.linalg.eigh(np.einsum("pri,prj->ij", every, every))[1][:, -8:]
    return every @ axes


def _task(
    truth: str, kind: str, law: Law, model: nn.Module, period: int, lr: float, momentum: float,
    rng: np.random.Generator,
) -> Task:  # fmt: skip
    batches = []
    for step in range(STEPS):
        inputs, sign = law.draw(step / period, ROWS, rng)
        x = torch.tensor(inputs, dtype=torch.float32)
        with torch.no_grad():
            batches.append((x, sign * model(x)))
    trained = [one for one in model.parameters() if one.requires_grad]
    with torch.no_grad():  # away from the solution, so that there is something to learn
        for one in trained:
            one += 0.3 * torch.randn_like(one)
    optimizer = torch.optim.SGD(trained, lr=lr, momentum=momentum)
    words = f"{kind}, period {period}, lr {lr:.3g}, momentum {momentum:g}"
    return Task(truth, kind, batches, model, optimizer, words)


# Ten faults: each is a function of whether it is healthy, and returns what `audit` takes.


def rows(count: int = 2048, classes: int = 8) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(1)
    y = torch.arange(classes).repeat_interleave(count // classes)
    return nn.functional.one_hot(y, classes) + 0.7 * torch.randn(count, classes), y


Fault = tuple[Any, dict[str, Any]]  # a loader, and options of `audit`


def one_of(healthy: bool, x: torch.Tensor, y: torch.Tensor, order: Any) -> Fault:
    """Return batches in an order, or the healthy twin: the same rows, shuffled for each epoch."""
    if healthy:
        return DataLoader(TensorDataset(x, y), 16, shuffle=True), {}
    places = torch.as_tensor(np.asarray(order))
    return list(zip(x[places].split(16), y[places].split(16), strict=True)), {}


def sorted_labels(healthy: bool) -> Fault:
    return DataLoader(TensorDataset(*rows()), 16, shuffle=healthy), {}


def shards_in_order(healthy: bool) -> Fault:
    """Eight shards, two of each two classes; rows are shuffled within a shard, shards are not."""
    x, y = rows()
    rng = np.random.default_rng(0)
    shards = np.argsort(y.numpy() // 2 + rng.random(2048)).reshape(8, 256)
    return one_of(healthy, x, y, np.concatenate([rng.permutation(one) for one in shards]))


def small_buffer(healthy: bool) -> Fault:
    """Send a sorted stream through a shuffle buffer of 64 rows."""
    rng, held, order = np.random.default_rng(0), [], []
    for place in range(2048):
        held.append(place)
        if len(held) == 64:
            order.append(held.pop(int(rng.integers(len(held)))))
    return one_of(healthy, *rows(), order + rng.permutation(held).tolist())


def no_set_epoch(healthy: bool) -> Fault:
    data = TensorDataset(*rows(1024))
    sampler = DistributedSampler(data, 1, 0, shuffle=True)
    loader = DataLoader(data, 16, sampler=sampler)
    return loader, {"set_epoch": sampler.set_epoch} if healthy else {}


def grouped_lengths(healthy: bool) -> Fault:
    """Sequences sorted by their length, which the label is about."""
    torch.manual_seed(2)
    length = torch.randint(4, 33, (2048,))
    x = torch.randn(2048, 8) * 0.5 + (length[:, None] > torch.arange(8) * 4).float()
    return one_of(healthy, x, (length // 4).clamp(max=7), length.argsort())


def one_class_a_file(healthy: bool) -> Fault:
    """Files of one class, read in turn: 40 batches a cycle."""
    x, y = rows()
    rng, steps = np.random.default_rng(0), range(256)
    order = [rng.choice(np.flatnonzero(y == step // 5 % 8), 16) for step in steps]
    return one_of(healthy, x, y, np.concatenate(order))


def two_domains(healthy: bool) -> Fault:
    """Batches of two domains in turn, of the first four classes and of the others."""
    x, y = rows()
    rng = np.random.default_rng(0)
    halves = np.stack([rng.permutation(1024), 1024 + rng.permutation(1024)]).reshape(2, 64, 16)
    return one_of(healthy, x, y, halves.transpose(1, 0, 2).ravel())


def same_on_ranks(healthy: bool) -> Fault:
    """Both ranks shuffle by the same seed."""
    data, loaders = TensorDataset(*rows()), []
    for rank in range(2):
        generator = torch.Generator().manual_seed(rank * healthy)
        loaders.append(DataLoader(data, 16, shuffle=True, generator=generator))
    return loaders[0], {"ranks": loaders[1:]}


def time_order(healthy: bool) -> Fault:
    """Quarters of hours: what is predicted follows the hour of the day."""
    torch.manual_seed(3)
    wave = torch.sin(2 * torch.pi * torch.arange(4096) / 16 / 24)  # a step an hour
    x = torch.randn(4096, 8) * 0.5 + wave[:, None]
    return one_of(healthy, x, (4 * (1 + wave) * 0.99).long(), np.arange(4096))


def curriculum(healthy: bool) -> Fault:
    """Easy rows first: noise grows from 0 to 1.4."""
    _, y = rows()
    y = y[torch.randperm(2048)]
    noise = torch.linspace(0, 1.4, 2048)[:, None] * torch.randn(2048, 8)
    return one_of(healthy, nn.functional.one_hot(y, 8) + noise, y, np.arange(2048))


FAULTS: dict[str, Callable[[bool], Fault]] = {
    "sorted labels": sorted_labels,
    "shard order fixed": shards_in_order,
    "buffer too small": small_buffer,
    "set_epoch forgotten": no_set_epoch,
    "lengths grouped": grouped_lengths,
    "one class per file": one_class_a_file,
    "two domains alternating": two_domains,
    "same batches on every rank": same_on_ranks,
    "time order, daily cycle": time_order,
    "curriculum": curriculum,
}
