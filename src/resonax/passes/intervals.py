"""From the growth of a pass to a rate with an interval that is honest about the recording."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from scipy import special

from resonax.passes.growth import Pass

__all__ = ["BURST", "LEAST_STEPS", "TRANSIENT", "Measured", "joined", "measure"]

LEAST_STEPS = 64  # fewer do not make eight parts that mean anything
# The size of a product of n matrices is e^(rate n) up to a factor that does not grow with n: the
# swing within a period, the angle of the start. A recording tells no more than this over n.
TRANSIENT = math.log(1000.0)
BURST = 30.0  # fold: a learner is also driven by the noise of its targets, which needs room
_PARTS = (8, 16, 32)


@dataclass(frozen=True)
class Measured:
    """Rates per step with intervals, one entry for each lane of a pass."""

    rate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: np.ndarray  # logarithmic growth over all steps
    rise: np.ndarray  # the largest between any two moments
    later: np.ndarray  # upper end of the growth over as many steps after the first eighth

    def __getitem__(self, where: Any) -> Measured:
        """Return some of the entries."""
        return Measured(*(getattr(self, item.name)[where] for item in fields(self)))

    @property
    def words(self) -> np.ndarray:
        """The verdict of each entry."""
        falls = np.where(self.high < 0, "converges", "marginal")
        return np.where(self.low > 0, "diverges", falls)


def measure(found: Pass, level: float = 0.95, epochs: int = 1) -> Measured:
    """Return the rates of a pass.

    The interval is Student's over equal parts of the recording, with 8, 16 and 32 of them: parts
    longer than the memory of the data are nearly independent, and the widest of the three counts.
    Their variance is taken from the differences of neighbours (von Neumann, 1941), so that a slow
    change, such as that of the seasons, which belongs to this recording, does not count as chance.
    Over several ``epochs`` the same rows come again, and tell no more of chance than one.
    `TRANSIENT` over the number of steps is added on both sides. Where some stretch lets an error
    grow more than `BURST` fold, no recording is said to converge: the interval reaches above 0.
    """
    steps = found.lengths.sum()
    rate, half = _student(found.growth, found.lengths, level)
    half = half * math.sqrt(epochs) + TRANSIENT / steps
    # An error falls fast at first and then slowly, which is no chance.
    start = len(found.growth) // _PARTS[0]
    after, wide = _student(found.growth[start:], found.lengths[start:], level)
    later = (after + wide * math.sqrt(epochs)) * steps
    rise = found.rise
    burst = np.where(rise > math.log(BURST), (rise - math.log(BURST)) / steps, -np.inf)
    high = np.maximum(rate + half, burst)
    return Measured(rate, rate - half, high, rate * steps, rise, later)


def _student(
    growth: np.ndarray, lengths: np.ndarray, level: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean rate, and half the interval around it."""
    steps = lengths.sum()
    rate = growth.sum(axis=0) / steps
    half = np.zeros_like(rate)
    for parts in _PARTS:
        if len(growth) < parts:
            break
        edges = np.linspace(0, len(growth), parts + 1).astype(int)[:-1]
        weight = np.add.reduceat(lengths, edges) / steps * parts
        each = np.add.reduceat(growth, edges, axis=0) / steps * parts
        # Parts of unequal length: what counts is how far each is from its share of the whole.
        spread = np.diff(each - weight[:, None] * rate, axis=0)
        error = np.sqrt((spread**2).sum(axis=0) / 2 / (parts - 1) / parts)
        freedom = 2 * (parts - 1) / 3  # differences share their parts
        half = np.maximum(half, error * special.stdtrit(freedom, 0.5 + level / 2))
    return rate, half


def joined(parts: Sequence[Measured]) -> Measured:
    """Return the entries of several, one after the other."""
    columns = (
        np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(Measured)
    )
    return Measured(*columns)
