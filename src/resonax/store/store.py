"""A chunked store of labelled results; an interrupted run can be resumed.

A store is a zarr group. Its arrays are cut into parts along some dimensions, and each part is a
task: whole chunks of every variable, which are written once, and then marked as finished by a file.
What a task writes depends only on its values, so that two stores of the same results are equal byte
by byte, in whatever order the tasks ran and however often the run was killed.

Any number of processes may work on one store, on one machine or on several with a common file
system or bucket. No locks are needed:

- The file with the specification is created first, by exactly one process. The other metadata
  files follow from it: a process that opens the store with the same specification writes missing or
  damaged ones; with another specification it is refused.
- A task owns whole chunks. Two processes that compute the same task atomically write the same
  files, in any order.
- The marker of a task is written last. It holds the SHA-256 of the values of each variable, the
  specification and the versions. A task counts as finished only if the stored values have these
  checksums; otherwise it is computed again. Files are not synced to the disk: after a power failure
  the tasks of the last seconds may be missing, and are computed again.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from resonax.core.errors import ArgumentError, StoreError
from resonax.store.files import read_sealed, remove_leftovers, sealed_json
from resonax.store.layout import FILL, TASKS, Layout, Task, Variable
from resonax.store.locations import (
    Location,
    as_location,
    describe_errors,
    make_folder,
    read_files,
    remove,
    write_files,
    zarr_store,
)
from resonax.store.metadata import (
    ELSEWHERE,
    StoreMetadata,
    prepare_metadata,
    read_metadata,
    sha256,
)

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

__all__ = ["Layout", "Store", "Task", "Variable", "open_store"]

_THREADS = 16  # for parallel requests to a service
_PREFETCHED = 64  # tasks whose values are read from a service before they are used
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, eq=False)
class Store:
    """A store to which results are written; create it with `Store.open`.

    One process opens it and may send it to workers, each with tasks of its own.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import numpy as np
    >>> layout = Layout(
    ...     coords={"period": np.array([10.0, 20.0, 30.0]), "process": np.array(["iid", "square"])},
    ...     chunks={"period": 2},
    ...     variables={"rate": Variable(("period", "process"), "float64")},
    ... )
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store.open(Path(folder) / "rates.zarr", layout, {"lr": 0.01}, {"seed": 0})
    ...     for task in store.pending():
    ...         periods = layout.coords["period"][task.region["period"]]
    ...         store.write(task, {"rate": np.stack([periods, -periods], axis=1)})
    ...     float(open_store(store.path).rate.sel(period=30, process="square"))
    -30.0
    """

    path: Location
    layout: Layout
    specification: str  # as JSON
    versions: Mapping[str, str]

    @classmethod
    def at(
        cls,
        path: str | Location,
        layout: Layout,
        specification: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
    ) -> Store:
        """Return a store that another process has opened, without access to its files."""
        text = json.dumps(specification, sort_keys=True)
        return cls(as_location(path), layout, text, dict(versions or {}))

    @classmethod
    def open(
        cls,
        path: str | Location,
        layout: Layout,
        specification: Mapping[str, Any],
        attributes: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
    ) -> Store:
        """Create a store, or open one that was created with the same specification and layout.

        Parameters
        ----------
        path
            Folder of the store, whose parents are created, or its URL.
        layout
            Variables of the store, and how they are cut into tasks.
        specification
            All that the results depend on, as values that JSON can represent.
        attributes
            Further attributes, such as a title; those of an existing store are kept.
        versions
            Versions of the libraries. A complete store may be opened with any versions, an
            incomplete one only with those that it was created with.
        """
        store = cls.at(path, layout, specification, versions)
        path = store.path
        if isinstance(path, Path):
            make_folder(path.parent)
            for folder in (path.parent, path, *path.glob("*/")):
                remove_leftovers(folder)
        prepare_metadata(path, layout, store.specification, store.versions, attributes)
        old = store._metadata.versions
        if old != store.versions and (missing := len(store.missing())):
            raise StoreError(
                f"{path} was begun with {_other_versions(old, store.versions)}, and {missing} of "
                f"its {len(store.tasks)} tasks are missing, which other versions may compute with "
                f"other bits: go on with those versions, {ELSEWHERE}"
            )
        return store

    def __reduce__(self) -> Any:
        """Pickle the store without its open zarr group."""
        return Store, (self.path, self.layout, self.specification, self.versions)

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks, in order."""
        return self.layout.tasks()

    def marked(self) -> set[int]:
        """Return the numbers of the tasks that have a marker; their values may be damaged."""
        return set(read_metadata(self.path).finished)

    def missing(self, among: Iterable[int] | None = None) -> list[int]:
        """Return the numbers of the tasks that are not finished, or damaged.

        All chunks of the tasks are read; by default of all tasks.
        """
        marked = self.marked()
        tasks = self.tasks if among is None else [self.tasks[number] for number in sorted(among)]
        finished = self._each(lambda task: task.number in marked and self.is_finished(task), tasks)
        pairs = zip(tasks, finished, strict=True)
        return [task.number for task, is_finished in pairs if not is_finished]

    def pending(self) -> list[Task]:
        """Return the tasks that are not finished, or damaged, in order."""
        return [self.tasks[number] for number in self.missing()]

    def is_finished(self, task: Task) -> bool:
        """Return whether a task is stored with the checksums of its marker."""
        return self.read(task) is not None

    def complete(self) -> bool:
        """Return whether all tasks are finished."""
        return not self.missing()

    def write(self, task: Task, values: Mapping[str, np.ndarray]) -> None:
        """Store the values of a task, then mark it as finished.

        An error leaves the task unmarked and everything else as it was.
        """
        if [task] != self.tasks[task.number : task.number + 1]:
            raise ArgumentError(f"task {task.number} is not one of {self.path}")
        if values.keys() != self.layout.variables.keys():
            wanted, found = ", ".join(self.layout.variables), ", ".join(values)
            raise ArgumentError(f"a task must give {wanted}, got {found or 'nothing'}")
        specification = sha256(self.specification)
        metadata = self._metadata
        if (metadata.specification_sha256, metadata.versions) != (specification, self.versions):
            raise StoreError(
                f"{self.path} was begun with another specification or other versions than this "
                f"process has: use the same ones, {ELSEWHERE}"
            )
        arrays = {name: self._convert(task, name, values[name]) for name in self.layout.variables}

        def write_variable(name: str) -> None:
            with describe_errors(self.path):
                self._group[name][self.layout.region(task, name)] = arrays[name]

        list(self._each(write_variable, list(arrays)))
        marker = {
            "values_sha256": {name: _digest(array) for name, array in arrays.items()},
            "specification_sha256": specification,
            "versions": self.versions,
        }
        write_files(self.path, {_marker_name(task): sealed_json(marker)})

    def _convert(self, task: Task, name: str, array: np.ndarray) -> np.ndarray:
        """Return values of a task in the type of the variable, after a check of their shape."""
        import numpy as np

        variable, array = self.layout.variables[name], np.asarray(array)
        shape = tuple(part.stop - part.start for part in self.layout.region(task, name))
        if array.shape != shape:
            raise ArgumentError(f"{name} of a task must have shape {shape}, got {array.shape}")
        if not np.can_cast(array.dtype, variable.dtype, "same_kind"):
            raise ArgumentError(f"{name} must be of type {variable.dtype}, got {array.dtype}")
        with np.errstate(over="ignore"):  # too large a value becomes inf
            return array.astype(variable.dtype)

    def read(self, task: Task, names: Iterable[str] | None = None) -> dict[str, np.ndarray] | None:
        """Return variables of a task; None if it is not finished, or damaged."""
        import numpy as np

        file = _marker_name(task)
        marker = read_sealed(read_files(self.path, [file]).get(file, b"")) or {}
        expected = sha256(self.specification), self._metadata.versions
        if (marker.get("specification_sha256"), marker.get("versions")) != expected:
            return None
        arrays = {}
        for name in self.layout.variables if names is None else names:
            with describe_errors(self.path):
                try:
                    arrays[name] = np.asarray(self._group[name][self.layout.region(task, name)])
                except ValueError:  # a wrong checksum or length of a chunk
                    return None
            if _digest(arrays[name]) != marker["values_sha256"].get(name):
                return None
        return arrays

    def load(
        self,
        names: Iterable[str] | None = None,
        most: int | None = None,
        *,
        is_partial: bool = False,
    ) -> xr.Dataset:
        """Return the results, in memory; raise `StoreError` if any are missing.

        Parameters
        ----------
        names
            Variables to read; all by default.
        most
            Approximate number of points of a dimension to keep: of more, every second, third, and
            so on. All chunks are read, one after the other.
        is_partial
            Whether tasks may be missing; their values are nan, 0 or False.
        """
        import numpy as np
        import xarray as xr

        layout, metadata = self.layout, read_metadata(self.path)
        steps = {dim: math.ceil(len(x) / (most or len(x))) for dim, x in layout.coords.items()}
        kept = {dim: len(x[:: steps[dim]]) for dim, x in layout.coords.items()}
        variables = {}
        for name, variable in layout.variables.items():
            if names is None or name in names:
                shape = [kept[dim] for dim in variable.dims]
                array = np.full(shape, FILL[variable.dtype], variable.dtype)
                variables[name] = variable.dims, array, dict(variable.attributes)

        def copy_task(task: Task) -> bool:
            values = self.read(task, variables) if task.number in metadata.finished else None
            for name, array in (values or {}).items():
                dims, whole, _ = variables[name]
                regions = zip(layout.region(task, name), dims, strict=True)
                slices = [_every(region, steps[dim]) for region, dim in regions]
                whole[tuple(to for to, _ in slices)] = array[tuple(of for _, of in slices)]
            return values is not None

        missing = sum(not is_finished for is_finished in self._each(copy_task, self.tasks))
        if missing and not is_partial:
            raise StoreError(
                f"{self.path} is not complete, {missing} of its {len(self.tasks)} tasks are missing"
                " or damaged: run the command that made it again, which goes on where it stopped"
            )
        axes = {name: (name, values) for name, values in layout.coords.items()}
        coords = {
            name: (dim, values[:: steps[dim]], dict(layout.coord_attributes.get(name, {})))
            for name, (dim, values) in {**axes, **layout.labels}.items()
        }
        return xr.Dataset(variables, coords, dict(metadata.attributes))

    def parts(self, name: str) -> Iterator[np.ndarray]:
        """Yield the values of a variable in each finished task."""
        for values in self._each(lambda task: self.read(task, [name]), self.tasks):
            if values is not None:
                yield values[name]

    def remove(self) -> None:
        """Remove the store and all its files."""
        remove(self.path)

    def _each(
        self, action: Callable[[_Item], _Result], items: Sequence[_Item]
    ) -> Iterator[_Result]:
        """Yield the results of an action for some items, in parallel threads for a service."""
        if isinstance(self.path, Path):
            yield from map(action, items)
            return
        with ThreadPoolExecutor(_THREADS) as pool:
            for start in range(0, len(items), _PREFETCHED):
                yield from pool.map(action, items[start : start + _PREFETCHED])

    @cached_property
    def _group(self) -> Any:
        import zarr

        return zarr.open_group(zarr_store(self.path), mode="r+", use_consolidated=True)

    @cached_property
    def _metadata(self) -> StoreMetadata:
        """Metadata of the store when it was first read."""
        return read_metadata(self.path)


def open_store(path: str | Location) -> xr.Dataset:
    """Return the results of a complete store; raise `StoreError` if it is not complete.

    Parameters
    ----------
    path
        Folder of the store, or URL such as ``s3://bucket/mine/results/mine.zarr``.
    """
    path = as_location(path)
    if not path.exists():
        raise StoreError(f"{path} is not there: name a store that --out wrote")
    found = read_metadata(path)
    return Store(path, found.layout, found.specification, found.versions).load()


def _marker_name(task: Task) -> str:
    return f"{TASKS}/{task.number}.json"


def _digest(array: np.ndarray) -> str:
    """Return the SHA-256 of values, little-endian and row by row."""
    import numpy as np

    return hashlib.sha256(np.asarray(array, array.dtype.newbyteorder("<")).tobytes()).hexdigest()


def _every(region: slice, step: int) -> tuple[slice, slice]:
    """Return slices to copy a region of a dimension of which every ``step``-th point is kept.

    The first is the region's part of the kept points, the second the kept points in the region.

    Examples
    --------
    >>> to, of = _every(slice(4, 8), 3)  # of the kept points 0, 3, 6, ... the region has the third
    >>> list(range(9)[to]), list(range(4, 8)[of])
    ([2], [6])
    """
    first, last = math.ceil(region.start / step), math.ceil(region.stop / step)
    return slice(first, last), slice(first * step - region.start, None, step)


def _other_versions(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return in words the versions that differ."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} (here is {new.get(name)})" for name in names)
