"""Batches of torch as a guard by replay keeps them: what was given to a step, and its context."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from resonax.guards.rows import mixed_places

__all__ = [
    "KeptBatch",
    "byte_count",
    "can_mix",
    "copied",
    "form_of",
    "mix_rows",
    "tensors_of",
    "with_tensors",
]


class KeptBatch(NamedTuple):
    """One call of `step`: the loss function, its arguments, and what else shaped the update.

    ``own`` are the user's hyperparameters of each group at that step, ``random`` the states of
    random numbers before it, ``size`` the bytes of all of it.
    """

    loss_fn: Callable[..., Tensor]
    parts: tuple[tuple[Any, ...], ...]  # one of arguments for each backward pass
    own: tuple[dict[str, Any], ...]
    random: Any  # a `RandomState`
    size: int = 0


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in arguments, through tuples, lists and dictionaries."""
    found: list[Tensor] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[Tensor]) -> None:
    if isinstance(value, Tensor):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(item, found)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, found)


def copied(value: Any) -> Any:
    """Return arguments with copies of their tensors, as loaders may fill one buffer again."""
    if type(value) is tuple and set(map(type, value)) == {Tensor}:  # as usual, and quicker
        return tuple([_copy(one) for one in value])
    return _mapped(_copy, value)


def _copy(tensor: Tensor) -> Tensor:
    return (tensor.detach() if tensor.requires_grad else tensor).clone()


def byte_count(value: Any) -> int:
    """Return the bytes of all tensors in a value."""
    return sum(one.nbytes for one in tensors_of(value))


def with_tensors(value: Any, tensors: Iterator[Tensor]) -> Any:
    """Return arguments with other tensors in place of theirs, in the order of `tensors_of`."""
    return _mapped(lambda _: next(tensors), value)


def _mapped(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """Return arguments with a function of each tensor in its place."""
    if isinstance(value, Tensor):
        return function(value)
    if isinstance(value, dict):
        return type(value)((key, _mapped(function, item)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        made = [_mapped(function, item) for item in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def form_of(parts: Sequence[tuple[Any, ...]]) -> list[list[Any]]:
    """Return what the tensors of each part are: batches of one form can be mixed."""
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


class _Mixed(Sequence[KeptBatch]):
    """Batches of rows of other batches, each made when it is asked for: they are not all held.

    ``columns`` are the tensors of each argument, ``starts`` the places of their first rows in all
    rows, and ``places`` those of the rows of each part of each batch.
    """

    def __init__(
        self,
        columns: list[tuple[Tensor, ...]],
        starts: np.ndarray,
        like: Sequence[KeptBatch],
        places: list[list[np.ndarray]],
    ):
        self._columns, self._starts, self._like, self._places = columns, starts, like, places

    def __len__(self) -> int:
        return len(self._like)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        batch = self._like[place]
        pairs = zip(batch.parts, self._places[place], strict=True)
        parts = tuple([with_tensors(part, iter(self._gather(rows))) for part, rows in pairs])
        return batch._replace(parts=parts)

    def _gather(self, rows: np.ndarray) -> list[Tensor]:
        """Return rows of each column; tensors that give none are not joined."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        used = sorted(set(owners.tolist()))
        lengths = self._starts[[one + 1 for one in used]] - self._starts[used]
        shifts = np.zeros(
            len(self._starts), int
        )  # of the rows of a tensor in those that are joined
        shifts[used] = np.cumsum(lengths) - lengths - self._starts[used]
        joined = [torch.cat([column[one] for one in used]) for column in self._columns]
        places = torch.from_numpy(rows + shifts[owners])
        on = {device: places.to(device) for device in {one.device for one in joined}}
        return [one[on[one.device]] for one in joined]


def mix_rows(
    batches: Sequence[KeptBatch], rng: np.random.Generator, like: Sequence[KeptBatch] | None
) -> Sequence[KeptBatch]:
    """Return the rows of batches in random order, with the sizes and context of ``like``."""
    like = batches if like is None else like
    found = [tensors_of(part) for batch in batches for part in batch.parts]
    rows = [_rows(tensors) or 0 for tensors in found]
    wanted = [[_rows(tensors_of(part)) or 0 for part in batch.parts] for batch in like]
    pieces = iter(mixed_places(rows, [one for sizes in wanted for one in sizes], rng))
    columns = list(zip(*found, strict=True))
    starts = np.cumsum([0, *rows])
    return _Mixed(columns, starts, like, [[next(pieces) for _ in sizes] for sizes in wanted])
