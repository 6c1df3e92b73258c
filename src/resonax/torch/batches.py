"""Batches of torch as a guard keeps them: what was given to a step, and its context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from resonax.guards.learner import mixed_places

__all__ = [
    "KeptBatch",
    "byte_count",
    "can_mix",
    "copied",
    "count_rows",
    "form_of",
    "mapped",
    "mix_rows",
    "tensors_of",
    "with_tensors",
]


class KeptBatch(NamedTuple):
    """One call of `step`: the loss function, its arguments, and what else shaped the update.

    ``own`` are the user's hyperparameters of each group at that step, ``random`` the states of the
    random generators before it, ``size`` the bytes of all of it.
    """

    loss_fn: Callable[..., Tensor]
    parts: tuple[tuple[Any, ...], ...]  # one of arguments for each backward pass
    own: tuple[dict[str, Any], ...]
    random: Any  # a `RandomState`
    size: int = 0


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in arguments, through tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    if not isinstance(value, (dict, list, tuple)):
        return []
    return [one for item in items for one in tensors_of(item)]


def copied(value: Any) -> Any:
    """Return arguments with copies of their tensors, as loaders may reuse the same memory."""
    return mapped(lambda one: one.detach().clone(), value)


def byte_count(value: Any) -> int:
    """Return the bytes of all tensors in a value."""
    return sum(
        (one.coalesce().values() if one.is_sparse else one).nbytes for one in tensors_of(value)
    )


def with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return arguments with other tensors in place of theirs, in the order of `tensors_of`."""
    return mapped(lambda _: next(tensors), value)


def mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return arguments with a function of each tensor in its place."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return type(value)((key, mapped(function, item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        made = [mapped(function, item) for item in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def form_of(parts: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Return shape, type and device of all tensors of each part; those of one form can be mixed."""
    return [[(one.shape, one.dtype, one.device) for one in tensors_of(part)] for part in parts]


def _rows(tensors: Iterable[Tensor]) -> int | None:
    """Return the number of rows of the arguments of one call, if all their tensors agree."""
    sizes = {one.shape[0] if one.ndim else -1 for one in tensors}
    return sizes.pop() if len(sizes) == 1 and sizes != {-1} else None


def can_mix(parts: Iterable[tuple[Any, ...]]) -> bool:
    """Return whether the rows of parts of batches can be put into another order."""
    found = [tensors_of(part) for part in parts]
    shapes = {tuple((one.shape[1:], one.dtype) for one in tensors) for tensors in found}
    return len(shapes) == 1 and all(map(_rows, found))


class _MixedBatches(Sequence[KeptBatch]):
    """Batches made of rows of other batches, each gathered on demand to save memory.

    Parameters
    ----------
    columns
        For each argument its tensors, one for each batch that rows are taken from.
    starts
        The number of rows before each of these batches.
    like
        The batches whose sizes and context the new ones have.
    rows
        For each part of each new batch the rows that it takes, counted through all batches.
    """

    def __init__(
        self,
        columns: list[tuple[Tensor, ...]],
        starts: np.ndarray,
        like: Sequence[KeptBatch],
        rows: list[list[np.ndarray]],
    ):
        self._columns, self._starts, self._like, self._rows = columns, starts, like, rows

    def __len__(self) -> int:
        return len(self._like)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        batch = self._like[place]
        pairs = zip(batch.parts, self._rows[place], strict=True)
        parts = tuple(with_tensors(part, iter(self._gather(rows))) for part, rows in pairs)
        return batch._replace(parts=parts)

    def _gather(self, rows: np.ndarray) -> list[Tensor]:
        """Return these rows of each column; only batches that give a row are joined for it."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        used = np.unique(owners)
        lengths = self._starts[used + 1] - self._starts[used]
        joined_starts = np.cumsum(lengths) - lengths
        inside = rows - self._starts[owners] + joined_starts[np.searchsorted(used, owners)]
        places, made = torch.from_numpy(inside), []
        for column in self._columns:
            joined = torch.cat([column[one] for one in used])
            made.append(joined[places.to(joined.device)])
        return made


def count_rows(batch: KeptBatch) -> int:
    """Return the number of rows of a batch, by the first tensor of each part that has rows."""
    found = [[len(one) for one in tensors_of(part) if one.ndim] for part in batch.parts]
    return sum(sizes[0] if sizes else 1 for sizes in found)


def mix_rows(
    batches: Sequence[KeptBatch],
    rng: np.random.Generator,
    like: Sequence[KeptBatch] | None,
    *,
    by_rows: bool = True,
) -> Sequence[KeptBatch]:
    """Return the rows of batches in random order, with the sizes and context of ``like``.

    Batches whose rows cannot be put together come as wholes in random order.
    """
    like = batches if like is None else like
    if not by_rows or not can_mix([part for batch in (*batches, *like) for part in batch.parts]):
        order = np.resize(rng.permutation(len(batches)), len(like)).tolist()
        pairs = zip(order, like, strict=True)
        return [batches[one]._replace(own=kept.own, random=kept.random) for one, kept in pairs]
    found = [tensors_of(part) for batch in batches for part in batch.parts]
    rows = [_rows(tensors) or 0 for tensors in found]
    wanted = [[_rows(tensors_of(part)) or 0 for part in batch.parts] for batch in like]
    pieces = iter(mixed_places(rows, [one for sizes in wanted for one in sizes], rng))
    columns = list(zip(*found, strict=True))
    starts = np.cumsum([0, *rows])
    chosen = [[next(pieces) for _ in sizes] for sizes in wanted]
    return _MixedBatches(columns, starts, like, chosen)
