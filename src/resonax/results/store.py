"""A chunked store of labelled results, which an interrupted run takes up again.

A store is a zarr folder. Its arrays are cut along some dimensions, and each cell of the cut is a
task: whole chunks of every variable, written once, and marked as finished when they are safe on
disk. What a task writes depends on its values only, so that two stores of the same results are
equal byte by byte, whatever the order of the tasks and however often the run was killed.

Any number of processes may work on one store, on one machine or on several with a common file
system, because nothing rests on a lock:

- A store is built in a folder of its own and moved to its place in one step: of two processes that
  make it at once, one does, and the other takes up what it finds, if that is the same. Where
  nothing can be moved, as in a bucket, the file that names the specification is created first, by
  one of them (a conditional write), and the rest follows from that.
- A task owns whole chunks. Two processes that make the same task write the same bytes, each file
  whole, so that the order in which they end does not matter.
- The marker of a task is written last. It names the chunks with their checksums, the specification
  and the versions. A task counts as finished only if all of that is found as it says: what is
  damaged, missing or of another specification is done again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from resonax.checks import ArgumentError, StoreError
from resonax.results.chunks import chunk_name, decode, encode, seal
from resonax.results.folder import Folder, folder_at
from resonax.results.layout import TASKS, Layout, Task, Tasks, Variable, compare
from resonax.results.marker import Marker, marker_name
from resonax.results.metadata import (
    ELSEWHERE,
    build,
    digest,
    mend,
    not_a_store,
    open_metadata,
    read_attributes,
    read_layout,
)
from resonax.results.place import Place, as_place
from resonax.results.reading import assemble, read_blocks

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

__all__ = ["Layout", "Store", "Task", "Variable", "open_store"]


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
        is_new = folder.prepare()
        if is_new and folder.create(build(layout, store.specification, store.versions, attributes)):
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
        names = self._folder.names(TASKS)
        if not names:
            raise not_a_store(self.path)
        return {int(name[:-5]) for name in names if name[:-5].isdecimal() and name[-5:] == ".json"}

    def missing(self, among: Iterable[int] | None = None) -> list[int]:
        """Return the numbers of the tasks that are not finished, or no longer as they were.

        ``among`` some of them, whose chunks are read, if not all.
        """
        tasks = self.tasks if among is None else [self.tasks[number] for number in sorted(among)]
        return [task.number for task, blocks in self._blocks(tasks) if blocks is None]

    def pending(self) -> list[Task]:
        """Return the tasks that are not finished, or no longer as they were, in order."""
        return [self.tasks[number] for number in self.missing()]

    def is_finished(self, task: Task) -> bool:
        """Return whether a task is stored as its marker says, by now."""
        ((_, blocks),) = self._blocks([task], {task.number})
        return blocks is not None

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
        blocks = {
            chunk_name(self.layout, task, name): encode(self.layout, task, name, array)
            for name, array in values.items()
        }
        chunks = {name: str(seal(block)) for name, block in blocks.items()}
        self._folder.write(blocks)
        self._folder.write({marker_name(task): Marker(chunks, *self._origin).text().encode()})

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
        for task, blocks in self._blocks(self.tasks, names=[name]):
            if blocks is not None:
                yield decode(self.layout, task, name, blocks[name])

    def _load(self, names: Sequence[str], most: int | None) -> tuple[xr.Dataset, int]:
        """Return what is stored, and how many tasks are missing: each chunk is read once."""
        steps = {dim: -(-len(x) // (most or len(x))) for dim, x in self.layout.coords.items()}
        with open_metadata(self.path) as stored:
            stored = stored.isel({dim: slice(None, None, steps[str(dim)]) for dim in stored.dims})
            blocks = self._blocks(self.tasks, names=names)
            arrays, missing = assemble(self.layout, names, steps, blocks)
            variables = {
                name: (stored[name].dims, array, stored[name].attrs)
                for name, array in arrays.items()
            }
            others = [name for name in stored.data_vars if name not in arrays]
            return stored.drop_vars(others).assign(variables).load(), missing

    def _blocks(
        self,
        tasks: Sequence[Task],
        marked: set[int] | None = None,
        names: Sequence[str] | None = None,
    ) -> Iterator[tuple[Task, dict[str, bytes] | None]]:
        """Yield tasks with their chunks, None for those that are not finished."""
        marked = self.marked() if marked is None else marked
        names = tuple(self.layout.variables) if names is None else names
        made = digest(self.specification), self._origin[1]
        return read_blocks(self._folder, self.layout, tasks, marked, made, names)

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


def _other(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Return the versions of a store that are not those of now."""
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} (here is {new.get(name)})" for name in names)
