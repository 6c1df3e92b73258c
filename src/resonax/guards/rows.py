"""Rows of several batches in random order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["mixed_places"]


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
