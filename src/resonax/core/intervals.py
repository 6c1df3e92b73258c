r"""Student's interval of a mean: of independent samples, of batch means, and in compiled code.

All take ``tail``, the chance that one end of the interval is wrong: 0.025 for a 95% interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy  # its parts are loaded where they are used

__all__ = [
    "approximate_quantile",
    "batch_means",
    "half_width",
    "mean_interval",
    "student_quantile",
    "tail_of",
]


def tail_of(confidence: float) -> float:
    """Return the chance that one end of a two-sided interval is wrong."""
    return (1 - confidence) / 2


def student_quantile(freedom: Any, tail: float) -> Any:
    """Return the quantile of Student's distribution that is exceeded with a chance.

    Examples
    --------
    >>> print(f"{student_quantile(15, 0.025):.4f}")
    2.1314
    """
    return -scipy.special.stdtrit(freedom, tail)  # a small chance loses no digits in the lower tail


def half_width(deviation: Any, count: Any, tail: float) -> Any:
    r"""Return :math:`t_{n-1,\,1-\text{tail}}\, s/\sqrt n` of a standard deviation of n samples.

    Examples
    --------
    >>> print(f"{half_width(1.0, 16, 0.025):.4f}")  # 2.1314 / 4
    0.5329
    """
    return deviation / np.sqrt(count) * student_quantile(count - 1, tail)


def mean_interval(samples: np.ndarray, tail: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the means of independent samples over the last axis, and half their intervals.

    One sample has no spread: its interval is infinite.
    """
    count, means = samples.shape[-1], samples.mean(axis=-1)
    if count < 2:
        return means, np.full(means.shape, np.inf)
    return means, half_width(samples.std(axis=-1, ddof=1), count, tail)


def batch_means(
    sums: np.ndarray,
    lengths: np.ndarray,
    tail: float,
    parts: Sequence[int] = (8, 16, 32),
    *,
    neighbours: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return the mean of each of some correlated series, and half its interval.

    The series is cut into equal parts, whose means are nearly independent where they are longer
    than the memory of the series; the widest of the intervals with each number of ``parts`` counts.
    The variance is that of the k parts, with :math:`k-1` degrees of freedom, or is taken from the
    differences :math:`d_i` of ``neighbours`` (von Neumann, 1941), :math:`\sum d_i^2 / 2(k-1)`, so
    that a slow change of the series does not count as chance. As differences share their parts,
    these have about :math:`2(k-1)/3` degrees of freedom.

    Parameters
    ----------
    sums
        (segments, series) the series, summed over each segment.
    lengths
        (segments,) steps of each segment.
    tail
        Chance that one end is wrong.
    parts
        Numbers of parts; those with more parts than there are segments are left out.
    neighbours
        Whether the variance comes from the differences of neighbours.

    Examples
    --------
    >>> series = np.random.default_rng(0).normal(3.0, 1.0, size=(1000, 1))
    >>> mean, half = batch_means(series, np.ones(1000), 0.025)
    >>> bool(abs(mean[0] - 3) < half[0] < 0.2)
    True
    """
    steps = lengths.sum()
    mean = sums.sum(axis=0) / steps
    half = np.zeros_like(mean)
    for count in parts:
        if len(sums) < count:
            break
        edges = np.linspace(0, len(sums), count + 1).astype(int)[:-1]
        weight = np.add.reduceat(lengths, edges) / steps * count
        each = np.add.reduceat(sums, edges, axis=0) / steps * count
        # Parts of unequal length: what counts is how far each is from its share of the whole.
        spread, freedom = each - weight[:, None] * mean, float(count - 1)
        if neighbours:
            spread, freedom = np.diff(spread, axis=0) / np.sqrt(2), 2 * freedom / 3
        error = np.sqrt((spread**2).sum(axis=0) / (count - 1) / count)
        half = np.maximum(half, error * student_quantile(freedom, tail))
    return mean, half


def approximate_quantile(normal: float, freedom: Any) -> Any:
    """Return Student's quantile from the normal one (Fisher and Cornish), of numpy or jax arrays.

    Examples
    --------
    >>> print(f"{approximate_quantile(1.645, 15.0):.3f}")  # 1.753 exactly
    1.753
    """
    second = (5 * normal**5 + 16 * normal**3 + 3 * normal) / 96
    return normal + (normal**3 + normal) / 4 / freedom + second / freedom**2
