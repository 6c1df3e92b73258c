"""From a TOML file or a table to a sweep that can be run: its panels, axes, theory and size.

All that can be known of a sweep without running it is checked here, before jax is loaded.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pydantic import ValidationError

from resonax.core.errors import ArgumentError, shorten, suggest
from resonax.spec.kinds import KINDS, Kind, check_kind, find_kind, kinds
from resonax.spec.models import NameFormat, first_mistake, read
from resonax.spec.settings import SIGNALLED
from resonax.spec.sweeps import COSTLY, FILE_LIMITS, PERIODIC, Panel, Run, Sweep, Train

__all__ = ["Cell", "count_weights", "kind_of", "parse_sweep", "read_sweep", "resolve", "rows_drawn"]

MAX_WEIGHTS = 24  # of a linear model
MAX_UNROLLED = 1024  # features of a batch whose rows are drawn one by one: the loop lists them
MAX_INPUTS = 2**18  # of a network in one step, in all coordinates: each has its slot
MAX_BATCHES = 32  # on the second axis: each is compiled on its own
TRAIN_AXES = ("batch", "noise", "start", "drift")  # numbers of the table train that may be axes


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
        own = [name for part, table in parts for name in kind_of(part, table).varying]
        return (*own, *TRAIN_AXES)


def _name_format(panel: Panel, number: int, part: str) -> NameFormat:
    """Return the function from a key of a merged table to its path in the file."""
    own = getattr(panel, part)

    def format_name(key: str) -> str:
        home = f"panels.{number}." if key in own else ""
        return f"{home}{part}.{shorten(key, 40).strip(chr(39))}"

    return format_name


def _check_table(
    part: str, table: Mapping[str, Any], axes: Mapping[str, np.ndarray], format_name: NameFormat
) -> None:
    """Raise `ArgumentError` unless a table, panels merged, is one of its part's kinds.

    Numbers of the axes are checked at both ends, as if each had been given on its own.
    """
    name = table.get("kind", "linear" if part == "model" else None)
    if name is None:
        raise ArgumentError(
            f"{format_name('kind')} is missing: one of {', '.join(kinds(part, 'sweep'))}"
        )
    given = {key: value for key, value in table.items() if key != "kind"}
    varying = find_kind(part, name, "sweep", format_name("kind")).varying
    numbers = {key: array for key, array in axes.items() if key in varying}
    for key in numbers.keys() & given.keys():
        raise ArgumentError(f"{format_name(key)} is given and is an axis: leave one of them out")
    if "period" in numbers:  # 0 is the same inputs in random order
        periods = numbers["period"]
        numbers["period"] = periods[periods != 0] if periods.any() else np.array([2.0])
    for end in (0, -1):
        ends = {key: float(array[end]) for key, array in numbers.items()}
        ends |= {"dim": int(ends["dim"])} if "dim" in ends else {}
        check_kind(
            part,
            name,
            given | ends,
            use="sweep",
            axes=axes,
            format_name=lambda key: f"axes.{key}" if key in numbers else format_name(key),
        )


def resolve(sweep: Sweep, number: int) -> Cell:
    """Return the tables of a panel; raise `ArgumentError` for one that cannot be used."""
    panel, points = sweep.panels[number], sweep.points()
    tables = {part: sweep.merged(panel, part) for part in KINDS}
    for part, table in tables.items():
        _check_table(part, table, points, _name_format(panel, number, part))
    made: dict[str, Any] = {}
    for part, model in (("train", Train), ("run", Run)):
        place = f"panels.{number}.{part}" if getattr(panel, part) else part
        for name in getattr(panel, part):
            if name in points:
                raise ArgumentError(f"{place}.{name} is given and is an axis: leave one out")
        made[part] = read(model, sweep.merged(panel, part), place=place)
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
        _check_drift(cell, points)
        _check_size(sweep, cell, points)
        if sweep.theory:
            _check_theory(sweep, cell, points)


def _check_axes(cell: Cell, points: Mapping[str, np.ndarray]) -> None:
    known = cell.varying()
    for name, array in points.items():
        if name not in known:
            raise suggest("axis", name, known)
        if name in ("dim", "batch") and (array != np.round(array)).any():
            bad = float(array[array != np.round(array)][0])
            raise ArgumentError(f"axes.{name} must be whole numbers, got {bad:g}")
        if name in TRAIN_AXES:
            for end in (array[0], array[-1]):
                given = {name: int(end) if name == "batch" else float(end)}
                read(Train, given, place="axes")


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


def _check_drift(cell: Cell, points: Mapping[str, np.ndarray]) -> None:
    if not cell.train.drift and not points.get("drift", np.zeros(1)).any():
        return
    if cell.is_network:
        raise ArgumentError("train.drift is for linear models: a network has a target of its own")
    if cell.process["kind"] not in SIGNALLED:
        raise ArgumentError(
            f"train.drift needs a process that moves, one of {', '.join(SIGNALLED)}, "
            f"got {cell.process['kind']}"
        )
    if "dim" in points:
        raise ArgumentError("axes.dim cannot vary where the target drifts")


def _check_size(sweep: Sweep, cell: Cell, points: Mapping[str, np.ndarray]) -> None:
    batch, dim = cell.batch(points), cell.dim(points)
    first = next(iter(points))
    if cell.is_network:
        if "dim" in points:
            raise ArgumentError("axes.dim cannot vary for a network")
        if sweep.share and first == "batch":
            raise ArgumentError("axes must name batch last for a network")
        if batch * dim > MAX_INPUTS:
            raise ArgumentError(
                f"train.batch must be at most {MAX_INPUTS // dim} for a network of {dim} inputs, "
                f"got {batch}"
            )
    else:
        if "dim" in points and cell.model.get("kind", "linear") != "linear":
            raise ArgumentError("axes.dim can vary for the linear model only")
        weights = count_weights(cell.model, dim)
        if weights > MAX_WEIGHTS:
            raise ArgumentError(f"model must have at most {MAX_WEIGHTS} weights, got {weights}")
        for name in ("frequencies", "centers"):
            if name in cell.model and len(cell.model[name][0]) != dim:
                raise ArgumentError(
                    f"model.{name} must have {dim} numbers in each row, one for each input, "
                    f"got {len(cell.model[name][0])}"
                )
        rows = rows_drawn(sweep, cell, points)
        if rows * weights > MAX_UNROLLED:
            raise ArgumentError(
                f"train.batch must be at most {MAX_UNROLLED // weights} where its rows are drawn "
                f"one by one and the model has {weights} weights, got {batch}"
            )
    if "batch" in points and not (sweep.share and first == "batch"):
        kinds = len(points["batch"])
        if kinds > MAX_BATCHES:
            raise ArgumentError(
                f"axes.batch must have at most {MAX_BATCHES} values where it is the second axis, "
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
    _check_table("process", table, points, "theory.process.{}".format)
    if table["kind"] not in PERIODIC:
        raise suggest("theory.process.kind", table["kind"], PERIODIC)
    for name in set(points) & set(kind_of("process", cell.process).varying):
        if name not in kind_of("process", table).varying:
            raise ArgumentError(f"theory.process: {table['kind']} has no {name}, which is an axis")
    if table.get("dim", 1) != cell.dim(points):
        raise ArgumentError(
            f"theory.process.dim must be that of the process, {cell.dim(points)}, "
            f"got {table.get('dim', 1)}"
        )


def _check_depth(table: Any) -> None:
    """Raise `ArgumentError` where tables or lists are nested without end."""
    entries = [table]
    for _ in range(FILE_LIMITS["depth"]):
        inner = [part.values() if isinstance(part, Mapping) else part for part in entries]
        entries = [entry for part in inner for entry in part if isinstance(entry, Mapping | list)]
        if not entries:
            return
    raise ArgumentError(f"tables and lists must be nested at most {FILE_LIMITS['depth']} deep")


def _replaced(table: dict[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested table with some of its entries replaced."""
    result = dict(table)
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


def _at_smoke(table: dict[str, Any]) -> dict[str, Any]:
    """Return a table with what its tables ``smoke`` replace."""
    plain = dict(table)
    for home in [plain, *(plain["panels"] if isinstance(plain.get("panels"), list) else [])]:
        if isinstance(home, Mapping) and not isinstance(home.get("smoke", {}), Mapping):
            raise ArgumentError(f"smoke must be a table, got {shorten(home['smoke'])}")
    plain = _replaced(plain, plain.get("smoke", {}))
    if isinstance(panels := plain.get("panels"), list):
        plain["panels"] = [
            _replaced(panel, panel.get("smoke", {})) if isinstance(panel, dict) else panel
            for panel in panels
        ]
    return plain


def parse_sweep(table: Mapping[str, Any], *, scale: str = "paper", where: str = "sweep") -> Sweep:
    """Return the sweep that a table describes, at one of its scales; both must be valid.

    Examples
    --------
    >>> table = {"id": "mine", "process": {"kind": "sinusoid"}, "axes": {}}
    >>> parse_sweep(table, where="mine.toml")
    Traceback (most recent call last):
    resonax.ArgumentError: mine.toml: optimizer is missing
    """
    if scale not in ("smoke", "paper"):
        raise suggest("scale", scale, ("smoke", "paper"))

    def valid(table: Mapping[str, Any]) -> Sweep:
        sweep = Sweep.model_validate(table)
        check_sweep(sweep)
        return sweep

    try:
        _check_depth(table)
        small = _at_smoke(dict(table))
        sweep = valid(table)
        if small != table:
            small = valid(small)
            return small if scale == "smoke" else sweep
        return sweep
    except ValidationError as error:
        raise ArgumentError(f"{where}: {first_mistake(error)}") from None
    except ArgumentError as error:
        raise ArgumentError(f"{where}: {error}") from None


def read_sweep(path: Path, *, scale: str = "paper") -> Sweep:
    """Read and check a sweep from a TOML file."""
    try:
        if path.exists() and not path.is_file():
            raise ArgumentError(f"{path} must be a file, a TOML file that describes a sweep")
        if path.stat().st_size > FILE_LIMITS["bytes"]:
            raise ArgumentError(
                f"{path} must have at most {FILE_LIMITS['bytes']} bytes, got {path.stat().st_size}"
            )
        table = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ArgumentError(f"{path} could not be read: {error.strerror}") from None
    except RecursionError:
        raise ArgumentError(
            f"{path}: tables and lists must be nested at most {FILE_LIMITS['depth']} deep"
        ) from None
    except ArgumentError:
        raise
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ArgumentError(f"{path} is not TOML: {str(error)[:200]}") from None
    except ValueError:
        raise ArgumentError(f"{path} has a whole number of more than 4300 digits") from None
    return parse_sweep(table, scale=scale, where=path.name)
