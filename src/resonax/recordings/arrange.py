"""The order of rows: sorted, grouped into series, paired with later targets, without gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from resonax.core.errors import DataError
from resonax.core.labels import printable
from resonax.recordings.columns import Choice
from resonax.recordings.dates import read_times, uneven_steps
from resonax.recordings.table import listed

__all__ = ["Arrangement", "arrange"]


@dataclass(frozen=True)
class Arrangement:
    """The rows of a table as they are trained on, and what was done to them."""

    rows: np.ndarray  # of the inputs
    later: np.ndarray  # of the targets
    starts: tuple[int, ...]  # where each series begins
    series: tuple[str, ...]  # their names, if there are several
    notes: tuple[str, ...]


def arrange(
    source: str,
    keyed: np.ndarray,
    inputs: np.ndarray,
    targets: np.ndarray,
    keys: dict[str, Any],
    choice: Choice,
    horizon: int | None,
) -> Arrangement:
    """Sort and group rows, pair them with their targets, and leave out those with gaps.

    Parameters
    ----------
    source
        The name of the table.
    keyed, inputs, targets
        (rows,) whether a row has all of its keys, all of its features, and its target.
    keys
        The columns to sort and to group by, of all rows.
    choice
        Which column is which.
    horizon
        How many rows later, in the same series, the target is.
    """
    total = len(keyed)
    notes: list[str] = []
    order = np.flatnonzero(keyed)
    times, dated = None, False
    if choice.order_by is not None:
        column = keys[choice.order_by][keyed].reset_index(drop=True)
        times, dated, guessed = read_times(column, choice.order_by)
        notes += [guessed] if guessed else []
        by_time = times.argsort(kind="stable")
        moved = bool((np.diff(by_time) < 0).any())
        done = "rows were sorted by" if moved else "rows are in the order of"
        notes.append(f"{done} {choice.order_by}")
        order, times = order[by_time], times[by_time]
    starts, names = np.zeros(1, dtype=int), []
    if choice.group_by is not None:
        codes, names = _series(keys[choice.group_by], order)
        by_series = codes.argsort(kind="stable")
        order, times = order[by_series], None if times is None else times[by_series]
        starts = np.flatnonzero(np.diff(codes[by_series], prepend=-1))
        notes.append(f"rows are in {len(names):,} series by {choice.group_by}: {listed(names, 4)}")
    if times is not None:
        assert choice.order_by is not None
        notes += filter(None, [uneven_steps(times, dated, choice.order_by, starts)])
    ends = np.append(starts[1:], len(order))
    series = np.repeat(np.arange(len(starts)), ends - starts)
    rows, later = order, order
    if horizon is not None:
        inside = np.arange(len(order)) + horizon < ends[series]
        if not inside.any():
            longest = int((ends - starts).max())
            where = "rows of" if choice.group_by is None else "rows of the longest series of"
            raise DataError(
                f"horizon must be below the {longest:,} {where} {source}, got {horizon:,}"
            )
        rows, later, series = order[inside], order[np.flatnonzero(inside) + horizon], series[inside]
        count = "1 row" if horizon == 1 else f"{horizon:,} rows"
        notes.append(f"the target is {choice.target} {count} later")
    whole = inputs[rows] & targets[later]
    rows, later, series = rows[whole], later[whole], series[whole]
    dropped = int(total - keyed.sum() + (~whole).sum())
    if dropped:
        notes.append(f"{dropped:,} of {total:,} rows were left out for missing values")
    if len(rows) < 2:
        count = {0: "no row", 1: "1 row"}[len(rows)]
        raise DataError(
            f"{count} of {source} is without missing values: name columns that have fewer of them "
            "with `features`"
        )
    first = np.flatnonzero(np.diff(series, prepend=-1))
    return Arrangement(
        rows=rows,
        later=later,
        starts=tuple(first.tolist()),
        series=tuple(names[index] for index in series[first]) if names else (),
        notes=tuple(notes),
    )


def _series(column: Any, order: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Return the number of each row's series, in the order in which they first come, and names."""
    import pandas as pd

    codes, names = pd.factorize(column.to_numpy()[order])
    if len(names) > len(order) / 2:
        raise DataError(
            f"column {column.name!r} has {len(names):,} values in {len(order):,} rows, "
            "which makes no series of them: group by another"
        )
    return codes, [printable(name, 40) for name in names]
