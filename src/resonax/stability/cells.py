"""Cells: many settings that differ in a few numbers, evaluated together in compiled chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
from jax.typing import ArrayLike

from resonax.checks import ArgumentError, suggest
from resonax.dynamics import Setting

__all__ = ["AXES", "Advance", "Values", "at", "check_values", "chunks", "take"]

AXES = ("momentum", "period", "lr", "amplitude", "batch")
Values = Mapping[str, Any]
Advance = Callable[[int], None]  # told the number of cells just finished


def at(setting: Setting, values: Values) -> Setting:
    """Return the setting with some of its numbers replaced, by the names of `AXES`."""
    homes: dict[str, dict[str, Any]] = {"process": {}, "optimizer": {}, "setting": {}}
    for name, number in values.items():
        if name in ("momentum", "lr"):
            homes["optimizer"][name] = number
        elif name == "batch":
            homes["setting"][name] = number
        elif name in {item.name for item in fields(setting.process)}:  # pyright: ignore[reportArgumentType]
            homes["process"][name] = number
        elif name in AXES:
            raise ArgumentError(f"{name} cannot vary: the process {setting.process.name} has none")
        else:
            raise suggest("axis", name, AXES)
    return replace(
        setting,
        process=replace(setting.process, **homes["process"]),  # pyright: ignore[reportArgumentType,reportCallIssue]
        optimizer=replace(setting.optimizer, **homes["optimizer"]),
        **homes["setting"],
    )


def check_values(setting: Setting, values: Values) -> None:
    """Check every value that an axis takes, as if each had been given on its own."""
    for name, array in values.items():
        for extreme in (np.min(array), np.max(array)):
            at(setting, {name: float(extreme)})


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
