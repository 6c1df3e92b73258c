"""Batches of torch as a guard by replay keeps them: what was given to a step, and its context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "KeptBatch",
    "byte_count",
    "byte_size",
    "can_mix",
    "copied",
    "mix_rows",
    "tensors_of",
    "with_tensors",
]


class KeptBatch(NamedTuple):
    """One call of `step`: the loss function, its arguments, and what else shaped the update.

    ``own`` are the user's hyperparameters of each group at that step, ``random`` the states of
    random numbers before it.
    """

    loss_fn: Callable[..., Tensor]
    parts: tuple[tuple[Any, ...], ...]  # one of arguments for each backward pass
    own: tuple[dict[str, Any], ...]
    random: Any  # a `RandomState`


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
    return with_tensors(value, iter([one.detach().clone() for one in tensors_of(value)]))


def byte_count(value: Any) -> int:
    """Return the bytes of all tensors in a value."""
    return sum(one.nbytes for one in tensors_of(value))


def byte_size(batch: KeptBatch) -> int:
    """Return the bytes of a batch, with those of the random state of its step."""
    return byte_count(batch.parts) + byte_count(batch.random)


def with_tensors(value: Any, tensors: Any) -> Any:
    """Return arguments with other tensors in place of theirs, in the order of `tensors_of`."""
    if isinstance(value, Tensor):
        return next(tensors)
    if isinstance(value, dict):
        return type(value)((key, with_tensors(item, tensors)) for key, item in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(with_tensors(item, tensors) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(with_tensors(item, tensors) for item in value)
    return value


def _rows(part: tuple[Any, ...]) -> int | None:
    """Return the number of rows of the arguments of one call, if all their tensors agree."""
    sizes = {len(one) if one.ndim else -1 for one in tensors_of(part)}
    return sizes.pop() if len(sizes) == 1 and sizes != {-1} else None


def can_mix(batches: Sequence[KeptBatch]) -> bool:
    """Return whether the rows of batches can be put into another order."""
    parts = [part for batch in batches for part in batch.parts]
    shapes = {tuple((one.shape[1:], one.dtype) for one in tensors_of(part)) for part in parts}
    return len(shapes) == 1 and all(_rows(part) for part in parts)


class _Mixed(Sequence[KeptBatch]):
    """Batches of rows of other batches, each made when it is asked for: they are not all held."""

    def __init__(
        self,
        columns: list[tuple[Tensor, ...]],
        like: Sequence[KeptBatch],
        places: list[tuple[tuple[np.ndarray, np.ndarray], ...]],
    ):
        self._columns, self._like, self._places = columns, like, places

    def __len__(self) -> int:
        return len(self._like)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self[one] for one in range(len(self))[place]]
        batch, new = self._like[place], []
        for part, (owner, inside) in zip(batch.parts, self._places[place], strict=True):
            picked = [_gather(column, owner, inside) for column in self._columns]
            new.append(with_tensors(part, iter(picked)))
        return batch._replace(parts=tuple(new))


def mix_rows(
    batches: Sequence[KeptBatch], rng: np.random.Generator, like: Sequence[KeptBatch] | None
) -> Sequence[KeptBatch]:
    """Return the rows of batches in random order, with the sizes and context of ``like``."""
    like = batches if like is None else like
    parts = [part for batch in batches for part in batch.parts]
    rows = [_rows(part) or 0 for part in parts]
    wanted = [[_rows(part) or 0 for part in batch.parts] for batch in like]
    order = rng.permutation(sum(rows))[: sum(map(sum, wanted))]
    ends = np.cumsum(rows)
    owner = np.searchsorted(ends, order, side="right")
    inside = order - (ends - rows)[owner]
    columns = list(zip(*(tensors_of(part) for part in parts), strict=True))
    places, place = [], 0
    for sizes in wanted:
        cuts = np.cumsum([place, *sizes])
        spans = [slice(*pair) for pair in pairwise(cuts)]
        places.append(tuple((owner[one], inside[one]) for one in spans))
        place = cuts[-1]
    return _Mixed(columns, like, places)


def _gather(column: Sequence[Tensor], owner: np.ndarray, inside: np.ndarray) -> Tensor:
    """Return rows of several tensors, without joining those that give none."""
    used, which = np.unique(owner, return_inverse=True)
    first = np.cumsum([0, *(len(column[one]) for one in used[:-1])])
    joined = torch.cat([column[one] for one in used])
    return joined[torch.as_tensor(first[which] + inside, device=joined.device)]
