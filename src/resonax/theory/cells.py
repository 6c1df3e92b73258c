"""Cells: many settings that differ in a few numbers, evaluated together in compiled chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from jax.typing import ArrayLike

from resonax.dynamics import Setting

__all__ = ["Advance", "Tile", "Values", "check_values", "chunks", "take", "tiles"]

_ROW = 20  # cells of a row
_SHARED = 4  # cells of a law, on average, from which on rows pay

Values = Mapping[str, Any]
Advance = Callable[[int], None]  # told the number of cells just finished


def check_values(setting: Setting, values: Values) -> None:
    """Check every value that an axis takes, as if each had been given on its own."""
    for name, array in values.items():
        for extreme in (np.min(array), np.max(array)):
            setting.at({name: float(extreme)})


def chunks(need: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Yield ``size`` indices of cells that need about equal work, and how many of them count.

    The last chunk is filled up by repeating its last cell, so that one compiled shape serves all.
    """
    order = np.argsort(need, kind="stable")
    for start in range(0, len(order), size):
        part = order[start : start + size]
        fill = np.full(size - len(part), part[-1])
        yield np.concatenate([part, fill]), len(part)


def take(values: Mapping[str, ArrayLike], index: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of some of the cells."""
    return {name: np.asarray(array, dtype=float)[index] for name, array in values.items()}


class Tile(NamedTuple):
    """Rows of cells that share a law; the last ones are repeated to fill it up."""

    places: np.ndarray  # (rows, cells of a row): which cells
    laws: dict[str, np.ndarray]  # (rows,) each: numbers of the laws
    numbers: dict[str, np.ndarray]  # (rows, cells of a row) each: numbers of the optimizer
    steps: np.ndarray  # (rows,)


def tiles(setting: Setting, values: Values, steps: np.ndarray, size: int) -> Iterator[Tile]:
    """Yield tiles of about ``size`` cells that need about equal work.

    Two shapes serve maps of any size: rows of cells, or where laws are hardly shared, single cells.
    """
    arrays = {name: np.asarray(array, dtype=float) for name, array in values.items()}
    of_law = {name: arrays[name] for name in arrays if name not in setting.optimizer.axes}
    columns = np.stack([steps, *of_law.values()])
    _, law, counts = np.unique(columns, axis=1, return_inverse=True, return_counts=True)
    length = _ROW if len(steps) >= _SHARED * len(counts) else 1
    # Laws come sorted by their steps. The last cell of each is repeated to fill its rows.
    filled = -(-counts // length) * length
    within = np.arange(filled.sum()) - np.repeat(np.cumsum(filled) - filled, filled)
    place = np.repeat(np.cumsum(counts) - counts, filled)
    place += np.minimum(within, np.repeat(counts, filled) - 1)
    rows = np.argsort(law.ravel(), kind="stable")[place].reshape(-1, length)
    for first in range(0, len(rows), size // length):
        chosen = rows[np.minimum(np.arange(first, first + size // length), len(rows) - 1)]
        yield Tile(
            chosen,
            take(of_law, chosen[:, 0]),
            take({name: arrays[name] for name in arrays if name not in of_law}, chosen),
            steps[chosen[:, 0]],
        )
