"""From the growth of a pass to a rate with a confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from resonax.core.intervals import batch_means, tail_of
from resonax.rows.growth import Pass

__all__ = ["BURST", "LEAST_STEPS", "MOST_ROWS", "TRANSIENT", "Measured", "joined", "measure"]

MOST_ROWS = 2**25  # of all epochs, above which a check would take many hours
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
    def verdicts(self) -> np.ndarray:
        """The verdict of each entry."""
        falls = np.where(self.high < 0, "converges", "undecided")
        return np.where(self.low > 0, "diverges", falls)


def measure(found: Pass, level: float = 0.95, epochs: int = 1) -> Measured:
    """Return the rates of a pass.

    The interval is that of `resonax.core.intervals.batch_means`: a slow change, such as that of the
    seasons, belongs to this recording and does not count as chance. Over several ``epochs`` the
    same rows come again, and tell no more of chance than one. `TRANSIENT` over the number of steps
    is added on both sides. Where some stretch lets an error grow more than `BURST` fold, no
    recording is said to converge: the interval reaches above 0.
    """
    steps = found.lengths.sum()
    rate, half = batch_means(found.growth, found.lengths, tail_of(level), _PARTS)
    half = half * math.sqrt(epochs) + TRANSIENT / steps
    # An error falls fast at first and then slowly, which is no chance.
    start = len(found.growth) // _PARTS[0]
    after, wide = batch_means(found.growth[start:], found.lengths[start:], tail_of(level), _PARTS)
    later = (after + wide * math.sqrt(epochs)) * steps
    rise = found.rise
    burst = np.where(rise > math.log(BURST), (rise - math.log(BURST)) / steps, -np.inf)
    high = np.maximum(rate + half, burst)
    return Measured(rate, rate - half, high, rate * steps, rise, later)


def joined(parts: Sequence[Measured]) -> Measured:
    """Return the entries of several, one after the other."""
    columns = (
        np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(Measured)
    )
    return Measured(*columns)
