"""Rows of batches: several in random order, and a few numbers that tell of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["mixed_places", "row_summary"]

_SEEN = 16  # numbers of a batch that its rhythm is looked for in


def mixed_places(
    rows: Sequence[int], wanted: Sequence[int], rng: np.random.Generator
) -> list[np.ndarray]:
    """Return places of rows in random order, none twice, in pieces of the wanted sizes.

    Parameters
    ----------
    rows
        The number of rows of each batch, which follow one another.
    wanted
        The size of each piece.
    rng
        Draws the order.

    Examples
    --------
    >>> pieces = mixed_places([2, 2], [3, 1], np.random.default_rng(0))
    >>> [len(piece) for piece in pieces], sorted(np.concatenate(pieces).tolist())
    ([3, 1], [0, 1, 2, 3])
    """
    ends = np.cumsum(wanted)
    order = rng.permutation(sum(rows))[: ends[-1]]
    return np.split(order, ends[:-1])


def row_summary(rows: np.ndarray) -> np.ndarray:
    """Return the mean of rows, or some of its numbers where it is long.

    Examples
    --------
    >>> row_summary(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([2., 3.])
    """
    rows = np.atleast_1d(rows)
    mean = rows.reshape(len(rows), -1).mean(axis=0, dtype=float)
    return mean[:: max(1, len(mean) // _SEEN)][:_SEEN]
