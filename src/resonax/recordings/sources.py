"""Sources of data, opened as tables: files, data frames and arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.core.errors import ArgumentError, DataError
from resonax.core.labels import printable
from resonax.recordings.arrays import as_column, to_numpy
from resonax.recordings.batches import open_torch
from resonax.recordings.delimited import open_csv
from resonax.recordings.table import MAX_PACKED, PIECE, SMALL_ENOUGH, Table, listed, reading

if TYPE_CHECKING:
    from typing import Protocol, TypeAlias

    import pandas as pd
    from numpy.typing import ArrayLike
    from torch.utils.data import DataLoader, Dataset

    class _Frame(Protocol):  # of polars, pyarrow, xarray and Hugging Face
        def to_pandas(self) -> Any: ...

    Values: TypeAlias = pd.DataFrame | pd.Series | _Frame | ArrayLike
    Source: TypeAlias = str | Path | Values | Dataset[Any] | DataLoader[Any]

__all__ = ["check_file", "open_table"]

_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".npy", ".npz")


def open_table(source: Any, separator: str | None = None, decimal: str | None = None) -> Table:
    """Open a file, a table, an array or a loader; `DataError` if that fails.

    This is the one place where what people give is told apart.

    Names of columns with characters that cannot be shown have escapes in their place.
    """
    if isinstance(source, str | Path):
        table = _open_file(Path(source), separator, decimal)
    elif separator is not None or decimal is not None:
        raise ArgumentError("separator and decimal are of text files: leave them out")
    elif (found := open_torch(source)) is not None:
        table = found
    elif hasattr(source, "to_pandas"):  # polars, pyarrow, xarray, datasets
        try:
            table = open_table(source.to_pandas())
        except ImportError as error:
            package = error.name or "pyarrow"
            raise ArgumentError(f"this table needs {package}: pip install {package}") from None
    elif hasattr(source, "iloc"):
        table = _frame(source if source.ndim == 2 else source.to_frame())
    else:
        _check_whole(source)
        table = _array(source, "array")
    shown = tuple(printable(name) for name in table.columns)
    table = table if shown == table.columns else table.renamed(shown)
    name, count = max(Counter(table.columns).items(), key=lambda item: item[1], default=("", 0))
    if count > 1:
        raise DataError(f"{table.source} has {count} columns named {name!r}: rename them")
    return table


def _check_whole(source: Any) -> None:
    """Raise `ArgumentError` for tables that are not read yet, and for several in a dictionary."""
    if hasattr(source, "collect"):  # of polars
        raise ArgumentError("a LazyFrame has no rows yet: give frame.collect() in its place")
    if isinstance(source, Mapping):
        key = repr(next(iter(source), ""))
        is_split = any(hasattr(part, "to_pandas") for part in source.values())
        line = f"choose one, data[{key}]" if is_split else "make it a table, pandas.DataFrame(data)"
        raise ArgumentError(f"a dictionary is not a table: {line}")


def check_file(path: Path) -> None:
    """Raise `DataError` unless this is a file with one of the endings."""
    with reading(path):  # a name may be too long to look for
        if path.is_dir():
            raise DataError(f"{printable(path)} is a folder: give a file, {', '.join(_ENDINGS)}")
        if not path.exists():
            raise DataError(f"there is no file {printable(path)}: check its name and folder")
        if not path.is_file():  # a pipe would be waited for, and can be read only once
            raise DataError(
                f"{printable(path)} is a pipe or a device: save the data as a file first"
            )
        if not path.name.lower().endswith(_ENDINGS):
            raise DataError(f"{printable(path.name)} must end in one of {', '.join(_ENDINGS)}")


def _open_file(path: Path, separator: str | None, decimal: str | None) -> Table:
    check_file(path)
    with reading(path):
        name = path.name.lower()
        given = "separator" if separator is not None else "decimal" if decimal is not None else ""
        if given and name.endswith((".parquet", ".npy", ".npz")):
            raise ArgumentError(
                f"{printable(path.name)} is no text and has no {given}: leave it out"
            )
        if name.endswith(".parquet"):
            _check_start(path, b"PAR1", "a Parquet file")
            return _parquet(path)
        if name.endswith(".npy"):
            _check_start(path, b"\x93NUMPY", "a NumPy array")
            return _array(np.load(path, mmap_mode="r", allow_pickle=False), printable(path.name))
        if name.endswith(".npz"):
            _check_start(path, b"PK", "an archive of NumPy arrays")
            return _npz(path)
        if name.endswith(".gz"):
            _check_start(path, b"\x1f\x8b", "a gzip file")
        usual = "\t" if name.removesuffix(".gz").endswith(".tsv") else ","
        return open_csv(path, usual, separator, decimal)


def _check_start(path: Path, start: bytes, kind: str) -> None:
    with open(path, "rb") as file:
        found = file.read(len(start))
    if not found:
        raise DataError(f"{printable(path.name)} is empty")
    if not start.startswith(found):
        raise DataError(f"{printable(path.name)} is not {kind}, whatever its name says")


def _frame(frame: pd.DataFrame, source: str = "table", *, numbered: bool = False) -> Table:
    names = tuple(str(label) for label in frame.columns)

    def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        step = max(1, PIECE // max(1, len(columns)))
        for start in range(0, len(frame), step):
            piece = frame.iloc[start : start + step].set_axis(list(names), axis=1)
            yield piece[list(columns)].reset_index(drop=True)

    return Table(names, source, pieces, numbered=numbered)


def _array(values: Any, source: str) -> Table:
    name = "the array" if source == "array" else source
    array = to_numpy(values, name)
    if array.dtype.kind == "c":
        raise DataError(f"{name} holds complex numbers: give real ones")
    if array.dtype.kind not in "buif":
        raise DataError(
            f"{name} must hold numbers, got values of type {array.dtype}: "
            "give an array, a data frame or the name of a file"
        )
    if array.ndim not in (1, 2):
        raise DataError(f"{name} must be rows x columns, got {array.ndim} axes")
    if array.ndim == 1:
        array = array[:, None]
    import pandas as pd

    return _frame(pd.DataFrame(array, copy=False), source, numbered=True)  # a view, also of a file


def _npz(path: Path) -> Table:
    source = printable(path.name)
    # numpy leaves a damaged file open unless the file is opened for it
    with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
        size = sum(info.file_size for info in archive.zip.infolist())
        if size > max(MAX_PACKED * path.stat().st_size, SMALL_ENOUGH):
            raise DataError(
                f"{source} unpacks to more than {MAX_PACKED} times its size: save it as .npy"
            )
        loaded = {name: archive[name] for name in archive.files}
    # whatever else lies in an archive is given as bytes
    arrays = {name: part for name, part in loaded.items() if isinstance(part, np.ndarray)}
    known = [name for name in ("X", "x", "data") if name in arrays]
    tables = [name for name, array in arrays.items() if array.ndim == 2]
    found = known or tables or [name for name in arrays if name != "y"]
    if len(found) != 1:
        raise DataError(
            f"{source} must hold one table named X, and a target named y if there is one; "
            f"it has {listed([printable(name) for name in arrays]) or 'no arrays'}"
        )
    table = _array(arrays[found[0]], source)
    if "y" not in arrays or found == ["y"]:
        return table
    return table.beside("y", as_column("target", arrays["y"]))


def _parquet(path: Path) -> Table:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise ArgumentError("Parquet files need pyarrow: pip install pyarrow") from None
    with parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
    names = tuple(name for name in names if not name.startswith("__index_level_"))

    def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        rows = max(1, PIECE // max(1, len(columns)))
        # without buffering ahead, as a file may be a single group of rows
        options = {"pre_buffer": False, "buffer_size": 2**16}
        with reading(path), parquet.ParquetFile(path, **options) as file:
            for batch in file.iter_batches(rows, columns=list(columns), use_threads=False):
                # without the metadata, which would make a column the index again
                yield batch.replace_schema_metadata(None).to_pandas()[list(columns)]

    return Table(names, printable(path.name), pieces)
