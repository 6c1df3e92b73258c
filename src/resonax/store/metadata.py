"""The metadata of a store: what zarr keeps beside the numbers, and whether it is as it was.

The root names the SHA-256 of every other file of the metadata and holds its own, so that damage to
any of them is found. All of it follows from the layout and the specification: whoever opens a store
to go on with it writes anew what is damaged or missing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resonax.core.errors import ArgumentError, StoreError
from resonax.store.files import UNSEALED, is_whole, seal
from resonax.store.folder import folder_at
from resonax.store.layout import FILL, TASKS, Layout, Task, Variable, compare
from resonax.store.place import Place

if TYPE_CHECKING:
    import xarray as xr
    import zarr

__all__ = [
    "ELSEWHERE",
    "ROOT",
    "Marker",
    "build",
    "digest",
    "digest_layout",
    "marker_name",
    "mend",
    "not_a_store",
    "open_metadata",
    "read_attributes",
    "read_layout",
]

_LOG = logging.getLogger("resonax")
ELSEWHERE = "choose another --out folder or delete it"
ROOT = "zarr.json"  # the file that makes a folder a store
_FORMAT = "resonax store 3"
_EARLIER = ("resonax store 1", "resonax store 2")
_ZARR = 3  # zarr's own format
_ONE_PIECE = "finished.json"  # of the version before, for datasets that were no sweeps
_LABELS = "coordinates"  # names the further coordinates, as the CF conventions have it
_RESERVED = (
    "sha256",
    "format",
    "files_sha256",
    "dims",
    "layout_sha256",
    "specification",
    "specification_sha256",
    "versions",
)


def marker_name(task: Task) -> str:
    """Return the file of a task's marker, below the folder of the store."""
    return f"{TASKS}/{task.number}.json"


@dataclass(frozen=True)
class Marker:
    """What a finished task leaves behind: checksums of its values, and what their bits depend on.

    Examples
    --------
    >>> marker = Marker({"rate": "6e34..."}, "9f86...", {"jax": "0.10.2"})
    >>> Marker.parse(marker.text().encode()) == marker
    True
    >>> Marker.parse(b'{"values_sha256": {}}') is None
    True
    """

    values_sha256: Mapping[str, str]  # by variable
    specification_sha256: str
    versions: Mapping[str, str]

    def text(self) -> str:
        """Return it as sealed JSON, equal for equal markers."""
        table = {"sha256": UNSEALED, **vars(self)}
        text = json.dumps(table, indent=1) + "\n"
        return seal(text.encode()).decode()

    @classmethod
    def parse(cls, data: bytes) -> Marker | None:
        """Return the marker that was written, or None if this is none."""
        try:
            found = json.loads(data) if is_whole(data) else {}
            return cls(**{name: value for name, value in found.items() if name != "sha256"})
        except (AttributeError, TypeError, ValueError):
            return None


def _add(
    root: zarr.Group, name: str, variable: Variable, shape: tuple[int, ...], chunks: tuple[int, ...]
) -> zarr.Array:
    """Add an empty array to a store."""
    from zarr.codecs import BytesCodec, Crc32cCodec

    is_text = variable.dtype == "str"
    return root.create_array(
        name,
        shape=shape,
        chunks=chunks,
        dtype=str if is_text else variable.dtype,
        fill_value="" if is_text else FILL.get(variable.dtype, 0),
        serializer="auto" if is_text else BytesCodec(endian="little"),
        filters=None,
        # Not packed: the bytes depend on the values only, not on a packer's version.
        compressors=(Crc32cCodec(),),
        chunk_key_encoding={"name": "default", "separator": "."},  # no folders to keep safe
        dimension_names=variable.dims,
        attributes=dict(sorted(variable.attributes.items())),
        config={"write_empty_chunks": True},
    )


def build(
    layout: Layout,
    specification: str,
    versions: Mapping[str, str],
    attributes: Mapping[str, Any],
) -> dict[str, bytes]:
    """Return the files of an empty store: metadata and coordinates, as zarr writes them."""
    import zarr
    from zarr.storage import MemoryStore

    if taken := [name for name in attributes if name in (*_RESERVED, _LABELS)]:
        raise ArgumentError(f"an attribute cannot be called {taken[0]}: choose another name")
    attributes = {
        "sha256": UNSEALED,  # first, where `seal` finds it
        **json.loads(json.dumps(attributes, sort_keys=True)),  # equal ones are equal bytes
        "format": _FORMAT,
        "dims": list(layout.coords),
        "layout_sha256": digest_layout(layout),
        "specification": specification,
        "specification_sha256": digest(specification),
        "versions": dict(sorted(versions.items())),
        **({_LABELS: " ".join(layout.labels)} if layout.labels else {}),
    }
    files: dict[str, Any] = {}
    root = zarr.create_group(MemoryStore(files), attributes=attributes)

    own = {name: (name, values) for name, values in layout.coords.items()}
    for name, (dim, values) in {**own, **layout.labels}.items():
        kind = "str" if values.dtype.kind == "U" else str(values.dtype)
        variable = Variable((dim,), kind, layout.coord_attributes.get(name, {}))
        _add(root, name, variable, values.shape, values.shape)[...] = values
    for name, variable in layout.variables.items():
        shape = tuple(len(layout.coords[dim]) for dim in variable.dims)
        _add(root, name, variable, shape, layout.chunk_shape(name))
    root.create_group(TASKS)
    sums = {name: _sha256(data.to_bytes()) for name, data in files.items() if name != ROOT}
    root.update_attributes({"files_sha256": dict(sorted(sums.items()))})
    with warnings.catch_warnings():
        # xarray warns without the consolidated metadata, and zarr with them.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(root.store)
    found = {name: data.to_bytes() for name, data in files.items()}
    return {**found, ROOT: seal(found[ROOT])}


def read_attributes(path: Place) -> dict[str, Any]:
    """Return the attributes of a store, read without zarr; an error if they are not whole."""
    if (attributes := _read_root(path)[0]) is None:
        raise _damaged(path) if _read_markers(path) else not_a_store(path)
    return attributes


def _read_root(path: Place) -> tuple[dict[str, Any] | None, bytes]:
    """Return the attributes of a store, None if its root is damaged or missing, and the root."""
    root = folder_at(path).read([ROOT]).get(ROOT, b"")
    try:
        table = json.loads(root)
        attributes, zarr_format = table["attributes"], table["zarr_format"]
        found = str(attributes.get("format"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None, root
    if (found, zarr_format) == (_FORMAT, _ZARR):
        return attributes if is_whole(root) else None, root
    if found in _EARLIER:
        raise StoreError(
            f"{path} was written by an earlier resonax, and cannot be checked for damage by this "
            f"one: {ELSEWHERE}"
        )
    if found.startswith(_FORMAT[:-1]):
        raise StoreError(
            f"{path} was written by another resonax ({found}, zarr {zarr_format}; this one has "
            f"{_FORMAT}, zarr {_ZARR}): use that version, {ELSEWHERE}"
        )
    if _ONE_PIECE in folder_at(path).read([_ONE_PIECE]):
        raise StoreError(f"{path} was written by an earlier resonax, in one piece: {ELSEWHERE}")
    return None, root


def _read_markers(path: Place) -> list[Marker]:
    """Return the markers of a store that are whole."""
    folder = folder_at(path / TASKS)
    texts = folder.read([name for name in folder.names() if name[:-5].isdecimal()])
    return [marker for text in texts.values() if (marker := Marker.parse(text)) is not None]


def mend(
    path: Place,
    layout: Layout,
    specification: str,
    attributes: Mapping[str, Any],
) -> None:
    """Write the metadata of a store anew if any of it is damaged or missing.

    A store of another specification or layout is left as it is. Without a root it is one of ours if
    all of its markers are.
    """
    folder = folder_at(path)
    found, _ = _read_root(path)
    if found is not None:
        same = digest(specification), digest_layout(layout)
        if (found["specification_sha256"], found["layout_sha256"]) != same:
            return
        sums = found["files_sha256"]
        there = folder.read(sums)
        if all(_sha256(there.get(name, b"")) == sums[name] for name in sums):
            return
        versions = found["versions"]
        attributes = {k: v for k, v in found.items() if k not in (*_RESERVED, _LABELS)}
    else:
        made = _read_markers(path)
        if {marker.specification_sha256 for marker in made} != {digest(specification)}:
            raise not_a_store(path)
        versions = made[0].versions
    files = build(layout, specification, versions, attributes)
    folder.write({name: data for name, data in files.items() if name != ROOT})
    folder.write({ROOT: files[ROOT]})
    if any(name[:-5].isdecimal() for name in folder_at(path / TASKS).names()):
        _LOG.warning("%s: its metadata were damaged or missing, and are written anew", path)


@contextlib.contextmanager
def open_metadata(path: Place, specification: str | None = None) -> Iterator[xr.Dataset]:
    """Open the dataset of a store without its variables, after seeing that it is whole.

    One of another specification than this is refused, if one is given.
    """
    import numpy as np
    import xarray as xr
    from zarr.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    attributes, root = _read_root(path)
    if attributes is None:
        raise _damaged(path) if _read_markers(path) else not_a_store(path)
    if specification is not None:
        made = compare(json.loads(attributes["specification"]), json.loads(specification))
        if made:
            raise StoreError(f"{path} was made with {made}: {ELSEWHERE}")
    sums = attributes["files_sha256"]
    files = folder_at(path).read(sums)
    if any(_sha256(files.get(name, b"")) != sums[name] for name in sums):
        raise _damaged(path)
    make = default_buffer_prototype().buffer.from_bytes
    kept = MemoryStore({k: make(v) for k, v in {**files, ROOT: root}.items()}, read_only=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opened = xr.open_zarr(kept, chunks=None, consolidated=True, decode_cf=False)
    with opened as dataset:
        labelled = dataset.set_coords(attributes.get(_LABELS, "").split())
        words = {  # from zarr's own type of text, which little else can take
            name: (values.dims, np.array(values.values.tolist(), str), values.attrs)
            for name, values in labelled.coords.items()
            if values.dtype.kind not in "iuf"
        }
        labelled = labelled.assign_coords(words)
        for name in ("sha256", "files_sha256", _LABELS):  # of the files, not of what is in them
            labelled.attrs.pop(name, None)
        yield labelled


def read_layout(dataset: xr.Dataset) -> Layout:
    """Return the layout that a store was made with."""
    chunks, variables = {}, {}
    for name, array in dataset.data_vars.items():
        chunks.update(zip(array.dims, array.encoding["chunks"], strict=True))
        dims = tuple(str(dim) for dim in array.dims)
        variables[str(name)] = Variable(dims, str(array.dtype), array.attrs)
    coords = {dim: dataset[dim].values for dim in dataset.attrs["dims"]}
    labels = {
        str(name): (str(values.dims[0]), values.values)
        for name, values in dataset.coords.items()
        if name not in coords
    }
    return Layout(coords, chunks, variables, labels=labels)


def not_a_store(path: Place) -> StoreError:
    """Return the error for a folder that is no store, or no longer."""
    return StoreError(f"{path} is not a store of results: name another or delete it")


def _damaged(path: Place) -> StoreError:
    return StoreError(
        f"the metadata of {path} are damaged: run the command that made it again, which mends "
        "them, or delete it"
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return _sha256(text.encode())


def digest_layout(layout: Layout) -> str:
    """Return the SHA-256 of what a layout describes."""
    return digest(json.dumps(layout.describe(), sort_keys=True))
