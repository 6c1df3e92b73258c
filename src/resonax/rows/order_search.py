r"""Orders of rows in which an error grows most.

The growth of an order that is repeated is the radius :math:`|\lambda|` of the product of its
updates. With the right and left eigenvectors :math:`r` and :math:`l` carried along the order,
another row :math:`i` at place :math:`k` makes it, to first order,

.. math:: \log|\lambda| \to \log|\lambda|
          + \log\frac{|l_{k+1}^\top A_i r_k|}{|l_{k+1}^\top A_{w_k} r_k|} ,

for all places and rows at once by `RowUpdates`. Where rows may come again each place takes the row
that gives most (the maximum principle of optimal control, by coordinate ascent); in a permutation
the rows are exchanged among places by the best assignment. Both climb to the next local optimum
only, so they start from many orders: those in which a coordinate, the length or the angle of the
rows runs through a cycle of some period, and those of a beam search.
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
_EXCHANGED = 512  # places among which rows are exchanged at once
_GAIN = 1e-9  # of the growth of a word: less is not an improvement
_LONGEST = 120  # rows of a word
_LENGTHS, _PERIODS = 32, 40  # of the words, of the permutations that a search begins with
_SHARES = (0.25, 0.5, 1.0)  # of the rows, the longest, that run through cycles
_SWEEPS = (4, 40)  # of all words, and of the best
_BEST = 2  # words of each length that are climbed to the end
_ROUNDS, _LEAST = 40, 6  # of exchanges; fewer where there are many rows
_SWAPS, _SWAP_ROUNDS = 64, 120  # tried together, and how often
_MOST_SWAPPED = 40_000  # rows times rounds of swaps
_MANY = 24_000  # rows times rounds from which on there are fewer


@dataclass(frozen=True)
class Found:
    """A word of rows, and its growth per step."""

    word: np.ndarray
    rate: float


def sort_keys(rows: np.ndarray, most: int = 3) -> list[np.ndarray]:
    """Return numbers of the rows that an order can run through: coordinates, lengths, angles."""
    _, _, axes = np.linalg.svd(rows, full_matrices=False)
    along = rows @ axes[:most].T
    keys = [*along.T, np.sum(rows**2, axis=1)]
    # A row and its negative have the same update: half a turn is a whole one.
    angles = (np.arctan2(*pair) % np.pi for pair in itertools.combinations(along.T, 2))
    return [*keys, *angles]


def _patterns(phase: np.ndarray) -> list[np.ndarray]:
    return [phase % 1.0, 1.0 - np.abs(2 * (phase % 1.0) - 1.0)]


def cyclic_orders(rows: np.ndarray, periods: np.ndarray) -> np.ndarray:
    """Return permutations, (orders, rows), in which a key runs through cycles of each period.

    The cycles are of all rows, or of the longest ones; the others then follow, sorted by the key
    that changes their direction most slowly.
    """
    made = []
    longest = np.argsort(np.sum(rows**2, axis=1), kind="stable")[::-1]
    keys = sort_keys(rows)
    for share in _SHARES:
        count = max(2, int(share * len(rows)))
        some, rest = longest[:count], longest[count:]
        rest = rest[np.argsort(keys[-1][rest], kind="stable")]
        for key in keys:
            ranked = some[np.argsort(key[some], kind="stable")]
            for period in periods[periods <= count]:
                for pattern in _patterns(np.arange(count) / period):
                    order = np.empty(count, dtype=int)
                    order[np.argsort(pattern, kind="stable")] = ranked
                    made.append(np.concatenate([order, rest]))
    return np.array(made)


def cyclic_words(rows: np.ndarray, period: int) -> np.ndarray:
    """Return words of a length, (words, period), in which a key runs through one cycle."""
    made = []
    for pattern in _patterns((np.arange(period) + 0.5) / period):
        place = np.minimum((pattern * len(rows)).astype(int), len(rows) - 1)
        made += [np.argsort(key, kind="stable")[place] for key in sort_keys(rows)]
    return np.array(made)


def _eigenvectors(updates: RowUpdates, words: np.ndarray) -> tuple[Pairs, Pairs, np.ndarray]:
    """Return right and left leading eigenvectors of products, (lanes, size, 1), and their rates."""
    product, scale = updates.products(words)
    lanes = np.arange(len(words))
    values, right = np.linalg.eig(product)
    lead = np.abs(values).argmax(axis=1)
    others, left = np.linalg.eig(np.swapaxes(product, 1, 2))
    same = np.abs(others - values[lanes, lead][:, None]).argmin(axis=1)
    size = updates.size
    pairs = [
        (vector[lanes, :size, place][..., None], vector[lanes, size:, place][..., None])
        for vector, place in ((right, lead), (left, same))
    ]
    radius = np.maximum(np.abs(values[lanes, lead]), _TINY)
    return pairs[0], pairs[1], (np.log(radius) + scale) / words.shape[1]


def _normed(pair: Pairs) -> Pairs:
    first, second = ((np.abs(part) ** 2).sum(axis=(1, 2), keepdims=True) for part in pair)
    size = np.maximum(np.sqrt(first + second), _TINY)
    return pair[0] / size, pair[1] / size


def climb_words(
    updates: RowUpdates, words: np.ndarray, sweeps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Improve words of one length, (lanes, steps), whose rows may repeat; return them and rates.

    A sweep goes once along each word with the costates of the word before, and takes at each place
    the row with the largest |l A x|; a word is kept only if its radius grew.
    """
    words = words.copy()
    right, left, rates = _eigenvectors(updates, words)
    live = np.arange(len(words))
    for _ in range(sweeps):
        costates = [left]
        for places in words[live].T[::-1]:
            costates.append(_normed(updates.step_back(costates[-1], places)))
        state, fresh = right, np.empty_like(words[live])
        for k in range(words.shape[1]):
            costate = costates[words.shape[1] - 1 - k]
            gains = _gains(updates, state, costate)
            fresh[:, k] = np.abs(gains).argmax(axis=1)
            state = _normed(updates.step(state, fresh[:, k]))
        right, left, found = _eigenvectors(updates, fresh)
        better = found > rates[live] + _GAIN / words.shape[1]
        words[live[better]], rates[live[better]] = fresh[better], found[better]
        live = live[better]
        if not len(live):
            break
        right, left = ((a[better], b[better]) for a, b in (right, left))
    return words, rates


def _gains(updates: RowUpdates, state: Pairs, costate: Pairs) -> np.ndarray:
    """Return l A_i x of all rows, (lanes, rows)."""
    mixed = updates.mixed(costate)
    here = state[0]
    ahead = updates.step(state, None)
    still = np.sum(costate[0] * ahead[0] + costate[1] * ahead[1], axis=(1, 2))
    pulled = (here[..., 0] @ updates.rows.T) * (mixed[..., 0] @ updates.rows.T)
    return still[:, None] - pulled


def climb_permutation(
    updates: RowUpdates,
    order: np.ndarray,
    rng: np.random.Generator,
    *,
    rounds: int | None = None,
    sign: float = 1.0,
    advance: Advance | None = None,
) -> Found:
    """Improve a permutation by exchanging rows among some of its places, for some rounds.

    The gains are those of single exchanges; where too many at once do not help, fewer are tried.
    With ``sign=-1`` the growth is made small.
    """
    order = order.copy()
    count = len(order)
    rounds = rounds or max(_LEAST, min(_ROUNDS, _MANY // count))
    share = min(count, _EXCHANGED)
    right, left, rate = _eigenvectors(updates, order[None])
    stale = True
    here = mixed = still = np.zeros(0)
    for _ in range(rounds):
        if stale:
            here, mixed, still = _along(updates, order, right, left)
            stale = False
        chosen = np.sort(rng.choice(count, share, replace=False))
        rows = updates.rows[order[chosen]]
        gains = still[chosen, None] - (here[chosen] @ rows.T) * (mixed[chosen] @ rows.T)
        gains = np.log(np.maximum(np.abs(gains), _TINY))
        _, taken = linear_sum_assignment(sign * gains, maximize=True)
        fresh = order.copy()
        fresh[chosen] = order[chosen][taken]
        found_right, found_left, found = _eigenvectors(updates, fresh[None])
        if sign * (found[0] - rate[0]) > _GAIN / count:
            order, right, left, rate, stale = fresh, found_right, found_left, found, True
            share = min(count, _EXCHANGED, int(share * 1.5) + 1)
        else:
            share = max(2, int(share * 0.7))
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
    """Improve a permutation by swaps of two rows at random: the last steps of a search.

    In each round the swaps that help are made together, as many of the best as still help. With
    ``sign=-1`` the growth is made small. Many rows have few rounds, or none.
    """
    count = len(order)
    rate = float(updates.rates(order[None])[0])
    for _ in range(min(_SWAP_ROUNDS, _MOST_SWAPPED // count) if count > 2 else 0):
        pairs = np.array([rng.choice(count, 2, replace=False) for _ in range(_SWAPS)])
        gains = sign * (updates.rates(np.array([_swapped(order, [pair]) for pair in pairs])) - rate)
        helping = np.argsort(-gains)[: np.count_nonzero(gains > _GAIN / count)]
        if len(helping):
            several = np.unique(np.geomspace(1, len(helping), 8).astype(int))
            tried = np.array([_swapped(order, pairs[helping[:number]]) for number in several])
            rates = updates.rates(tried)
            best = int(np.argmax(sign * rates))
            order, rate = tried[best], float(rates[best])
        if advance:
            advance(count)
    return Found(order, rate)


def _swapped(order: np.ndarray, pairs: Any) -> np.ndarray:
    order = order.copy()
    for first, second in pairs:
        order[[first, second]] = order[[second, first]]
    return order


def _along(
    updates: RowUpdates, order: np.ndarray, right: Pairs, left: Pairs
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return u, m and l A_0 x at each place of one order."""
    costates = [left]
    for place in order[:0:-1]:
        costates.append(_normed(updates.step_back(costates[-1], place[None])))
    state, here, mixed, still = right, [], [], []
    for place, costate in zip(order, costates[::-1], strict=True):
        here.append(state[0][0, :, 0])
        mixed.append(updates.mixed(costate)[0, :, 0])
        ahead = updates.step(state, None)
        still.append(np.sum(costate[0] * ahead[0]) + np.sum(costate[1] * ahead[1]))
        state = _normed(updates.step(state, place[None]))
    return np.array(here), np.array(mixed), np.array(still)


def search_words(
    updates: RowUpdates, seeds: Sequence[np.ndarray] = (), advance: Advance | None = None
) -> Found:
    """Return the word that grows most of those found; rows may repeat.

    ``seeds`` are words to begin with besides the cyclic ones and the single rows.
    """
    count = len(updates.rows)
    single = updates.rates(np.arange(count)[:, None])
    best = Found(np.array([single.argmax()]), float(single.max()))
    lengths = np.unique(np.geomspace(2, min(_LONGEST, 2 * count), _LENGTHS).astype(int))
    tried = [cyclic_words(updates.rows, length) for length in lengths]
    tried += [np.asarray(seed)[None] for seed in seeds]
    for words in tried:
        words, rates = climb_words(updates, words, _SWEEPS[0])
        words = words[np.argsort(rates)[::-1][:_BEST]]
        words, rates = climb_words(updates, words, _SWEEPS[1])
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
    """Return the order that grows most of those found; each row comes once."""
    count = len(updates.rows)
    periods = np.geomspace(2, count, _PERIODS)
    orders = np.concatenate([cyclic_orders(updates.rows, periods), *[seed[None] for seed in seeds]])
    rates = np.concatenate([updates.rates(some) for some in _parts(orders, updates.size)])
    best = orders[np.argsort(rates)[::-1][:2]]
    climbed = [climb_permutation(updates, order, rng, advance=advance) for order in best]
    return max(climbed, key=lambda one: one.rate)


def _parts(orders: np.ndarray, size: int) -> list[np.ndarray]:
    """Return orders in parts whose products take little memory."""
    together = max(1, 2_000_000 // (4 * size * size))
    return [orders[first : first + together] for first in range(0, len(orders), together)]
