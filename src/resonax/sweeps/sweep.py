"""A sweep: its layout in a store, and what one task of it computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from resonax.core.labels import CRITERIA, LABELS
from resonax.simulation import STATISTICS, Responses, simulate, summarise
from resonax.spec.sweep_checks import resolve
from resonax.spec.sweeps import COSTLY, Panel, Sweep
from resonax.store import Layout, Variable
from resonax.sweeps.build import build_training
from resonax.sweeps.cost import described_chunk, task_points
from resonax.sweeps.theory import theory_rates

__all__ = [
    "compute_sweep",
    "compute_theory",
    "sweep_layout",
    "sweep_specification",
]

_RUN = {
    "run_log_response": "logarithm of the response of each run",
    "run_rate": "growth per step of each run, from the middle to the end",
}


def sweep_specification(sweep: Sweep) -> dict[str, Any]:
    """Return what decides the numbers of a sweep, as plain values."""
    words = {"title", "paper", "caption", "deviations", "smoke"}
    table = sweep.model_dump(mode="json", exclude=words)
    for panel in table["panels"]:
        del panel["label"], panel["reading"], panel["smoke"]
    table["chunk"] = described_chunk(sweep)
    table["axes"] = {name: points.tolist() for name, points in sweep.points().items()}
    return table


def sweep_layout(sweep: Sweep) -> Layout:
    """Return how a sweep is stored: a task is one panel, or a part of one."""
    points = sweep.points()
    first, second = points
    dims = ("panel", first, second)
    variables = {
        name: Variable(dims, "float64", {"long_name": words}) for name, words in STATISTICS.items()
    }
    for name, words in _RUN.items():
        variables[name] = Variable((*dims, "run"), "float64", {"long_name": words})
    for criterion in sweep.theory.criteria if sweep.theory else ():
        words = f"rate per step by the criterion {criterion}: {CRITERIA[criterion]}"
        variables[f"{criterion}_rate"] = Variable(dims, "float64", {"long_name": words})
        for end in ("low", "high") if criterion in COSTLY else ():
            words = f"{end} end of what the computed points around a cell allow for {criterion}"
            variables[f"{criterion}_{end}"] = Variable(dims, "float64", {"long_name": words})
    for number in range(len(sweep.panels)):
        build_training(sweep, number)  # what cannot be built is said before anything is written
    return Layout(
        coords={
            "panel": np.array([panel.name for panel in sweep.panels]),
            **points,
            "run": np.arange(sweep.run.runs),
        },
        chunks={"panel": 1, second: task_points(sweep)},
        variables=variables,
        coord_attributes={name: _label(name) for name in points},
    )


def _label(name: str) -> dict[str, str]:
    meaning, symbol, unit = LABELS.get(name, (name, "", "1"))
    return {"long_name": meaning, "symbol": symbol, "units": unit}


def _inside(panel: Panel, name: str, points: np.ndarray) -> np.ndarray:
    """Return the places of an axis that a panel computes."""
    low, high = panel.limits.get(name, (-np.inf, np.inf))
    return np.flatnonzero((points >= low) & (points <= high))


def compute_sweep(
    sweep: Sweep,
    region: Mapping[str, slice],
    *,
    seed: int,
    double: bool = False,
    advance: Callable[[float], None] | None = None,
) -> dict[str, np.ndarray]:
    """Return what the runs of one task give; cells outside a panel's limits are nan.

    ``advance`` is told the share of it just finished.
    """
    number = _panel_number(region)
    panel = sweep.panels[number]
    points = sweep.points()
    first, second = points
    part = points[second][region.get(second, slice(None))]
    offset = region[second].start if second in region else 0
    rows, columns = _inside(panel, first, points[first]), _inside(panel, second, part)
    shape = (1, len(points[first]), len(part))
    runs = sweep.run.runs
    values = {name: np.full(shape, np.nan) for name in STATISTICS}
    values |= {name: np.full((*shape, runs), np.nan) for name in _RUN}
    if len(rows) and len(columns):
        inner = {first: points[first][rows], second: part[columns]}
        labels = cell_labels(number, len(rows), columns + offset, share=sweep.share)
        found = _simulate(sweep, number, inner, labels, seed, double, advance)
        place = 0, *np.ix_(rows, columns)
        for name, array in summarise(found).items():
            values[name][place] = array
        values["run_log_response"][place] = found.log_response
        values["run_rate"][place] = found.rate
    return values


def _panel_number(region: Mapping[str, slice]) -> int:
    """Return which panel a task is of."""
    return region["panel"].start if "panel" in region else 0


def compute_theory(
    sweep: Sweep, region: Mapping[str, slice], criterion: str
) -> dict[str, np.ndarray]:
    """Return what a criterion says of the cells of one task."""
    number = _panel_number(region)
    _, (second, points) = sweep.points().items()
    columns = range(len(points))[region.get(second, slice(None))]
    found = theory_rates(sweep, number, criterion, columns)
    return {f"{criterion}_{name}": array[None] for name, array in found.items()}


def cell_labels(panel: int, rows: int, columns: np.ndarray, *, share: bool) -> np.ndarray:
    """Return the labels by which cells get their random numbers, no two of them equal.

    Shared: one for each column. Not shared: one for each cell, row by row; the lower words have
    8 bits of the panel, 12 of the row and 12 of the column, and what is above these goes to the
    upper words.

    Examples
    --------
    >>> [hex(label) for label in cell_labels(1, 2, np.array([5, 4096]), share=False)]
    ['0x1000005', '0x101000000', '0x1001005', '0x101001000']
    """
    columns = np.asarray(columns, np.int64)
    if share:
        return panel * 2**20 + columns
    row, column = np.arange(rows)[:, None], columns[None, :]
    lower = panel % 2**8 * 2**24 + row % 2**12 * 2**12 + column % 2**12
    upper = (panel >> 8) * 2**20 + (row >> 12) * 2**10 + (column >> 12)
    return (upper * 2**32 + lower).ravel()


def _simulate(
    sweep: Sweep,
    number: int,
    points: Mapping[str, np.ndarray],
    labels: np.ndarray,
    seed: int,
    double: bool,
    advance: Callable[[float], None] | None,
) -> Responses:
    """Return the responses of a panel, (first axis, second axis, runs)."""
    first, second = points
    columns, shared = {second: points[second]}, {first: points[first]}
    if not sweep.share:
        grid = np.meshgrid(points[first], points[second], indexing="ij")
        columns, shared = {first: grid[0].ravel(), second: grid[1].ravel()}, {}
    found = simulate(
        build_training(sweep, number),
        columns,
        shared,
        **resolve(sweep, number).run.model_dump(),
        seed=seed,
        labels=labels,
        double=double,
        advance=advance,
    )
    shape = len(points[first]), len(points[second]), -1
    if sweep.share:
        turned = len(points[second]), len(points[first]), -1
        return Responses(*(array.reshape(turned).swapaxes(0, 1) for array in found))
    return Responses(*(array.reshape(shape) for array in found))
