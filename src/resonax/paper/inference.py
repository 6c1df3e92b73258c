r"""Intervals for claims: few runs, many cells, and a stated chance of being wrong.

Every interval here has an ``error``: the most that the chance may be of its lower end lying above
the true value, and the same for its upper end. Several statements are made at once by sharing the
error out among them (Bonferroni), which is right however they depend on each other: cells along the
first axis of a sweep share their random numbers, the runs of a cell are independent.

The largest of many true values needs a correction at one end only. Its lower end is the largest of
all lower ends, any of which may be too high: each gets ``error / count``. Its upper end is the
largest of all upper ends, and already that of the place where the largest value is, at its own
error, lies above it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import comb
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from resonax.core.intervals import half_width
from resonax.core.intervals import mean_interval as student_interval

__all__ = [
    "SIGNIFICANCE",
    "Estimate",
    "agreement",
    "argmax_interval",
    "count_bands",
    "count_peaks",
    "jackknife",
    "known_sides",
    "largest_mean",
    "largest_shift",
    "mean_interval",
    "ordered_share",
    "shift_interval",
]

SIGNIFICANCE = 0.01  # of a claim, shared out among the cases that decide
_CELL = 1e-4  # error of the sign of a single cell of a map


class Estimate(NamedTuple):
    """An estimate and the two ends of its interval; infinite where the data do not bound it."""

    value: float
    low: float
    high: float

    def exp(self) -> Estimate:
        """Return the same of the exponential."""
        with np.errstate(over="ignore"):
            return Estimate(*(float(np.exp(number)) for number in self))

    @property
    def interval(self) -> tuple[float, float]:
        """Both ends."""
        return self.low, self.high


def mean_interval(samples: ArrayLike, error: float) -> Estimate:
    """Return the mean of independent runs with Student's interval.

    Examples
    --------
    >>> [round(end, 3) for end in mean_interval([1.0, 2.0, 3.0], 0.05).interval]
    [0.314, 3.686]
    """
    mean, half = student_interval(np.asarray(samples, float), error)
    return Estimate(float(mean), float(mean - half), float(mean + half))


def largest_mean(samples: ArrayLike, error: float) -> Estimate:
    """Return the largest of many means, (cells, runs), with its interval."""
    samples = np.asarray(samples, float)
    means, narrow = student_interval(samples, error)
    wide = student_interval(samples, error / len(samples))[1]
    return Estimate(float(means.max()), float(np.max(means - wide)), float(np.max(means + narrow)))


def jackknife(
    statistic: Callable[[np.ndarray], float], samples: np.ndarray, error: float
) -> Estimate:
    r"""Return a statistic of all runs together, such as one of a mean over runs, with its interval.

    Its variance is that of leaving out one run i after another,
    :math:`\frac{n-1}n\sum_i(s_{-i}-\bar s)^2`, whose expectation is not below the variance of the
    statistic of :math:`n-1` runs (Efron and Stein, 1981); the interval is Student's.

    Parameters
    ----------
    statistic
        From samples to a number.
    samples
        Independent runs along the last axis.
    error
        Chance that either end is wrong.

    Examples
    --------
    >>> [round(end, 3) for end in jackknife(np.mean, np.array([1.0, 2.0, 3.0]), 0.05).interval]
    [0.314, 3.686]
    """
    value, count = float(statistic(samples)), samples.shape[-1]
    if count < 2:
        return Estimate(value, -np.inf, np.inf)
    others = [statistic(np.delete(samples, run, axis=-1)) for run in range(count)]
    deviation = (count - 1) * np.std(others, ddof=1)  # that of the mean, if this is one
    half = float(half_width(deviation, count, error))
    return Estimate(value, value - half, value + half)


@functools.cache
def _rank_sum_tail(first: int, second: int) -> np.ndarray:
    r"""Return P(U <= u) of the rank-sum statistic for u = 0, 1, ..., if nothing differs.

    The number of ways to get each U is a coefficient of the Gaussian binomial,
    :math:`\prod_{i=1}^{n} (1-q^{m+i}) / (1-q^i)`.
    """
    size = first * second + 1
    ways = np.zeros(size, dtype=object)
    ways[0] = 1
    for i in range(1, first + 1):
        for place in range(size - 1, second + i - 1, -1):  # times 1 - q^(second + i)
            ways[place] -= ways[place - second - i]
        for place in range(i, size):  # over 1 - q^i
            ways[place] += ways[place - i]
    return (np.cumsum(ways) / comb(first + second, first)).astype(float)


def shift_interval(samples: ArrayLike, reference: ArrayLike, error: float) -> np.ndarray:
    """Return by how much samples lie above a reference, (3, ...): value, lower and upper end.

    The estimate is that of Hodges and Lehmann, the median of all differences. The interval inverts
    the exact rank-sum test, so that it is right for any distribution of the runs; with too few of
    them it is infinite.

    Parameters
    ----------
    samples
        Independent runs along the last axis.
    reference
        Independent runs of what they are compared with.
    error
        Chance that either end is wrong.

    Examples
    --------
    >>> shift_interval([5.0, 6.0, 7.0], [1.0, 2.0, 3.0], 0.05).tolist()
    [4.0, 2.0, 6.0]
    """
    samples, reference = np.asarray(samples, float), np.asarray(reference, float)
    differences = samples[..., :, None] - reference
    ordered = np.sort(differences.reshape(*samples.shape[:-1], -1), axis=-1)
    # Of the ordered differences, the k-th is above the truth with the chance of U <= k - 1.
    tail = _rank_sum_tail(samples.shape[-1], len(reference))
    cut = int(np.searchsorted(tail, error * (1 + 1e-12), side="right"))
    unknown = np.full(ordered.shape[:-1], np.inf)
    low, high = (ordered[..., cut - 1], ordered[..., -cut]) if cut else (-unknown, unknown)
    return np.array([np.median(ordered, axis=-1), low, high])


def largest_shift(samples: ArrayLike, reference: ArrayLike, error: float) -> Estimate:
    """Return the largest of many shifts, (cells, runs) against one reference, with its interval."""
    samples = np.asarray(samples, float)
    value, _, high = shift_interval(samples, reference, error)
    low = shift_interval(samples, reference, error / len(samples))[1]
    return Estimate(float(value.max()), float(low.max()), float(high.max()))


def known_sides(samples: ArrayLike, threshold: float, error: float) -> np.ndarray:
    """Return on which side of a threshold each true mean is, (cells, runs): 1, -1, 0 for unknown.

    The chance that any of them is wrong is at most ``error``.
    """
    samples = np.asarray(samples, float)
    means, half = student_interval(samples, error / len(samples))
    return np.sign(means - threshold) * (np.abs(means - threshold) > half)


def count_bands(signs: ArrayLike) -> tuple[int, int]:
    """Return the least and the largest number of bands of 1 that a row of 1, -1 and 0 allows.

    A 0 may be either. What is made of zeros alone, a band or a gap between bands, has at least two
    of them: one narrower than that is not resolved.

    Examples
    --------
    >>> count_bands([-1, 0, 1, 0, -1, 0, -1]), count_bands([0, 0, 0, 0, 0, 0])
    ((1, 1), (0, 2))
    """
    # Of a segment: whether it is a band, and whether it may end (it has a sign, or two zeros).
    found: dict[tuple[bool, bool], tuple[int, int]] = {(False, True): (0, 0)}
    for sign in np.asarray(signs):
        ahead: dict[tuple[bool, bool], list[tuple[int, int]]] = {}
        for (band, ends), counts in found.items():
            for inside in (False, True):
                if sign * (1 if inside else -1) < 0:
                    continue
                if inside == band:
                    ahead.setdefault((band, True), []).append(counts)
                elif ends:
                    new = (counts[0] + inside, counts[1] + inside)
                    ahead.setdefault((inside, bool(sign)), []).append(new)
        found = {
            state: (min(low for low, _ in each), max(high for _, high in each))
            for state, each in ahead.items()
        }
    last = [counts for (band, ends), counts in found.items() if ends or not band]
    return min(low for low, _ in last), max(high for _, high in last)


def count_peaks(curve: ArrayLike, rise: float) -> int:
    """Return how many peaks of a curve rise by at least so much above the valleys beside them.

    Examples
    --------
    >>> count_peaks([0.0, 3.0, 1.0, 2.0, 1.9, 2.0, 0.0], 0.5)
    2
    """
    count, is_rising, extreme = 0, False, np.inf  # the lowest since a peak, or the highest of one
    for height in np.asarray(curve, float):
        extreme = max(extreme, height) if is_rising else min(extreme, height)
        if abs(height - extreme) >= rise:
            count, is_rising, extreme = count + is_rising, not is_rising, height
    return count


def argmax_interval(values: ArrayLike, samples: ArrayLike, error: float) -> Estimate:
    """Return where along increasing ``values`` the mean is largest, (cells, runs), with interval.

    It may be wherever the upper end reaches the largest of all lower ends.
    """
    values, samples = np.asarray(values, float), np.asarray(samples, float)
    means, half = student_interval(samples, error / len(samples))
    possible = values[means + half >= np.max(means - half)]
    return Estimate(float(values[means.argmax()]), float(possible[0]), float(possible[-1]))


def ordered_share(samples: ArrayLike, error: float, counts: np.ndarray | None = None) -> Estimate:
    """Return the share of pairs of groups whose means rise, (groups, runs), with its interval.

    This is Kendall's rank correlation, put on a scale from 0 to 1. The runs of different groups
    are paired: those of one number share their random numbers or are independent. A pair is known
    when Student's interval of the mean difference excludes 0, all pairs at once; the lower end
    counts those known to rise, the upper end all but those known to fall.

    Parameters
    ----------
    samples
        Runs along the last axis, groups in increasing order.
    error
        Chance that either end is wrong.
    counts
        Which groups count: of a pair at least one must. All unless given.

    Examples
    --------
    >>> ordered_share([[0.0, 0.1], [1.0, 1.1], [0.5, 0.6]], 0.01).value
    0.6666666666666666
    """
    samples = np.asarray(samples, float)
    first, second = np.triu_indices(len(samples), 1)
    if counts is not None:
        used = counts[first] | counts[second]
        first, second = first[used], second[used]
    if not len(first):
        return Estimate(np.nan, 0.0, 1.0)
    means, half = student_interval(samples[second] - samples[first], error / len(first))
    return Estimate(
        float(np.mean(means > 0)), float(np.mean(means > half)), float(1 - np.mean(-means > half))
    )


class Agreement(NamedTuple):
    """How far the signs of simulated and theoretical rates agree where both are known."""

    share: Estimate
    decided: int  # cells whose sign is known on both sides
    cells: int  # cells whose sign is known in theory


def agreement(samples: np.ndarray, theory: np.ndarray, error: float) -> Agreement:
    r"""Compare the signs of mean rates with those of a theory.

    A cell counts when Student's interval of its mean rate, at an error of 1e-4, excludes 0. That
    leaves F wrong signs among the cells in which theory and truth agree. For one cell with the
    noncentral t of its runs, :math:`P(t < -q) \le 2\lambda\, P(t < 0)` with :math:`\lambda` the
    error of the cell, as the ratio is largest where the true rate is 0; so that :math:`E[F] \le
    2\lambda\, E[M]` with M the cells whose estimate has the wrong sign, whatever the dependence
    between cells. By Markov's inequality F exceeds :math:`2\lambda M/\text{error}` with a chance of
    about the error, which is the half width of the interval of the share.

    Parameters
    ----------
    samples
        Simulated rates, (cells, runs).
    theory
        Sign of the theoretical rate of each cell; 0 where it is not known.
    error
        Chance that either end is wrong.
    """
    known = theory != 0
    samples, theory = samples[known], theory[known]
    means, half = student_interval(samples, _CELL)
    decided = np.abs(means) > half
    count = int(decided.sum())
    if not count:
        return Agreement(Estimate(np.nan, 0.0, 1.0), 0, len(theory))
    share = float(np.mean(np.sign(means[decided]) == theory[decided]))
    margin = 2 * _CELL * float(np.sum(np.sign(means) != theory)) / (error * count)
    ends = max(share - margin, 0.0), min(share + margin, 1.0)
    return Agreement(Estimate(share, *ends), count, len(theory))
