"""What a pass over the rows found: growth, its largest rise, and a rate with an interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from resonax.core.intervals import batch_means, tail_of

__all__ = [
    "BURST",
    "LEAST_STEPS",
    "MOST_ROWS",
    "SEGMENTS",
    "TRANSIENT",
    "Measured",
    "Pass",
    "gather",
    "joined",
    "measure",
]

MOST_ROWS = 2**25  # of all epochs, above which a check would take many hours
LEAST_STEPS = 64  # fewer do not make eight parts that mean anything
# The size of a product of n matrices is e^(rate n) up to a factor that does not grow with n: the
# swing within a period, the angle of the start. A recording tells no more than this over n.
TRANSIENT = math.log(1000.0)
BURST = 30.0  # fold: a learner is also driven by the noise of its targets, which needs room
_PARTS = (8, 16, 32)
SEGMENTS = 512  # of a pass, for which the growth is kept
_RECORDS = 2**16  # of a pass, at most, for which residuals and sizes are kept


@dataclass(frozen=True)
class Pass:
    """What one pass found in each lane: a cell of a grid, or a sequence of rows."""

    growth: np.ndarray  # (segments, lanes): logarithmic growth
    rise: np.ndarray  # (lanes,): the largest between any two moments
    lengths: np.ndarray  # (segments,) in steps
    squares: np.ndarray | None = None  # (records, lanes): log of the mean squared residual
    sizes: np.ndarray | None = None  # (records, lanes): log of the norm of the weights

    def first(self, count: int) -> Pass:
        """Return the first few lanes alone."""
        squares, sizes = (
            None if part is None else part[:, :count] for part in (self.squares, self.sizes)
        )
        return Pass(self.growth[:, :count], self.rise[:count], self.lengths, squares, sizes)

    @property
    def total(self) -> np.ndarray:
        """Logarithm of the growth of the whole pass."""
        return self.growth.sum(axis=0)


class _Tally:
    """The growth of lanes along a pass, added up step by step."""

    def __init__(self, segments: int, lanes: int) -> None:
        self.growth = np.zeros((segments, lanes))
        self.rise, self._reached, self._lowest = (np.zeros(lanes) for _ in range(3))

    def add(self, segment: np.ndarray, logs: np.ndarray) -> None:
        """Add logarithmic growth, (steps, lanes), each step to its segment."""
        starts = np.flatnonzero(np.diff(segment, prepend=-1))
        self.growth[segment[starts]] += np.add.reduceat(logs, starts, axis=0)
        path = self._reached + np.cumsum(logs, axis=0)
        low = np.minimum(np.minimum.accumulate(path, axis=0), self._lowest)
        self.rise = np.maximum(self.rise, np.max(path - low, axis=0))
        self._reached, self._lowest = path[-1], low[-1]


def gather(
    found: Iterable[Sequence[np.ndarray]],
    steps: int,
    lanes: int,
    advance: Callable[[int], None] | None = None,
) -> Pass:
    """Return what a pass found, from what chunks of its steps found.

    Parameters
    ----------
    found
        Of each chunk the logarithms of the growth in each step, (steps, lanes); and where a learner
        is trained, those of its mean squared residual or loss and of the norm of its weights.
    steps
        Of the whole pass.
    lanes
        How many of the lanes count.
    advance
        Called with the number of steps made.
    """
    each = math.ceil(steps / SEGMENTS)
    place = np.arange(steps) // each
    tally, done = _Tally(place[-1] + 1, lanes), 0
    records: list[tuple[np.ndarray, ...]] = []
    kept = 2 ** max(0, math.ceil(math.log2(steps / _RECORDS)))  # steps of a record
    for parts in found:
        logs, *rest = (part[:, :lanes] for part in parts)
        count = len(logs)
        tally.add(place[done : done + count], logs)
        if rest:
            starts = np.arange(0, count, kept)
            lengths = np.diff(np.append(starts, count))[:, None]
            squares = np.logaddexp.reduceat(rest[0], starts, axis=0) - np.log(lengths)
            records.append((squares, rest[1][np.append(starts[1:], count) - 1]))
        done += count
        if advance:
            advance(count)
    lengths = np.bincount(place).astype(float)
    if not records:
        return Pass(tally.growth, tally.rise, lengths)
    squares, sizes = (np.concatenate(column) for column in zip(*records, strict=True))
    return Pass(tally.growth, tally.rise, lengths, squares, sizes)


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
