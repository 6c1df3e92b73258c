"""What a sweep must be as a whole: its panels with its axes, its theory, and how large it is."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from resonax.core.errors import ArgumentError, check_range, shorten, suggest
from resonax.registry import KINDS, Kind, check_kind, kinds
from resonax.sweeps.panels import COSTLY, PERIODIC
from resonax.sweeps.schema import Panel, Run, Sweep, Train, first_mistake

__all__ = ["Cell", "check_sweep", "count_weights", "kind_of", "resolve", "rows_drawn"]

MOST_WEIGHTS = 24  # of a linear model
MOST_UNROLLED = 1024  # features of a batch whose rows are drawn one by one: the loop lists them
MOST_INPUTS = 2**18  # of a network in one step, in all coordinates: each has its slot
MOST_BATCHES = 32  # on the second axis: each is compiled on its own
TRAIN_AXES = ("batch", "noise", "start")  # numbers of the table train that may be axes


def kind_of(part: str, table: Mapping[str, Any]) -> Kind:
    """Return the kind of a table; a model is linear if it does not say."""
    return KINDS[part][table.get("kind", "linear")]


class Cell(NamedTuple):
    """A panel's tables with those of the sweep, checked; numbers that axes set are not in them."""

    process: Mapping[str, Any]
    model: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    train: Train
    run: Run

    @property
    def is_network(self) -> bool:
        """Whether the model is a network."""
        return self.model.get("kind", "linear") == "network"

    def dim(self, points: Mapping[str, np.ndarray]) -> int:
        """Return the number of inputs, the largest where that is an axis."""
        return int(points["dim"].max()) if "dim" in points else int(self.process.get("dim", 1))

    def batch(self, points: Mapping[str, np.ndarray]) -> int:
        """Return the number of samples a step, the largest where that is an axis."""
        return int(points["batch"].max()) if "batch" in points else self.train.batch

    def varying(self) -> tuple[str, ...]:
        """Return the numbers that may be axes."""
        parts = (("optimizer", self.optimizer), ("process", self.process))
        own = [name for part, table in parts for name in kind_of(part, table).varying()]
        return (*own, *TRAIN_AXES)


def _places(panel: Panel, number: int, part: str) -> Callable[[str], str]:
    """Return the function from a key of a merged table to its path in the file."""
    own = getattr(panel, part)

    def place(key: str) -> str:
        home = f"panels.{number}." if key in own else ""
        return f"{home}{part}.{shorten(key, 40).strip(chr(39))}"

    return place


def _check_table(
    part: str, table: Mapping[str, Any], axes: Collection[str], place: Callable[[str], str]
) -> None:
    """Raise `ArgumentError` unless a table, panels merged, is one of its part's kinds."""
    name = table.get("kind", "linear" if part == "model" else None)
    if name is None:
        raise ArgumentError(f"{place('kind')} is missing: one of {', '.join(kinds(part, 'sweep'))}")
    given = {key: value for key, value in table.items() if key != "kind"}
    kind = check_kind(part, name, given, use="sweep", axes=axes, place=place)
    for key in given.keys() & set(axes) & set(kind.varying()):
        raise ArgumentError(f"{place(key)} is given and is an axis: leave one of them out")


def resolve(sweep: Sweep, number: int) -> Cell:
    """Return the tables of a panel; raise `ArgumentError` for one that cannot be used."""
    panel, points = sweep.panels[number], sweep.points()
    tables = {}
    for part in KINDS:
        tables[part] = sweep.merged(panel, part)
        axes = tuple(points)
        given = dict(tables[part])
        if part == "process" and "dim" in points and "dim" not in given:
            given["dim"] = int(points["dim"].max())
            axes = tuple(name for name in points if name != "dim")
        _check_table(part, given, axes, _places(panel, number, part))
    made: dict[str, Any] = {}
    for part, kind in (("train", Train), ("run", Run)):
        place = f"panels.{number}.{part}" if getattr(panel, part) else part
        for name in getattr(panel, part):
            if name in points:
                raise ArgumentError(f"{place}.{name} is given and is an axis: leave one out")
        try:
            made[part] = kind.model_validate(sweep.merged(panel, part))
        except ValidationError as error:
            raise ArgumentError(first_mistake(error, place)) from None
    if made["run"].runs != sweep.run.runs:
        raise ArgumentError(
            f"panels.{number}.run.runs must be that of the sweep, {sweep.run.runs}, "
            f"got {made['run'].runs}"
        )
    return Cell(tables["process"], tables["model"], tables["optimizer"], **made)


def check_sweep(sweep: Sweep) -> None:
    """Raise `ArgumentError` for a sweep that cannot be run, before anything is made for it."""
    points = sweep.points()
    for number, panel in enumerate(sweep.panels):
        cell = resolve(sweep, number)
        _check_axes(cell, points)
        _check_limits(panel, number, points)
        _check_size(sweep, cell, points)
        if sweep.theory:
            _check_theory(sweep, cell, points)


def _check_axes(cell: Cell, points: Mapping[str, np.ndarray]) -> None:
    """Check every number that an axis takes, as if each had been given on its own."""
    known = cell.varying()
    for name, array in points.items():
        if name not in known:
            raise suggest("axis", name, known)
        if name in ("dim", "batch") and (array != np.round(array)).any():
            bad = float(array[array != np.round(array)][0])
            raise ArgumentError(f"axes.{name} must be whole numbers, got {bad:g}")
        numbers = array[array != 0] if name == "period" else array  # 0: in random order
        for number in numbers[[0, -1]] if numbers.size else ():
            try:
                check_range(name, float(number))
                if name == "period":  # AR(2) has a lower end of its own
                    kind_of("process", cell.process).fields[name].check(name, float(number))
            except ArgumentError as error:
                raise ArgumentError(f"axes.{error}") from None


def _check_limits(panel: Panel, number: int, points: Mapping[str, np.ndarray]) -> None:
    for name, (low, high) in panel.limits.items():
        place = f"panels.{number}.limits.{shorten(name, 40).strip(chr(39))}"
        if name not in points:
            raise ArgumentError(f"{place} is not an axis, use one of {', '.join(points)}")
        if not ((points[name] >= low) & (points[name] <= high)).any():
            raise ArgumentError(f"{place} must leave a point of the axis, got {low:g} to {high:g}")


def rows_drawn(sweep: Sweep, cell: Cell, points: Mapping[str, np.ndarray]) -> int:
    """Return how many rows stand for a batch: all, or mean and scatter of a larger one."""
    batch, dim = cell.batch(points), cell.dim(points)
    first = next(iter(points))
    listed = (
        cell.is_network
        or cell.model.get("kind", "linear") != "linear"
        or "dim" in points
        or (sweep.share and first == "batch")
        or (points.get("period", np.ones(1)) == 0).any()
    )
    return batch if listed or batch <= dim + 1 else dim + 1


def count_weights(model: Mapping[str, Any], dim: int) -> int:
    """Return the number of weights of a model.

    Examples
    --------
    >>> count_weights({"kind": "polynomial", "degree": 2}, 2)  # 1, x, y, x^2, xy, y^2
    6
    """
    kind = model.get("kind", "linear")
    if kind == "polynomial":
        return math.comb(dim + model.get("degree", 2), dim)
    if kind == "fourier":
        return 1 + 2 * len(model["frequencies"])
    if kind == "radial":
        return 1 + len(model["centers"])
    if kind == "network":
        widths = (dim, *model.get("hidden", (20, 20)), 1)
        return sum((before + 1) * after for before, after in itertools.pairwise(widths))
    return dim + model.get("bias", True)


def _check_size(sweep: Sweep, cell: Cell, points: Mapping[str, np.ndarray]) -> None:
    batch, dim = cell.batch(points), cell.dim(points)
    first = next(iter(points))
    if cell.is_network:
        if "dim" in points:
            raise ArgumentError("axes.dim cannot vary for a network")
        if sweep.share and first == "batch":
            raise ArgumentError("axes must name batch last for a network")
        if batch * dim > MOST_INPUTS:
            raise ArgumentError(
                f"train.batch must be at most {MOST_INPUTS // dim} for a network of {dim} inputs, "
                f"got {batch}"
            )
    else:
        if "dim" in points and cell.model.get("kind", "linear") != "linear":
            raise ArgumentError("axes.dim can vary for the linear model only")
        weights = count_weights(cell.model, dim)
        if weights > MOST_WEIGHTS:
            raise ArgumentError(f"model must have at most {MOST_WEIGHTS} weights, got {weights}")
        for name in ("frequencies", "centers"):
            if name in cell.model and len(cell.model[name][0]) != dim:
                raise ArgumentError(
                    f"model.{name} must have {dim} numbers in each row, one for each input, "
                    f"got {len(cell.model[name][0])}"
                )
        rows = rows_drawn(sweep, cell, points)
        if rows * weights > MOST_UNROLLED:
            raise ArgumentError(
                f"train.batch must be at most {MOST_UNROLLED // weights} where its rows are drawn "
                f"one by one and the model has {weights} weights, got {batch}"
            )
    if "batch" in points and not (sweep.share and first == "batch"):
        kinds = len(points["batch"])
        if kinds > MOST_BATCHES:
            raise ArgumentError(
                f"axes.batch must have at most {MOST_BATCHES} values where it is the second axis, "
                f"got {kinds}"
            )


def _check_theory(sweep: Sweep, cell: Cell, points: Mapping[str, np.ndarray]) -> None:
    assert sweep.theory is not None
    if cell.is_network or not kind_of("optimizer", cell.optimizer).is_linear:
        known = ", ".join(kinds("optimizer", "stability"))
        raise ArgumentError(f"theory needs a model other than network, and one of {known}")
    for name, array in points.items():
        if name in ("start", "dim"):  # no number of a setting
            raise ArgumentError(f"theory cannot vary {name}, which is an axis")
        if name == "period" and array[0] == 0:
            raise ArgumentError("theory needs periods above 0, leave the period of 0 out")
        if set(COSTLY) & set(sweep.theory.criteria) and len(array) < 2:
            raise ArgumentError(f"theory needs at least 2 points of the axis {name}, got 1")
    table = sweep.theory.process
    if not table:
        return
    _check_table("process", table, tuple(points), lambda key: f"theory.process.{key}")
    if table["kind"] not in PERIODIC:
        raise suggest("theory.process.kind", table["kind"], PERIODIC)
    for name in set(points) & set(kind_of("process", cell.process).varying()):
        if name not in kind_of("process", table).varying():
            raise ArgumentError(f"theory.process: {table['kind']} has no {name}, which is an axis")
    if table.get("dim", 1) != cell.dim(points):
        raise ArgumentError(
            f"theory.process.dim must be that of the process, {cell.dim(points)}, "
            f"got {table.get('dim', 1)}"
        )
