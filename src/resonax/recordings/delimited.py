"""Text files with separators, read in pieces; every row must have as many fields as the first."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

from resonax.core.errors import ArgumentError, DataError, ResonaxError, is_number
from resonax.core.labels import printable
from resonax.recordings.table import MAX_PACKED, PIECE, SMALL_ENOUGH, Table, reading

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["open_csv"]

_INDEX = "Unnamed: 0"  # what pandas calls the index that it wrote as a nameless column
_WORDS = {"\t": "tabs", ";": "semicolons", "|": "vertical bars", ",": "commas", " ": "spaces"}
_NAMES = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " "}
_GUESSED_FROM = 20  # rows from which decimals are guessed
_LONGEST_LINE = 2**24  # bytes: a table of numbers has no such line
_WITH_COMMA = r"[+-]?\d*,\d+(?:[eE][+-]?\d+)?"
_WITH_POINT = _WITH_COMMA.replace(",", r"\.")


@dataclass(frozen=True)
class _Dialect:
    """How the numbers of a file are set apart and written."""

    separator: str
    decimal: str


class _CheckedBytes(io.RawIOBase):
    """The bytes of a file, unpacked; raises `DataError` where they cannot be a table of text.

    Zero bytes, endless lines and archives that unpack to far more than their size are refused
    before they fill the memory.
    """

    def __init__(self, path: Path) -> None:
        packed = path.suffix.lower() == ".gz"
        self.file = cast(IO[bytes], (gzip.open if packed else open)(path, "rb"))
        self.name, self.count, self.line_length = printable(path.name), 0, 0
        size = path.stat().st_size
        self.most = max(MAX_PACKED * size, SMALL_ENOUGH) if packed else None
        self.refused: DataError | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.file.read(len(buffer))
        buffer[: len(data)] = data
        self.count += len(data)
        newline = max(data.rfind(b"\n"), data.rfind(b"\r"))
        self.line_length = self.line_length + len(data) if newline < 0 else len(data) - newline - 1
        trouble = ""
        if b"\0" in data:
            trouble = "is not UTF-8 text: save it as UTF-8"
        elif self.line_length > _LONGEST_LINE:
            trouble = f"has a line of more than {_LONGEST_LINE:,} characters: it is no table"
        elif self.most is not None and self.count > self.most:
            trouble = f"unpacks to more than {MAX_PACKED} times its size: unpack it first"
        if trouble:
            self.refused = DataError(f"{self.name} {trouble}")
            raise self.refused
        return len(data)

    def close(self) -> None:
        self.file.close()
        super().close()


def _read_rows(path: Path, separator: str, errors: str = "strict") -> Iterator[list[str]]:
    """Yield the fields of each line that is not blank."""
    stream = io.BufferedReader(_CheckedBytes(path))
    with io.TextIOWrapper(stream, "utf-8-sig", errors, newline="") as file:
        for fields in csv.reader(file, delimiter=separator, skipinitialspace=True):
            if len(fields) > 1 or "".join(fields).strip():
                yield fields


def _parse_separator(given: str) -> str:
    """Return the separator that is meant by a character or its name."""
    mark = _NAMES.get(given.lower(), given) if isinstance(given, str) else ""
    if len(mark) != 1 or not (mark == "\t" or (mark.isascii() and mark.isprintable())):
        mark = ""
    if not mark or mark.isalnum() or mark in "\"'+-._":
        raise DataError(
            f"separator must be one character, such as ';' or '|', or tab or space, got {given!r}"
        )
    return mark


def _guess_dialect(
    path: Path, usual: str, separator: str | None, decimal: str | None
) -> tuple[_Dialect, list[list[str]], tuple[str, ...]]:
    """Return how a file is written, its first rows, and what was guessed.

    The separator is the one that the ending names, unless both of the first two rows fall into
    the same number of fields, more than one, by another that no number holds.
    """
    notes: tuple[str, ...] = ()
    if decimal not in (None, ".", ","):
        raise ArgumentError(f"decimal must be . or , got {decimal!r}")
    if separator is not None:
        mark = _parse_separator(separator)
    else:
        mark = usual
        for other in (*(";", "\t", "|"), *((",",) if usual != "," else ())):
            widths = {len(row) for row in itertools.islice(_read_rows(path, other), 2)}
            if other != usual and len(widths) == 1 and widths != {1}:
                mark = other
                notes += (f"columns were taken to be separated by {_WORDS[mark]}",)
                break
    start = list(itertools.islice(_read_rows(path, mark), _GUESSED_FROM))
    if decimal is None:
        fields = [field.strip() for row in start for field in row]
        commas, points = (
            any(re.fullmatch(form, field) for field in fields)
            for form in (_WITH_COMMA, _WITH_POINT)
        )
        decimal = "," if mark != "," and commas and not points else "."
        notes += ("numbers were taken to be written with a decimal comma",) * (decimal == ",")
    if decimal == mark:
        raise DataError(
            f"separator and decimal are both {mark!r} for {printable(path.name)}: give another of "
            "them"
        )
    return _Dialect(mark, decimal), start, notes


def _read_header(
    first: list[str], source: str, decimal: str
) -> tuple[list[str], bool, tuple[str, ...]]:
    """Return the names of all columns, whether the first line holds them, and what was assumed."""
    names = [field.strip() for field in first]
    numbers = [str(index) for index in range(len(names))]
    index = len(names) > 1 and names[0] in ("", _INDEX)
    # 0, 1, 2, ... is how pandas names the columns of an array
    counted = names[1:] == numbers[:-1] if index else len(names) > 2 and names == numbers
    if not counted and all(is_number(name.replace(decimal, ".") or "nan") for name in names):
        return numbers, False, ("the first line holds numbers, so the columns are numbered from 0",)
    notes = ("the first line, 0, 1, 2 and so on, was taken as names",) if counted else ()
    if index:
        names[0] = _INDEX
        notes += ("the first column has no name and was left out as an index",)
    names[0] = names[0].lstrip("# ") or names[0]  # numpy.savetxt makes the header a comment
    if "" in names:
        where = names.index("") + 1
        raise DataError(f"column {where} of {source} has no name: name it in the first line")
    return names, True, notes


def open_csv(
    path: Path, usual: str, separator: str | None = None, decimal: str | None = None
) -> Table:
    """Open a file; a first line of numbers is data, and its columns are numbered.

    ``usual`` is the separator that goes with the ending of the file; ``separator`` and
    ``decimal`` are what a person said, and are guessed where they are None.
    """
    dialect, start, notes = _guess_dialect(path, usual, separator, decimal)
    source = printable(path.name)
    if not start:
        raise DataError(f"{source} is empty")
    names, header, more = _read_header(start[0], source, dialect.decimal)
    if len(start) > 1 and len(start[1]) > len(names):  # pandas would make a column an index
        _check_widths(path, dialect.separator, len(names), header)

    def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
        return _csv_pieces(path, dialect, names, header, list(columns))

    columns = tuple(names[1:] if names[0] == _INDEX else names)
    return Table(columns, source, pieces, numbered=not header, notes=(*notes, *more))


def _csv_pieces(
    path: Path, dialect: _Dialect, names: list[str], header: bool, columns: list[str]
) -> Iterator[pd.DataFrame]:
    import pandas as pd

    rows, failure, source = 0, "", printable(path.name)
    with reading(path):
        stream = _CheckedBytes(path)
        try:
            with pd.read_csv(
                io.BufferedReader(stream, 2**18),
                sep=dialect.separator,
                decimal=dialect.decimal,
                header=0 if header else None,
                names=names,
                usecols=columns if set(columns) != set(names) else None,
                index_col=False,
                skipinitialspace=True,
                chunksize=max(1, PIECE // len(names)),  # as all columns are split
                low_memory=False,  # else a column may be text and numbers in one piece
            ) as reader:
                for piece in reader:
                    chosen = piece[columns]
                    if dialect.decimal == ",":
                        chosen = _replace_commas(chosen, rows)
                    rows += len(piece)
                    yield chosen
        except UnicodeDecodeError:
            raise
        except ValueError as error:
            if isinstance(error, ResonaxError) or stream.refused:
                raise stream.refused or error from None
            failure = " ".join(str(error).split())
        finally:
            stream.close()
        if "EOF inside string" in failure:
            what = f"{source} has a quotation mark that is never closed"
            raise DataError(f"{what}: the file seems to be cut")
        # pandas fills short rows, and ignores what is too much if columns are chosen
        with _CheckedBytes(path) as file:
            mark = dialect.separator.encode()
            count = sum(block.count(mark) for block in iter(lambda: file.read(2**20) or b"", b""))
        if failure or count != (rows + header) * (len(names) - 1):
            _check_widths(path, dialect.separator, len(names), header)
        if failure:
            raise DataError(f"{source} cannot be read as CSV: {printable(failure)}")


def _replace_commas(piece: pd.DataFrame, before: int) -> pd.DataFrame:
    """Return what pandas left as text with points for decimal commas, as text elsewhere has them.

    That a column is text means that something in it is no number; a number with a point beside
    others with commas is refused, as it may be a thousand times what it seems.
    """
    changed = {}
    for name in piece.columns[[dtype.kind not in "buifmM" for dtype in piece.dtypes]]:
        words = piece[name].astype(str).str.strip()
        commas, points = words.str.fullmatch(_WITH_COMMA), words.str.fullmatch(_WITH_POINT)
        if commas.any() and points.any():
            where = int(points.to_numpy().argmax())
            raise DataError(
                f"column {printable(name)!r} has {words.iloc[where]} in row {before + where + 1}, "
                "but its decimals are commas: write them all alike"
            )
        if commas.any():
            changed[name] = piece[name].mask(commas, words.str.replace(",", "."))
    return piece.assign(**changed) if changed else piece


def _check_widths(path: Path, separator: str, width: int, header: bool) -> None:
    """Raise `DataError` for the first row with too few or too many fields."""
    found, remedy = "", ""
    for row, fields in enumerate(_read_rows(path, separator, "replace"), start=0 if header else 1):
        if found:
            remedy = "correct or remove it"
            break
        if len(fields) != width:
            count = f"{len(fields)} field{'s' * (len(fields) != 1)}"
            found = f"row {row} of {printable(path.name)} has {count} instead of {width}"
            remedy = "the file seems to be cut" if len(fields) < width else "correct or remove it"
    if found:
        raise DataError(f"{found}: {remedy}")
