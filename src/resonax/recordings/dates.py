"""Columns of numbers or dates: reading them as times, and whether their steps are even."""

from __future__ import annotations

import contextlib
import math
import warnings
from typing import Any

import numpy as np

from resonax.core.errors import DataError, is_number
from resonax.core.labels import printable

__all__ = ["as_numbers", "read_dates", "read_times", "uneven_steps"]

_EVEN = 1e-3  # share of the usual step by which another may differ, as times are rounded
_UNITS = (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0))


def as_numbers(column: Any) -> Any:
    """Return a column as numbers, with NaN for what is not a number.

    A number is written as files write it: pandas also takes 1_000 and the digits of other scripts,
    and some of its versions lose numbers that overflow, as 1e999.
    """
    if column.dtype.kind in "buif":
        return column
    return column.map(_as_number).astype(float)


def _as_number(value: Any) -> float:
    if isinstance(value, str | bytes) and not is_number(str(value)):
        return math.nan
    try:
        return float(value)  # of missing values, as pandas has several, too
    except OverflowError:  # whole numbers of hundreds of digits
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        return math.nan


def read_dates(column: Any) -> list[tuple[str, Any]]:
    """Return each way to read a whole column of text as dates: its format, and the dates."""
    import pandas as pd

    found: list[tuple[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pandas warns if the day is first, or is not
        for form in _formats(column):
            with contextlib.suppress(ValueError, TypeError, OverflowError):
                found.append((form, pd.to_datetime(column, format=form, utc=True)))
            if form == "ISO8601" and found:  # which can be read in one way only
                break
    return found


def _formats(column: Any) -> list[str]:
    """Return formats that may be those of a column, by its first value."""
    from pandas.tseries.api import guess_datetime_format as guess  # pyrefly: ignore[missing-module-attribute]

    first = str(column.iloc[0])
    forms = ["ISO8601", guess(first), guess(first, dayfirst=True)]
    return [form for form in dict.fromkeys(forms) if form is not None]


def read_times(column: Any, name: str) -> tuple[np.ndarray, bool, str]:
    """Return a column without gaps as times that can be sorted, and how it was read.

    Dates are whole numbers of microseconds. Beside the times: whether they are dates, and what
    was guessed in reading them, if anything.
    """
    kind = column.dtype.kind
    if kind in "buif":
        return column.to_numpy(dtype="i8" if kind == "b" else f"{kind}8"), False, ""
    if kind in "mM":
        return _microseconds(column), True, ""
    if (
        as_numbers(column.head(99)).notna().mean() > 0.5
    ):  # the first decide, as it is slow for dates
        numbers = as_numbers(column)
        if numbers.isna().any():
            raise _unreadable_value(column, numbers, name, "number")
        return numbers.to_numpy(dtype=float), False, ""
    candidates = [(form, _microseconds(dates)) for form, dates in read_dates(column)]
    if not candidates:
        raise _unreadable_column(column, name)
    orders = [times.argsort(kind="stable") for _, times in candidates]
    if not all(np.array_equal(orders[0], order) for order in orders):
        raise DataError(
            f"dates in column {name!r} may have the day or the month first: write 2020-01-31"
        )
    form, times = candidates[0]
    return times, True, "" if form == "ISO8601" else f"dates of {name} were read as {form}"


def _microseconds(column: Any) -> np.ndarray:
    if getattr(column.dt, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return column.to_numpy(dtype=f"{column.dtype.kind}8[us]").astype("i8")


def _unreadable_value(column: Any, read: Any, name: str, kind: str) -> DataError:
    """Return the error for the first value that could not be read."""
    row = int(np.flatnonzero(read.isna())[0])
    word = printable(column.iloc[row], 40)
    return DataError(f"column {name!r} holds no {kind} in row {row + 1} ('{word}'): correct it")


def _unreadable_column(column: Any, name: str) -> DataError:
    """Return the error for a column that no format reads; where most are dates, the first other."""
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for form in _formats(column):
            read = pd.to_datetime(column, format=form, errors="coerce", utc=True)
            if read.notna().mean() > 0.5:
                return _unreadable_value(column, read, name, "date")
    return DataError(f"column {name!r} gives no order: it is neither numbers nor dates")


def uneven_steps(times: np.ndarray, dated: bool, name: str, starts: np.ndarray) -> str:
    """Return a sentence if the steps between sorted times are not even, within each series."""
    steps = np.delete(np.diff(times), starts[1:] - 1) / (1e6 if dated else 1.0)
    if not len(steps):
        return ""
    usual = float(np.median(steps))
    odd = steps[np.abs(steps - usual) > _EVEN * abs(usual)]
    if not len(odd):
        return ""
    least, most = (_amount(float(step), dated) for step in (odd.min(), odd.max()))
    found = least if least == most else f"{least} to {most}"
    return (
        f"the time steps of {name} are not even ({len(odd):,} of {len(steps):,}: {found} instead "
        f"of {_amount(usual, dated)}), and the check counts rows, not time"
    )


def _amount(step: float, dated: bool) -> str:
    """Return a step of time in the largest unit that it fills."""
    if not dated:
        return f"{step:.6g}"
    unit, size = next((pair for pair in _UNITS if step >= pair[1]), _UNITS[-1])
    return f"{step / size:.6g} {unit}"
