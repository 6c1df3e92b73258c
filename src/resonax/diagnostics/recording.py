"""From a source of data to a recording: columns chosen, values checked, sorted, standardised."""

from __future__ import annotations

import io
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from resonax.checks import ArgumentError, check_whole
from resonax.diagnostics.columns import (
    LARGE_AS_IS,
    Choice,
    Found,
    choose,
    look,
    numbers,
    order_of,
    report,
)
from resonax.diagnostics.sources import open_table
from resonax.diagnostics.table import Table

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import ArrayLike

__all__ = ["Recording", "read_recording"]

_BLOCK = 2**20  # numbers that are standardised at a time
_LARGE = 1e150  # the squares of larger numbers overflow


@dataclass(frozen=True)
class Recording:
    """Rows of a data set in the order in which they are trained on."""

    inputs: np.ndarray  # (rows, columns), float32, read only; a memory map if they are large
    target: np.ndarray | None  # (rows,), float32, likewise
    names: tuple[str, ...]  # of the columns of inputs
    target_name: str | None
    source: str  # name of the file, or "table" or "array"
    notes: tuple[str, ...]  # a short sentence for each thing that was done to the data


def read_recording(
    source: str | Path | pd.DataFrame | ArrayLike,
    target: str | int | ArrayLike | None = None,
    *,
    features: str | Iterable[str | int] | None = None,
    order_by: str | int | None = None,
    standardise: bool = True,
    memory: int = 2**28,
) -> Recording:
    """Read, check and standardise the rows of a data set; `ArgumentError` if it cannot be used.

    Parameters
    ----------
    source
        A file (.csv, .tsv, either with .gz, .parquet, .npy, .npz), a data frame, or an array of
        rows x columns. The columns of an array, and of a CSV file without a header, are called
        "0", "1" and so on. In an .npz file the table is named X and the target, if any, y.
    target
        Name or index of the column to predict, or as many numbers as there are rows.
    features
        Names or indices of the columns to learn from, also as text with commas; all but the
        target and ``order_by`` by default.
    order_by
        A column of numbers or dates by which the rows are sorted; equal ones keep their order.
    standardise
        Bring each column to mean 0 and variance 1.
    memory
        Bytes above which values are kept in a temporary file rather than in memory.

    Examples
    --------
    >>> recording = read_recording([[1.0, 5.0], [2.0, 9.0], [3.0, 7.0]], target=1)
    >>> print(recording.inputs.ravel().round(2), recording.names, recording.target_name)
    [-1.22  0.    1.22] ('0',) 1
    """
    check_whole("memory", memory, low=0)
    table, choice = choose(open_table(source), target, features, order_by)
    limit = _LARGE if standardise else LARGE_AS_IS
    raw, spread, order = _gather(table, choice, memory, limit)
    count = len(choice.features)
    inputs, labels = _Store(memory, count, np.float32), _Store(memory, 1, np.float32)
    step = max(1, _BLOCK // raw.shape[1])
    for start in range(0, len(raw), step):
        rows = slice(start, start + step)
        block = raw[rows if order is None else order[rows]]
        if standardise:
            block = (block - spread.first - spread.mean) / np.sqrt(spread.variance)
        inputs.append(block[:, :count])
        labels.append(block[:, count:])  # of no columns if there is no target
    done = [f"rows were sorted by {choice.order_by}"] if order is not None else []
    done += ["columns were standardised to mean 0 and variance 1"] if standardise else []
    return Recording(
        inputs=inputs.array(),
        target=None if choice.target is None else labels.array().reshape(-1),
        names=choice.features,
        target_name=choice.target,
        source=table.source,
        notes=(*table.notes, *done),
    )


class _Store:
    """Rows that grow in memory, and move to a nameless temporary file beyond a limit.

    As the file has no name, it is gone with the last array that maps it, even after a kill.
    """

    def __init__(self, memory: int, columns: int, dtype: type) -> None:
        self.memory, self.columns, self.dtype = memory, columns, dtype
        self.file: IO[bytes] = io.BytesIO()

    def append(self, block: np.ndarray) -> None:
        data = np.ascontiguousarray(block, self.dtype).data
        held = self.file
        try:
            if isinstance(held, io.BytesIO) and held.tell() + data.nbytes > self.memory:
                self.file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the store
                weakref.finalize(self, self.file.close)
                self.file.write(held.getbuffer())
            self.file.write(data)
            self.file.flush()
        except OSError as error:
            raise ArgumentError(
                f"the temporary folder {tempfile.gettempdir()} cannot hold the data "
                f"({error.strerror}): set TMPDIR to a folder with more room"
            ) from None

    def array(self) -> np.ndarray:
        """Return what was stored, (rows, columns); nothing may be appended afterwards."""
        if isinstance(self.file, io.BytesIO):
            array = np.frombuffer(self.file.getbuffer(), self.dtype)
        else:
            array = np.memmap(self.file, self.dtype, mode="r")
        array.flags.writeable = False
        return array.reshape(-1, self.columns)


@dataclass(frozen=True)
class _Spread:
    """Of each column the first value, the mean less the first value, and the variance.

    With differences to the first row no digits are lost to a large offset.
    """

    rows: int
    first: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, block: np.ndarray, first: np.ndarray) -> _Spread:
        off = block - first
        mean = off.mean(axis=0)
        return cls(len(block), first, mean, np.square(off - mean).mean(axis=0))

    def merged(self, other: _Spread) -> _Spread:
        """Return the spread of the rows of both, as Chan, Golub and LeVeque (1979) do."""
        rows = self.rows + other.rows
        share = other.rows / rows
        gap = other.mean - self.mean
        variance = self.variance + share * (other.variance - self.variance + (1 - share) * gap**2)
        return _Spread(rows, self.first, self.mean + share * gap, variance)

    def check(self, choice: Choice) -> None:
        """Raise `ArgumentError` if a column is constant, or is but for its last digits."""
        size = np.abs(self.first + self.mean)
        flat = np.sqrt(self.variance) <= np.maximum(2 * np.finfo(float).eps * size, 1e-150)
        for name in np.array(choice.numbers)[flat].tolist():
            if name == choice.target:
                raise ArgumentError(f"the target {name!r} is constant: there is nothing to learn")
            raise ArgumentError(
                f"column {name!r} is constant: leave it out, a bias is added anyway"
            )


def _gather(
    table: Table, choice: Choice, memory: int, limit: float
) -> tuple[np.ndarray, _Spread, np.ndarray | None]:
    """Read all rows: the inputs and the target, how they spread, and the order they are put in."""
    names = choice.numbers
    store = _Store(memory, len(names), np.float64)
    spread, keys, rows = None, [], 0
    found: Found = {}
    needed = dict.fromkeys([*names, choice.order_by or names[0]])
    for piece in table.pieces(list(needed)):
        block = numbers(piece, choice, rows)
        look(block, names, rows, limit, found)
        if len(block) and not found:
            here = _Spread.of(block, block[0] if spread is None else spread.first)
            spread = here if spread is None else spread.merged(here)
            store.append(block)
            keys += [] if choice.order_by is None else [piece[choice.order_by]]
        rows += len(block)
    report(found)
    if spread is None or rows < 2:
        count = {0: "no rows", 1: "1 row"}[rows]
        raise ArgumentError(f"{table.source} has {count} of data: at least 2 are needed")
    spread.check(choice)
    order = None if choice.order_by is None else order_of(keys, choice.order_by)
    return store.array(), spread, order
