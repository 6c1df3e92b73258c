"""A residual network, and digits that come one class after the other."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import guard_data
import numpy as np
import torch
from torch import nn

BATCH = 16


class Residual(nn.Module):
    """A block of two convolutions with a way around them."""

    def __init__(self, channels: int):
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.two(torch.relu(self.one(x)))


def network(seed: int = 0) -> nn.Module:
    """Return a residual network for digits of 8 x 8 pixels, 0.93 million parameters."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.ReLU(), Residual(32),
        nn.Conv2d(32, 128, 3, stride=2, padding=1), nn.ReLU(), Residual(128),
        nn.Flatten(), nn.Linear(512, 1100), nn.ReLU(), nn.Linear(1100, 10),
    )  # fmt: skip


@functools.cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images, (n, 1, 8, 8), and their labels."""
    held = guard_data.stored() or guard_data.digits()
    images = torch.tensor(held["digits"], dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    return images, torch.tensor(held["labels"].astype(np.int64))


def ordered(cycle: int, steps: int, seed: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of one class after the other, all ten in a cycle of steps; 0 is iid."""
    images, labels = digits()
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(labels.numpy() == label) for label in range(10)]
    for step in range(steps):
        pool = places[int(step % cycle * 10 / cycle)] if cycle else np.arange(len(labels))
        rows = rng.choice(pool, BATCH)
        yield images[rows], labels[rows]
