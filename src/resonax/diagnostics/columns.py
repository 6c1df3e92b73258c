"""Which columns are used, and whether their values can be: numbers, dates and trouble."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from shlex import quote
from typing import Any

import numpy as np

from resonax.checks import ArgumentError
from resonax.diagnostics.table import Table, listed, unknown

__all__ = ["LARGE_AS_IS", "Choice", "Found", "choose", "look", "numbers", "order_of", "report"]

LARGE_AS_IS = 1e6  # what a recorded process accepts
_REMEDIES = {
    "missing values": "fill or drop them first",
    "infinite values": "replace or drop them first",
    f"values above {LARGE_AS_IS:g}": "standardise the columns",
}
Found = dict[str, dict[str, tuple[list[int], int]]]  # trouble: column: its first rows, number


@dataclass(frozen=True)
class Choice:
    """The columns to learn from, to predict, and to sort by."""

    features: tuple[str, ...]
    target: str | None
    order_by: str | None

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns that must hold numbers, the target last."""
        return self.features + (() if self.target is None else (self.target,))


def choose(table: Table, target: Any, features: Any, order_by: Any) -> tuple[Table, Choice]:
    """Return the columns to use, and the table with the target as one of its columns."""
    beside = table.target
    if target is None:
        target = beside
    elif isinstance(target, str | Integral):
        target = _pick("target", target, table)
    else:
        table = table.beside(str(getattr(target, "name", None) or "target"), target)
        target = table.target
    if order_by is not None:
        order_by = _pick("order_by", order_by, table)
    if features is None:
        names = [name for name in table.columns if name not in (target, order_by, beside)]
    else:
        if isinstance(features, str) and features not in table.columns:
            features = [name.strip() for name in features.split(",") if name.strip()]
        several = isinstance(features, Iterable) and not isinstance(features, str)
        given = list(features) if several else [features]
        names = [_pick("feature", name, table) for name in given]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ArgumentError(f"feature {twice!r} is named twice: name it once")
    if target in names:
        raise ArgumentError(f"the target {target!r} is among the features: leave it out of them")
    if not names:
        raise ArgumentError(f"no column of {table.source} is left as a feature: name at least one")
    return table, Choice(tuple(names), target, order_by)


def _pick(kind: str, given: Any, table: Table) -> str:
    """Return the name of the column that is meant by a name, or by an index in an array."""
    if isinstance(given, bool) or not isinstance(given, str | Integral):
        raise ArgumentError(f"{kind} must be the name of a column, got {given!r}")
    if str(given) in table.columns:
        return str(given)
    with contextlib.suppress(ValueError, IndexError):
        if table.numbered and int(given) < 0:  # from the end
            return table.columns[int(given)]
    raise unknown(kind, str(given), table.columns)


def look(block: np.ndarray, names: Sequence[str], before: int, limit: float, found: Found) -> None:
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


def report(found: Found) -> None:
    """Raise `ArgumentError` if there are values that cannot be used."""
    for what in ["missing values", "infinite values", *found]:
        places = []
        for name, (first, count) in found.get(what, {}).items():
            more = f" and {count - len(first)} more" if count > len(first) else ""
            rows = ", ".join(map(str, first))
            places.append(f"{name!r} (row{'s' * (count > 1)} {rows}{more})")
        if places:
            remedy = _REMEDIES.get(what, "correct or rescale them first")
            column = "column" if len(places) == 1 else "columns"
            raise ArgumentError(f"{what} in {column} {listed(places, 4)}: {remedy}")


def numbers(piece: Any, choice: Choice, before: int) -> np.ndarray:
    """Return the columns of a piece as numbers, (rows, columns); missing values are NaN."""
    names = list(choice.numbers)
    if all(dtype.kind in "buif" for dtype in piece[names].dtypes):
        return piece[names].to_numpy(dtype=float, na_value=np.nan)
    numbers: dict[str, np.ndarray] = {}
    odd: dict[str, str] = {}
    for name in names:
        column = piece[name]
        converted = _coerced(column)
        wrong = np.flatnonzero(converted.isna() & column.notna())
        if "c" in (column.dtype.kind, converted.dtype.kind):
            raise ArgumentError(f"column {name!r} holds complex numbers: give real ones")
        if column.dtype.kind in "mM" or (len(wrong) and _dates(column.dropna().head(99))):
            odd[name] = "holds dates"
        elif len(wrong) and converted.notna().any():
            odd[name] = f"holds text in row {before + wrong[0] + 1} ({column.iloc[wrong[0]]!r})"
        elif len(wrong):
            kind = type(column.iloc[wrong[0]]).__name__
            odd[name] = "is text" if kind == "str" else f"holds values of type {kind}"
        else:
            numbers[name] = converted.to_numpy(dtype=float, na_value=np.nan)
    if odd:
        raise _not_numbers(odd, choice)
    return np.column_stack([numbers[name] for name in names])


def _not_numbers(odd: dict[str, str], choice: Choice) -> ArgumentError:
    """Return what to say about columns without numbers."""
    usable = [name for name in choice.features if name not in odd]
    name, what = next(reversed(odd.items()))  # the target is the last of all
    correct = "correct that or " if "in row" in what else ""
    if name == choice.target:
        what = f"the target {name!r} {what}: {correct}choose a column of numbers"
        return ArgumentError(f"{what} (one of: {listed(usable) or 'there is none'})")
    what, it = f"column {name!r} {what}: {correct}", "it"
    if len(odd) > 1:
        what, it = f"columns {listed([repr(name) for name in odd])} are not numbers: ", "them"
    if not usable:
        return ArgumentError(f"{what}no column of numbers is left")
    what += f"leave {it} out with --features {quote(listed(usable, 20, ','))}"
    dates = [name for name in odd if odd[name] == "holds dates"]
    if dates and choice.order_by is None:
        what += f", and sort the rows by {dates[0]!r} with --order-by {quote(dates[0])}"
    return ArgumentError(what)


def order_of(keys: list[Any], name: str) -> np.ndarray:
    """Return the rows in ascending order of a column of numbers or dates."""
    import pandas as pd

    column: Any = pd.concat(keys, ignore_index=True)
    found: Found = {}
    look(np.where(column.isna(), np.nan, 0.0)[:, None], [name], 0, 1.0, found)
    report(found)
    readings = [column]
    if column.dtype.kind not in "buifmM":
        numbers = _coerced(column.head(99)).notna().all()  # a look, as it is slow for dates
        readings = [_coerced(column)] if numbers else _dates(column)
    orders = [reading.argsort(kind="stable").to_numpy() for reading in readings]
    if not orders or readings[0].isna().any():
        raise ArgumentError(f"column {name!r} gives no order: it is neither numbers nor dates")
    if not all(np.array_equal(orders[0], order) for order in orders):
        raise ArgumentError(
            f"dates in column {name!r} may have the day or the month first: write 2020-01-31"
        )
    return orders[0]


def _coerced(column: Any) -> Any:
    """Return a column as numbers, with NaN for what is not a number."""
    import pandas as pd

    return pd.to_numeric(column, errors="coerce")


def _dates(column: Any) -> list[Any]:
    """Return each way to read a whole column of text as dates."""
    import pandas as pd
    from pandas.tseries.api import guess_datetime_format as guess

    found: list[Any] = []
    first = str(column.iloc[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns if the day is first, or is not
        for form in dict.fromkeys(["ISO8601", guess(first), guess(first, dayfirst=True)]):
            with contextlib.suppress(ValueError, TypeError):
                if form is not None:
                    found.append(pd.to_datetime(column, format=form, utc=True))
            if form == "ISO8601" and found:  # which can be read in one way only
                break
    return found
