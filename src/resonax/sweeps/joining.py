"""Tasks of a sweep that one simulation computes: a GPU takes as long for many cells as for few."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from resonax.spec.sweeps import Panel, Sweep
from resonax.sweeps.build import build_training

__all__ = ["differing", "joined_tasks", "panel_words"]

_TABLES = ("process", "model", "optimizer", "train", "run")
_MOST = 1_000_000  # runs of cells that are simulated as one


def panel_words(sweep: Sweep, panel: Panel) -> list[dict[str, Any]]:
    """Return what shapes the compiled loop of a panel: all entries of its tables but fractions.

    Whether a loss is summed is a number of the loop too.
    """
    return [
        {
            key: value
            for key, value in sorted(table.items())
            if not isinstance(value, float) and key != "reduction"
        }
        for table in (sweep.merged(panel, name) for name in _TABLES)
    ]


def _fractions(sweep: Sweep, panel: Panel) -> dict[str, float]:
    """Return the fractions of a panel's tables; none of them has the name of another."""
    entries = [item for name in _TABLES for item in sweep.merged(panel, name).items()]
    summed = float(dict(entries).get("reduction") == "sum")
    return {key: value for key, value in entries if isinstance(value, float)} | {"summed": summed}


def differing(sweep: Sweep, numbers: Sequence[int]) -> dict[str, np.ndarray]:
    """Return the fractions in which some panels differ, one of each panel."""
    tables = [_fractions(sweep, sweep.panels[number]) for number in numbers]
    found = {name: np.array([table[name] for table in tables]) for name in tables[0]}
    return {name: array for name, array in found.items() if np.ptp(array) > 0}


def joined_tasks(sweep: Sweep, tasks: int) -> tuple[tuple[int, ...], ...]:
    """Return the tasks of a sweep in groups, each of which is simulated as one.

    Panels that differ in fractions alone are columns of one simulation, which differ in these too.
    A group is a region that slices can name, of a moderate size; there are none if a panel alone is
    larger.

    Parameters
    ----------
    sweep
        The sweep.
    tasks
        How many tasks it has; those of a panel follow each other.
    """
    each = tasks // len(sweep.panels)
    first, second = (len(points) for points in sweep.points().values())
    size = first * second * sweep.run.runs
    if size > _MOST:
        return ()
    alike: dict[str, list[int]] = {}
    for number, panel in enumerate(sweep.panels):
        # A loop without noise or decay is another one.
        fractions = _fractions(sweep, panel)
        given = sorted((name, name == "summed" or fractions[name] > 0) for name in fractions)
        key = repr((panel_words(sweep, panel), given, panel.limits))
        alike.setdefault(key, []).append(number)
    return tuple(
        tuple(task for number in group for task in range(each * number, each * (number + 1)))
        for numbers in alike.values()
        for group in _even(numbers, _MOST // size if _can_vary(sweep, numbers) else 1)
    )


def _can_vary(sweep: Sweep, numbers: Sequence[int]) -> bool:
    """Return whether all fractions in which panels differ may be numbers of a column."""
    axes = {*build_training(sweep, numbers[0]).axes, "summed"}
    return set(differing(sweep, numbers)) <= axes


def _even(numbers: Sequence[int], most: int) -> Iterator[list[int]]:
    """Yield numbers in groups of at most ``most``, each with one distance from one to the next.

    Examples
    --------
    >>> list(_even([0, 2, 4, 5, 6], 9)), list(_even([0, 1, 2], 2))
    ([[0, 2, 4], [5, 6]], [[0, 1], [2]])
    """
    group: list[int] = []
    for number in numbers:
        fits = len(group) < 2 or number - group[-1] == group[1] - group[0]
        if len(group) == most or not fits:
            yield group
            group = []
        group.append(number)
    yield group
