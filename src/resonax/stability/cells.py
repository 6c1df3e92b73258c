"""Cells: many settings that differ in a few numbers, evaluated together in compiled chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from resonax.dynamics import Setting

__all__ = ["Advance", "Values", "check_values", "chunks", "take"]

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
