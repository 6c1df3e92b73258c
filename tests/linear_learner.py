"""A linear model in NumPy that a guard can replay, and the stream of Experiment 4."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from resonax.guards.phases import Phased


class LinearLearner(Phased):
    """SGD with momentum on squared errors."""

    def __init__(self, lr: float, momentum: float, dim: int = 6, seed: int = 0):
        self.weights = 0.5 * np.random.default_rng(seed).standard_normal(dim)
        self.velocity = np.zeros(dim)
        self.own_lr = self.lr = lr
        self.momentum = momentum

    def save(self) -> Any:
        return self.weights.copy(), self.velocity.copy()

    def load(self, saved: Any) -> None:
        self.weights, self.velocity = (part.copy() for part in saved)

    def set(self, candidate: Any) -> None:
        self.momentum, self.lr = candidate.momentum, candidate.lr * self.own_lr

    def step(self, batch: Any) -> float:
        x, y = batch
        with np.errstate(over="ignore", invalid="ignore"):
            error = x @ self.weights - y
            self.velocity = self.momentum * self.velocity + 2 / len(y) * (error @ x)
            self.weights = self.weights - self.lr * self.velocity
            return float((error**2).mean())

    def loss(self, batches: Any) -> float:
        mean = float(np.mean(self.losses(batches)))
        return mean if math.isfinite(mean) else math.inf

    def losses(self, batches: Any) -> list[float]:
        with np.errstate(over="ignore", invalid="ignore"):
            return [float(((x @ self.weights - y) ** 2).mean()) for x, y in batches]

    def mix(self, batches: Any, rng: np.random.Generator, like: Any = None) -> Any:
        like = batches if like is None else like
        x, y = (np.concatenate(parts) for parts in zip(*batches, strict=True))
        order = rng.permutation(len(y))
        ends = np.cumsum([len(one[1]) for one in like])
        pieces = np.split(order[: ends[-1]], ends[:-1])
        return [(x[piece], y[piece]) for piece in pieces]

    def size(self, batch: Any) -> int:
        return sum(part.nbytes for part in batch)

    def saved_size(self, saved: Any) -> int:
        return sum(part.nbytes for part in saved)

    def replay_size(self, saved: Any, batches: Any) -> int:
        return 0

    def sketches(self, batches: Any) -> np.ndarray:
        gradients = [(x @ self.weights - y) @ x / len(y) for x, y in batches]
        return np.concatenate([gradients, [x.mean(axis=0) for x, _ in batches]], axis=1)


def switching_rows(steps: int, period: int, seed: int):
    """Five inputs with a mean that is drawn anew every ``period`` steps, a constant, and noise."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        if step % period == 0:
            mean = 0.5 * rng.standard_normal(5)
        x = mean + 0.5 * rng.standard_normal((1, 5))
        yield np.append(x, [[1.0]], axis=1), math.sqrt(0.1) * rng.standard_normal(1)
