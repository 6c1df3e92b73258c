"""A dataset that is made in one go, kept as a zarr store: there whole, or not at all."""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.checks import ArgumentError
from resonax.results.layout import compare

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["load_whole", "save_whole"]


def save_whole(
    dataset: xr.Dataset, path: Path, specification: Mapping[str, Any], attributes: Mapping[str, Any]
) -> None:
    """Write a dataset with its specification; a folder of that name is complete by its marker."""
    text = json.dumps(specification, sort_keys=True)
    marked = dataset.assign_attrs(attributes, specification=text, finished="true")
    temporary = path.with_name(f".{path.name}-making")
    try:
        shutil.rmtree(temporary, ignore_errors=True)
        with warnings.catch_warnings():
            # That text has no final specification in zarr yet is known: it is read back by name.
            warnings.simplefilter("ignore")
            marked.to_zarr(temporary, mode="w", zarr_format=3, consolidated=True)
        os.rename(temporary, path)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise ArgumentError(
            f"{path} could not be written ({error.strerror or error}): see to the folder and run "
            "the same command again; what was stored is kept"
        ) from None


def load_whole(path: Path, specification: Mapping[str, Any]) -> xr.Dataset | None:
    """Return a stored dataset or None; one that was made with another specification is refused."""
    import xarray as xr

    if not path.exists():
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with xr.open_zarr(path) as stored:
                dataset = stored.load()
    except (OSError, ValueError, KeyError, TypeError):
        raise ArgumentError(f"{path} is not a store of resonax: delete it") from None
    if dataset.attrs.get("finished") != "true":
        raise ArgumentError(f"{path} is not a store of resonax: delete it")
    before = json.loads(dataset.attrs["specification"])
    now = json.loads(json.dumps(specification))
    if before != now:
        raise ArgumentError(
            f"{path} was made with {compare(before, now)}: choose another --out folder or delete it"
        )
    return dataset
