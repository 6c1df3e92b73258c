r"""Orders in which the mean curvature of successive rows stays close to that of all rows.

The order of rows makes an error grow if their curvature oscillates. These orders keep all partial
sums of :math:`r_i r_i^\top - \overline{r r^\top}` small, as herding does with gradients (Lu, Guo
and De Sa, 2022).
"""

from __future__ import annotations

import numpy as np

__all__ = ["herded", "pairwise_balanced", "stratified"]

_COLUMNS = 64  # entries of a curvature; if there are more, so many random projections are used
_BLOCK = 512  # rows among which herding looks for the next one
_ROUNDS = 10  # of the balancing of pairs


def _centred_curvatures(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return a vector for each row: its outer product less the mean, or projections of it."""
    first, second = np.triu_indices(rows.shape[1])
    if len(first) > _COLUMNS:
        directions = rng.normal(size=(rows.shape[1], _COLUMNS)) / np.sqrt(rows.shape[1])
        products = (rows @ directions) ** 2
    else:  # with this factor the norm of a vector is that of the matrix
        products = rows[:, first] * rows[:, second] * np.where(first == second, 1.0, np.sqrt(2.0))
    return products - products.mean(axis=0)


def stratified(rows: np.ndarray, block: int, rng: np.random.Generator) -> np.ndarray:
    """Return an order of blocks, each with one row of every stratum of the curvatures.

    Examples
    --------
    >>> order = stratified(np.arange(8.0)[:, None], 4, np.random.default_rng(0))
    >>> [sorted(part.tolist()) for part in order.reshape(2, 4) // 2]
    [[0, 1, 2, 3], [0, 1, 2, 3]]
    """
    centred = _centred_curvatures(rows, rng)
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
    """Return an order by herding: the next row of a block minimises the norm of the partial sum."""
    centred = _centred_curvatures(rows, rng)
    total = np.zeros(centred.shape[1])
    order = []
    for block in np.array_split(rng.permutation(len(rows)), max(1, len(rows) // _BLOCK)):
        remaining = block.tolist()
        while remaining:
            norms = np.sum((total + centred[remaining]) ** 2, axis=1)
            row = remaining.pop(int(np.argmin(norms)))
            total = total + centred[row]
            order.append(row)
    return np.array(order)


def pairwise_balanced(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an order by pair balancing, as for gradients by Cooper et al. (2023).

    Of each pair of successive rows one goes to the front and one to the back, chosen so that the
    sum of the differences stays small. This is repeated on the resulting order.
    """
    centred = _centred_curvatures(rows, rng)
    order = rng.permutation(len(rows))
    for _ in range(_ROUNDS):
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
