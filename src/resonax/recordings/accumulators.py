"""What is kept of the rows of a table: values, mean and variance, classes of a target."""

from __future__ import annotations

import io
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from resonax.core.errors import DataError
from resonax.core.labels import printable
from resonax.recordings.table import listed

__all__ = ["BLOCK", "Classes", "Moments", "RowStore"]

BLOCK = 2**20  # numbers that are worked on at a time
_MAX_CLASSES = 9  # that are counted and named


class RowStore:
    """Rows in memory, or beyond a limit in a temporary file without a name.

    As the file has no name, it is gone with the last array that maps it, even after a kill.
    """

    def __init__(self, memory: int, columns: int, dtype: type) -> None:
        self.memory, self.columns, self.dtype = memory, columns, dtype
        self.file: IO[bytes] = io.BytesIO()

    def append(self, block: np.ndarray) -> None:
        """Store some more rows."""
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
            raise DataError(
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
class Moments:
    """Of each column the first value, the mean less the first value, and the variance.

    With differences to the first row no digits are lost to a large offset.
    """

    first: np.ndarray
    mean: np.ndarray
    variance: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> Moments | None:
        """Return those of the rows without missing values, read block by block; None if none is."""

        def blocks() -> Iterator[np.ndarray]:
            step = max(1, BLOCK // rows.shape[1])
            for start in range(0, len(rows), step):
                block = rows[start : start + step]
                if len(whole := block[~np.isnan(block).any(axis=1)]):
                    yield whole

        total = sum(map(len, blocks()))
        if not total:
            return None
        first = next(blocks())[0].copy()
        mean = sum((b - first).mean(axis=0) * (len(b) / total) for b in blocks())
        parts = (np.square(b - first - mean).mean(axis=0) * (len(b) / total) for b in blocks())
        return cls(first, np.asarray(mean), np.asarray(sum(parts)))

    def standardise(self, values: np.ndarray, columns: slice) -> np.ndarray:
        """Return values of some columns with mean 0 and variance 1."""
        centred = values - self.first[columns] - self.mean[columns]
        return centred / np.sqrt(self.variance[columns])

    def check(self, names: tuple[str, ...], target: str | None) -> None:
        """Raise `DataError` if a column is constant, or is but for its last digits."""
        size = np.abs(self.first + self.mean)
        flat = np.sqrt(self.variance) <= np.maximum(2 * np.finfo(float).eps * size, 1e-150)
        for name in np.array(names)[flat].tolist():
            if name == target:
                raise DataError(f"the target {name!r} is constant: there is nothing to learn")
            raise DataError(f"column {name!r} is constant: leave it out, a bias is added anyway")


@dataclass
class Classes:
    """The different values of a target, as long as there are few."""

    values: list[Any] = field(default_factory=list)  # in the order in which they came

    def encode(self, column: Any) -> np.ndarray:
        """Return the index of each value in ``values``, NaN where missing; new ones are added."""
        import pandas as pd

        indices: list[int] = []
        codes, found = pd.factorize(column) if len(self.values) <= _MAX_CLASSES else ([], [])
        for value in found[: _MAX_CLASSES + 1]:
            key = value.strip() if isinstance(value, str) else value
            if key not in self.values:
                self.values.append(key)
            indices.append(self.values.index(key))
        if len(self.values) > _MAX_CLASSES:
            return np.zeros(len(column))
        return np.where(np.asarray(codes) < 0, np.nan, np.append(indices, 0.0)[codes])

    def names(self, target: str | None) -> tuple[str, ...]:
        """Return what 0 and 1 stand for; `DataError` unless there are two values."""
        if len(self.values) != 2:
            many = len(self.values) > _MAX_CLASSES
            shown = listed([printable(value, 20) for value in self.values], 4)
            count = f"more than {_MAX_CLASSES}" if many else len(self.values)
            what = f"the target {target!r} has {count} values ({shown}), and the logistic loss"
            if len(self.values) < 2:
                raise DataError(f"the target {target!r} is constant: there is nothing to learn")
            raise DataError(f"{what} learns two: make it a column that says whether it is one")
        return tuple(printable(value, 40) for value in self._sorted())

    def as_zeros_and_ones(self, indices: np.ndarray) -> np.ndarray:
        """Return 1 for the later of two values in order, and 0 for the other."""
        return np.equal(indices, self.values.index(self._sorted()[1]))

    def _sorted(self) -> list[Any]:
        return sorted(self.values, key=lambda value: (isinstance(value, str), value))
