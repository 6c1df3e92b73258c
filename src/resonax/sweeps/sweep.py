"""A sweep: its specification, its layout in a store, and the computation of its tasks."""

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

_RUN_VARIABLES = {
    "run_log_response": "logarithm of the response of each run",
    "run_rate": "growth per step of each run, from the middle to the end",
}


def sweep_specification(sweep: Sweep) -> dict[str, Any]:
    """Return all that the results of a sweep depend on, as plain values."""
    descriptive = {"title", "paper", "caption", "deviations", "smoke"}
    table = sweep.model_dump(mode="json", exclude=descriptive)
    for panel in table["panels"]:
        del panel["label"], panel["reading"], panel["smoke"]
    table["chunk"] = described_chunk(sweep)
    table["axes"] = {name: points.tolist() for name, points in sweep.points().items()}
    return table


def sweep_layout(sweep: Sweep) -> Layout:
    """Return the layout of a sweep, in which a task is a panel or a part of one."""
    points = sweep.points()
    first, second = points
    dims = ("panel", first, second)
    variables = {
        name: Variable(dims, "float64", {"long_name": words}) for name, words in STATISTICS.items()
    }
    for name, words in _RUN_VARIABLES.items():
        variables[name] = Variable((*dims, "run"), "float64", {"long_name": words})
    for criterion in sweep.theory.criteria if sweep.theory else ():
        words = f"rate per step by the criterion {criterion}: {CRITERIA[criterion]}"
        variables[f"{criterion}_rate"] = Variable(dims, "float64", {"long_name": words})
        for end in ("low", "high") if criterion in COSTLY else ():
            words = f"{end} end of the range of {criterion} at the computed points around a cell"
            variables[f"{criterion}_{end}"] = Variable(dims, "float64", {"long_name": words})
    for number in range(len(sweep.panels)):
        build_training(sweep, number)  # raises errors before anything is written
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
    """Return the indices of an axis that lie inside the limits of a panel."""
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
    """Return the variables of one task; cells outside the limits of the panel are nan.

    ``advance`` is called with the share of the task just finished.
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
    values |= {name: np.full((*shape, runs), np.nan) for name in _RUN_VARIABLES}
    if len(rows) and len(columns):
        inner = {first: points[first][rows], second: part[columns]}
        labels = cell_labels(number, len(rows), columns + offset, share=sweep.share)
        responses = _simulate(sweep, number, inner, labels, seed, double, advance)
        cells = 0, *np.ix_(rows, columns)
        for name, array in summarise(responses).items():
            values[name][cells] = array
        values["run_log_response"][cells] = responses.log_response
        values["run_rate"][cells] = responses.rate
    return values


def _panel_number(region: Mapping[str, slice]) -> int:
    """Return the number of the panel of a task."""
    return region["panel"].start if "panel" in region else 0


def compute_theory(
    sweep: Sweep, region: Mapping[str, slice], criterion: str
) -> dict[str, np.ndarray]:
    """Return the rates of a criterion for the cells of one task."""
    number = _panel_number(region)
    _, (second, points) = sweep.points().items()
    columns = range(len(points))[region.get(second, slice(None))]
    found = theory_rates(sweep, number, criterion, columns)
    return {f"{criterion}_{name}": array[None] for name, array in found.items()}


def cell_labels(panel: int, rows: int, columns: np.ndarray, *, share: bool) -> np.ndarray:
    """Return unique labels of cells, from which their random numbers are derived.

    If random numbers are shared along the first axis, there is one label for each column, else one
    for each cell, row by row. The lower 32 bits have 8 bits of the panel, 12 of the row and 12 of
    the column; higher bits of these numbers go to the upper 32 bits.

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
    if sweep.share:
        columns, shared = {second: points[second]}, {first: points[first]}
    else:
        grid = np.meshgrid(points[first], points[second], indexing="ij")
        columns, shared = {first: grid[0].ravel(), second: grid[1].ravel()}, {}
    responses = simulate(
        build_training(sweep, number),
        columns,
        shared,
        **resolve(sweep, number).run.model_dump(),
        seed=seed,
        labels=labels,
        double=double,
        advance=advance,
    )
    rows, cols = len(points[first]), len(points[second])
    if sweep.share:  # the cells of a column follow each other
        return Responses(*(array.reshape(cols, rows, -1).swapaxes(0, 1) for array in responses))
    return Responses(*(array.reshape(rows, cols, -1) for array in responses))
