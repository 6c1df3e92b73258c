"""A dataset that is made in one go, kept as a zarr folder: there whole, or not at all."""

from __future__ import annotations

import errno
import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.checks import StoreError
from resonax.results.disk import checksum, clear, flush_tree, temporary, writing
from resonax.results.layout import compare

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["load_whole", "save_whole"]

_MARKER = "finished.json"  # names all other files with their checksums


def save_whole(
    dataset: xr.Dataset, path: Path, specification: Mapping[str, Any], attributes: Mapping[str, Any]
) -> None:
    """Write a dataset with its specification, in the place of one that was damaged.

    Of two processes that write the same at once, one does; the other's is dropped.
    """
    from zarr.codecs import Crc32cCodec

    marked = dataset.assign_attrs(attributes, specification=json.dumps(specification))
    encoding = {name: {"compressors": (Crc32cCodec(),)} for name in marked.variables}
    with writing(path), temporary(path.parent, folder=True) as fresh:
        with warnings.catch_warnings():
            # That text has no final specification in zarr yet is known: it is read back by name.
            warnings.simplefilter("ignore")
            marked.to_zarr(fresh, mode="w-", zarr_format=3, consolidated=True, encoding=encoding)
        files = {name: checksum((fresh / name).read_bytes()) for name in _files(fresh)}
        marker = {"files": files, "specification": specification}
        (fresh / _MARKER).write_text(json.dumps(marker, sort_keys=True, indent=1) + "\n")
        flush_tree(fresh)
        try:
            os.rename(fresh, path)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            if load_whole(path, specification) is None:  # damaged: out of the way with it
                with temporary(path.parent, folder=True) as old:
                    os.rename(path, old)
                    os.rename(fresh, path)


def load_whole(path: Path, specification: Mapping[str, Any]) -> xr.Dataset | None:
    """Return a stored dataset, or None if it is not there or damaged.

    One that was made with another specification is refused, and so is anything else.
    """
    import xarray as xr

    if path.parent.is_dir():
        clear(path.parent)  # what a killed process left
    if not path.exists():
        return None
    try:
        marker = json.loads((path / _MARKER).read_bytes())
        files, before = marker["files"], marker["specification"]
    except (OSError, ValueError, KeyError, TypeError):
        raise StoreError(
            f"{path} is not a store of resonax, or one of an earlier version: delete it"
        ) from None
    if made := compare(before, json.loads(json.dumps(specification))):
        raise StoreError(f"{path} was made with {made}: choose another --out folder or delete it")
    try:
        if any(checksum((path / name).read_bytes()) != found for name, found in files.items()):
            return None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with xr.open_zarr(path) as stored:
                return stored.load()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror}") from None


def _files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
