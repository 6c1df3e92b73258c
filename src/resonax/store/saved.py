"""Results in single files with checksums: objects as JSON, maps as netCDF, without rounding."""

from __future__ import annotations

import re
import types
from dataclasses import fields, is_dataclass
from io import BytesIO
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
import xarray as xr

from resonax.core.errors import ArgumentError, StoreError
from resonax.core.labels import versions
from resonax.core.objects import Result
from resonax.store.files import UNSEALED, is_whole, read_sealed, seal, sealed_json
from resonax.store.locations import Location, Remote, as_location, replacing
from resonax.store.store import open_store

__all__ = [
    "RESULTS",
    "kind_of",
    "load",
    "open_dataset",
    "save_dataset",
    "save_result",
    "saved_text",
]

_FORMAT = "resonax result 2"
_HEAD = 2048  # bytes in which a file says what it holds
_KIND = re.compile(rb'"format": "resonax result \d+", "kind": "([A-Za-z]+)"')
_WRAP = b'<script type="application/json" id="resonax-result">'

RESULTS = (  # module:name of each class that has `save`, but for maps
    "resonax.checking.order:RowOrder",
    "resonax.checking.response:Response",
    "resonax.checking.result:Check",
    "resonax.guards.audit:Audit",
    "resonax.guards.report:GuardReport",
    "resonax.probing.probe:Probe",
    "resonax.probing.replay:Replay",
    "resonax.theory:Alternation",
    "resonax.theory:Level",
    "resonax.theory:Orbit",
    "resonax.theory:OrderProof",
    "resonax.theory:Verdict",
)
_HOMES = {path.partition(":")[2]: path for path in RESULTS}


def save_result(result: Result, path: str | Path) -> Path:
    """Write a result atomically to a ``.json`` file with a checksum; return its path."""
    path = Path(path)
    if path.suffix.lower() != ".json":
        raise ArgumentError(f"a result is saved as a .json file, got {path}")
    with replacing(path) as temporary:
        temporary.write_text(saved_text(result), encoding="utf-8", newline="")
    return path


def saved_text(result: Result) -> str:
    """Return the content of the file of a result, which may stand in a page as it is."""
    content = {
        "format": _FORMAT,
        "kind": type(result).__name__,
        "versions": versions(),
        "fields": _encode(result),
    }
    return sealed_json(content).decode()


def kind_of(path: Path) -> str | None:
    """Return the kind of the result that a file seems to hold, from its first bytes; or None."""
    try:
        with path.open("rb") as file:
            start = _unwrapped(file.read(_HEAD))
    except OSError:
        return None
    found = _KIND.search(start)
    return None if found is None else found[1].decode()


def _unwrapped(data: bytes) -> bytes:
    """Return what a report holds of its result; other data as they are."""
    _, mark, kept = data.partition(_WRAP)
    return kept.partition(b"</script>")[0] if mark else data


def load(path: str | Location) -> Any:
    """Read a saved result: an object, a map or the results of a sweep.

    Parameters
    ----------
    path
        A ``.json`` file written by ``save``, the ``.html`` report of an audit, which holds it, the
        ``.nc`` file of a map, or the folder or URL of a store.

    Examples
    --------
    >>> import resonax as rx, tempfile
    >>> proof = rx.order_proof(rx.heavy_ball(lr=0.01, momentum=0.95), curvature=4.0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     rx.load(proof.save(f"{folder}/proof.json")) == proof
    True
    """
    path = as_location(path)
    if isinstance(path, Remote) or path.is_dir():
        return open_store(path)
    if path.suffix.lower() not in (".json", ".html", ".htm"):
        return open_dataset(path)
    content = read_sealed(_unwrapped(_read_bytes(path))) or {}
    try:
        if content["format"] != _FORMAT:
            raise ValueError
        kind = resolve_name(_HOMES[content["kind"]])
        return _decode(kind, content["fields"])
    except (AttributeError, KeyError, MemoryError, RecursionError, TypeError, ValueError):
        raise _damaged(path, "a result") from None


def save_dataset(dataset: xr.Dataset, path: str | Path) -> None:
    """Write a dataset atomically to a netCDF file with a checksum."""
    attributes = {name: value for name, value in dataset.attrs.items() if name != "sha256"}
    sealed = dataset.copy()
    sealed.attrs = {"sha256": UNSEALED, **attributes}  # first, where `seal` finds it
    with replacing(path) as temporary:
        sealed.to_netcdf(temporary, engine="scipy", format="NETCDF3_64BIT")
        temporary.write_bytes(seal(temporary.read_bytes()))


def open_dataset(path: str | Path) -> xr.Dataset:
    """Read a dataset written by `save_dataset`; raise `StoreError` if the file was changed."""
    import resonax.core.accessor  # noqa: F401  registers the accessor of maps

    if not Path(path).is_file():
        raise StoreError(f"{path} is not there: name a file that save_dataset or --out wrote")
    data = _read_bytes(Path(path))
    if not is_whole(data):
        raise _damaged(path, "a dataset")
    with xr.open_dataset(BytesIO(data), engine="scipy") as dataset:
        found = dataset.load()
    del found.attrs["sha256"]
    return found


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path} could not be read: {error.strerror}") from None


def _damaged(path: str | Path, what: str) -> StoreError:
    return StoreError(
        f"{path} is damaged, or not {what} that this version of resonax saved: make it again, or "
        "name another"
    )


def _encode(value: Any) -> Any:
    """Return a value as lists, dicts and plain values for JSON, with nan and infinity as Python."""
    if is_dataclass(value):
        return {field.name: _encode(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, xr.Dataset):
        return _encode(value.to_dict(data="array"))
    if isinstance(value, np.ndarray):
        array = value.astype(str) if value.dtype.kind == "O" else value
        return {"dtype": str(array.dtype), "shape": array.shape, "values": array.ravel().tolist()}
    if isinstance(value, dict):
        return {str(name): _encode(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(part) for part in value]
    return value.item() if isinstance(value, np.generic) else value


def _decode(kind: Any, value: Any) -> Any:
    """Return the value that was encoded by `_encode`, from its declared type."""
    origin, inner = get_origin(kind), get_args(kind)
    if value is None or kind is Any:
        return value
    if origin in (Union, types.UnionType):
        return _decode(next(part for part in inner if part is not type(None)), value)
    if is_dataclass(kind):
        hints = get_type_hints(
            kind, localns={"xr": xr}
        )  # xarray may be imported only for type checking
        return kind(**{f.name: _decode(hints[f.name], value[f.name]) for f in fields(kind)})
    if hasattr(kind, "_fields"):
        hints = get_type_hints(kind)
        return kind(*map(_decode, (hints[name] for name in kind._fields), value))
    if origin is tuple:
        kinds = inner[:1] * len(value) if inner[1:] == (...,) else inner
        return tuple(_decode(each, part) for each, part in zip(kinds, value, strict=True))
    if kind is np.ndarray:
        return _array(value)
    if kind is xr.Dataset:
        for variable in (*value["coords"].values(), *value["data_vars"].values()):
            variable["data"] = _array(variable["data"])
        return xr.Dataset.from_dict(value)
    return value


def _array(value: dict[str, Any]) -> np.ndarray:
    return np.array(value["values"], dtype=value["dtype"]).reshape(value["shape"])
