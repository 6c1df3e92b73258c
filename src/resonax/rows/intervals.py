"""Results of a pass over rows: growth, its largest rise, and the growth rate with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from resonax.core.intervals import batch_means, tail_of

__all__ = [
    "BURST",
    "MAX_ROWS",
    "MIN_STEPS",
    "SEGMENTS",
    "TRANSIENT",
    "Pass",
    "Rates",
    "collect_pass",
    "concatenate",
    "measure",
]

MAX_ROWS = 2**25  # of all epochs together; more would take many hours
MIN_STEPS = 64  # fewer cannot be cut into eight meaningful parts
# The norm of a product of n matrices is e^(rate n) times a bounded factor, which depends on the
# direction of the start and on the phase at the end. So n steps determine the rate up to this / n.
TRANSIENT = math.log(1000.0)
# A difference that grows so many times within some stretch is not said to converge: a learner is
# driven by the noise of its targets as well, which such a stretch would amplify.
BURST = 30.0
_PARTS = (8, 16, 32)
SEGMENTS = 512  # parts of a pass whose growth is kept
_RECORDS = 2**16  # at most so many losses and norms are kept of a pass


@dataclass(frozen=True)
class Pass:
    """Results of one pass of several runs, each a cell of a grid or a sequence of rows."""

    growth: np.ndarray  # (segments, runs): logarithmic growth
    rise: np.ndarray  # (runs,): largest logarithmic growth between any two steps
    lengths: np.ndarray  # (segments,) in steps
    log_loss: np.ndarray | None = None  # (records, runs): mean squared residual, or logistic loss
    log_norm: np.ndarray | None = None  # (records, runs): norm of the weights

    def first(self, count: int) -> Pass:
        """Return the first ``count`` runs alone."""
        log_loss, log_norm = (
            None if part is None else part[:, :count] for part in (self.log_loss, self.log_norm)
        )
        return Pass(self.growth[:, :count], self.rise[:count], self.lengths, log_loss, log_norm)

    @property
    def total(self) -> np.ndarray:
        """Logarithm of the growth of the whole pass."""
        return self.growth.sum(axis=0)


class _GrowthSums:
    """Growth of several runs, added up chunk by chunk; ``growth`` and ``rise`` are as in `Pass`."""

    def __init__(self, segments: int, runs: int) -> None:
        self.growth = np.zeros((segments, runs))
        self.rise = np.zeros(runs)
        self._total = np.zeros(runs)  # logarithmic growth so far
        self._lowest = np.zeros(runs)  # smallest total so far

    def add(self, segment: np.ndarray, logs: np.ndarray) -> None:
        """Add logarithmic growth, (steps, runs), each step to its segment."""
        starts = np.flatnonzero(np.diff(segment, prepend=-1))
        self.growth[segment[starts]] += np.add.reduceat(logs, starts, axis=0)
        path = self._total + np.cumsum(logs, axis=0)
        lowest = np.minimum(np.minimum.accumulate(path, axis=0), self._lowest)
        self.rise = np.maximum(self.rise, np.max(path - lowest, axis=0))
        self._total, self._lowest = path[-1], lowest[-1]


def collect_pass(
    chunks: Iterable[Sequence[np.ndarray]],
    steps: int,
    runs: int,
    advance: Callable[[int], None] | None = None,
) -> Pass:
    """Return the results of a pass from those of the chunks of its steps.

    Parameters
    ----------
    chunks
        Logarithms of the growth in each step, (steps, runs); if learners are trained, also those of
        their losses and of the norms of their weights.
    steps
        Steps of the whole pass.
    runs
        How many runs are kept; the others are repetitions.
    advance
        Called with the number of steps made.
    """
    segment = np.arange(steps) // math.ceil(steps / SEGMENTS)  # of each step
    sums = _GrowthSums(segment[-1] + 1, runs)
    steps_per_record = 2 ** max(0, math.ceil(math.log2(steps / _RECORDS)))
    log_losses: list[np.ndarray] = []
    log_norms: list[np.ndarray] = []
    done = 0
    for chunk in chunks:
        growth, *recorded = (part[:, :runs] for part in chunk)
        count = len(growth)
        sums.add(segment[done : done + count], growth)
        if recorded:
            log_loss, log_norm = recorded
            starts = np.arange(0, count, steps_per_record)
            ends = np.append(starts[1:], count)
            total = np.logaddexp.reduceat(log_loss, starts, axis=0)
            log_losses.append(total - np.log((ends - starts)[:, None]))
            log_norms.append(log_norm[ends - 1])
        done += count
        if advance:
            advance(count)
    lengths = np.bincount(segment).astype(float)
    if not log_losses:
        return Pass(sums.growth, sums.rise, lengths)
    return Pass(
        sums.growth, sums.rise, lengths, np.concatenate(log_losses), np.concatenate(log_norms)
    )


@dataclass(frozen=True)
class Rates:
    """Growth rates per step with intervals, one entry for each run of a pass."""

    rate: np.ndarray
    low: np.ndarray
    high: np.ndarray
    total: np.ndarray  # logarithmic growth over all steps
    rise: np.ndarray  # largest logarithmic growth between any two steps
    later: np.ndarray  # upper end of the growth of as many steps at the rate after the first eighth

    def __getitem__(self, index: Any) -> Rates:
        """Return some of the entries."""
        return Rates(*(getattr(self, item.name)[index] for item in fields(self)))

    @property
    def verdicts(self) -> np.ndarray:
        """The verdict of each entry."""
        falls = np.where(self.high < 0, "converges", "undecided")
        return np.where(self.low > 0, "diverges", falls)


def measure(result: Pass, confidence: float = 0.95, epochs: int = 1) -> Rates:
    """Return the growth rates of a pass with confidence intervals.

    The intervals are those of `resonax.core.intervals.batch_means`: a slow change, such as that of
    the seasons, belongs to this recording and does not count as random. Several ``epochs`` of the
    same rows hold no more information about randomness than one, so that the interval does not
    shrink. `TRANSIENT` over the number of steps is added on both sides. If a difference grows more
    than `BURST` fold within some stretch, the interval reaches above 0.
    """
    steps = result.lengths.sum()
    rate, half = batch_means(result.growth, result.lengths, tail_of(confidence), _PARTS)
    half = half * math.sqrt(epochs) + TRANSIENT / steps
    # A difference often falls fast at first: the rate after the first eighth is that of later rows.
    start = len(result.growth) // _PARTS[0]
    later_rate, later_half = batch_means(
        result.growth[start:], result.lengths[start:], tail_of(confidence), _PARTS
    )
    later = (later_rate + later_half * math.sqrt(epochs)) * steps
    rise = result.rise
    burst = np.where(rise > math.log(BURST), (rise - math.log(BURST)) / steps, -np.inf)
    high = np.maximum(rate + half, burst)
    return Rates(rate, rate - half, high, rate * steps, rise, later)


def concatenate(parts: Sequence[Rates]) -> Rates:
    """Return the entries of several results, one after the other."""
    columns = (
        np.concatenate([getattr(part, item.name) for part in parts]) for item in fields(Rates)
    )
    return Rates(*columns)
