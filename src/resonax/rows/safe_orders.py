r"""Orders in which the curvature of any few rows in a row is close to that of all.

An error grows by the order of rows where their curvature keeps to a rhythm. An order without one
keeps the sums of :math:`r_i r_i^\top - \overline{r r^\top}` small along the way: herding (Lu, Guo
and De Sa, 2022, order gradients in the same way).
"""

from __future__ import annotations

import numpy as np

__all__ = ["herded", "pairwise_balanced", "stratified"]

_COLUMNS = 64  # of the curvatures; of many more random combinations are taken
_BLOCK = 512  # rows among which the next one is sought
_TURNS = 10  # in which pairs are balanced again


def _curvatures(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    first, second = np.triu_indices(rows.shape[1])
    if len(first) > _COLUMNS:
        along = rng.normal(size=(rows.shape[1], _COLUMNS)) / np.sqrt(rows.shape[1])
        products = (rows @ along) ** 2
    else:
        products = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, np.sqrt(2.0))
    return products - products.mean(axis=0)


def stratified(rows: np.ndarray, block: int, rng: np.random.Generator) -> np.ndarray:
    """Return blocks of so many rows, each with one of every stratum of the curvatures.

    Examples
    --------
    >>> order = stratified(np.arange(8.0)[:, None], 4, np.random.default_rng(0))
    >>> [sorted(part.tolist()) for part in order.reshape(2, 4) // 2]
    [[0, 1, 2, 3], [0, 1, 2, 3]]
    """
    centred = _curvatures(rows, rng)
    _, _, axes = np.linalg.svd(centred, full_matrices=False)
    ranked = np.argsort(centred @ axes[0], kind="stable")
    blocks = len(rows) // block
    strata = np.array_split(ranked, block)
    for stratum in strata:
        rng.shuffle(stratum)
    order = []
    for number in range(blocks + 1):
        taken = np.concatenate([stratum[number : number + 1] for stratum in strata])
        order.append(rng.permutation(taken))
    rest = np.concatenate([stratum[blocks + 1 :] for stratum in strata])
    return np.concatenate([*order, rng.permutation(rest)])


def herded(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an order whose next row keeps the sum of curvatures least, block by block."""
    centred = _curvatures(rows, rng)
    total = np.zeros(centred.shape[1])
    order = []
    for block in np.array_split(rng.permutation(len(rows)), max(1, len(rows) // _BLOCK)):
        left = block.tolist()
        while left:
            next_one = int(np.argmin(np.sum((total + centred[left]) ** 2, axis=1)))
            place = left.pop(next_one)
            total = total + centred[place]
            order.append(place)
    return np.array(order)


def pairwise_balanced(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an order balanced pair by pair, as gradient balancing does (Cooper et al., 2023).

    Of each two rows one goes to the front and one to the back, so that the sums of the differences
    stay small; this is done again on what comes out.
    """
    centred = _curvatures(rows, rng)
    order = rng.permutation(len(rows))
    for _ in range(_TURNS):
        total, front, back = np.zeros(centred.shape[1]), [], []
        for first, second in zip(order[::2].tolist(), order[1::2].tolist(), strict=False):
            difference = centred[first] - centred[second]
            swap = np.dot(total, difference) > 0
            total = total - difference if swap else total + difference
            front.append(second if swap else first)
            back.append(first if swap else second)
        odd = order[-1:].tolist() if len(order) % 2 else []
        order = np.array([*front, *odd, *back[::-1]])
    return order
