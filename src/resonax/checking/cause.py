"""The cause of divergence: whether it is the order of the rows, and which period of the data."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.checking.rhythms import find_peaks
from resonax.core.intervals import mean_interval, student_quantile, tail_of
from resonax.rows.intervals import Pass
from resonax.rows.subject import Advance, Subject
from resonax.rows.surrogates import (
    phase_randomised,
    shuffled,
    stretched,
    without_rhythm,
    without_size_rhythm,
)

__all__ = ["Bands", "Rhythm", "Shuffles", "find_rhythm", "shuffle", "strongest_stretch"]

SHUFFLES = 15  # with the rows' own order as many as are measured together
_SIGNIFICANCE = 0.01  # significance of the test that the order matters
STRETCHES = np.geomspace(0.5, 2.0, 16)
_RANDOM_PHASES = 8  # surrogates
_RANDOM_ORDERS = 7
_MAX_PASSES = 8  # over short recordings, and no more than make so many steps
_MIN_STEPS = 2**13
_STRETCH_STEPS = 2**15  # in which the cause is looked for
_MIN_PERIODS = 6  # that a recording must hold of a rhythm
_BAND = 1.15  # a band reaches from its centre over this factor, and its neighbour is at its edge
_OUTLIER = 5.0  # deviations by which a band must stand out of the others
_HALF_WIDTH = 0.04  # half the width of the band that is taken out for a peak, at least four bins
_MAX_CANDIDATES = 2  # peaks of each kind that are taken out on their own
_DRAWS_OF_EACH = 4  # random ways in which a peak is taken out
_SHARE_OF_EXCESS = 0.75  # of what the order adds must go with a rhythm, if some growth is left

_WITHOUT = {"values": without_rhythm, "size": without_size_rhythm}


@dataclass(frozen=True)
class Shuffles:
    """Rates of the same rows in random order."""

    rates: np.ndarray
    rate: float
    low: float
    high: float
    rises: np.ndarray  # the largest growth between two moments in each of them, as a logarithm
    above: bool  # whether the rows' own order lies above most of them
    order_matters: bool  # and whether it is outside what random orders do

    @property
    def log_rise(self) -> float:
        """The largest growth between two moments in any of them."""
        return float(self.rises.max())

    def is_unusual_rise(self, log_rise: float) -> bool:
        """Whether a growth is outside what random orders do between two moments."""
        return log_rise > float(self.rises.mean()) + _beyond(self.rises)


@dataclass(frozen=True)
class Bands:
    """Rates without the rhythms of each band of periods, in steps."""

    center: np.ndarray
    values: np.ndarray  # the band taken out of the values of the columns
    size: np.ndarray  # out of the length of the rows


@dataclass(frozen=True)
class Rhythm:
    """The period that is responsible, and what was tried to find it."""

    period: float | None  # in steps; None if no single one is
    kind: str | None  # "values" or "size": what has the rhythm
    without: float | None  # rate without it
    bands: Bands
    randomised: np.ndarray  # rates with random phases
    stretched: np.ndarray  # rates when stretched by STRETCHES
    rate: float  # with it, in these rows
    rows: tuple[int, int]  # where it was looked for


def strongest_stretch(subject: Subject, found: Pass) -> tuple[int, int]:
    """Return the rows, first and last, where the growth is strongest; all of a short recording."""
    rows = len(subject.recording.inputs)
    length = _STRETCH_STEPS * subject.batch
    if rows <= length:
        return 0, rows
    ends = np.concatenate([[0.0], np.cumsum(found.lengths)])
    size = np.concatenate([[0.0], np.cumsum(found.growth[:, -1])])
    starts = np.arange(0, rows - length + 1, max(1, length // 16))
    gain = np.interp((starts + length) / subject.batch, ends, size) - np.interp(
        starts / subject.batch, ends, size
    )
    first = int(starts[np.argmax(gain)])
    return first, first + length


def shuffle(subject: Subject, advance: Advance | None = None) -> Shuffles:
    """Measure the same rows in random orders, and in their own, one pass each.

    Long recordings are sampled: each random order has as many rows as the cause is looked for in,
    and is compared with the whole in its own order. If the rows are exchangeable, their own order
    is one more random one: it lies above the others' prediction interval with probability
    `_SIGNIFICANCE`.
    """
    rng = np.random.default_rng([subject.seed, 1])
    most = _STRETCH_STEPS * subject.batch
    once = replace(subject, epochs=1)
    orders = [shuffled(once.rows, 1, rng)[:most] for _ in range(SHUFFLES)]
    found = once.measure_orders([*orders, np.arange(once.rows)[:most]], advance)
    own = found.rate[-1] if once.rows <= most else once.measure(advance).rate[0]
    rates, others = found.rate[:-1], found[:-1]
    rate, spread = float(rates.mean()), float(rates.std(ddof=1))
    # Each order has its own interval; their widths and the spread between them both count.
    error = spread / math.sqrt(SHUFFLES)
    half = error * float(student_quantile(SHUFFLES - 1, tail_of(subject.confidence)))
    half += float(np.mean(others.high - others.low)) / 2 / math.sqrt(SHUFFLES)
    return Shuffles(
        rates,
        rate,
        rate - half,
        rate + half,
        others.rise,
        above=float(own) > rate + spread,
        order_matters=bool(own > rate + _beyond(rates)),
    )


def _beyond(draws: np.ndarray) -> float:
    """Return by how much one more draw lies above their mean with the chance `_SIGNIFICANCE`."""
    # It differs from the mean of n by the spread times sqrt(1 + 1/n).
    spread = float(draws.std(ddof=1)) * math.sqrt(1 + 1 / len(draws))
    return spread * student_quantile(len(draws) - 1, _SIGNIFICANCE)


def stretch_of(subject: Subject, rows: tuple[int, int]) -> Subject:
    """Return the subject on a part of its recording, trained on once."""
    return replace(subject, recording=subject.recording.part(*rows), epochs=1)


def find_rhythm(
    subject: Subject,
    rows: tuple[int, int],
    advance: Advance | None = None,
) -> Rhythm:
    """Find the rhythm that is responsible: without it the growth ends.

    A rhythm is named only if the spectrum has a peak there, if the growth falls without the band
    around it by far more than without others, and if it ends when exactly this peak is taken out.
    """
    part = stretch_of(subject, rows)
    batch = part.batch
    inputs = part.recording.inputs[: part.steps * batch]
    # Rows that are few are followed for several passes, so that the start hardly counts.
    passes = max(1, min(_MAX_PASSES, _MIN_STEPS // part.steps))

    def rng(number: int) -> np.random.Generator:
        return np.random.default_rng([subject.seed, 2, number])

    def measured(variants: list[Callable[[], np.ndarray]]) -> np.ndarray:
        repeated = [lambda make=make: np.tile(make(), (passes, 1)) for make in variants]
        return part.measure_rows(repeated, advance).rate

    def banded(kind: str) -> np.ndarray:
        take = _WITHOUT[kind]
        edges = enumerate((center * batch / _BAND, center * batch * _BAND) for center in centers)
        return measured(
            [functools.partial(take, inputs, low, high, rng(i)) for i, (low, high) in edges]
        )

    def mixed(number: int) -> np.ndarray:
        return np.asarray(inputs)[rng(number).permutation(len(inputs))]

    centers = _centers(part.steps)
    bands = Bands(centers, banded("values"), banded("size"))
    rates = measured(
        [
            *[functools.partial(phase_randomised, inputs, rng(i)) for i in range(_RANDOM_PHASES)],
            *[functools.partial(mixed, 2000 + i) for i in range(_RANDOM_ORDERS)],
            lambda: np.asarray(inputs),
        ]
    )
    randomised, random, own = rates[:_RANDOM_PHASES], rates[_RANDOM_PHASES:-1], float(rates[-1])
    orders = [np.tile(stretched(len(inputs), factor), passes) for factor in STRETCHES]
    slow = part.measure_orders(orders, advance).rate
    rest = {"bands": bands, "randomised": randomised, "stretched": slow, "rate": own, "rows": rows}
    excess = own - float(random.mean())
    found = _candidates(part, bands, own, excess)
    if own <= 0 or not found:
        return Rhythm(None, None, None, **rest)
    # Exactly what would be named is taken out, each in several random ways.
    variants = []
    for kind, period in found:
        wide = 1 + min(max(_HALF_WIDTH, 4 * period / len(inputs)), _BAND - 1)
        edges = period / wide, period * wide
        variants += [
            functools.partial(_WITHOUT[kind], inputs, *edges, rng(1000 + draw), period)
            for draw in range(_DRAWS_OF_EACH)
        ]
    without = measured(variants).reshape(-1, _DRAWS_OF_EACH)
    # The growth ends, one-sided, or all that is left of it is that of random orders.
    means, half = mean_interval(without, 1 - subject.confidence)
    above = float(sum(mean_interval(random, 1 - subject.confidence)))
    gone = means + half < 0
    gone |= (own - means > _SHARE_OF_EXCESS * excess) & (means < max(0.0, above))
    ends = [(rate, *name) for rate, name, end in zip(means, found, gone, strict=True) if end]
    # A rhythm of the values is one of their size as well.
    ends = [end for end in ends if end[1] == "values"] or ends
    if not ends:
        return Rhythm(None, None, None, **rest)
    rate, kind, period = min(ends)
    return Rhythm(period / batch, kind, float(rate), **rest)


def _candidates(part: Subject, bands: Bands, own: float, excess: float) -> list[tuple[str, float]]:
    """Return the rhythms that may be responsible, as kind and period in rows, most likely first.

    There must be a peak in the spectrum, and the growth must fall without the band around it by far
    more than without the other bands: the best of many bands always takes some growth with it.
    Their median and median deviation are the null, and `_OUTLIER` deviations the limit.
    """
    inputs, batch = part.recording.inputs.astype(float), part.batch
    limits = bands.center[0] * batch, bands.center[-1] * batch
    energy = np.sum(inputs**2, axis=1, keepdims=True)
    peaks = {"values": find_peaks(inputs, *limits), "size": find_peaks(energy, *limits)}
    # Values that swing have a size that swings twice as fast: that is no rhythm of its own.
    own_periods = np.array([peak.period for peak in peaks["values"]])
    peaks["size"] = [
        peak
        for peak in peaks["size"]
        if not np.any(np.abs(np.log(2 * peak.period / own_periods)) < _HALF_WIDTH)
    ]
    found = []
    for kind, rates in (("values", bands.values), ("size", bands.size)):
        middle = float(np.median(rates))
        spread = max(1.4826 * float(np.median(np.abs(rates - middle))), 0.01 * excess)
        for peak in peaks[kind]:
            near = np.abs(np.log(bands.center * batch / peak.period)) < math.log(_BAND)
            lowest = float(rates[near].min()) if near.any() else own
            if lowest < middle - _OUTLIER * spread:
                found.append((lowest, -peak.power, kind, peak.period))
    values = sorted(item for item in found if item[2] == "values")[:_MAX_CANDIDATES]
    sizes = sorted(item for item in found if item[2] == "size")[:_MAX_CANDIDATES]
    return [(kind, float(period)) for _, _, kind, period in values + sizes]


def _centers(steps: int) -> np.ndarray:
    longest = max(4.0, min(steps / _MIN_PERIODS, 2000.0))
    count = max(2, math.ceil(math.log(longest / 2.2) / math.log(_BAND)) + 1)
    return 2.2 * _BAND ** np.arange(count)


def spectrum(signal: np.ndarray, period: float | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return frequencies, per row, and the power of all columns, normalised to their variance."""
    rows = len(signal)
    wanted = 4096 if period is None else 2 ** math.ceil(math.log2(48 * period))
    length = int(min(rows, max(64, wanted)))
    options: Any = {"nperseg": length, "detrend": "linear"}
    frequency, power = scipy.signal.welch(np.asarray(signal, float).T, **options)
    return frequency[1:], power[:, 1:].sum(axis=0)
