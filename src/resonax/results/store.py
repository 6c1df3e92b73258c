"""A chunked store of labelled results, which an interrupted run takes up again.

A store is a zarr folder. Its arrays are cut along some dimensions, and each cell of the cut is a
task: whole chunks of every variable, written once, and marked as finished when they are safe on
disk. What a task writes depends on its values only, so that two stores of the same results are
equal byte by byte, whatever the order of the tasks and however often the run was killed.

Any number of processes may work on one store, on one machine or on several with a common file
system, because nothing rests on a lock:

- A store is built in a folder of its own and moved to its place in one step: of two processes that
  make it at once, one does, and the other takes up what it finds, if that is the same.
- A task owns whole chunks. Two processes that make the same task write the same bytes, each file
  whole, so that the order in which they end does not matter.
- The marker of a task is written last. It names the chunks with their checksums, the specification
  and the versions. A task counts as finished only if all of that is found as it says: what is
  damaged, missing or of another specification is done again.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.checks import ArgumentError, StoreError
from resonax.results.chunks import chunk_name, decode, encode, seal
from resonax.results.disk import clear, flush, flush_tree, put, temporary, writing
from resonax.results.layout import FILL, TASKS, Layout, Task, Variable, compare
from resonax.results.marker import Marker
from resonax.results.metadata import (
    ELSEWHERE,
    build,
    digest,
    not_a_store,
    open_metadata,
    read_attributes,
    read_layout,
)

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

    path: Path
    layout: Layout
    tasks: tuple[Task, ...]
    specification: str  # as JSON
    versions: Mapping[str, str]

    @classmethod
    def at(
        cls,
        path: Path,
        layout: Layout,
        specification: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
    ) -> Store:
        """Return a store that another process has opened, without looking at it."""
        text = json.dumps(specification, sort_keys=True)
        return cls(Path(path), layout, layout.tasks(), text, dict(versions or {}))

    @classmethod
    def open(
        cls,
        path: Path,
        layout: Layout,
        specification: Mapping[str, Any],
        attributes: Mapping[str, Any],
        versions: Mapping[str, str] | None = None,
    ) -> Store:
        """Make a store, or take up one that was made with the same specification and layout.

        Parameters
        ----------
        path
            The folder of the store; those above it are made.
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
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            clear(path.parent)  # what a killed process left
            is_new = not path.exists() or (path.is_dir() and not any(path.iterdir()))
            if is_new and store._create(attributes):
                return store
        with open_metadata(path) as dataset:
            stored, was = read_layout(dataset), json.loads(dataset.attrs["specification"])
            began = dataset.attrs["versions"]
        made = compare(was, json.loads(store.specification))
        made = made or compare(stored.describe(), layout.describe())
        if made:
            raise StoreError(f"{path} was made with {made}: {ELSEWHERE}")
        clear(path)
        if began != store.versions and (left := len(store.pending())):
            raise StoreError(
                f"{path} was begun with {_other(began, store.versions)}, and {left} of its "
                f"{len(store.tasks)} tasks are missing, which other versions may compute with "
                f"other bits: go on with those versions, {ELSEWHERE}"
            )
        return store

    def pending(self) -> list[Task]:
        """Return the tasks that are not finished, or no longer as they were, in order."""
        if not (self.path / TASKS).is_dir():
            raise not_a_store(self.path)
        return [task for task in self.tasks if self._read(task) is None]

    def is_finished(self, task: Task) -> bool:
        """Return whether all that a task stores is there, and as its marker says."""
        return self._read(task) is not None

    def is_marked(self, task: Task) -> bool:
        """Return whether a task was finished once; if it is pending now, it was damaged."""
        return self._marker(task).exists()

    def complete(self) -> bool:
        """Return whether all tasks are finished."""
        return not self.pending()

    def write(self, task: Task, values: Mapping[str, np.ndarray]) -> None:
        """Store the values of a task, then mark it as finished.

        An error leaves the task unmarked and everything else as it was.
        """
        if task not in self.tasks[task.number : task.number + 1]:
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
        marker = self._marker(task)
        with writing(self.path):
            marker.unlink(missing_ok=True)  # of a task that was damaged
            for key, block in blocks.items():
                put(self.path, key, block)
            for name in self.layout.variables:
                flush(self.path / name)
            text = Marker(chunks, *self._origin).text()
            try:
                put(self.path, f"{TASKS}/{marker.name}", text.encode())
                flush(marker.parent)
            except OSError:
                marker.unlink(missing_ok=True)
                raise

    def dataset(self) -> xr.Dataset:
        """Return all that is stored, in memory; tasks that are not finished are nan, 0 or False."""
        return self._load()[0]

    def load(self) -> xr.Dataset:
        """Return all that is stored, in memory; anything missing is an error."""
        dataset, missing = self._load()
        if missing:
            raise StoreError(
                f"{self.path} is not complete, {missing} of its {len(self.tasks)} tasks are missing"
                " or damaged: run the command that made it again, which goes on where it stopped"
            )
        return dataset

    def _load(self) -> tuple[xr.Dataset, int]:
        """Return what is stored, and how many tasks are missing: each chunk is read once."""
        import numpy as np

        with open_metadata(self.path) as stored:
            shapes = {name: stored[name].shape for name in self.layout.variables}
            kinds = {name: variable.dtype for name, variable in self.layout.variables.items()}
            arrays = {name: np.full(shapes[name], FILL[kind], kind) for name, kind in kinds.items()}
            missing = 0
            for task in self.tasks:
                values = self._read(task)
                if values is None:
                    missing += 1
                    continue
                for name, array in values.items():
                    dims = self.layout.variables[name].dims
                    arrays[name][tuple(task.region.get(dim, slice(None)) for dim in dims)] = array
            variables = {
                name: (stored[name].dims, array, stored[name].attrs)
                for name, array in arrays.items()
            }
            return stored.assign(variables).load(), missing

    def _read(self, task: Task) -> dict[str, np.ndarray] | None:
        """Return the values of a task, or None unless everything is as its marker says."""
        try:
            marker = Marker.parse(self._marker(task).read_bytes())
            names = {chunk_name(self.layout, task, name): name for name in self.layout.variables}
            if marker is None or marker.chunks.keys() != names.keys():
                return None
            made = (marker.specification_sha256, marker.versions)
            if made != (digest(self.specification), self._origin[1]):
                return None
            blocks = {key: (self.path / key).read_bytes() for key in names}
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"{self.path} could not be read: {error.strerror}") from None
        if any(seal(block) != marker.chunks[key] for key, block in blocks.items()):
            return None
        return {name: decode(self.layout, task, name, blocks[key]) for key, name in names.items()}

    @cached_property
    def _origin(self) -> tuple[str, dict[str, str]]:
        """What the store was begun with: the hash of its specification, and the versions."""
        attributes = read_attributes(self.path)
        return attributes["specification_sha256"], attributes["versions"]

    def _marker(self, task: Task) -> Path:
        return self.path / TASKS / f"{task.number}.json"

    def _create(self, attributes: Mapping[str, Any]) -> bool:
        """Build the empty store beside its place and move it there, unless another was faster."""
        with temporary(self.path.parent, folder=True) as fresh:
            build(fresh, self.layout, self.specification, self.versions, attributes)
            flush_tree(fresh)
            try:
                os.rename(fresh, self.path)
            except OSError as error:
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return False
                raise
            flush(self.path.parent)
            return True


def open_store(path: str | Path) -> xr.Dataset:
    """Read a store that is complete; an incomplete one is an error that says what to do."""
    path = Path(path)
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
