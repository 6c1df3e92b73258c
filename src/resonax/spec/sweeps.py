"""Sweeps as data: a TOML file that a reader can lay beside the paper's table.

A file names the process, the model, the optimizer, how long is trained and how often, two axes,
and panels: variants that replace some of these numbers, each with the reading it stands for.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import AfterValidator, Field, Strict, model_validator

from resonax.spec.models import Spec

__all__ = ["COSTLY", "FILE_LIMITS", "PERIODIC", "Axis", "Panel", "Run", "Sweep", "Train", "merge"]

# What a file may hold at most; docs/sweep.md has the table.
FILE_LIMITS = {
    "bytes": 1_000_000,
    "depth": 8,  # tables within tables
    "title": 200,  # characters
    "name": 100,
    "prose": 4_000,
    "panels": 24,
    "points": 100_000,  # of an axis
    "runs": 100_000,
    "steps": 100_000_000,
    "theory points": 1_000,
}
PERIODIC = ("iid", "sinusoid", "square")  # processes whose law repeats: the others are random
COSTLY = ("mean_square", "lyapunov")  # criteria that are computed at some cells, and interpolated
_BIDI = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def _plain_text(most: int, lines: bool = False) -> AfterValidator:
    """Return the check that a text has a bounded length and no control characters."""

    def check(text: str) -> str:
        if len(text) > most:
            raise ValueError(f"must have at most {most} characters, got {len(text)}")
        for letter in text:
            control = unicodedata.category(letter) in ("Cc", "Cs", "Zl", "Zp") or letter in _BIDI
            if control and not (lines and letter in "\r\n\t"):
                raise ValueError(f"must be plain text, got the control character {letter!r}")
        return text

    return AfterValidator(check)


_Title = Annotated[str, _plain_text(FILE_LIMITS["title"])]
_Name = Annotated[str, _plain_text(FILE_LIMITS["name"])]
_Prose = Annotated[str, _plain_text(FILE_LIMITS["prose"], lines=True)]


def _check_magnitude(number: int | float) -> int | float:
    if not -1e300 <= number <= 1e300:
        raise ValueError("must be from -1e300 to 1e300")
    return number


_Number = Annotated[int | float, AfterValidator(_check_magnitude)]
_Pair = Annotated[tuple[_Number, _Number], Strict(False)]
_Table = dict[str, Any]  # one of the kinds of `tables`


def merge(base: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return a table with what a panel replaces in it; another kind replaces all of it.

    Examples
    --------
    >>> merge({"kind": "sgd", "lr": 0.1}, {"lr": 0.2}), merge({"kind": "sgd"}, {"kind": "adam"})
    ({'kind': 'sgd', 'lr': 0.2}, {'kind': 'adam'})
    """
    if "kind" in given and given["kind"] != base.get("kind"):
        return dict(given)
    return {**base, **given}


class Axis(Spec):
    """The values of one axis: a list, or a range of evenly spaced points.

    ``spacing`` says in what the points are evenly spaced: the number itself, its logarithm or its
    inverse (for a period: the frequency). A period of 0 is the same inputs in random order.
    """

    values: (
        Annotated[tuple[_Number, ...], Strict(False), Field(max_length=FILE_LIMITS["points"])]
        | None
    ) = None
    first: _Number | None = None
    last: _Number | None = None
    count: int | None = Field(default=None, ge=1, le=FILE_LIMITS["points"])
    spacing: Literal["linear", "log", "inverse"] = "linear"
    root: bool = False  # the points are the square roots: a standard deviation given as a variance

    @model_validator(mode="after")
    def _one_form(self) -> Axis:
        ranged = [self.first, self.last, self.count]
        if self.values is not None:
            if any(part is not None for part in ranged) or not self.values:
                raise ValueError("must have either values or first, last and count")
            if self.spacing != "linear":
                raise ValueError("must have no spacing where it has values")
        elif self.first is None or self.last is None or self.count is None:
            raise ValueError("must have values, or first, last and count")
        elif self.spacing != "linear" and min(self.first, self.last) <= 0:
            raise ValueError(f"must be above 0 for the spacing {self.spacing}")
        elif self.count == 1 and self.first != self.last:
            raise ValueError("must have a count of at least 2 where first and last differ")
        if self.root and min(self.values or (self.first or 0, self.last or 0)) < 0:
            raise ValueError("must be at least 0 where root is true")
        points = self.points()
        if not (np.abs(points) <= 1e300).all():
            raise ValueError("must be from -1e300 to 1e300")
        if (np.diff(points) <= 0).any():
            raise ValueError("must have values that differ from each other by more than 1e-12")
        return self

    @np.errstate(all="ignore")
    def points(self) -> np.ndarray:
        """Return the values, in increasing order."""
        if self.values is not None:
            points = np.array([float(number) for number in self.values])
        else:
            first, last, count = float(self.first or 0), float(self.last or 0), int(self.count or 1)
            if self.spacing == "linear":
                points = np.linspace(first, last, count)
            elif self.spacing == "log":
                points = np.geomspace(first, last, count)
            else:
                points = 1 / np.linspace(1 / first, 1 / last, count)
        return np.sort((np.sqrt(points) if self.root else points).round(12))


class Train(Spec):
    """How one run is made."""

    batch: int = 1
    noise: float = 0.0
    start: float = 1.0
    start_law: Literal["uniform", "normal"] = "uniform"
    reduction: Literal["mean", "sum"] = "mean"
    drift: float = 0.0
    drift_direction: Annotated[tuple[_Number, ...], Strict(False)] | None = None


class Run(Spec):
    """How long and how often: the response is the mean over the last ``window`` steps."""

    runs: int = Field(default=10, ge=1, le=FILE_LIMITS["runs"])
    steps: int = Field(default=10_000, ge=40, multiple_of=40, le=FILE_LIMITS["steps"])
    window: int = Field(default=500, ge=20, multiple_of=20)

    @model_validator(mode="after")
    def _two_windows(self) -> Run:
        if 2 * self.window > self.steps:
            raise ValueError(
                f"must have steps for two windows, got {self.steps} steps and a window of "
                f"{self.window}"
            )
        return self


class Panel(Spec):
    """A variant: what it replaces, the reading it stands for, and where its axes end.

    ``label`` is what figures call it, if that is not its name.
    """

    name: Annotated[_Name, Field(min_length=1)]
    label: _Name = ""
    reading: _Prose = ""
    process: _Table = {}
    model: _Table = {}
    optimizer: _Table = {}
    train: _Table = {}
    run: _Table = {}
    limits: dict[str, _Pair] = {}
    smoke: _Table = {}


class Theory(Spec):
    """Criteria to compute beside the simulation, and on how many points of each axis at most."""

    criteria: Annotated[
        tuple[Literal["flow", "map", "mean_square", "lyapunov"], ...],
        Strict(False),
        Field(min_length=1, max_length=4),
    ]
    points: Annotated[tuple[int, int], Strict(False)] = (1000, 1000)
    process: _Table = {}  # the process that the flow judges, where it is another

    @model_validator(mode="after")
    def _bounds(self) -> Theory:
        if len(set(self.criteria)) < len(self.criteria):
            raise ValueError("must name each criterion once")
        if not all(2 <= count <= FILE_LIMITS["theory points"] for count in self.points):
            raise ValueError(
                f"must have 2 to {FILE_LIMITS['theory points']} points along each axis"
            )
        return self


class Sweep(Spec):
    """One figure's sweep."""

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")
    title: _Title = ""
    paper: _Title = ""
    caption: _Prose = ""
    # Where it departs from the paper, or the paper is silent.
    deviations: Annotated[tuple[_Prose, ...], Strict(False), Field(max_length=24)] = ()
    process: _Table
    model: _Table = {"kind": "linear"}
    optimizer: _Table
    train: Train = Train()
    run: Run = Run()
    axes: dict[str, Axis]
    share: bool = True  # cells along the first axis share their random numbers
    # Points of the second axis in a task; as many as make a task of a moderate size if None.
    chunk: int | None = Field(default=None, ge=1, le=FILE_LIMITS["points"])
    panels: Annotated[
        tuple[Panel, ...], Strict(False), Field(min_length=1, max_length=FILE_LIMITS["panels"])
    ] = (Panel(name="all"),)
    theory: Theory | None = None
    smoke: _Table = {}

    @model_validator(mode="after")
    def _two_axes(self) -> Sweep:
        if len(self.axes) != 2:
            raise ValueError(f"axes must be two, got {len(self.axes)}")
        if next(iter(self.axes)) == "period":
            raise ValueError("axes must name period last, as streams of other periods differ")
        names = [panel.name for panel in self.panels]
        if len(set(names)) < len(names):
            raise ValueError("panels must have names that differ")
        return self

    def points(self) -> dict[str, np.ndarray]:
        """Return the values of both axes."""
        return {name: axis.points() for name, axis in self.axes.items()}

    def merged(self, panel: Panel, part: str) -> dict[str, Any]:
        """Return a table of the sweep with what a panel replaces; another kind replaces it all."""
        own = getattr(self, part)
        base: dict[str, Any] = dict(own) if isinstance(own, dict) else own.model_dump()
        return merge(base, getattr(panel, part))
