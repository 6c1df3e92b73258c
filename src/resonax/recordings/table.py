"""A table: the columns are known at once, the rows come in pieces."""

from __future__ import annotations

import contextlib
import csv
import difflib
import gzip
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from resonax.core.errors import ArgumentError, DataError, ResonaxError, suggest
from resonax.core.labels import printable

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MAX_PACKED", "PIECE", "SMALL_ENOUGH", "Table", "listed", "reading", "unknown"]

# Deflate packs up to 1032 times; tables of numbers are packed less than this.
MAX_PACKED, SMALL_ENOUGH = 200, 2**28
PIECE = 2**21  # numbers in a piece: 16 MiB, of which a parser needs a few times as much


@dataclass(frozen=True)
class Table:
    """A source with known columns; ``pieces(columns)`` reads these columns, a few rows at a time.

    Examples
    --------
    >>> from resonax.recordings.sources import open_table
    >>> table = open_table([[1.0, 2.0], [3.0, 4.0]])
    >>> table.columns
    ('0', '1')
    >>> [piece.to_numpy().tolist() for piece in table.pieces(["1"])]
    [[[2.0], [4.0]]]
    """

    columns: tuple[str, ...]
    source: str
    pieces: Callable[[Sequence[str]], Iterator[pd.DataFrame]]
    numbered: bool = False  # the columns have no names of their own, but numbers from 0
    target: str | None = None  # the column that lies beside the others, as it is no feature
    batch: int | None = None  # rows of one update, where the source says so
    notes: tuple[str, ...] = ()

    def renamed(self, columns: tuple[str, ...]) -> Table:
        """Return the table with other names for its columns."""
        own = dict(zip(columns, self.columns, strict=True))

        def pieces(chosen: Sequence[str]) -> Iterator[pd.DataFrame]:
            for piece in self.pieces([own[name] for name in chosen]):
                yield piece.set_axis(list(chosen), axis=1)

        return replace(self, columns=columns, pieces=pieces)

    def beside(self, name: str, column: pd.Series) -> Table:
        """Return the table with one more column, the target."""
        while name in self.columns:
            name += "'"

        def pieces(columns: Sequence[str]) -> Iterator[pd.DataFrame]:
            rows = 0
            for piece in self.pieces([column for column in columns if column != name]):
                part = column.iloc[rows : rows + len(piece)]
                rows += len(piece)
                if len(part) == len(piece):  # by place: the index of a series is none of a row
                    yield piece.assign(**{name: part.array}) if name in columns else piece
            if rows != len(column):
                raise DataError(
                    f"target has {len(column)} values but {self.source} has {rows} rows"
                )

        return replace(self, columns=(*self.columns, name), pieces=pieces, target=name)


def listed(words: Sequence[str], limit: int = 12, separator: str = ", ") -> str:
    """Join words, at most ``limit`` of them."""
    return separator.join([*words[:limit], *(["..."] if len(words) > limit else [])])


def unknown(kind: str, given: str, columns: Sequence[str]) -> ArgumentError:
    """Return the error for an unknown column; of many columns only the likeliest are named."""
    near = columns if len(columns) <= 20 else difflib.get_close_matches(given, columns, 8, 0.0)
    return suggest(kind, given, [*near, *(["..."] if len(columns) > 20 else [])])


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what the readers raise for a bad file into one sentence."""
    trouble = "seems to be cut or damaged: write or fetch it again"
    try:
        yield
        return
    except ResonaxError:
        raise
    except UnicodeDecodeError:
        trouble = "is not UTF-8 text: save it as UTF-8"
    except MemoryError:
        trouble = "does not fit into memory: save its table as .npy, which is read in pieces"
    except ValueError as error:  # of numpy and pyarrow, for damage too
        if "object" in str(error).lower():
            trouble = "holds Python objects, which could run code: save plain numbers"
    except (OSError, RuntimeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        damaged = isinstance(error, (gzip.BadGzipFile, NotImplementedError, RecursionError))
        if reason is not None and not damaged:  # without a reason pyarrow found damage
            trouble = f"cannot be read: {reason}"
    except Exception:  # a reader can stumble over damage in any way
        pass
    raise DataError(f"{printable(path.name)} {trouble}") from None
