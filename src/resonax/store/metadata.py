"""Metadata of a store: written by zarr, protected by checksums, and repaired if damaged.

The root file holds the layout, the specification, its own SHA-256 and those of the other metadata
files, so that any damage is detected. The other files follow from the root: if they are damaged or
missing, they are written again when a run is resumed.
"""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resonax.core.errors import ArgumentError, StoreError
from resonax.store.files import UNSEALED, is_whole, read_sealed, seal
from resonax.store.layout import FILL, TASKS, Layout, Variable, compare
from resonax.store.locations import Location, create_file, file_names, read_files, write_files

if TYPE_CHECKING:
    import zarr

__all__ = ["ELSEWHERE", "StoreMetadata", "prepare_metadata", "read_metadata", "sha256"]

_LOG = logging.getLogger("resonax")
ELSEWHERE = "choose another --out folder or delete it"
_ROOT = "zarr.json"
_FORMAT = "resonax store 4"
_ZARR_FORMAT = 3
_LABELS = "coordinates"  # attribute with the names of further coordinates, by the CF conventions
_FILE_ATTRIBUTES = ("sha256", "files_sha256", "layout", _LABELS)  # not attributes of the dataset
_RESERVED = (*_FILE_ATTRIBUTES, "format", "specification", "specification_sha256", "versions")


@dataclass(frozen=True)
class StoreMetadata:
    """Metadata of a store.

    Attributes
    ----------
    layout
        Variables, and how they are cut into tasks.
    attributes
        Attributes of the dataset, among them those below.
    specification, specification_sha256
        All that the results depend on, as JSON, and its SHA-256.
    versions
        Versions of the libraries that the store was created with.
    finished
        Numbers of the tasks that are marked as finished.
    """

    layout: Layout
    attributes: Mapping[str, Any]
    specification: str
    specification_sha256: str
    versions: Mapping[str, str]
    finished: frozenset[int]


def read_metadata(path: Location) -> StoreMetadata:
    """Return the metadata of a store; raise `StoreError` if they are damaged."""
    root = _read_root(path)
    if root is None:
        raise _damaged(path) if _read_markers(path) else _not_a_store(path)
    if _damaged_files(path, root):
        raise _damaged(path)
    return StoreMetadata(
        Layout.parse(json.loads(root["layout"])),
        {name: value for name, value in root.items() if name not in _FILE_ATTRIBUTES},
        root["specification"],
        root["specification_sha256"],
        root["versions"],
        frozenset(_marked(path)),
    )


def prepare_metadata(
    path: Location,
    layout: Layout,
    specification: str,
    versions: Mapping[str, str],
    attributes: Mapping[str, Any],
) -> None:
    """Create the metadata of a store, or repair them.

    Raises `StoreError` if the store has another specification or layout. If the root is missing,
    the markers of the tasks show whether the store has this specification. Of several processes
    that create a store at the same time, one creates the root, and the others read it.
    """
    root = _read_root(path)
    if root is None and not file_names(path):
        files = _build(layout, specification, versions, attributes)
        if create_file(path, _ROOT, files.pop(_ROOT)):
            write_files(path, files)
            return
        root = _read_root(path)
    if root is not None:
        changes = compare(json.loads(root["specification"]), json.loads(specification))
        stored, described = json.loads(root["layout"]), layout.describe()
        if changes := changes or compare(
            stored | {"attributes": {}}, json.loads(json.dumps(described | {"attributes": {}}))
        ):
            raise StoreError(f"{path} was made with {changes}: {ELSEWHERE}")
        if not _damaged_files(path, root):
            return
        versions = root["versions"]
        attributes = {name: value for name, value in root.items() if name not in _RESERVED}
    else:
        markers = _read_markers(path)
        if {marker["specification_sha256"] for marker in markers} != {sha256(specification)}:
            raise _not_a_store(path)
        versions = markers[0]["versions"]
    files = _build(layout, specification, versions, attributes)
    is_new = not _marked(path)  # another process is creating the store, or was killed
    write_files(path, {name: data for name, data in files.items() if name != _ROOT})
    write_files(path, {_ROOT: files[_ROOT]})
    if not is_new:
        _LOG.warning("%s: its metadata were damaged or missing, and are written anew", path)


def _read_root(path: Location) -> dict[str, Any] | None:
    """Return the attributes in the root file, read without zarr; None if damaged or missing."""
    data = read_files(path, [_ROOT]).get(_ROOT, b"")
    try:
        table = json.loads(data)
        attributes, zarr_format = table["attributes"], table["zarr_format"]
        store_format = str(attributes.get("format"))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
        return None
    if (store_format, zarr_format) == (_FORMAT, _ZARR_FORMAT):
        return attributes if is_whole(data) else None
    if store_format.startswith(_FORMAT[:-1]):
        raise StoreError(
            f"{path} was written by another resonax ({store_format}, zarr {zarr_format}; this one "
            f"has {_FORMAT}, zarr {_ZARR_FORMAT}): use that version, {ELSEWHERE}"
        )
    return None


def _damaged_files(path: Location, root: Mapping[str, Any]) -> bool:
    """Return whether any metadata file except the root is damaged or missing."""
    sums = root["files_sha256"]
    files = read_files(path, sums)
    return any(sha256(files.get(name, b"")) != sums[name] for name in sums)


def _marked(path: Location) -> list[int]:
    """Return the numbers of the tasks that have a marker."""
    names = file_names(path / TASKS)
    return [int(name[:-5]) for name in names if name[:-5].isdecimal() and name[-5:] == ".json"]


def _read_markers(path: Location) -> list[dict[str, Any]]:
    """Return the markers of tasks that are not damaged."""
    texts = read_files(path / TASKS, [f"{number}.json" for number in _marked(path)])
    return [marker for text in texts.values() if (marker := read_sealed(text)) is not None]


def _build(
    layout: Layout,
    specification: str,
    versions: Mapping[str, str],
    attributes: Mapping[str, Any],
) -> dict[str, bytes]:
    """Return the files that zarr writes for an empty store: metadata and coordinates."""
    import zarr
    from zarr.storage import MemoryStore

    if taken := [name for name in attributes if name in _RESERVED]:
        raise ArgumentError(f"an attribute cannot be called {taken[0]}: choose another name")
    attributes = {
        "sha256": UNSEALED,  # first, as `seal` uses the first one
        **json.loads(json.dumps(attributes, sort_keys=True)),  # equal attributes give equal bytes
        "format": _FORMAT,
        "layout": json.dumps(layout.describe()),
        "specification": specification,
        "specification_sha256": sha256(specification),
        "versions": dict(sorted(versions.items())),
        **({_LABELS: " ".join(layout.labels)} if layout.labels else {}),
    }
    files: dict[str, Any] = {}
    root = zarr.create_group(MemoryStore(files), attributes=attributes)
    axes = {name: (name, values) for name, values in layout.coords.items()}
    for name, (dim, values) in {**axes, **layout.labels}.items():
        dtype = "str" if values.dtype.kind == "U" else str(values.dtype)
        variable = Variable((dim,), dtype, layout.coord_attributes.get(name, {}))
        _add_array(root, name, variable, values.shape, values.shape)[...] = values
    for name, variable in layout.variables.items():
        shape = tuple(len(layout.coords[dim]) for dim in variable.dims)
        _add_array(root, name, variable, shape, layout.chunk_shape(name))
    root.create_group(TASKS)
    sums = {name: sha256(data.to_bytes()) for name, data in files.items() if name != _ROOT}
    root.update_attributes({"files_sha256": dict(sorted(sums.items()))})
    with warnings.catch_warnings():
        # zarr warns that consolidated metadata are not standard, but xarray warns without them.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(root.store)
    contents = {name: data.to_bytes() for name, data in files.items()}
    return {**contents, _ROOT: seal(contents[_ROOT])}


def _add_array(
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
        # Not compressed: bytes must not depend on the version of a compressor.
        compressors=(Crc32cCodec(),),
        chunk_key_encoding={"name": "default", "separator": "."},  # chunks as files in one folder
        dimension_names=variable.dims,
        attributes=dict(sorted(variable.attributes.items())),
        config={"write_empty_chunks": True},
    )


def _not_a_store(path: Location) -> StoreError:
    return StoreError(f"{path} is not a store of results: name another or delete it")


def _damaged(path: Location) -> StoreError:
    return StoreError(
        f"the metadata of {path} are damaged: run the command that made it again, which mends "
        "them, or delete it"
    )


def sha256(data: bytes | str) -> str:
    """Return the SHA-256 of a file or a text."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()
