r"""Search for orders of rows in which an error grows most.

The growth of an order that is repeated is the spectral radius :math:`|\lambda|` of the product of
its updates. Let :math:`r_k` be the right eigenvector propagated forward to position :math:`k`, and
:math:`l_{k+1}` the left one propagated backward. With another row :math:`i` at this position the
radius becomes, to first order,

.. math:: \log|\lambda| \to \log|\lambda|
          + \log\frac{|l_{k+1}^\top A_i r_k|}{|l_{k+1}^\top A_{w_k} r_k|} ,

which `RowUpdates` computes for all positions and rows at once. If rows may repeat, each position
takes the row with the largest gain (Pontryagin's maximum principle, by coordinate ascent); in a
permutation the rows of some positions are exchanged by the best linear assignment. Both find local
optima only, so they start from many orders: those in which a coordinate, the norm or the angle of
the rows runs through a cycle of some period, and those of a beam search.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from resonax.rows.row_updates import Pairs, RowUpdates

__all__ = [
    "Found",
    "climb_permutation",
    "climb_words",
    "search_permutation",
    "search_words",
    "swap_rows",
]

Advance = Callable[[int], None]

_TINY = np.finfo(float).tiny
_MIN_GAIN = 1e-9  # in the logarithm of the growth of a word
# Words: lengths that are tried, sweeps of all words and of the best ones of each length.
_MAX_LENGTH, _LENGTHS = 120, 32
_FIRST_SWEEPS, _LAST_SWEEPS = 4, 40
_BEST_WORDS = 2
# Permutations: periods of the cyclic orders at the start, and shares of the rows (those with the
# largest norms) that run through cycles.
_PERIODS = 40
_SHARES = (0.25, 0.5, 1.0)
# Assignments: positions exchanged at once, and rounds, of which there are fewer for many rows.
_MAX_EXCHANGED = 512
_MAX_ROUNDS, _MIN_ROUNDS = 40, 6
_ROWS_TIMES_ROUNDS = 24_000
# Swaps: random pairs tried in a round, and rounds, of which there are fewer for many rows.
_SWAPS, _SWAP_ROUNDS = 64, 120
_ROWS_TIMES_SWAP_ROUNDS = 40_000


@dataclass(frozen=True)
class Found:
    """A word (indices of rows), and its growth per step."""

    word: np.ndarray
    rate: float


def _sort_keys(rows: np.ndarray, axes: int = 3) -> list[np.ndarray]:
    """Return quantities to sort rows by: principal coordinates, squared norm and angles."""
    _, _, directions = np.linalg.svd(rows, full_matrices=False)
    coordinates = (rows @ directions[:axes].T).T
    # A row and its negative have the same update, so angles are taken modulo pi.
    angles = (np.arctan2(*pair) % np.pi for pair in itertools.combinations(coordinates, 2))
    return [*coordinates, np.sum(rows**2, axis=1), *angles]


def _waves(phase: np.ndarray) -> list[np.ndarray]:
    """Return a sawtooth and a triangle wave of a phase in periods, from 0 to 1."""
    return [phase % 1.0, 1.0 - np.abs(2 * (phase % 1.0) - 1.0)]


def cyclic_orders(rows: np.ndarray, periods: np.ndarray) -> np.ndarray:
    """Return permutations, (orders, rows), in which a key runs through cycles of each period.

    All rows run through cycles, or those with the largest norms; the others follow, sorted by their
    angle.
    """
    orders = []
    longest = np.argsort(np.sum(rows**2, axis=1), kind="stable")[::-1]
    keys = _sort_keys(rows)
    for share in _SHARES:
        count = max(2, int(share * len(rows)))
        some, rest = longest[:count], longest[count:]
        rest = rest[np.argsort(keys[-1][rest], kind="stable")]
        for key in keys:
            ranked = some[np.argsort(key[some], kind="stable")]
            for period in periods[periods <= count]:
                for wave in _waves(np.arange(count) / period):
                    order = np.empty(count, dtype=int)
                    order[np.argsort(wave, kind="stable")] = ranked
                    orders.append(np.concatenate([order, rest]))
    return np.array(orders)


def cyclic_words(rows: np.ndarray, period: int) -> np.ndarray:
    """Return words, (words, period), in which a key runs through one cycle."""
    words = []
    for wave in _waves((np.arange(period) + 0.5) / period):
        rank = np.minimum((wave * len(rows)).astype(int), len(rows) - 1)
        words += [np.argsort(key, kind="stable")[rank] for key in _sort_keys(rows)]
    return np.array(words)


def _eigenvectors(updates: RowUpdates, words: np.ndarray) -> tuple[Pairs, Pairs, np.ndarray]:
    """Return the leading right and left eigenvectors of words, and their rates."""
    matrix, scale = updates.products(words)
    size, index = updates.size, np.arange(len(words))

    def split(vectors: np.ndarray, column: np.ndarray) -> Pairs:
        return vectors[index, :size, column][..., None], vectors[index, size:, column][..., None]

    values, right = np.linalg.eig(matrix)
    leading = np.abs(values).argmax(axis=1)
    value = values[index, leading]
    left_values, left = np.linalg.eig(np.swapaxes(matrix, 1, 2))
    same = np.abs(left_values - value[:, None]).argmin(axis=1)
    radius = np.maximum(np.abs(value), _TINY)
    return split(right, leading), split(left, same), (np.log(radius) + scale) / words.shape[1]


def _normalise(pair: Pairs) -> Pairs:
    """Return states or costates of norm 1."""
    first, second = ((np.abs(part) ** 2).sum(axis=(1, 2), keepdims=True) for part in pair)
    norm = np.maximum(np.sqrt(first + second), _TINY)
    return pair[0] / norm, pair[1] / norm


def climb_words(
    updates: RowUpdates, words: np.ndarray, sweeps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Improve words of one length, (words, steps), whose rows may repeat; return them and rates.

    A sweep goes along each word with the costates of its last version, and takes at each position
    the row with the largest |l A x|. A word that did not improve is given up.
    """
    words = words.copy()
    length = words.shape[1]
    right, left, rates = _eigenvectors(updates, words)
    active = np.arange(len(words))
    for _ in range(sweeps):
        costates = [left]
        for rows in words[active].T[::-1]:
            costates.append(_normalise(updates.step_back(costates[-1], rows)))
        state, new_words = right, np.empty_like(words[active])
        for position in range(length):
            gains = _row_gains(updates, state, costates[length - 1 - position])
            new_words[:, position] = np.abs(gains).argmax(axis=1)
            state = _normalise(updates.step(state, new_words[:, position]))
        right, left, new_rates = _eigenvectors(updates, new_words)
        is_better = new_rates > rates[active] + _MIN_GAIN / length
        active = active[is_better]
        if not len(active):
            break
        words[active], rates[active] = new_words[is_better], new_rates[is_better]
        right = right[0][is_better], right[1][is_better]
        left = left[0][is_better], left[1][is_better]
    return words, rates


def _row_gains(updates: RowUpdates, state: Pairs, costate: Pairs) -> np.ndarray:
    """Return l^T A_i x for all rows, (words, rows); see `resonax.rows.row_updates`."""
    m = updates.gradient_weights(costate)
    without_row = updates.step(state, None)
    gain = np.sum(costate[0] * without_row[0] + costate[1] * without_row[1], axis=(1, 2))
    return gain[:, None] - (state[0][..., 0] @ updates.rows.T) * (m[..., 0] @ updates.rows.T)


def climb_permutation(
    updates: RowUpdates,
    order: np.ndarray,
    rng: np.random.Generator,
    *,
    rounds: int | None = None,
    sign: float = 1.0,
    advance: Advance | None = None,
) -> Found:
    """Improve a permutation by assigning the rows of random positions anew, for some rounds.

    Gains are linearised: they hold for few exchanges at once. So fewer positions are tried after a
    round that did not help, and more after one that did. With ``sign=-1`` the growth is minimised.
    """
    order = order.copy()
    count = len(order)
    rounds = rounds or max(_MIN_ROUNDS, min(_MAX_ROUNDS, _ROWS_TIMES_ROUNDS // count))
    exchanged = min(count, _MAX_EXCHANGED)
    right, left, rate = _eigenvectors(updates, order[None])
    errors, weights, gains_without_row = _position_gains(updates, order, right, left)
    for _ in range(rounds):
        positions = np.sort(rng.choice(count, exchanged, replace=False))
        rows = updates.rows[order[positions]]
        gains = (errors[positions] @ rows.T) * (weights[positions] @ rows.T)
        gains = gains_without_row[positions, None] - gains
        log_gains = np.log(np.maximum(np.abs(gains), _TINY))
        _, assigned = linear_sum_assignment(sign * log_gains, maximize=True)
        new_order = order.copy()
        new_order[positions] = order[positions][assigned]
        new_right, new_left, new_rate = _eigenvectors(updates, new_order[None])
        if sign * (new_rate[0] - rate[0]) > _MIN_GAIN / count:
            order, right, left, rate = new_order, new_right, new_left, new_rate
            errors, weights, gains_without_row = _position_gains(updates, order, right, left)
            exchanged = min(count, _MAX_EXCHANGED, int(exchanged * 1.5) + 1)
        else:
            exchanged = max(2, int(exchanged * 0.7))
        if advance:
            advance(len(order))
    return Found(order, float(rate[0]))


def swap_rows(
    updates: RowUpdates,
    order: np.ndarray,
    rng: np.random.Generator,
    *,
    sign: float = 1.0,
    advance: Advance | None = None,
) -> Found:
    """Improve a permutation by random swaps of two rows, as the last steps of a search.

    In each round the best swaps are made together, as many as give the best rate. With
    ``sign=-1`` the growth is minimised. For many rows there are few rounds, or none.
    """
    count = len(order)
    rate = float(updates.rates(order[None])[0])
    for _ in range(min(_SWAP_ROUNDS, _ROWS_TIMES_SWAP_ROUNDS // count) if count > 2 else 0):
        pairs = np.array([rng.choice(count, 2, replace=False) for _ in range(_SWAPS)])
        swapped = np.array([_swap(order, [pair]) for pair in pairs])
        gains = sign * (updates.rates(swapped) - rate)
        helpful = np.argsort(-gains)[: np.count_nonzero(gains > _MIN_GAIN / count)]
        if len(helpful):
            numbers = np.unique(np.geomspace(1, len(helpful), 8).astype(int))
            tried = np.array([_swap(order, pairs[helpful[:number]]) for number in numbers])
            rates = updates.rates(tried)
            best = int(np.argmax(sign * rates))
            order, rate = tried[best], float(rates[best])
        if advance:
            advance(count)
    return Found(order, rate)


def _swap(order: np.ndarray, pairs: Any) -> np.ndarray:
    order = order.copy()
    for first, second in pairs:
        order[[first, second]] = order[[second, first]]
    return order


def _position_gains(
    updates: RowUpdates, order: np.ndarray, right: Pairs, left: Pairs
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return u, m and l^T A_0 x at each position; see `resonax.rows.row_updates`."""
    costates = [left]
    for row in order[:0:-1]:
        costates.append(_normalise(updates.step_back(costates[-1], row[None])))
    state, errors, weights, gains = right, [], [], []
    for row, costate in zip(order, costates[::-1], strict=True):
        errors.append(state[0][0, :, 0])
        weights.append(updates.gradient_weights(costate)[0, :, 0])
        without_row = updates.step(state, None)
        gains.append(np.sum(costate[0] * without_row[0]) + np.sum(costate[1] * without_row[1]))
        state = _normalise(updates.step(state, row[None]))
    return np.array(errors), np.array(weights), np.array(gains)


def search_words(
    updates: RowUpdates, seeds: Sequence[np.ndarray] = (), advance: Advance | None = None
) -> Found:
    """Return the word with the largest rate that was found; rows may repeat.

    The search starts from single rows, cyclic words and ``seeds``.
    """
    count = len(updates.rows)
    single = updates.rates(np.arange(count)[:, None])
    best = Found(np.array([single.argmax()]), float(single.max()))
    lengths = np.unique(np.geomspace(2, min(_MAX_LENGTH, 2 * count), _LENGTHS).astype(int))
    starts = [cyclic_words(updates.rows, length) for length in lengths]
    starts += [np.asarray(seed)[None] for seed in seeds]
    for words in starts:
        words, rates = climb_words(updates, words, _FIRST_SWEEPS)
        words = words[np.argsort(rates)[::-1][:_BEST_WORDS]]
        words, rates = climb_words(updates, words, _LAST_SWEEPS)
        if rates.max() > best.rate:
            best = Found(words[rates.argmax()], float(rates.max()))
        if advance:
            advance(words.shape[1])
    return best


def search_permutation(
    updates: RowUpdates,
    seeds: Sequence[np.ndarray],
    rng: np.random.Generator,
    advance: Advance | None = None,
) -> Found:
    """Return the permutation with the largest rate that was found."""
    count = len(updates.rows)
    periods = np.geomspace(2, count, _PERIODS)
    orders = np.concatenate([cyclic_orders(updates.rows, periods), *[seed[None] for seed in seeds]])
    rates = np.concatenate([updates.rates(some) for some in _split(orders, updates.size)])
    best = orders[np.argsort(rates)[::-1][:2]]
    climbed = [climb_permutation(updates, order, rng, advance=advance) for order in best]
    return max(climbed, key=lambda one: one.rate)


def _split(orders: np.ndarray, size: int) -> list[np.ndarray]:
    """Return the orders in parts whose products fit into some 16 MB."""
    count = max(1, 2_000_000 // (4 * size * size))
    return [orders[first : first + count] for first in range(0, len(orders), count)]
