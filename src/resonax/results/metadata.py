"""The metadata of a store: what zarr keeps beside the numbers, and whether it is as it was."""

from __future__ import annotations

import contextlib
import hashlib
import json
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from resonax.checks import ArgumentError, StoreError
from resonax.results.chunks import chunk_shape
from resonax.results.folder import ROOT, folder_at
from resonax.results.layout import FILL, TASKS, Layout, Variable, compare
from resonax.results.place import Place

if TYPE_CHECKING:
    import xarray as xr
    import zarr

__all__ = [
    "ELSEWHERE",
    "build",
    "digest",
    "digest_layout",
    "not_a_store",
    "open_metadata",
    "read_attributes",
    "read_layout",
]

ELSEWHERE = "choose another --out folder or delete it"
_FORMAT = "resonax store 2"
_EARLIER = "resonax store 1"
_ZARR = 3  # zarr's own format
_ONE_PIECE = "finished.json"  # of the version before, for datasets that were no sweeps
_LABELS = "coordinates"  # names the further coordinates, as the CF conventions have it
_RESERVED = (
    "format",
    "dims",
    "layout_sha256",
    "specification",
    "specification_sha256",
    "versions",
)


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
        _add(root, name, variable, shape, chunk_shape(layout, name))
    root.create_group(TASKS)
    with warnings.catch_warnings():
        # xarray warns without the consolidated metadata, and zarr with them.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(root.store)
    return {name: data.to_bytes() for name, data in files.items()}


def _open_labels(path: Place) -> xr.Dataset:
    """Open the dataset of a store with its coordinates; its variables have no values here."""
    import xarray as xr
    from zarr.core.buffer import default_buffer_prototype
    from zarr.storage import MemoryStore

    folder = folder_at(path)
    root = folder.read([ROOT]).get(ROOT)
    if root is None:
        raise not_a_store(path)
    _check_format(path, root)
    try:
        arrays = json.loads(root)["consolidated_metadata"]["metadata"]
        # A coordinate is of one piece.
        names = [
            f"{name}/c.0" for name, found in arrays.items() if len(found.get("shape", ())) == 1
        ]
        files = {ROOT: root, **folder.read(names)}
        make = default_buffer_prototype().buffer.from_bytes
        kept = MemoryStore({name: make(data) for name, data in files.items()}, read_only=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return xr.open_zarr(kept, chunks=None, consolidated=True, decode_cf=False)
    except (OSError, KeyError, TypeError, ValueError):
        read_attributes(path)  # an error, unless it is a store
        raise _damaged(path) from None


def _check_format(path: Place, root: bytes) -> None:
    """Raise `StoreError` unless this version of resonax wrote the root of a store."""
    try:
        table = json.loads(root)
        found, zarr_format = str(table["attributes"].get("format")), table["zarr_format"]
    except (AttributeError, KeyError, TypeError, ValueError):
        raise not_a_store(path) from None
    if (found, zarr_format) == (_FORMAT, _ZARR):
        return
    if found == _EARLIER:
        raise StoreError(
            f"{path} was written by an earlier resonax, without checksums: {ELSEWHERE}"
        )
    if found.startswith(_FORMAT[:-1]):
        raise StoreError(
            f"{path} was written by another resonax ({found}, zarr {zarr_format}; this one has "
            f"{_FORMAT}, zarr {_ZARR}): use that version, {ELSEWHERE}"
        )
    if _ONE_PIECE in folder_at(path).read([_ONE_PIECE]):
        raise StoreError(f"{path} was written by an earlier resonax, in one piece: {ELSEWHERE}")
    raise not_a_store(path)


@contextlib.contextmanager
def open_metadata(path: Place, specification: str | None = None) -> Iterator[xr.Dataset]:
    """Open the dataset of a store without its variables, after seeing that it is one.

    One of another specification than this is refused, if one is given.
    """
    import numpy as np

    with _open_labels(path) as dataset:
        attributes = dataset.attrs
        if not set(_RESERVED) <= set(attributes):
            raise not_a_store(path)
        if digest(attributes["specification"]) != attributes["specification_sha256"]:
            raise StoreError(f"the specification of {path} was changed by hand: {ELSEWHERE}")
        if specification is not None:
            made = compare(json.loads(attributes["specification"]), json.loads(specification))
            if made:
                raise StoreError(f"{path} was made with {made}: {ELSEWHERE}")
        try:
            labelled = dataset.set_coords(attributes.get(_LABELS, "").split())
            words = {  # from zarr's own type of text, which little else can take
                name: (values.dims, np.array(values.values.tolist(), str), values.attrs)
                for name, values in labelled.coords.items()
                if values.dtype.kind not in "iuf"
            }
            labelled = labelled.assign_coords(words)
            labelled.attrs.pop(_LABELS, None)
            if digest_layout(read_layout(labelled)) != attributes["layout_sha256"]:
                raise ValueError
        except (OSError, KeyError, TypeError, ValueError):
            raise _damaged(path) from None
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


def read_attributes(path: Place) -> dict[str, Any]:
    """Return the attributes of a store, read without zarr."""
    try:
        attributes = json.loads(folder_at(path).read([ROOT])[ROOT])["attributes"]
        if set(_RESERVED) <= set(attributes) and attributes["format"] == _FORMAT:
            return attributes
    except (OSError, KeyError, TypeError, ValueError):
        pass
    raise not_a_store(path)


def not_a_store(path: Place) -> StoreError:
    """Return the error for a folder that is no store, or no longer."""
    return StoreError(f"{path} is not a store of results: name another or delete it")


def _damaged(path: Place) -> StoreError:
    return StoreError(f"the labels of {path} are damaged: {ELSEWHERE}")


def digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_layout(layout: Layout) -> str:
    """Return the SHA-256 of what a layout describes."""
    return digest(json.dumps(layout.describe(), sort_keys=True))
