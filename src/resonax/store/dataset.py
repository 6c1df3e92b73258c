"""A single dataset as a netCDF file."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from resonax.core.errors import StoreError
from resonax.store.files import UNSEALED, is_whole, replacing, seal

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["open_dataset", "save_dataset"]


def save_dataset(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a dataset as a netCDF file with a checksum, whole or not at all."""
    others = {name: value for name, value in dataset.attrs.items() if name != "sha256"}
    sealed = dataset.copy()
    sealed.attrs = {"sha256": UNSEALED, **others}  # first, where `seal` finds it
    with replacing(path) as temporary:
        sealed.to_netcdf(temporary, engine="scipy", format="NETCDF3_64BIT")
        temporary.write_bytes(seal(temporary.read_bytes()))


def open_dataset(path: str | Path) -> xr.Dataset:
    """Read a dataset that `save_dataset` wrote; one that has changed since is an error."""
    import xarray as xr

    import resonax.core.accessor  # noqa: F401  gives the maps their methods

    if not Path(path).is_file():
        raise StoreError(f"{path} is not there: name a file that save_dataset or --out wrote")
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror}") from None
    if not is_whole(data):
        raise StoreError(
            f"{path} is damaged, or not a dataset that this version of resonax saved: make it "
            "again, or name another"
        )
    with xr.open_dataset(BytesIO(data), engine="scipy") as dataset:
        found = dataset.load()
    del found.attrs["sha256"]
    return found
