"""The columns of a file, of which the page lets its user choose."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from resonax.core.labels import printable
from resonax.explore.errors import explain_unreadable
from resonax.recordings.dates import as_numbers, read_dates
from resonax.recordings.sources import open_table

__all__ = ["describe_columns"]

_SAMPLED_ROWS = 1000  # rows from which the kind of a column is guessed
_MAX_COLUMNS = 200  # columns


def describe_columns(
    check: Callable[..., None],
    path: str,
    separator: str | None = None,
    decimal: str | None = None,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the columns of a file with their kinds, and how many rows it has."""
    first, rows = None, 0
    with explain_unreadable(Path(path).name):
        table = open_table(Path(path), separator, decimal)
        names = table.columns[:_MAX_COLUMNS]
        for piece in table.pieces(list(names)):
            first = piece.head(_SAMPLED_ROWS) if first is None else first
            rows += len(piece)
            check()
        columns = [_column(name, None if first is None else first[name]) for name in names]
    more = f", of which {_MAX_COLUMNS} are shown" if len(table.columns) > _MAX_COLUMNS else ""
    numeric = sum(column["numeric"] for column in columns)
    return {
        "name": printable(Path(path).name),
        "columns": columns,
        "rows": rows,
        "sentence": f"{rows:,} rows of {len(table.columns)} columns{more}, {numeric} of numbers.",
        "notes": list(table.notes),
        "options": options or {},
    }


def _column(name: str, values: Any) -> dict[str, Any]:
    if values is None or not values.notna().any():
        return {"name": name, "kind": "empty", "numeric": False, "example": ""}
    known = values[values.notna()]
    numbers = as_numbers(known)
    share = float(numbers.notna().mean())
    if share == 1.0:
        kind = "number"
    elif read_dates(known):
        kind = "date"
    else:
        kind = "text" if share < 0.5 else "mixed"
    return {
        "name": name,
        "kind": kind,
        "numeric": kind == "number",
        "example": printable(known.iloc[0], 40),
    }
