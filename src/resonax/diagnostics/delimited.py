"""Text files with separators, read in pieces; every row must have as many fields as the first."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from resonax.checks import ArgumentError, is_number
from resonax.diagnostics.table import PIECE, Table, reading

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["open_csv"]

_INDEX = "Unnamed: 0"  # what pandas calls the index that it wrote as a nameless column


def _open(path: Path) -> IO[bytes]:
    return cast(IO[bytes], (gzip.open if path.suffix.lower() == ".gz" else open)(path, "rb"))


def _rows(path: Path, separator: str, errors: str = "strict") -> Iterator[list[str]]:
    """Yield the fields of each line that is not blank."""
    with io.TextIOWrapper(_open(path), "utf-8-sig", errors, newline="") as file:
        for fields in csv.reader(file, delimiter=separator, skipinitialspace=True):
            if len(fields) > 1 or "".join(fields).strip():
                yield fields


def _header(first: list[str], source: str) -> tuple[list[str], bool, tuple[str, ...]]:
    """Return the names of all columns, whether the first line holds them, and what was assumed."""
    names = [field.strip() for field in first]
    numbers = [str(index) for index in range(len(names))]
    index = len(names) > 1 and names[0] in ("", _INDEX)
    # 0, 1, 2, ... is how pandas names the columns of an array
    counted = names[1:] == numbers[:-1] if index else len(names) > 2 and names == numbers
    if not counted and all(is_number(name or "nan") for name in names):
        return numbers, False, ("the first line holds numbers, so the columns are numbered from 0",)
    notes = ("the first line, 0, 1, 2 and so on, was taken as names",) if counted else ()
    if index:
        names[0] = _INDEX
        notes += ("the first column has no name and was left out as an index",)
    names[0] = names[0].lstrip("# ") or names[0]  # numpy.savetxt makes the header a comment
    if "" in names:
        where = names.index("") + 1
        raise ArgumentError(f"column {where} of {source} has no name: name it in the first line")
    return names, True, notes


def open_csv(path: Path, separator: str) -> Table:
    """Open a file; a first line of numbers is data, and its columns are numbered."""
    with _open(path) as file:
        if b"\0" in file.read(2**16):
            raise ArgumentError(f"{path.name} is not UTF-8 text: save it as UTF-8")
    start = list(itertools.islice(_rows(path, separator), 2))
    if not start:
        raise ArgumentError(f"{path.name} is empty")
    names, header, notes = _header(start[0], path.name)
    other = next((mark for mark in (";", "\t", ",") if len(start[0]) == 1 and mark in names[0]), "")
    if other and other != separator:
        word = {";": "semicolons", "\t": "tabs", ",": "commas"}[other]
        wanted = "tabs" if separator == "\t" else "commas"
        raise ArgumentError(f"{path.name} has {word} between its columns: it must have {wanted}")
    if len(start) > 1 and len(start[1]) > len(names):  # pandas would make a column an index
        _check_even(path, separator, len(names), header)

    def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        return _csv_pieces(path, separator, names, header, list(columns))

    columns = tuple(names[1:] if names[0] == _INDEX else names)
    return Table(columns, path.name, pieces, numbered=not header, notes=notes)


def _csv_pieces(
    path: Path, separator: str, names: list[str], header: bool, columns: list[str]
) -> Iterator[pd.DataFrame]:
    import pandas as pd

    rows, failure = 0, ""
    with reading(path):
        try:
            with pd.read_csv(
                path,
                sep=separator,
                header=0 if header else None,
                names=names,
                usecols=columns if set(columns) != set(names) else None,
                index_col=False,
                skipinitialspace=True,
                chunksize=max(1, PIECE // len(names)),  # as all columns are split
                low_memory=False,  # else a column may be text and numbers in one piece
            ) as reader:
                for piece in reader:
                    rows += len(piece)
                    yield piece[columns]
        except UnicodeDecodeError:
            raise
        except ValueError as error:
            failure = str(error).strip()
        if "EOF inside string" in failure:
            what = f"{path.name} has a quotation mark that is never closed"
            raise ArgumentError(f"{what}: the file seems to be cut")
        # pandas fills short rows, and ignores what is too much if columns are chosen
        with _open(path) as file:
            mark = separator.encode()
            count = sum(block.count(mark) for block in iter(lambda: file.read(2**20), b""))
        if failure or count != (rows + header) * (len(names) - 1):
            _check_even(path, separator, len(names), header)
        if failure:
            raise ArgumentError(f"{path.name} cannot be read as CSV: {failure}")


def _check_even(path: Path, separator: str, width: int, header: bool) -> None:
    """Raise `ArgumentError` for the first row with too few or too many fields."""
    found, remedy = "", ""
    for row, fields in enumerate(_rows(path, separator, "replace"), start=0 if header else 1):
        if found:
            remedy = "correct or remove it"
            break
        if len(fields) != width:
            count = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            found = f"row {row} of {path.name} has {count} instead of {width}"
            remedy = "the file seems to be cut" if len(fields) < width else "correct or remove it"
    if found:
        raise ArgumentError(f"{found}: {remedy}")
