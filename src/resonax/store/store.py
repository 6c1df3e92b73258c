"""A chunked store of labelled results, which an interrupted run takes up again.

A store is a zarr group. Its arrays are cut along some dimensions, and each cell of the cut is a
task: whole chunks of every variable, written once by zarr, and marked as finished by a file. What a
task writes depends on its values only, so that two stores of the same results are equal byte by
byte, whatever the order of the tasks and however often the run was killed.

Any number of processes may work on one store, on one machine or on several with a common file
system or bucket, because nothing rests on a lock:

- The file that names the specification is created first, by one process alone. The other files of
  the metadata follow from it: whoever opens the store with the same specification writes what is
  missing or damaged, and another is refused.
- A task owns whole chunks. Two processes that make the same task write the same bytes, each file
  whole, so that the order in which they end does not matter.
- The marker of a task is written last. It names the SHA-256 of the values of each variable, the
  specification and the versions. A task counts as finished only if zarr reads these very values:
  what is damaged, missing or of another specification is done again. Files are not synced to the
  disk: a machine that loses its power may lose the tasks of its last seconds, which are done again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from resonax.core.errors import ArgumentError, StoreError
from resonax.store.files import read_sealed, remove_leftovers, sealed_json
from resonax.store.layout import FILL, TASKS, Layout, Task, Variable
from resonax.store.metadata import (
    ELSEWHERE,
    StoreMetadata,
    prepare_metadata,
    read_metadata,
    sha256,
)
from resonax.store.places import (
    Place,
    as_place,
    describe_errors,
    make_folder,
    read_files,
    remove,
    write_files,
    zarr_store,
)

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

__all__ = ["Layout", "Store", "Task", "Variable", "open_store"]

_AT_ONCE = 16  # requests to a service
_AHEAD = 64  # tasks of a service whose values are held in memory until they are used
_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


@dataclass(frozen=True, eq=False)
class Store:
    """A store that is being filled; make it with `Store.open`.

    One process opens it; that may hand it to workers, each with tasks of its own.

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

    path: Place
    layout: Layout
    specification: str  # as JSON
    versions: Mapping[str, str]

    @classmethod
    def at(
        cls,
        path: str | Place,
        layout: Layout,
        specification: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
    ) -> Store:
        """Return a store that another process has opened, without looking at it."""
        text = json.dumps(specification, sort_keys=True)
        return cls(as_place(path), layout, text, dict(versions or {}))

    @classmethod
    def open(
        cls,
        path: str | Place,
        layout: Layout,
        specification: Mapping[str, Any],
        attributes: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
    ) -> Store:
        """Make a store, or take up one that was made with the same specification and layout.

        Parameters
        ----------
        path
            The folder of the store, whose parents are made, or its URL.
        layout
            What the store holds.
        specification
            All that the values depend on, as plain values that JSON can hold.
        attributes
            What else is to be recorded, such as a title: that of the first run stays.
        versions
            The versions of the libraries that compute. A store that is complete may be opened
            with any; one that is not goes on only with those that it was begun with.
        """
        store = cls.at(path, layout, specification, versions)
        path = store.path
        if isinstance(path, Path):
            make_folder(path.parent)
            for folder in (path.parent, path, *path.glob("*/")):
                remove_leftovers(folder)
        prepare_metadata(path, layout, store.specification, store.versions, attributes)
        began = store._metadata.versions
        if began != store.versions and (left := len(store.missing())):
            raise StoreError(
                f"{path} was begun with {_other_versions(began, store.versions)}, and {left} of "
                f"its {len(store.tasks)} tasks are missing, which other versions may compute with "
                f"other bits: go on with those versions, {ELSEWHERE}"
            )
        return store

    def __reduce__(self) -> Any:
        """Return what makes it again in another process, without its connection."""
        return Store, (self.path, self.layout, self.specification, self.versions)

    @cached_property
    def tasks(self) -> list[Task]:
        """All tasks, in order."""
        return self.layout.tasks()

    def marked(self) -> set[int]:
        """Return the numbers of the tasks that were finished once, by one listing.

        One of these that is pending now was damaged.
        """
        return set(read_metadata(self.path).finished)

    def missing(self, among: Iterable[int] | None = None) -> list[int]:
        """Return the numbers of the tasks that are not finished, or no longer as they were.

        ``among`` some of them, whose chunks are read, if not all.
        """
        marked = self.marked()
        tasks = self.tasks if among is None else [self.tasks[number] for number in sorted(among)]
        finished = self._each(lambda task: task.number in marked and self.is_finished(task), tasks)
        return [task.number for task, is_whole in zip(tasks, finished, strict=True) if not is_whole]

    def pending(self) -> list[Task]:
        """Return the tasks that are not finished, or no longer as they were, in order."""
        return [self.tasks[number] for number in self.missing()]

    def is_finished(self, task: Task) -> bool:
        """Return whether a task is stored as its marker says, by now."""
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
        began = self._metadata
        if (began.specification_sha256, began.versions) != (specification, self.versions):
            raise StoreError(
                f"{self.path} was begun with another specification or other versions than this "
                f"process has: use the same ones, {ELSEWHERE}"
            )
        arrays = {name: self._fit(task, name, values[name]) for name in self.layout.variables}

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

    def _fit(self, task: Task, name: str, array: np.ndarray) -> np.ndarray:
        """Return the values of a task as they are stored."""
        import numpy as np

        variable, array = self.layout.variables[name], np.asarray(array)
        shape = tuple(part.stop - part.start for part in self.layout.region(task, name))
        if array.shape != shape:
            raise ArgumentError(f"{name} of a task must have shape {shape}, got {array.shape}")
        if not np.can_cast(array.dtype, variable.dtype, "same_kind"):
            raise ArgumentError(f"{name} must be of type {variable.dtype}, got {array.dtype}")
        with np.errstate(over="ignore"):  # too large for a short float is inf
            return array.astype(variable.dtype)

    def read(self, task: Task, names: Iterable[str] | None = None) -> dict[str, np.ndarray] | None:
        """Return variables of a task; None if it is not finished, or not as its marker says."""
        import numpy as np

        file, found = _marker_name(task), {}
        marker = read_sealed(read_files(self.path, [file]).get(file, b"")) or {}
        origin = sha256(self.specification), self._metadata.versions
        if (marker.get("specification_sha256"), marker.get("versions")) != origin:
            return None
        for name in self.layout.variables if names is None else names:
            with describe_errors(self.path):
                try:
                    found[name] = np.asarray(self._group[name][self.layout.region(task, name)])
                except ValueError:  # a checksum that does not fit, or another length
                    return None
            if _digest(found[name]) != marker["values_sha256"].get(name):
                return None
        return found

    def load(
        self,
        names: Iterable[str] | None = None,
        most: int | None = None,
        *,
        is_partial: bool = False,
    ) -> xr.Dataset:
        """Return what is stored, in memory; anything missing is an error.

        Parameters
        ----------
        names
            The variables that are read; all if None.
        most
            About how many points of a dimension are kept: of more, every second, third, and so on.
            The rest is read all the same, chunk by chunk, and let go.
        is_partial
            Whether tasks may be missing; their values are nan, 0 or False.
        """
        import numpy as np
        import xarray as xr

        layout, metadata = self.layout, read_metadata(self.path)
        steps = {dim: -(-len(x) // (most or len(x))) for dim, x in layout.coords.items()}
        variables = {
            name: (
                one.dims,
                np.full(
                    [-(-len(layout.coords[dim]) // steps[dim]) for dim in one.dims],
                    FILL[one.dtype],
                    one.dtype,
                ),
                dict(one.attributes),
            )
            for name, one in layout.variables.items()
            if names is None or name in names
        }

        def take(task: Task) -> bool:
            values = self.read(task, variables) if task.number in metadata.finished else None
            for name, array in (values or {}).items():
                dims, whole, _ = variables[name]
                regions = zip(layout.region(task, name), dims, strict=True)
                places = [_every(region, steps[dim]) for region, dim in regions]
                whole[tuple(to for to, _ in places)] = array[tuple(of for _, of in places)]
            return values is not None

        missing = sum(not is_finished for is_finished in self._each(take, self.tasks))
        if missing and not is_partial:
            raise StoreError(
                f"{self.path} is not complete, {missing} of its {len(self.tasks)} tasks are missing"
                " or damaged: run the command that made it again, which goes on where it stopped"
            )
        own = {name: (name, values) for name, values in layout.coords.items()}
        coords = {
            name: (dim, values[:: steps[dim]], dict(layout.coord_attributes.get(name, {})))
            for name, (dim, values) in {**own, **layout.labels}.items()
        }
        return xr.Dataset(variables, coords, dict(metadata.attributes))

    def parts(self, name: str) -> Iterator[np.ndarray]:
        """Yield a variable task by task; those that are not finished are left out."""
        for values in self._each(lambda task: self.read(task, [name]), self.tasks):
            if values is not None:
                yield values[name]

    def remove(self) -> None:
        """Remove the store with all that is in it."""
        remove(self.path)

    def _each(self, action: Callable[[_Item], _Found], items: Sequence[_Item]) -> Iterator[_Found]:
        """Yield what an action gives for some items, several at once where a service waits."""
        if isinstance(self.path, Path):
            yield from map(action, items)
            return
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for start in range(0, len(items), _AHEAD):
                yield from pool.map(action, items[start : start + _AHEAD])

    @cached_property
    def _group(self) -> Any:
        import zarr

        return zarr.open_group(zarr_store(self.path), mode="r+", use_consolidated=True)

    @cached_property
    def _metadata(self) -> StoreMetadata:
        """What the store was begun with."""
        return read_metadata(self.path)


def open_store(path: str | Place) -> xr.Dataset:
    """Read a store that is complete; an incomplete one is an error that says what to do.

    Parameters
    ----------
    path
        The folder of the store or its URL, such as ``s3://bucket/mine/results/mine.zarr``.
    """
    path = as_place(path)
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
    """Return where a part of a dimension goes if every ``step``-th point is kept, and which.

    Examples
    --------
    >>> to, of = _every(slice(4, 8), 3)  # of 0, 3, 6, ... it has 6, which is the third
    >>> list(range(9)[to]), list(range(4, 8)[of])
    ([2], [6])
    """
    first = -(-region.start // step)
    return slice(first, -(-region.stop // step)), slice(first * step - region.start, None, step)


def _other_versions(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the versions of a store that are not those of now."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} (here is {new.get(name)})" for name in names)
