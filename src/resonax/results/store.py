"""A chunked store of labelled results, which an interrupted run takes up again.

A store is a zarr folder. Its arrays are cut along some dimensions, and each cell of the cut is a
task: whole chunks of every variable, written once, and marked as finished when they are safe on
disk. What a task writes depends on its values only, so that two stores of the same results are
equal byte by byte, whatever the order of the tasks and however often the run was killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.checks import ArgumentError
from resonax.results.disk import clear, flush, put, writing
from resonax.results.layout import FILL, FINISHED, Layout, Task, Variable, compare

if TYPE_CHECKING:
    import numpy as np
    import xarray as xr

__all__ = ["Layout", "Store", "Task", "Variable", "open_store"]

_FORMAT = "resonax store 1"
_RESERVED = ("format", "dims", "specification", "specification_sha256")
_ELSEWHERE = "choose another --out folder or delete it"


@dataclass(frozen=True, eq=False)
class Store:
    """A store that is being filled; make it with `Store.open`.

    One process opens it to write; that may hand it to workers, each with tasks of its own.

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

    @classmethod
    def open(
        cls,
        path: Path,
        layout: Layout,
        specification: Mapping[str, Any],
        attributes: Mapping[str, Any],
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
            What else is to be recorded, such as versions: those of the first run stay.
        """
        path = Path(path)
        store = cls(path, layout, layout.tasks())
        text = json.dumps(specification, sort_keys=True)
        with writing(path):
            if not path.exists() or (path.is_dir() and not any(path.iterdir())):
                store._create(text, attributes)
                return store
        with _stored(path) as dataset:
            stored, was = _read_layout(dataset), json.loads(dataset.attrs["specification"])
        made = compare(was, json.loads(text)) or compare(stored.describe(), layout.describe())
        if made:
            raise ArgumentError(f"{path} was made with {made}: {_ELSEWHERE}")
        with writing(path):  # what a killed run left
            clear(path)
        return store

    def pending(self) -> list[Task]:
        """Return the tasks that are not finished, in order."""
        try:
            names = set(os.listdir(self.path / FINISHED))
        except FileNotFoundError:
            raise _strange(self.path) from None
        return [task for task in self.tasks if f"c.{task.number}" not in names]

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
        blocks = dict(self._block(task, name, array) for name, array in values.items())
        marker = f"{FINISHED}/c.{task.number}"
        with writing(self.path):
            for key, block in blocks.items():
                put(self.path, key, block)
            for name in self.layout.variables:
                flush(self.path / name)
            try:
                put(self.path, marker, b"\x01")
                flush(self.path / FINISHED)
            except OSError:
                (self.path / marker).unlink(missing_ok=True)
                raise

    def dataset(self) -> xr.Dataset:
        """Return all that is stored, in memory; tasks that are not finished are nan, 0 or False."""
        with _stored(self.path) as stored:
            dataset = stored.load()
        for task, name in itertools.product(self.pending(), self.layout.variables):
            # A killed run may have left some chunks of a task, which count for nothing.
            dataset[name][dict(task.region)] = FILL[self.layout.variables[name].dtype]
        return dataset

    def _block(self, task: Task, name: str, array: np.ndarray) -> tuple[str, bytes]:
        """Return the place and the bytes of a chunk as zarr has them: unpacked, little-endian.

        Not made by zarr, which does not wait for the disk, and whose threads outlive an interrupt.
        """
        import numpy as np

        layout, variable, array = self.layout, self.layout.variables[name], np.asarray(array)
        place = [task.region.get(dim, slice(0, len(layout.coords[dim]))) for dim in variable.dims]
        shape = tuple(part.stop - part.start for part in place)
        if array.shape != shape:
            raise ArgumentError(f"{name} of a task must have shape {shape}, got {array.shape}")
        if not np.can_cast(array.dtype, variable.dtype, "same_kind"):
            raise ArgumentError(f"{name} must be of type {variable.dtype}, got {array.dtype}")
        # The last chunk along a dimension is as long as the others, whatever it has to hold.
        chunk = tuple(layout.chunk(dim) for dim in variable.dims)
        dtype = np.dtype(variable.dtype).newbyteorder("<")
        block = np.full(chunk, FILL[variable.dtype], dtype)
        with np.errstate(over="ignore"):  # too large for a short float is inf
            block[tuple(slice(0, n) for n in shape)] = array
        numbers = [str(part.start // n) for part, n in zip(place, chunk, strict=True)]
        return f"{name}/{'.'.join(['c', *numbers])}", block.tobytes()

    def _create(self, specification: str, attributes: Mapping[str, Any]) -> None:
        """Build the empty store beside its place, then move it there: it is never half made."""
        if taken := [name for name in attributes if name in _RESERVED]:
            raise ArgumentError(f"an attribute cannot be called {taken[0]}: choose another name")
        attributes = {
            **json.loads(json.dumps(attributes, sort_keys=True)),  # equal ones are equal bytes
            "format": _FORMAT,
            "dims": list(self.layout.coords),
            "specification": specification,
            "specification_sha256": _hash(specification),
        }
        fresh = self.path.parent / f".{self.path.name}.creating"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if fresh.exists():
            shutil.rmtree(fresh)
        try:
            _build(fresh, self.layout, len(self.tasks), attributes)
            for folder, _, files in os.walk(fresh):
                for entry in [*files, "."]:
                    flush(Path(folder) / entry)
            os.rename(fresh, self.path)
            flush(self.path.parent)
        except BaseException:
            shutil.rmtree(fresh, ignore_errors=True)
            raise


def open_store(path: str | Path) -> xr.Dataset:
    """Read a store that is complete; an incomplete one is an error that says what to do."""
    path = Path(path)
    if not path.exists():
        raise ArgumentError(f"{path} is not there: name a store that --out wrote")
    with _stored(path) as dataset:
        layout = _read_layout(dataset)
    store = Store(path, layout, layout.tasks())
    if pending := len(store.pending()):
        raise ArgumentError(
            f"{path} is not complete, {pending} of its {len(store.tasks)} tasks are missing: "
            "run the command that made it again, which goes on where it stopped"
        )
    return store.dataset()


def _build(path: Path, layout: Layout, tasks: int, attributes: dict[str, Any]) -> None:
    """Write the metadata and the coordinates with zarr."""
    import zarr
    from zarr.codecs import BytesCodec
    from zarr.storage import LocalStore

    root = zarr.create_group(LocalStore(path), attributes=attributes)

    def add(name: str, dims: tuple, shape: tuple, chunks: tuple, dtype: Any, words: Mapping) -> Any:
        text = dtype is str
        return root.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value="" if text else FILL.get(str(dtype), 0),
            serializer="auto" if text else BytesCodec(endian="little"),
            filters=None,
            compressors=None,  # the bytes depend on the values only, not on a packer's version
            chunk_key_encoding={"name": "default", "separator": "."},  # no folders to keep safe
            dimension_names=dims,
            attributes=dict(sorted(words.items())),
            config={"write_empty_chunks": True},
        )

    for name, values in layout.coords.items():
        kind = str if values.dtype.kind == "U" else values.dtype
        words = layout.coord_attributes.get(name, {})
        add(name, (name,), values.shape, values.shape, kind, words)[...] = values
    for name, variable in layout.variables.items():
        shape = tuple(len(layout.coords[dim]) for dim in variable.dims)
        chunks = tuple(layout.chunk(dim) for dim in variable.dims)
        add(name, variable.dims, shape, chunks, variable.dtype, variable.attributes)
    add(FINISHED, ("task",), (tasks,), (1,), "bool", {})
    with warnings.catch_warnings():
        # xarray warns without the consolidated metadata, and zarr with them.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(root.store)


@contextlib.contextmanager
def _stored(path: Path) -> Iterator[xr.Dataset]:
    """Open the dataset of a store, not yet in memory, after seeing that it is one."""
    import numpy as np
    import xarray as xr

    if not path.is_dir():
        raise _strange(path)
    try:
        dataset = xr.open_zarr(path, chunks=None, consolidated=True, decode_cf=False)
    except PermissionError as error:
        raise ArgumentError(f"{path} could not be read: {error.strerror}") from None
    except (OSError, KeyError, TypeError, ValueError):
        raise _strange(path) from None
    with dataset:
        attributes = dataset.attrs
        if attributes.get("format") != _FORMAT or not set(_RESERVED) <= set(attributes):
            raise _strange(path)
        if _hash(attributes["specification"]) != attributes["specification_sha256"]:
            raise ArgumentError(f"the specification of {path} was changed by hand: {_ELSEWHERE}")
        words = {  # from zarr's own type of text, which little else can take
            name: (name, np.array(values.values.tolist(), str), values.attrs)
            for name, values in dataset.coords.items()
            if values.dtype.kind not in "iuf"
        }
        yield dataset.assign_coords(words)


def _read_layout(dataset: xr.Dataset) -> Layout:
    """Return the layout that a store was made with."""
    chunks, variables = {}, {}
    for name, array in dataset.data_vars.items():
        chunks.update(zip(array.dims, array.encoding["chunks"], strict=True))
        dims = tuple(str(dim) for dim in array.dims)
        variables[str(name)] = Variable(dims, str(array.dtype), array.attrs)
    coords = {dim: dataset[dim].values for dim in dataset.attrs["dims"]}
    return Layout(coords, chunks, variables)


def _strange(path: Path) -> ArgumentError:
    return ArgumentError(f"{path} is not a store of results: name another or delete it")


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
