"""The choice of columns, their conversion to numbers, and the values that cannot be used."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from shlex import quote
from typing import Any

import numpy as np

from resonax.core.errors import ArgumentError, DataError
from resonax.core.labels import printable
from resonax.recordings.arrays import as_column
from resonax.recordings.dates import as_numbers, read_dates
from resonax.recordings.table import Table, listed, unknown

__all__ = ["LARGE_AS_IS", "BadValues", "Choice", "choose", "collect_bad", "numbers", "raise_bad"]

_MAX_COLUMNS = 2000  # to learn from
LARGE_AS_IS = 1e6  # what a recorded process accepts
_REMEDIES = {
    "missing values": "fill them, or leave these rows out with `drop_missing`",
    "infinite values": "replace or drop them first",
    f"values above {LARGE_AS_IS:g}": "standardise the columns",
}
BadValues = dict[str, dict[str, tuple[list[int], int]]]  # problem: column: first rows, number


@dataclass(frozen=True)
class Choice:
    """The columns to learn from, to predict, to sort by, and to tell series apart by."""

    features: tuple[str, ...]
    target: str | None
    order_by: str | None = None
    group_by: str | None = None
    labels: bool = False  # whether the target is one of two classes rather than a number

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns whose values are kept: the features, and the target unless it is one of them."""
        beside = () if self.target is None or self.target in self.features else (self.target,)
        return self.features + beside

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that say where a row belongs."""
        return tuple(name for name in (self.order_by, self.group_by) if name is not None)


def choose(
    table: Table,
    target: Any,
    features: Any = None,
    order_by: Any = None,
    group_by: Any = None,
    *,
    ahead: bool = False,
    labels: bool = False,
) -> tuple[Table, Choice]:
    """Return the columns to use, and the table with the target as one of its columns.

    With ``ahead`` the target is a later value of a column, which is then a feature as well.
    """
    beside = table.target
    if target is None:
        target = beside
    elif isinstance(target, str | Integral):
        target = _pick("target", target, table)
    else:
        column = as_column("target", target)
        table = table.beside(str(column.name or "target"), column)
        target = table.target
    if ahead and target in (None, beside, table.target):
        raise ArgumentError("a horizon needs the name of the column to predict: give it as target")
    if order_by is not None:
        order_by = _pick("order_by", order_by, table)
    if group_by is not None:
        group_by = _pick("group_by", group_by, table)
    keys = [name for name in (order_by, group_by) if name is not None]
    if target in keys:
        raise ArgumentError(f"the target {target!r} cannot also say where a row belongs")
    if len(set(keys)) < len(keys):
        raise ArgumentError(f"rows cannot be sorted and grouped by the same column {order_by!r}")
    if features is None:
        left_out = [*keys, beside, table.target, *([] if ahead else [target])]
        names = [name for name in table.columns if name not in left_out]
    else:
        if isinstance(features, str) and features not in table.columns:
            features = [name.strip() for name in features.split(",") if name.strip()]
        several = isinstance(features, Iterable) and not isinstance(features, str)
        given = list(features) if several else [features]
        names = [_pick("feature", name, table) for name in given]
    if len(names) > _MAX_COLUMNS:
        raise DataError(
            f"{table.source} has {len(names):,} columns to learn from, and at most "
            f"{_MAX_COLUMNS:,} can be: name some with `features`"
        )
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"feature {twice!r} is named twice: name it once")
    if target in names and not ahead:
        raise ArgumentError(f"the target {target!r} is among the features: leave it out of them")
    if not names:
        raise DataError(f"no column of {table.source} is left as a feature: name at least one")
    return table, Choice(tuple(names), target, order_by, group_by, labels)


def _pick(kind: str, given: Any, table: Table) -> str:
    """Return the name of the column that is meant by a name, or by an index in an array."""
    if isinstance(given, bool) or not isinstance(given, str | Integral):
        raise ArgumentError(f"{kind} must be the name of a column, got {given!r}")
    for name in (str(given), printable(given)):
        if name in table.columns:
            return name
    with contextlib.suppress(ValueError, IndexError):
        if table.numbered and int(given) < 0:  # from the end
            return table.columns[int(given)]
    raise unknown(kind, str(given), table.columns)


def collect_bad(
    block: np.ndarray, names: Sequence[str], before: int, limit: float, found: BadValues
) -> None:
    """Note the first rows, and the number, of the values in each column that cannot be used."""
    size = np.abs(block)
    if (size <= limit).all():
        return
    tests = {"missing values": np.isnan(size), "infinite values": np.isinf(size)}
    tests[f"values above {limit:g}"] = np.isfinite(size) & (size > limit)
    for what, bad in tests.items():
        for column in np.flatnonzero(bad.any(axis=0)).tolist():
            rows = np.flatnonzero(bad[:, column]) + before + 1
            known = found.setdefault(what, {})
            first, count = known.get(names[column], ([], 0))
            known[names[column]] = ([*first, *rows[:3].tolist()][:3], count + len(rows))


def raise_bad(found: BadValues, total: int) -> None:
    """Raise `DataError` if there are values that cannot be used in so many rows."""
    for name, (_, count) in found.get("missing values", {}).items():
        if count == total:
            raise DataError(f"column {name!r} holds nothing: leave it out with `features`")
    for what in ["missing values", "infinite values", *found]:
        places = []
        for name, (first, count) in found.get(what, {}).items():
            more = f" and {count - len(first)} more" if count > len(first) else ""
            rows = ", ".join(map(str, first))
            places.append(f"{name!r} (row{'s' * (count > 1)} {rows}{more})")
        if places:
            remedy = _REMEDIES.get(what, "correct or rescale them first")
            column = "column" if len(places) == 1 else "columns"
            raise DataError(f"{what} in {column} {listed(places, 4)}: {remedy}")


def numbers(piece: Any, choice: Choice, before: int) -> np.ndarray:
    """Return the columns of a piece as numbers, (rows, columns); missing values are NaN.

    A target of labels is left out: its column is of zeros.
    """
    names = list(choice.numbers)
    chosen = piece[names]
    if all(dtype.kind in "buif" for dtype in chosen.dtypes):
        with np.errstate(over="ignore"):  # a long double becomes infinite, which is found
            return chosen.to_numpy(dtype=float, na_value=np.nan)
    numbers: dict[str, np.ndarray] = {}
    odd: dict[str, str] = {}
    for name in names:
        column = piece[name]
        if choice.labels and name == choice.target:
            numbers[name] = np.zeros(len(column))
            continue
        converted = as_numbers(column)
        wrong = np.flatnonzero(converted.isna() & column.notna())
        if "c" in (column.dtype.kind, converted.dtype.kind):
            raise DataError(f"column {name!r} holds complex numbers: give real ones")
        if column.dtype.kind in "mM" or (len(wrong) and read_dates(column.dropna().head(99))):
            odd[name] = "holds dates"
        elif len(wrong) and converted.notna().any():
            word = column.iloc[wrong[0]]
            odd[name] = f"holds text in row {before + wrong[0] + 1} ('{printable(word, 40)}')"
        elif len(wrong):
            kind = type(column.iloc[wrong[0]]).__name__
            odd[name] = "is text" if kind == "str" else f"holds values of type {kind}"
        else:
            numbers[name] = converted.to_numpy(dtype=float, na_value=np.nan)
    if odd:
        raise _not_numbers(odd, choice)
    return np.column_stack([numbers[name] for name in names])


def _not_numbers(odd: dict[str, str], choice: Choice) -> DataError:
    """Return what to say about columns without numbers."""
    usable = [name for name in choice.features if name not in odd]
    name, what = next(reversed(odd.items()))  # the target is the last of all
    correct = "correct that or " if "in row" in what else ""
    if name == choice.target:
        what = f"the target {name!r} {what}, and the model is least squares: {correct}"
        what += "learn one of two classes with `loss` logistic, or choose a column of numbers"
        return DataError(
            f"{what} (one of: {listed(usable)})" if usable else f"{what}: there is none"
        )
    what, it = f"column {name!r} {what}: {correct}", "it"
    if len(odd) > 1:
        partly = [f"{name!r} {text}" for name, text in odd.items() if "in row" in text]
        some = f", and {partly[0]}: correct that or " if partly else ": "
        what, it = f"columns {listed([repr(name) for name in odd])} are not numbers{some}", "them"
    if not usable:
        return DataError(f"{what}no column of numbers is left")
    what += f"leave {it} out with `features` {quote(listed(usable, 20, ','))}"
    dates = [name for name in odd if odd[name] == "holds dates"]
    if dates and choice.order_by is None:
        what += f", and sort the rows by {dates[0]!r} with `order_by` {quote(dates[0])}"
    return DataError(what)
