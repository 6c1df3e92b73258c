"""Sweeps as data: a TOML file that a reader can lay beside the paper's table.

A file names the process, the model, the optimizer, how long is trained and how often, two axes,
and panels: variants that replace some of these numbers, each with the reading it stands for.
"""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from resonax.checks import ArgumentError, suggest

__all__ = ["Axis", "Panel", "Sweep", "parse_sweep", "read_sweep"]

Number = float | int


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Axis(_Strict):
    """The values of one axis: a list, or a range of evenly spaced points.

    ``spacing`` says in what the points are evenly spaced: the number itself, its logarithm or its
    inverse (for a period: the frequency). A period of 0 is the same inputs in random order.
    """

    values: tuple[Number, ...] | None = None
    first: Number | None = None
    last: Number | None = None
    count: int | None = Field(default=None, ge=1, le=100_000)
    spacing: Literal["linear", "log", "inverse"] = "linear"
    root: bool = False  # the points are the square roots: a standard deviation given as a variance

    @model_validator(mode="after")
    def _one_form(self) -> Axis:
        ranged = [self.first, self.last, self.count]
        if self.values is not None:
            if any(part is not None for part in ranged) or not self.values:
                raise ValueError("give either values or first, last and count")
        elif any(part is None for part in ranged):
            raise ValueError("give values, or first, last and count")
        elif self.spacing != "linear" and min(self.first, self.last) <= 0:  # pyright: ignore
            raise ValueError(f"must be above 0 for the spacing {self.spacing}")
        return self

    def points(self) -> np.ndarray:
        """Return the values, in increasing order."""
        if self.values is not None:
            points = np.array(self.values, float)
        else:
            first, last, count = float(self.first or 0), float(self.last or 0), int(self.count or 1)
            if self.spacing == "linear":
                points = np.linspace(first, last, count)
            elif self.spacing == "log":
                points = np.geomspace(first, last, count)
            else:
                points = 1 / np.linspace(1 / first, 1 / last, count)
        points = np.sort((np.sqrt(points) if self.root else points).round(12))
        if (np.diff(points) <= 0).any():
            raise ArgumentError("the values of an axis must differ from each other")
        return points


class Train(_Strict):
    """How one run is made."""

    batch: int = Field(default=1, ge=1)
    noise: float = Field(default=0.0, ge=0)
    start: float = Field(default=1.0, gt=0)
    start_law: Literal["uniform", "normal"] = "uniform"
    reduction: Literal["mean", "sum"] = "mean"


class Run(_Strict):
    """How long and how often: the response is the mean over the last ``window`` steps."""

    runs: int = Field(default=10, ge=1)
    steps: int = Field(default=10_000, ge=40, multiple_of=40)
    window: int = Field(default=500, ge=20, multiple_of=20)


class Panel(_Strict):
    """A variant: what it replaces, the reading it stands for, and where its axes end."""

    name: str = Field(min_length=1)
    reading: str = ""
    process: dict[str, Any] = {}
    model: dict[str, Any] = {}
    optimizer: dict[str, Any] = {}
    train: dict[str, Any] = {}
    run: dict[str, int] = {}
    limits: dict[str, tuple[Number, Number]] = {}
    smoke: dict[str, Any] = {}


class Theory(_Strict):
    """Criteria to compute beside the simulation, and on how many points of each axis at most."""

    criteria: tuple[Literal["flow", "map", "mean_square", "lyapunov"], ...]
    points: tuple[int, int] = (1000, 1000)
    process: dict[str, Any] = {}  # the process that the criteria judge, where it is another


class Sweep(_Strict):
    """One figure's sweep."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$")
    title: str = ""
    paper: str = ""
    caption: str = ""
    deviations: tuple[str, ...] = ()  # where it departs from the paper, or the paper is silent
    process: dict[str, Any]
    model: dict[str, Any] = {"kind": "linear"}
    optimizer: dict[str, Any]
    train: Train = Train()
    run: Run = Run()
    axes: dict[str, Axis]
    share: bool = True  # cells along the first axis share their random numbers
    chunk: int = Field(default=100_000, ge=1)  # points of the second axis that are one task
    panels: tuple[Panel, ...] = (Panel(name="all"),)
    theory: Theory | None = None
    smoke: dict[str, Any] = {}

    @model_validator(mode="after")
    def _two_axes(self) -> Sweep:
        if len(self.axes) != 2:
            raise ValueError(f"axes: give two, got {len(self.axes)}")
        if next(iter(self.axes)) == "period":
            raise ValueError("axes: name period last, as streams of other periods are not shared")
        names = [panel.name for panel in self.panels]
        if len(set(names)) < len(names):
            raise ValueError("panels: their names must differ")
        for panel in self.panels:
            for axis in panel.limits:
                if axis not in self.axes:
                    raise ValueError(f"panels.{panel.name}.limits: {axis} is not an axis")
        return self

    def points(self) -> dict[str, np.ndarray]:
        """Return the values of both axes."""
        return {name: axis.points() for name, axis in self.axes.items()}

    def merged(self, panel: Panel, part: str) -> dict[str, Any]:
        """Return a table of the sweep with what a panel replaces; another kind replaces it all."""
        own = getattr(self, part)
        base: dict[str, Any] = dict(own) if isinstance(own, dict) else own.model_dump()
        given = getattr(panel, part)
        if "kind" in given and given["kind"] != base.get("kind"):
            return dict(given)
        return {**base, **given}


def _sentence(where: str, error: ValidationError) -> str:
    """Return the first mistake as one sentence with its path."""
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    place = f"{where}: {path}" if path else where
    if first["type"] == "extra_forbidden":
        home: Any = Sweep.model_fields
        parents = {"train": Train, "run": Run, "panels": Panel, "theory": Theory, "axes": Axis}
        if len(first["loc"]) > 1 and str(first["loc"][0]) in parents:
            home = parents[str(first["loc"][0])].model_fields
        return f"{place} is not a known key, use one of {', '.join(home)}"
    if first["type"] == "missing":
        return f"{place} is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"{place} {message[0].lower()}{message[1:]}, got {str(first['input'])[:60]}"


def _replaced(table: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested table with some of its entries replaced."""
    result = copy.deepcopy(table)
    for name, change in changes.items():
        # A list of values replaces a range, and the other way round.
        if isinstance(change, Mapping) and isinstance(result.get(name), dict):
            inner = result[name]
            if "values" in change or ("values" in inner and "count" in change):
                inner = {}
            result[name] = _replaced(inner, change)
        else:
            result[name] = change
    return result


def parse_sweep(table: Mapping[str, Any], *, scale: str = "paper", where: str = "sweep") -> Sweep:
    """Return the sweep that a table describes, at one of its scales.

    Examples
    --------
    >>> table = {"id": "mine", "process": {"kind": "sinusoid"}, "axis": {}}
    >>> parse_sweep(table, where="mine.toml")
    Traceback (most recent call last):
    resonax.checks.ArgumentError: mine.toml: optimizer is missing
    """
    plain = dict(table)
    if scale == "smoke":
        plain = _replaced(plain, plain.get("smoke", {}))
        if isinstance(panels := plain.get("panels"), list):
            plain["panels"] = [_replaced(panel, panel.get("smoke", {})) for panel in panels]
    elif scale != "paper":
        raise suggest("scale", scale, ("smoke", "paper"))
    try:
        return Sweep.model_validate(plain)
    except ValidationError as error:
        raise ArgumentError(_sentence(where, error)) from None


def read_sweep(path: Path, *, scale: str = "paper") -> Sweep:
    """Read and check a sweep from a TOML file."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise ArgumentError(f"{path} could not be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is not TOML: {error}") from None
    return parse_sweep(table, scale=scale, where=path.name)
