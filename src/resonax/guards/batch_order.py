r"""Does a loader shuffle? The order of its batches, from a few numbers of each.

If batches come in random order they are *exchangeable*: any other order is as likely. So the power
of the numbers of the batches, over frequency,

.. math:: P_j(f) = \Bigl|\sum_{k=1}^{n} z_{kj}\, e^{-2\pi i f k}\Bigr|^2,

is compared with that of the same batches in random orders. Two kinds of features are looked at, of
each principal component alone and of all together: the largest power at any frequency, which a
rhythm raises, and the power below each frequency, which blocks, trends and drift raise. The
largest of them, each in deviations of its logarithm over random orders, is compared with what it is
in random orders (Westfall and Young, 1993), so that the significance holds exactly, whatever the
numbers are. In a loader of several epochs batches are
exchanged within an epoch, as each row comes once in it. A loader that balances its batches is
called random: what is looked for is likeness of what comes near, and rhythm.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from resonax.guards.rhythm import dominant_period

__all__ = [
    "BatchOrder",
    "components",
    "find_order",
    "order_p",
    "parts_of",
    "repeats",
]

_ORDERS = 999  # random orders
_COMPONENTS = 8  # principal components that are looked at
_LEAST = 16  # batches
_PARTS = 8  # parts of an order at most
_FEW = 4  # batches of a part at least
_MOSTLY = 0.3  # share of power at a period of 2 steps, with which batches alternate
_ALTERNATES = 25.0  # power there, in means of all, that noise has in 6 of 10 million columns


@dataclass(frozen=True)
class BatchOrder:
    """What was found of the order of some batches.

    ``order`` is ``random``, ``ordered`` or ``repeated``; ``p`` the probability of so much order in
    random orders; ``period`` the steps after which the batches repeat; ``buffer`` the batches
    within which they look shuffled, 1 if within none; ``repeats`` whether epochs have the same
    order, None if it could not be seen.
    """

    order: str
    p: float
    period: float | None = None
    buffer: int | None = None
    repeats: bool | None = None


def components(sketches: np.ndarray) -> np.ndarray:
    """Return the first principal components of the numbers of batches, each scaled to variance 1.

    Examples
    --------
    >>> found = components(np.random.default_rng(0).normal(size=(50, 20)) * np.arange(20))
    >>> found.shape, bool(np.allclose(found.std(axis=0), 1))
    ((50, 8), True)
    """
    numbers = np.nan_to_num(np.asarray(sketches, float), posinf=0.0, neginf=0.0)
    centred = numbers - numbers.mean(axis=0)
    spread = centred.std(axis=0)
    usable = spread > 1e-9 * np.maximum(np.abs(numbers).max(axis=0), 1e-300)
    if not usable.any():
        return np.zeros((len(numbers), 0))
    scaled = centred[:, usable] / spread[usable]
    left, values, _ = np.linalg.svd(scaled, full_matrices=False)
    kept = left[:, : min(_COMPONENTS, int(np.sum(values > 1e-6 * values[0])))]
    return kept * math.sqrt(len(kept))


def _statistics(series: np.ndarray) -> np.ndarray:
    """Return what order raises, of series (orders, steps, columns): (orders, statistics)."""
    steps = series.shape[1]
    power = np.abs(np.fft.rfft(series, axis=1)[:, 1:]) ** 2 / steps
    power = np.concatenate([power, power.mean(axis=2, keepdims=True)], axis=2)
    cuts = np.unique(np.geomspace(2, max(2, power.shape[1] // 4), 6).astype(int))
    low = np.cumsum(power, axis=1)[:, cuts - 1].reshape(len(series), -1)
    return np.concatenate([power.max(axis=1), low], axis=1)


def order_p(
    series: np.ndarray,
    groups: np.ndarray,
    rng: np.random.Generator,
    orders: int = _ORDERS,
) -> float:
    """Return the probability of so much order if batches came at random within their groups.

    Parameters
    ----------
    series
        (steps, columns) numbers of each batch.
    groups
        (steps,) a number for each; batches are exchanged within those of one number.
    rng
        Draws the orders.
    orders
        How many are compared.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> noise = rng.standard_normal((128, 2))
    >>> order_p(noise, np.zeros(128), rng) > 0.05
    True
    >>> order_p(noise + np.sin(np.arange(128) / 3)[:, None], np.zeros(128), rng)
    0.001
    """
    steps = len(series)
    own, found = _statistics(series[None])[0], []
    block = max(1, 2**21 // series.size)
    for first in range(0, orders, block):
        count = min(block, orders - first)
        drawn = np.argsort(groups + rng.random((count, steps)), axis=1)
        found.append(_statistics(series[drawn]))
    logs = np.log(np.concatenate([own[None], *found]) + 1e-12)
    spread = logs.std(axis=0)
    usable = spread > 1e-9  # what no order changes is no evidence
    if not usable.any():
        return 1.0
    largest = ((logs - logs.mean(axis=0))[:, usable] / spread[usable]).max(axis=1)
    return float(np.mean(largest >= largest[0]))


def repeats(
    marks: Sequence[object], epochs: Sequence[int], significance: float, rng: np.random.Generator
) -> bool | None:
    """Return whether epochs have the same batches in the same order; None if there is only one.

    Parameters
    ----------
    marks
        Of each batch, equal for batches that hold the same.
    epochs
        The epoch of each batch.
    significance
        Probability at most of a false yes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> repeats([1, 2, 3, 4, 5, 6] * 2, [0] * 6 + [1] * 6, 0.01, rng)
    True
    >>> repeats([1, 2, 3, 4, 5, 6, 4, 1, 6, 3, 2, 5], [0] * 6 + [1] * 6, 0.01, rng)
    False
    """
    numbers = np.asarray(epochs)
    first = [one for one, epoch in zip(marks, epochs, strict=True) if epoch == numbers[0]]
    second = [one for one, epoch in zip(marks, epochs, strict=True) if epoch == numbers[0] + 1]
    count = min(len(first), len(second))
    if count < 2:
        return None
    codes = {one: place for place, one in enumerate(dict.fromkeys([*first, *second]))}
    one, two = (np.array([codes[mark] for mark in marks[:count]]) for marks in (first, second))
    share = float(np.mean(one == two))
    if share < 0.5:
        return False
    others = [float(np.mean(rng.permutation(one) == two)) for _ in range(_ORDERS)]
    p = (1 + sum(other >= share for other in others)) / (1 + _ORDERS)
    return p <= significance if count >= 6 else share == 1 and len(set(first)) > 1


def find_order(
    series: np.ndarray,
    *,
    epochs: Sequence[int] | np.ndarray | None = None,
    same: bool | None = None,
    significance: float = 0.01,
    seed: int = 0,
) -> BatchOrder:
    """Return the order of batches, from a few numbers of each.

    Parameters
    ----------
    series
        (steps, numbers) of each batch, see `components`.
    epochs
        The epoch of each batch; all of one if it is left out.
    same
        Whether all epochs have the same order, see `repeats`.
    significance
        Probability at most of calling a random order anything else; half of it is left to
        `repeats`.
    seed
        Of the random orders.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> labels = np.eye(4)[np.arange(160) // 8 % 4] + 0.1 * rng.standard_normal((160, 4))
    >>> found = find_order(components(labels))
    >>> found.order, round(found.period), found.buffer
    ('ordered', 32, 8)
    >>> find_order(components(rng.permutation(labels))).order
    'random'
    """
    rng, steps = np.random.default_rng([seed, 8]), len(series)
    epochs = np.zeros(steps, int) if epochs is None else np.asarray(epochs)
    # Of epochs that are the same the first holds all there is.
    inside = epochs == epochs[0] if same else np.ones(steps, bool)
    seen, groups = series[inside], epochs[inside]
    otherwise = "repeated" if same else "random"
    if len(seen) < _LEAST or not seen.shape[1]:
        return BatchOrder(otherwise, 1.0, repeats=same)
    p = order_p(seen, groups, rng)
    if p > significance / 2:
        return BatchOrder(otherwise, p, repeats=same)
    share = _alternation(seen)
    period = 2.0 if share > _MOSTLY else dominant_period(seen)
    if period is None and share * len(seen) > _ALTERNATES:
        period = 2.0
    if period is None and same and epochs[-1] > epochs[0]:
        period = float(len(seen))
    elif period is not None and period > 2:
        period = _sharpened(seen, period)
    return BatchOrder("ordered", p, period, _buffer(seen, groups, rng), same)


def _sharpened(series: np.ndarray, period: float) -> float:
    """Return the period near one at which batches of equal phase are most alike.

    A line of the spectrum is as wide as one in the number of steps; over many periods that smears
    the phases.
    """
    steps, bins = len(series), int(np.clip(round(period), 2, 32))
    width = period * period / steps / 2
    tried = [period, *np.linspace(period - width, period + width, 41).tolist()]
    tried += [float(one) for one in range(math.ceil(tried[1]), math.floor(tried[-1]) + 1)]

    def likeness(one: float) -> float:
        phases = (np.arange(steps) / one % 1 * bins + 1e-9).astype(int) % bins
        counts = np.maximum(np.bincount(phases, minlength=bins), 1)
        sums = np.stack([np.bincount(phases, column, bins) for column in series.T])
        return float((sums**2 / counts).sum()) * (
            1 + 0.02 * one.is_integer()
        )  # data have whole ones

    return max(tried, key=likeness)


def _alternation(series: np.ndarray) -> float:
    """Return the largest share of power at 2 steps, which `dominant_period` leaves out."""
    signs = np.where(np.arange(len(series)) % 2, 1.0, -1.0)
    return float(((signs @ series / len(series)) ** 2).max(initial=0.0))


def _buffer(series: np.ndarray, groups: np.ndarray, rng: np.random.Generator) -> int:
    """Return the most batches, a power of 2, within which their order looks random."""
    found, size = 1, 2
    while size <= len(series) // 2:
        blocks = groups * len(series) + np.arange(len(series)) // size
        if order_p(series, blocks, rng, orders=199) <= 0.02:
            break
        found, size = size, 2 * size
    return found


def parts_of(
    series: np.ndarray, period: float | None = None, most: int = _PARTS, seed: int = 0
) -> list[list[int]]:
    """Return the places of the batches of each part of an order.

    Parts are those of a period, of equal length; without one, batches that are alike (k-means on
    their principal components, with the number of parts whose addition lowers the variance within
    parts by the largest factor).

    Examples
    --------
    >>> parts_of(np.zeros((8, 1)), period=2.0, most=2)
    [[0, 2, 4, 6], [1, 3, 5, 7]]
    >>> blocks = np.repeat([[0.0], [5.0], [0.0], [5.0]], [9, 5, 3, 7], axis=0)
    >>> [len(part) for part in parts_of(blocks + 0.1 * np.sin(np.arange(24))[:, None])]
    [12, 12]
    """
    steps = len(series)
    if period is not None:
        count = max(2, min(most, round(period), steps // _FEW))
        numbers = (np.arange(steps) / period % 1 * count + 1e-9).astype(int) % count
    else:
        numbers = _clusters(components(series)[:, :4], most, seed)
    groups = (np.flatnonzero(numbers == one) for one in np.unique(numbers))
    return [group.tolist() for group in groups if len(group) >= min(_FEW, steps // 2)]


def _clusters(points: np.ndarray, most: int, seed: int) -> np.ndarray:
    from scipy.cluster.vq import kmeans2

    steps = len(points)
    best, sharpest = np.zeros(steps, int), math.inf
    if not points.shape[1]:
        return best
    before = float(((points - points.mean(axis=0)) ** 2).sum())
    for count in range(2, min(most, steps // _FEW) + 1):
        centres, numbers = kmeans2(points, count, minit="++", seed=seed, missing="warn")
        within = float(((points - centres[numbers]) ** 2).sum())
        sharpness = within / max(before, 1e-12)
        if sharpness < sharpest and np.bincount(numbers, minlength=count).min() >= _FEW:
            best, sharpest = numbers, sharpness
        before = within
    return best
