"""A linear model in NumPy that a guard can replay, and the stream of Experiment 4."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from stream_models import STREAMS, Linear, NumpyLearner


class LinearLearner(NumpyLearner):
    """SGD with momentum on squared errors."""

    def __init__(self, lr: float, momentum: float, dim: int = 6, seed: int = 0):
        start = 0.5 * np.random.default_rng(seed).standard_normal(dim)
        super().__init__(Linear(STREAMS["switching"]), start, lr, momentum)

    def step(self, batch):
        with np.errstate(over="ignore", invalid="ignore"):
            return super().step(batch)

    def loss(self, batches):
        with np.errstate(over="ignore", invalid="ignore"):
            return super().loss(batches)


def switching_rows(steps: int, period: int, seed: int):
    """Five inputs with a mean that is drawn anew every ``period`` steps, a constant, and noise."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        if step % period == 0:
            mean = 0.5 * rng.standard_normal(5)
        x = mean + 0.5 * rng.standard_normal((1, 5))
        yield np.append(x, [[1.0]], axis=1), math.sqrt(0.1) * rng.standard_normal(1)
