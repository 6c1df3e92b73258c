"""From a source of data to a recording: columns chosen, values checked, sorted, standardised."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.core.errors import ArgumentError, DataError, check_whole
from resonax.recordings.accumulators import BLOCK, Classes, Moments, RowStore
from resonax.recordings.arrange import Arrangement, arrange
from resonax.recordings.columns import (
    LARGE_AS_IS,
    BadValues,
    Choice,
    choose,
    collect_bad,
    numbers,
    raise_bad,
)
from resonax.recordings.sources import open_table
from resonax.recordings.table import Table

if TYPE_CHECKING:
    from resonax.recordings.sources import Source, Values

__all__ = ["Recording", "read_recording"]

_LARGE = 1e150  # the squares of larger numbers overflow


@dataclass(frozen=True)
class Recording:
    """Rows of a data set in the order in which they are trained on."""

    inputs: np.ndarray  # (rows, columns), float32, read only; a memory map if they are large
    target: np.ndarray | None  # (rows,), float32, likewise
    names: tuple[str, ...]  # of the columns of inputs
    target_name: str | None
    source: str  # name of the file, or "table", "array", "dataset" or "loader"
    notes: tuple[str, ...]  # a short sentence for each thing that was done to the data
    starts: tuple[int, ...] = (0,)  # the first row of each series
    series: tuple[str, ...] = ()  # their names, if there are several
    classes: tuple[str, ...] = ()  # what 0 and 1 are in the target, if they are classes
    two_valued: bool = False  # whether the target has two values alone
    batch: int | None = None  # rows of one update, where the source says so, as a loader does

    def part(self, first: int, last: int) -> Recording:
        """Return some of the rows, as one series."""
        return replace(
            self,
            inputs=np.asarray(self.inputs[first:last]),
            target=None if self.target is None else self.target[first:last],
            starts=(0,),
            series=(),
        )


def read_recording(
    source: Source,
    target: str | int | Values | None = None,
    *,
    features: str | Iterable[str | int] | None = None,
    order_by: str | int | None = None,
    group_by: str | int | None = None,
    horizon: int | None = None,
    drop_missing: bool = False,
    separator: str | None = None,
    decimal: str | None = None,
    standardise: bool = True,
    labels: bool = False,
    memory: int = 2**28,
) -> Recording:
    """Read, check and standardise the rows of a data set; `DataError` if it cannot be used.

    Parameters
    ----------
    source
        A file (.csv, .tsv, either with .gz, .parquet, .npy, .npz), a table or series of pandas,
        polars or pyarrow, a dataset of Hugging Face, an array or a tensor of rows x columns, or a
        dataset or a loader of torch. The columns of an array, and of a CSV file without a header,
        are called "0", "1" and so on. In an .npz file the table is named X and the target, if any,
        y. A row of a dataset of torch, or a batch of a loader, is of features, of features and a
        target, or a dictionary of columns. A loader must give its rows in one order (no shuffling).
    target
        Name or index of the column to predict, or as many values as there are rows.
    features
        Names or indices of the columns to learn from, also as text with commas; all but the
        target, ``order_by`` and ``group_by`` by default.
    order_by
        A column of numbers or dates by which the rows are sorted; equal ones keep their order.
    group_by
        A column that tells several series apart: the rows of one stay together, in their order.
    horizon
        Predict the target this many rows later, in the same series; the column is then a feature
        as well.
    drop_missing
        Leave out rows with missing values. A row and its target keep their distance in rows.
    separator, decimal
        Of a text file: one character, and ``.`` or ``,``; guessed by default, which is noted.
    standardise
        Bring each column to mean 0 and variance 1.
    labels
        Whether the target is one of two classes, of any kind: the later of the two in order,
        True or the larger number, becomes 1 and the other 0.
    memory
        Bytes above which values are kept in a temporary file rather than in memory.

    Examples
    --------
    >>> recording = read_recording([[1.0, 5.0], [2.0, 9.0], [3.0, 7.0]], target=1)
    >>> print(recording.inputs.ravel().round(2), recording.names, recording.target_name)
    [-1.22  0.    1.22] ('0',) 1
    >>> recording = read_recording([1.0, 5.0, 2.0], target=0, horizon=1, standardise=False)
    >>> print(recording.inputs.ravel(), recording.target)
    [1. 5.] [5. 2.]
    """
    check_whole("memory", memory, low=0)
    if horizon is not None:
        check_whole("horizon", horizon, low=1)
    table, choice = choose(
        open_table(source, separator, decimal),
        target,
        features,
        order_by,
        group_by,
        ahead=horizon is not None,
        labels=labels,
    )
    if labels and choice.target is None:
        raise ArgumentError("the logistic loss needs a target: name a column of two values")
    limit = _LARGE if standardise else LARGE_AS_IS
    found = _gather(table, choice, memory, limit, drop_missing)
    arranged = None
    if choice.keys or horizon is not None or drop_missing:
        arranged = found.arranged(table.source, choice, horizon)
    inputs, targets = _write_rows(found, choice, arranged, standardise, memory)
    notes = [*table.notes, *(arranged.notes if arranged else ())]
    notes += ["columns were standardised to mean 0 and variance 1"] if standardise else []
    classes = found.classes.names(choice.target) if labels else ()
    if classes:
        notes.append(f"the class 1 of {choice.target} is {classes[1]}, and 0 is {classes[0]}")
    name = choice.target
    if horizon is not None:
        name = f"{name}, {horizon:,} row{'s' * (horizon > 1)} later"
    return Recording(
        inputs=inputs,
        target=targets,
        names=choice.features,
        target_name=name,
        source=table.source,
        notes=tuple(notes),
        starts=arranged.starts if arranged else (0,),
        series=arranged.series if arranged else (),
        classes=classes,
        two_valued=len(found.classes.values) == 2,
        batch=table.batch,
    )


@dataclass(frozen=True)
class _Gathered:
    """All rows of a table as they were read."""

    raw: np.ndarray  # (rows, numbers)
    moments: Moments
    keys: dict[str, Any]  # the columns to sort and to group by
    classes: Classes

    def arranged(self, source: str, choice: Choice, horizon: int | None) -> Arrangement:
        """Return the rows in their order, with their targets."""
        keyed, inputs, targets = np.ones((3, len(self.raw)), dtype=bool)
        for column in self.keys.values():
            keyed &= column.notna().to_numpy()
        step = max(1, BLOCK // self.raw.shape[1])
        count, target = len(choice.features), _target_index(choice)
        for start in range(0, len(self.raw), step):
            missing = np.isnan(self.raw[start : start + step])
            inputs[start : start + step] = ~missing[:, :count].any(axis=1)
            if target is not None:
                targets[start : start + step] = ~missing[:, target]
        return arrange(source, keyed, inputs, targets, self.keys, choice, horizon)


def _target_index(choice: Choice) -> int | None:
    return None if choice.target is None else choice.numbers.index(choice.target)


def _write_rows(
    found: _Gathered,
    choice: Choice,
    arranged: Arrangement | None,
    standardise: bool,
    memory: int,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return inputs and target in their order, standardised, a block at a time."""
    raw, moments = found.raw, found.moments
    count, target = len(choice.features), _target_index(choice)
    inputs, targets = RowStore(memory, count, np.float32), RowStore(memory, 1, np.float32)

    def block(rows: Any, columns: slice) -> np.ndarray:
        values = raw[rows, columns]
        return moments.standardise(values, columns) if standardise else values

    total = len(raw) if arranged is None else len(arranged.rows)
    step = max(1, BLOCK // raw.shape[1])
    for start in range(0, total, step):
        part = slice(start, start + step)
        rows, later = (
            (part, part) if arranged is None else (arranged.rows[part], arranged.later[part])
        )
        inputs.append(block(rows, slice(0, count)))
        if target is not None and choice.labels:
            targets.append(found.classes.as_zeros_and_ones(raw[later, target]))
        elif target is not None:
            targets.append(block(later, slice(target, target + 1)))
    return inputs.array(), None if target is None else targets.array().reshape(-1)


def _gather(
    table: Table, choice: Choice, memory: int, limit: float, drop_missing: bool
) -> _Gathered:
    """Read all rows: features and target, their moments, and the columns to sort and group by."""
    names = choice.numbers
    target = _target_index(choice)
    store = RowStore(memory, len(names), np.float64)
    rows, classes = 0, Classes()
    keys: dict[str, list[Any]] = {name: [] for name in choice.keys}
    found: BadValues = {}
    for piece in table.pieces(list(dict.fromkeys([*names, *choice.keys]))):
        block = numbers(piece, choice, rows)
        if target is not None:
            encoded = classes.encode(piece[choice.target] if choice.labels else block[:, target])
            if choice.labels:
                block[:, target] = encoded
        collect_bad(block, names, rows, limit, found)
        if drop_missing:
            found.pop("missing values", None)
        if len(block) and not found:
            store.append(block)
            for name, parts in keys.items():
                parts.append(piece[name])
        rows += len(block)
    raise_bad(found, rows)
    if rows < 2:
        count = {0: "no rows", 1: "1 row"}[rows]
        raise DataError(f"{table.source} has {count} of data: at least 2 are needed")
    raw = store.array()
    moments = Moments.of(raw)
    if moments is None:
        raise DataError(
            f"every row of {table.source} has missing values: name columns that have fewer of "
            "them with `features`"
        )
    if choice.labels:
        classes.names(choice.target)
    moments.check(names, choice.target)
    return _Gathered(raw, moments, _join_keys(keys, drop_missing), classes)


def _join_keys(keys: dict[str, list[Any]], drop_missing: bool) -> dict[str, Any]:
    """Return each column of keys as a whole; missing values are errors unless they are left out."""
    import pandas as pd

    whole = {name: pd.concat(parts, ignore_index=True) for name, parts in keys.items()}
    if not drop_missing:
        found: BadValues = {}
        for name, column in whole.items():
            collect_bad(np.where(column.isna(), np.nan, 0.0)[:, None], [name], 0, 1.0, found)
            raise_bad(found, len(column))
    return whole
