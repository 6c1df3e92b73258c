"""Layout of a store: its variables and coordinates, and how they are cut into tasks."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resonax.core.errors import ArgumentError, check_whole

if TYPE_CHECKING:
    import numpy as np

__all__ = ["FILL", "TASKS", "Layout", "Task", "Variable", "compare"]

# Types of variables, with the value of missing tasks.
FILL = {"float64": math.nan, "float32": math.nan, "int64": 0, "bool": False}
TASKS = "tasks"  # folder of the markers, a zarr group beside the variables


@dataclass(frozen=True)
class Variable:
    """An array of results: its dimensions, its type, and attributes such as the unit."""

    dims: tuple[str, ...]
    dtype: str
    attributes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Layout:
    """Variables and coordinates of a store, and how they are cut into tasks.

    Parameters
    ----------
    coords
        Numbers or texts along each dimension; tasks are numbered with the last dimension fastest.
    chunks
        Length of a chunk along a dimension; other dimensions are not cut.
    variables
        Variables by name; each must have all dimensions that are cut.
    coord_attributes
        Attributes of coordinates, such as units.
    labels
        Further coordinates: the dimension of each, and its numbers or texts.
    """

    coords: Mapping[str, np.ndarray]
    chunks: Mapping[str, int]
    variables: Mapping[str, Variable]
    coord_attributes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    labels: Mapping[str, tuple[str, np.ndarray]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "coords", {k: _values(v) for k, v in self.coords.items()})
        labels = {k: (dim, _values(values)) for k, (dim, values) in self.labels.items()}
        object.__setattr__(self, "labels", labels)
        for name, values in [*self.coords.items(), *((k, v) for k, (_, v) in labels.items())]:
            _check_name("coordinate", name)
            if values.ndim != 1 or values.size == 0 or values.dtype.kind not in "iufU":
                raise ArgumentError(f"the coordinate {name} must be a list of numbers or words")
        for name in [*self.chunks, *self.coord_attributes, *(dim for dim, _ in labels.values())]:
            if name not in self.coords:
                raise ArgumentError(f"the dimension {name} needs a coordinate")
        for name, (dim, values) in labels.items():
            if name in self.coords or len(values) != len(self.coords[dim]):
                raise ArgumentError(f"{name} must be a further coordinate, as long as {dim}")
        for name, length in self.chunks.items():
            check_whole(f"the chunk of {name}", length, low=1)
        if not self.variables:
            raise ArgumentError("a store needs at least one variable")
        for name, variable in self.variables.items():
            self._check(name, variable)

    def _check(self, name: str, variable: Variable) -> None:
        _check_name("variable", name)
        if name in self.coords or name in self.labels:
            raise ArgumentError(f"{name} cannot be both a variable and a coordinate")
        if variable.dtype not in FILL:
            raise ArgumentError(f"the type of {name} must be one of: {', '.join(FILL)}")
        dims = set(variable.dims)
        if len(dims) < len(variable.dims) or not dims <= self.coords.keys():
            raise ArgumentError(f"the dimensions of {name} must differ and have coordinates")
        for dim in self.cut:
            if dim not in variable.dims:
                raise ArgumentError(
                    f"{name} must have the dimension {dim}, as that is cut into chunks"
                )

    @property
    def cut(self) -> tuple[str, ...]:
        """Dimensions that are cut into chunks."""
        return tuple(dim for dim in self.coords if self.chunk(dim) < len(self.coords[dim]))

    def chunk(self, dim: str) -> int:
        """Return the length of a chunk along a dimension."""
        length = len(self.coords[dim])
        return min(int(self.chunks.get(dim, length)), length)

    def count(self) -> int:
        """Return the number of tasks."""
        return math.prod(math.ceil(len(self.coords[dim]) / self.chunk(dim)) for dim in self.cut)

    @property
    def nbytes(self) -> int:
        """Bytes of all variables."""
        import numpy as np

        lengths = {dim: len(values) for dim, values in self.coords.items()}
        return sum(
            np.dtype(variable.dtype).itemsize * math.prod(lengths[dim] for dim in variable.dims)
            for variable in self.variables.values()
        )

    def task(self, number: int) -> Task:
        """Return a task by its number."""
        rest, region = number, {}
        for dim in reversed(self.cut):
            chunk, length = self.chunk(dim), len(self.coords[dim])
            rest, index = divmod(rest, math.ceil(length / chunk))
            region[dim] = slice(chunk * index, min(chunk * (index + 1), length))
        return Task(number, dict(reversed(region.items())))

    def region(self, task: Task, name: str) -> tuple[slice, ...]:
        """Return the slices of a task in a variable, which are whole chunks."""
        dims = self.variables[name].dims
        return tuple(task.region.get(dim, slice(0, len(self.coords[dim]))) for dim in dims)

    def chunk_shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a variable's chunks."""
        return tuple(self.chunk(dim) for dim in self.variables[name].dims)

    def tasks(self) -> list[Task]:
        """Return all tasks, in order."""
        return [self.task(number) for number in range(self.count())]

    def describe(self) -> dict[str, Any]:
        """Return the layout as plain values, which must be equal when a run is resumed."""
        used = {dim for variable in self.variables.values() for dim in variable.dims}
        labels = {name: [dim, values.tolist()] for name, (dim, values) in self.labels.items()}
        variables = {name: dict(one.attributes) for name, one in self.variables.items()}
        coords = {name: dict(words) for name, words in self.coord_attributes.items()}
        return {
            "attributes": {**coords, **variables},
            "labels": labels,
            "dims": list(self.coords),
            "coords": {name: values.tolist() for name, values in self.coords.items()},
            "chunks": {dim: self.chunk(dim) for dim in self.coords if dim in used},
            "variables": {
                name: {"dims": list(variable.dims), "dtype": variable.dtype}
                for name, variable in self.variables.items()
            },
        }

    @classmethod
    def parse(cls, described: Mapping[str, Any]) -> Layout:
        """Return the layout from its description."""
        words = described["attributes"]
        return cls(
            {dim: described["coords"][dim] for dim in described["dims"]},
            described["chunks"],
            {
                name: Variable(tuple(one["dims"]), one["dtype"], words[name])
                for name, one in described["variables"].items()
            },
            {name: words[name] for name in described["dims"] if name in words},
            {name: (dim, values) for name, (dim, values) in described["labels"].items()},
        )


def _values(coordinates: Any) -> np.ndarray:
    """Return coordinates as an array whose type does not depend on that of the input."""
    import numpy as np

    return np.asarray(np.asarray(coordinates).tolist())


@dataclass(frozen=True)
class Task:
    """A task: its number, and its region along the dimensions that are cut."""

    number: int
    region: Mapping[str, slice]


def _check_name(kind: str, name: str) -> None:
    """Raise `ArgumentError` unless a name can be that of a folder beside the markers."""
    if not name.isidentifier() or name == TASKS:
        raise ArgumentError(f"a {kind} cannot be called {name!r}: choose another name")


def compare(old: Any, new: Any) -> str:
    """Return in words how two trees of plain values differ; at most three differences.

    Examples
    --------
    >>> compare({"optimizer": {"lr": 0.01}, "seed": 0}, {"optimizer": {"lr": 0.02}})
    'optimizer.lr = 0.01, not 0.02; seed = 0, not without it'
    """
    found = list(_differences(old, new))
    more = [f"and {len(found) - 3} more"] if len(found) > 3 else []
    return "; ".join(found[:3] + more)


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            name = f"{path}.{key}".lstrip(".")
            if key not in new:
                yield f"{name} = {_short(old[key])}, not without it"
            elif key not in old:
                yield f"no {name}, not {_short(new[key])}"
            else:
                yield from _differences(old[key], new[key], name)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from _differences(before, after, f"{path}.{i}")
    elif json.dumps(old) != json.dumps(
        new
    ):  # as texts, for which nan equals nan and 1 differs from True
        yield f"{path} = {_short(old)}, not {_short(new)}"


def _short(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= 60:
        return text
    return f"{len(value)} values" if isinstance(value, list) else f"{text[:57]}..."
