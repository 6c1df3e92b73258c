"""Streams for the guards."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch


def switching(
    steps: int, period: int, seed: int = 0
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """The stream of Experiment 4: five inputs, a mean that switches, noise of variance 0.1."""
    draw = torch.Generator().manual_seed(seed)
    for step in range(steps):
        if step % period == 0:
            mean = 0.5 * torch.randn(5, generator=draw)
        x = mean + 0.5 * torch.randn(1, 5, generator=draw)
        yield x, math.sqrt(0.1) * torch.randn(1, 1, generator=draw)
