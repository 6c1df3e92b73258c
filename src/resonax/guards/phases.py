"""The rhythm of batches and the parts of their order, found on a few numbers of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from resonax.guards.batch_order import components, order_p, parts_of
from resonax.guards.rhythm import dominant_period

__all__ = ["Phased", "Phases", "phases_of", "projected"]

_LEAST, _ORDERS = 16, 199  # batches in which an order is looked for, and orders compared
_PARTS = 4  # parts of an order at most
_NUMBERS = 16  # random projections of a row


class Phases(NamedTuple):
    """Steps and rows after which batches repeat, None if they surely do not or it is not known.

    ``parts`` are the places of the batches of each part of the order.
    """

    period: float | None = None
    rows: float | None = None
    parts: tuple[tuple[int, ...], ...] = ()


class Phased:
    """What a learner has that gives ``sketches``, a few numbers of each batch."""

    def sketches(self, batches: Sequence[Any]) -> np.ndarray:
        """Return a few numbers of each batch, in which an order is looked for."""
        raise NotImplementedError

    def row_counts(self, batches: Sequence[Any]) -> list[int]:
        """Return the number of rows of each batch; none if they are not known."""
        del batches
        return []

    def rhythm(self, batches: Sequence[Any]) -> Phases:
        """Return the rhythm of batches, without work such as that of gradients."""
        return self.phases(batches)

    def held(self, batches: Sequence[Any]) -> np.ndarray:
        """Return a few numbers of what each batch holds, which weights do not change."""
        return self.sketches(batches)

    def is_ordered(self, batches: Sequence[Any]) -> bool:
        """Return whether what batches hold comes in an order, at a level of 1%."""
        series = components(self.held(batches))
        if not series.shape[1] or len(series) < _LEAST:
            return False
        return order_p(series, np.zeros(len(series)), np.random.default_rng(12), _ORDERS) <= 0.01

    def phases(self, batches: Sequence[Any]) -> Phases:
        """Return the rhythm of batches, and the parts of their order."""
        return phases_of(self.sketches(batches), self.row_counts(batches))


def phases_of(sketches: np.ndarray, rows: Sequence[int] = ()) -> Phases:
    """Return the rhythm of batches, and the parts of their order.

    Parameters
    ----------
    sketches
        (steps, numbers) of each batch, such as sums of its gradient with random signs.
    rows
        The number of rows of each batch. A rhythm is said in rows if all have as many.

    Examples
    --------
    >>> found = phases_of(np.sin(2 * np.pi * np.arange(128) / 16)[:, None], [8] * 128)
    >>> round(found.period), round(found.rows), len(found.parts)
    (16, 128, 4)
    """
    numbers = np.nan_to_num(np.asarray(sketches, float), posinf=0.0, neginf=0.0)
    series, period = components(numbers), dominant_period(numbers)
    in_rows = period * rows[0] if period is not None and len(set(rows)) == 1 else None
    parts = parts_of(series, period, _PARTS) if series.shape[1] else []
    return Phases(period, in_rows, tuple(map(tuple, parts)))


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
