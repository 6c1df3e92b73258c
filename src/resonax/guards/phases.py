"""The rhythm of batches and the parts of their order, found on a few numbers of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from resonax.guards.batch_order import components, order_p, parts_of
from resonax.guards.rhythm import dominant_period

__all__ = ["Phased", "Phases", "phases_of", "projected"]

_LEAST, _ORDERS = 16, 199  # batches in which an order is looked for, and orders compared
_LOOKED = 256  # batches in which an order is looked for at most
_PARTS = 2  # parts of an order at most
_NUMBERS = 16  # random projections of a row


class Phases(NamedTuple):
    """Steps and rows after which batches repeat, None if they surely do not or it is not known.

    ``parts`` are the places of the batches of each part of the order; ``p`` is the probability of
    so much order in a random one.
    """

    period: float | None = None
    rows: float | None = None
    parts: tuple[tuple[int, ...], ...] = ()
    p: float = 1.0


class Phased:
    """What a learner has that gives ``sketches``, a few numbers of each batch."""

    def sketches(self, batches: Sequence[Any]) -> np.ndarray:
        """Return a few numbers of each batch, in which an order is looked for."""
        raise NotImplementedError

    def row_counts(self, batches: Sequence[Any]) -> list[int]:
        """Return the number of rows of each batch; none if they are not known."""
        del batches
        return []

    def held(self, batches: Sequence[Any]) -> np.ndarray:
        """Return a few numbers of what each batch holds, which weights do not change."""
        return self.sketches(batches)

    def rhythm(self, batches: Sequence[Any]) -> Phases:
        """Return order and rhythm of batches, without work such as that of gradients."""
        return phases_of(self.held(batches), self.row_counts(batches), parts=0)

    def phases(self, batches: Sequence[Any]) -> Phases:
        """Return the rhythm of batches, and the parts of their order."""
        return phases_of(self.sketches(batches), self.row_counts(batches))


def phases_of(sketches: np.ndarray, rows: Sequence[int] = (), parts: int = _PARTS) -> Phases:
    """Return the rhythm of batches, and the parts of their order.

    Parameters
    ----------
    sketches
        (steps, numbers) of each batch, such as sums of its gradient with random signs.
    rows
        The number of rows of each batch. A rhythm is said in rows if all have as many.
    parts
        How many parts are looked for at most.

    Examples
    --------
    >>> found = phases_of(np.sin(2 * np.pi * np.arange(128) / 16)[:, None], [8] * 128)
    >>> round(found.period), round(found.rows), len(found.parts)
    (16, 128, 2)
    """
    numbers = np.nan_to_num(np.asarray(sketches, float), posinf=0.0, neginf=0.0)
    series, period = components(numbers), dominant_period(numbers)
    in_rows = period * rows[0] if period is not None and len(set(rows)) == 1 else None
    found = parts_of(series, period, parts) if parts and series.shape[1] else []
    return Phases(period, in_rows, tuple(map(tuple, found)), _order_of(series))


def _order_of(series: np.ndarray) -> float:
    if not series.shape[1] or len(series) < _LEAST:
        return 1.0
    late = series[-_LOOKED:]
    return order_p(late, np.zeros(len(late)), np.random.default_rng(12), _ORDERS)


def projected(rows: np.ndarray) -> np.ndarray:
    """Return a few sums of all numbers of each row with random signs, which keep inner products.

    Examples
    --------
    >>> projected(np.ones((3, 1000))).shape, projected(np.ones((3, 2))).shape
    ((3, 16), (3, 2))
    """
    flat = np.nan_to_num(np.asarray(rows, float).reshape(len(rows), -1))
    if flat.shape[1] <= _NUMBERS:
        return flat
    signs = np.random.default_rng(10).choice([-1.0, 1.0], (flat.shape[1], _NUMBERS))
    return flat @ signs
