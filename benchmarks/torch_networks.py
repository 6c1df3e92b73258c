"""Networks of Fig. 5 by torch.func.vmap, which `simulation.py` compares the engine with."""

from __future__ import annotations

import time

import torch

__all__ = ["vmap_networks"]

WIDTHS = ((2, 20), (20, 20), (20, 1))
BATCH = TESTS = 10  # samples of a step, and of a test
AMPLITUDE, VARIANCE, NOISE = 0.63, 0.1, 0.1
TESTED = 5  # one step in so many has a test loss, as in the engine's runs
PERIODS = 26


def _loss(w: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    h = torch.relu(x @ w[0] + w[3])
    h = torch.relu(h @ w[1] + w[4])
    return torch.mean(((h @ w[2] + w[5])[:, 0] - y) ** 2)


class Networks:
    """So many networks in training, by heavy ball with a step size of 0.01 and momentum 0.95.

    Without ``same_work`` inputs have one law and no loss is tested: training alone. With it the
    mean of the inputs is drawn anew every period, which differs from network to network, and a
    fifth of the steps have a test loss.
    """

    def __init__(self, count: int, same_work: bool) -> None:
        self.count, self.same_work, self.taken = count, same_work, 0
        self.weights = [torch.randn(count, a, b) * (2 / a) ** 0.5 for a, b in WIDTHS]
        self.weights += [torch.zeros(count, b) for _, b in WIDTHS]
        self.velocity = [torch.zeros_like(weight) for weight in self.weights]
        self.mean, self.total = torch.zeros(count, 2), torch.zeros(count)
        self.period = 1.0 + torch.arange(count) % PERIODS
        self.slope = torch.func.vmap(torch.func.grad(_loss))
        self.loss = torch.func.vmap(_loss)

    def step(self) -> None:
        """Take one step of all networks."""
        inputs = torch.randn(self.count, BATCH, 2)
        if self.same_work:
            is_new = torch.remainder(torch.tensor(float(self.taken)), self.period) < 1
            drawn = AMPLITUDE * torch.randn(self.count, 2)
            self.mean = torch.where(is_new[:, None], drawn, self.mean)
            inputs = inputs.mul_(VARIANCE**0.5).add_(self.mean[:, None])
        noise = NOISE**0.5 * torch.randn(self.count, BATCH)
        outputs = torch.cos(torch.pi * inputs.norm(dim=-1)).add_(noise)
        slopes = self.slope(self.weights, inputs, outputs)
        # All arrays at once, as the optimizers of torch do it.
        torch._foreach_mul_(self.velocity, 0.95)
        torch._foreach_add_(self.velocity, slopes, alpha=-0.01)
        torch._foreach_add_(self.weights, self.velocity)
        self.taken += 1
        if self.same_work and self.taken % TESTED == 0:
            inputs = torch.randn(self.count, TESTS, 2).mul_((AMPLITUDE**2 + VARIANCE) ** 0.5)
            targets = torch.cos(torch.pi * inputs.norm(dim=-1))
            self.total += self.loss(self.weights, inputs, targets)


def vmap_networks(count: int, same_work: bool) -> float:
    """Return seconds per network and step of so many networks at once, after some steps."""
    networks, steps = Networks(count, same_work), TESTED * max(2, 5000 // count)
    for _ in range(steps):  # these warm up
        networks.step()
    began = time.perf_counter()
    for _ in range(2 * steps):
        networks.step()
    return (time.perf_counter() - began) / (2 * steps * count)
