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
  what is damaged, missing or of another specification is done again. Nobody waits for the disk, so
  that a machine that loses its power may lose the tasks of its last seconds in the same way.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from resonax.core.errors import ArgumentError, StoreError
from resonax.store.folder import Folder, LocalFolder, folder_at
from resonax.store.layout import FILL, TASKS, Layout, Task, Tasks, Variable, compare
from resonax.store.metadata import (
    ELSEWHERE,
    ROOT,
    Marker,
    build,
    digest,
    digest_layout,
    marker_name,
    mend,
    not_a_store,
    open_metadata,
    read_attributes,
    read_layout,
)
from resonax.store.place import Place, Remote, as_place

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr
    import zarr

__all__ = ["Layout", "Store", "Task", "Variable", "open_store"]

_BYTES, _TASKS = 2**25, 256  # of tasks that are read at once
_AT_ONCE = 16  # chunks that are asked of a service
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
    tasks: Tasks
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
        return cls(as_place(path), layout, layout.tasks(), text, dict(versions or {}))

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
        path, folder = store.path, store._folder
        if isinstance(folder, LocalFolder):
            folder.prepare()
        if not folder.exists():
            files = build(layout, store.specification, store.versions, attributes)
            if folder.create(ROOT, files.pop(ROOT)):
                folder.write(files)
                return store
        mend(path, layout, store.specification, attributes)
        with open_metadata(path, store.specification) as dataset:
            stored, began = read_layout(dataset), dataset.attrs["versions"]
        if made := compare(stored.describe(), layout.describe()):
            raise StoreError(f"{path} was made with {made}: {ELSEWHERE}")
        if began != store.versions and (left := len(store.missing())):
            raise StoreError(
                f"{path} was begun with {_other(began, store.versions)}, and {left} of its "
                f"{len(store.tasks)} tasks are missing, which other versions may compute with "
                f"other bits: go on with those versions, {ELSEWHERE}"
            )
        return store

    def marked(self) -> set[int]:
        """Return the numbers of the tasks that were finished once, by one listing.

        One of these that is pending now was damaged.
        """
        names = folder_at(self.path / TASKS).names()
        if not names:
            raise not_a_store(self.path)
        return {int(name[:-5]) for name in names if name[:-5].isdecimal() and name[-5:] == ".json"}

    def missing(self, among: Iterable[int] | None = None) -> list[int]:
        """Return the numbers of the tasks that are not finished, or no longer as they were.

        ``among`` some of them, whose chunks are read, if not all.
        """
        tasks = self.tasks if among is None else [self.tasks[number] for number in sorted(among)]
        return [task.number for task, values in self._read(tasks) if values is None]

    def pending(self) -> list[Task]:
        """Return the tasks that are not finished, or no longer as they were, in order."""
        return [self.tasks[number] for number in self.missing()]

    def is_finished(self, task: Task) -> bool:
        """Return whether a task is stored as its marker says, by now."""
        ((_, values),) = self._read([task], {task.number})
        return values is not None

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
        if self._origin != (digest(self.specification), self.versions):
            raise StoreError(
                f"{self.path} was begun with another specification or other versions than this "
                f"process has: use the same ones, {ELSEWHERE}"
            )
        arrays = {name: self._fit(task, name, values[name]) for name in self.layout.variables}
        sums = {name: _digest(array) for name, array in arrays.items()}

        def put(name: str) -> None:
            with self._folder.writing():
                self._array(name, "r+")[self.layout.region(task, name)] = arrays[name]

        self._each(put, arrays)
        self._folder.write({marker_name(task): Marker(sums, *self._origin).text().encode()})

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

    def dataset(self) -> xr.Dataset:
        """Return all that is stored, in memory; tasks that are not finished are nan, 0 or False."""
        return self._load(tuple(self.layout.variables), None)[0]

    def load(self, names: Iterable[str] | None = None, most: int | None = None) -> xr.Dataset:
        """Return what is stored, in memory; anything missing is an error.

        Parameters
        ----------
        names
            The variables that are read; all if None.
        most
            About how many points of a dimension are kept: of more, every second, third, and so on.
            The rest is read all the same, chunk by chunk, and let go.
        """
        wanted = tuple(self.layout.variables if names is None else names)
        dataset, missing = self._load(wanted, most)
        if missing:
            raise StoreError(
                f"{self.path} is not complete, {missing} of its {len(self.tasks)} tasks are missing"
                " or damaged: run the command that made it again, which goes on where it stopped"
            )
        return dataset

    def remove(self) -> None:
        """Remove the store with all that is in it."""
        self._folder.remove()

    def parts(self, name: str) -> Iterator[np.ndarray]:
        """Yield a variable task by task; those that are not finished are left out."""
        for _, values in self._read(self.tasks, names=[name]):
            if values is not None:
                yield values[name]

    def _load(self, names: Sequence[str], most: int | None) -> tuple[xr.Dataset, int]:
        """Return what is stored, and how many tasks are missing: each chunk is read once."""
        steps = {dim: -(-len(x) // (most or len(x))) for dim, x in self.layout.coords.items()}
        with open_metadata(self.path) as stored:
            stored = stored.isel({dim: slice(None, None, steps[str(dim)]) for dim in stored.dims})
            parts = self._read(self.tasks, names=names)
            arrays, missing = _assemble(self.layout, names, steps, parts)
            variables = {
                name: (stored[name].dims, array, stored[name].attrs)
                for name, array in arrays.items()
            }
            others = [name for name in stored.data_vars if name not in arrays]
            return stored.drop_vars(others).assign(variables).load(), missing

    def _read(
        self,
        tasks: Sequence[Task],
        marked: set[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> Iterator[tuple[Task, dict[str, np.ndarray] | None]]:
        """Yield tasks with values of variables, None unless these are as the marker says.

        What lies in memory at once is bounded, whatever the number of tasks.
        """
        marked = self.marked() if marked is None else marked
        names = tuple(self.layout.variables) if names is None else names
        made = digest(self.specification), self._origin[1]
        each = 8 * sum(math.prod(self.layout.chunk_shape(name)) for name in names)
        size = max(1, min(_TASKS, _BYTES // max(each, 1)))
        for start in range(0, len(tasks), size):
            batch = tasks[start : start + size]
            files = [marker_name(task) for task in batch if task.number in marked]
            texts = self._folder.read(files)
            sums = {}
            for task in batch:
                marker = Marker.parse(texts.get(marker_name(task), b""))
                if marker and (marker.specification_sha256, marker.versions) == made:
                    sums[task.number] = marker.values_sha256
            wanted = [(task, name) for task in batch if task.number in sums for name in names]
            found = iter(self._each(self._value, wanted))
            for task in batch:
                if task.number not in sums:
                    yield task, None
                    continue
                own = sums[task.number]
                values = {name: next(found) for name in names}
                whole = {
                    name: array
                    for name, array in values.items()
                    if array is not None and _digest(array) == own.get(name)
                }
                yield task, whole if len(whole) == len(names) else None

    def _value(self, which: tuple[Task, str]) -> np.ndarray | None:
        """Return the values of a task in a variable, None where zarr finds damage."""
        import numpy as np

        task, name = which
        with self._folder.reading():
            try:
                return np.asarray(self._array(name, "r")[self.layout.region(task, name)])
            except ValueError:  # a checksum that does not fit, or another length
                return None

    def _array(self, name: str, mode: Literal["r", "r+"]) -> Any:
        """Return a variable as zarr's array."""
        return _open_group(self.path, self._layout_sha256, mode, os.getpid())[name]

    def _each(self, action: Callable[[_Item], _Found], items: Iterable[_Item]) -> list[_Found]:
        """Return what an action gives for some items, several at once where a service waits."""
        if not isinstance(self.path, Remote):
            return [action(item) for item in items]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(action, items))

    @cached_property
    def _layout_sha256(self) -> str:
        return digest_layout(self.layout)

    @cached_property
    def _folder(self) -> Folder:
        return folder_at(self.path)

    @cached_property
    def _origin(self) -> tuple[str, dict[str, str]]:
        """What the store was begun with: the hash of its specification, and the versions."""
        attributes = read_attributes(self.path)
        return attributes["specification_sha256"], attributes["versions"]


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
    with open_metadata(path) as dataset:
        layout, attributes = read_layout(dataset), dataset.attrs
    specification = json.loads(attributes["specification"])
    return Store.at(path, layout, specification, attributes["versions"]).load()


@lru_cache(maxsize=32)
def _open_group(
    path: Place, layout_sha256: str, mode: Literal["r", "r+"], process: int
) -> zarr.Group:
    """Return the group of a store: its arrays follow from the layout alone.

    ``process`` is this one's number: a connection must not be shared with a copy of the process.
    """
    import zarr

    del layout_sha256, process

    store = folder_at(path).zarr(read_only=mode == "r")
    return zarr.open_group(store, mode=mode, use_consolidated=True)


def _digest(array: np.ndarray) -> str:
    """Return the SHA-256 of values, little-endian and row by row."""
    import numpy as np

    return hashlib.sha256(np.asarray(array, array.dtype.newbyteorder("<")).tobytes()).hexdigest()


def _assemble(
    layout: Layout,
    names: Sequence[str],
    steps: Mapping[str, int],
    parts: Iterable[tuple[Task, Mapping[str, np.ndarray] | None]],
) -> tuple[dict[str, np.ndarray], int]:
    """Return variables with every so many points of each dimension, and how many tasks are missing.

    What is missing is nan, 0 or False.
    """
    import numpy as np

    lengths = {dim: len(values) for dim, values in layout.coords.items()}
    arrays, missing = {}, 0
    for name in names:
        kind = layout.variables[name].dtype
        shape = [-(-lengths[dim] // steps[dim]) for dim in layout.variables[name].dims]
        arrays[name] = np.full(shape, FILL[kind], kind)
    for task, values in parts:
        missing += values is None
        for name, array in (values or {}).items():
            dims = layout.variables[name].dims
            regions = zip(layout.region(task, name), dims, strict=True)
            places = [_thin(region, steps[dim]) for region, dim in regions]
            arrays[name][tuple(to for to, _ in places)] = array[tuple(of for _, of in places)]
    return arrays, missing


def _thin(region: slice, step: int) -> tuple[slice, slice]:
    """Return where a part of a dimension goes if every ``step``-th point is kept, and which.

    Examples
    --------
    >>> to, of = _thin(slice(4, 8), 3)  # of 0, 3, 6, ... it has 6, which is the third
    >>> list(range(9)[to]), list(range(4, 8)[of])
    ([2], [6])
    """
    first = -(-region.start // step)
    return slice(first, -(-region.stop // step)), slice(first * step - region.start, None, step)


def _other(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the versions of a store that are not those of now."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} (here is {new.get(name)})" for name in names)
