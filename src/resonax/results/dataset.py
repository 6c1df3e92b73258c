"""A single dataset as a netCDF file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from resonax.checks import StoreError
from resonax.results.files import replacing

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["open_dataset", "save_dataset"]


def save_dataset(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a dataset as a netCDF file, whole or not at all."""
    with replacing(path) as temporary:
        dataset.to_netcdf(temporary, engine="scipy", format="NETCDF3_64BIT")


def open_dataset(path: str | Path) -> xr.Dataset:
    """Read a dataset that `save_dataset` wrote."""
    import xarray as xr

    import resonax.accessor  # noqa: F401  gives the maps their methods

    if not Path(path).is_file():
        raise StoreError(f"{path} is not there: name a file that save_dataset or --out wrote")
    try:
        with xr.open_dataset(path, engine="scipy") as dataset:
            return dataset.load()
    except (OSError, TypeError, ValueError):
        raise StoreError(f"{path} is not a dataset of resonax: delete it or name another") from None
