"""Calls of a learner as a guard keeps them, and their rows in random order."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from resonax.guards.learner import mixed_places

__all__ = ["Call", "byte_size", "copied", "count_rows", "join", "mix_rows", "numbers_of"]

_SEEN = 64  # numbers of a row of river that its rhythm is looked for in


class Call(NamedTuple):
    """One step of training: its batch, its options, and what else shaped the update.

    ``own`` are the user's momentum and step size at that step, None for those that the model has
    now; ``random`` is the state of NumPy's global random numbers before it. With ``is_rows`` the
    batch is lists, and the model learns one row after the other.
    """

    batch: tuple[Any, ...]
    options: Mapping[str, Any]
    own: dict[str, Any] | None = None
    random: Any = None
    is_rows: bool = False

    @property
    def parts(self) -> list[tuple[Any, ...]]:
        """What the model is given, one call after the other."""
        return list(zip(*self.batch, strict=True)) if self.is_rows else [self.batch]


def copied(batch: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments that stay as they are: who gives them may fill them again."""
    return tuple(part.copy() if hasattr(part, "copy") else part for part in batch)


def _length(part: Any) -> int | None:
    """Return the number of rows of an array, a table, a sparse matrix or a list."""
    if isinstance(part, list):
        return len(part)
    return part.shape[0] if getattr(part, "ndim", 0) else None


def count_rows(batch: tuple[Any, ...]) -> int | None:
    """Return the number of rows of a batch; None if it is one row.

    Examples
    --------
    >>> count_rows((np.ones((3, 2)), [1, 0, 1])), count_rows(({"x": 1.0}, 2.0))
    (3, None)
    """
    lengths = {_length(part) for part in batch}
    return lengths.pop() if len(lengths) == 1 else None


def _take(parts: Sequence[Any], places: np.ndarray) -> Any:
    """Return rows of several arrays, tables, sparse matrices or lists, taken together."""
    first = parts[0]
    if isinstance(first, list):
        rows = [row for part in parts for row in part]
        return [rows[place] for place in places]
    if hasattr(first, "iloc"):
        import pandas as pd

        return pd.concat(list(parts)).iloc[places]
    if hasattr(first, "tocsr"):
        from scipy import sparse

        return sparse.vstack(list(parts)).tocsr()[places]
    return np.concatenate(parts)[places]


def join(calls: Sequence[Call]) -> Call:
    """Return one call of all rows."""
    places = np.arange(sum(count_rows(one.batch) or 0 for one in calls))
    columns = zip(*(one.batch for one in calls), strict=True)
    return calls[0]._replace(batch=tuple(_take(column, places) for column in columns))


def mix_rows(
    calls: Sequence[Call], rng: np.random.Generator, like: Sequence[Call] | None
) -> list[Call]:
    """Return the rows of calls in random order, with the sizes and context of ``like``."""
    like = calls if like is None else like
    counts, wanted = ([count_rows(one.batch) or 0 for one in each] for each in (calls, like))
    columns = list(zip(*(one.batch for one in calls), strict=True))
    pieces = mixed_places(counts, wanted, rng)
    batches = [tuple(_take(column, piece) for column in columns) for piece in pieces]
    return [one._replace(batch=batch) for one, batch in zip(like, batches, strict=True)]


def _bytes(part: Any) -> int:
    if isinstance(part, Mapping):
        return sys.getsizeof(part) + sum(map(sys.getsizeof, part.values()))
    if isinstance(part, list):
        return sys.getsizeof(part) + sum(map(_bytes, part))
    held = getattr(part, "data", part) if hasattr(part, "tocsr") else part
    size = getattr(held, "nbytes", None)
    return int(size) if size is not None else sys.getsizeof(part)


def byte_size(call: Call) -> int:
    """Return about how many bytes a call takes."""
    return sum(map(_bytes, call.batch)) + (0 if call.random is None else 2500)


def numbers_of(call: Call) -> np.ndarray:
    """Return the rows of a call as numbers, inputs and outputs, in their order: (rows, numbers)."""
    columns = []
    for part in call.batch:
        rows = part.toarray() if hasattr(part, "tocsr") else part
        if isinstance(rows, list) and rows and isinstance(rows[0], Mapping):
            rows = [_numbers(row) for row in rows]
        try:
            made = np.asarray(rows, float)
        except (TypeError, ValueError):  # words, or things of one's own
            continue
        columns.append(made.reshape(len(made), -1) if made.ndim else made.reshape(1, 1))
    return np.concatenate(columns, axis=1) if columns else np.zeros((1, 1))


def _numbers(row: Mapping[Any, Any]) -> list[float]:
    """Return the first numbers of a row of river, as many for each."""
    found = [float(one) for one in row.values() if isinstance(one, (int, float))][:_SEEN]
    return [*found, *[0.0] * (_SEEN - len(found))]
