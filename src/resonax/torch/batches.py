"""Batches of torch as a guard by replay keeps them: what was given to a step, and its context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

__all__ = ["KeptBatch", "byte_size", "can_mix", "copied", "mix_rows", "tensors_of", "with_tensors"]


class KeptBatch(NamedTuple):
    """One call of `step`: the loss function, its arguments, and what else shaped the update.

    ``own`` are the user's step size and momentum of each group at that step, ``random`` the states
    of torch's random numbers before it.
    """

    loss_fn: Callable[..., Tensor]
    parts: tuple[tuple[Any, ...], ...]  # one of arguments for each backward pass
    own: tuple[dict[str, Any], ...]
    random: tuple[Tensor, ...]


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors in arguments, through tuples, lists and dictionaries."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in tensors_of(item)]
    return []


def copied(value: Any) -> Any:
    """Return arguments with copies of their tensors, as loaders may fill one buffer again."""
    return with_tensors(value, iter([one.detach().clone() for one in tensors_of(value)]))


def byte_size(batch: KeptBatch) -> int:
    """Return the bytes of the tensors of a batch."""
    return sum(one.numel() * one.element_size() for one in tensors_of(batch.parts))


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


def mix_rows(
    batches: Sequence[KeptBatch], rng: np.random.Generator, like: Sequence[KeptBatch] | None
) -> list[KeptBatch]:
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
    made, place = [], 0
    for batch, sizes in zip(like, wanted, strict=True):
        new = []
        for part, size in zip(batch.parts, sizes, strict=True):
            chosen = slice(place, place + size)
            picked = [_gather(column, owner[chosen], inside[chosen]) for column in columns]
            new.append(with_tensors(part, iter(picked)))
            place += size
        made.append(batch._replace(parts=tuple(new)))
    return made


def _gather(column: Sequence[Tensor], owner: np.ndarray, inside: np.ndarray) -> Tensor:
    """Return rows of several tensors, without joining those that give none."""
    used = np.unique(owner)
    first = dict(zip(used, np.cumsum([0, *(len(column[one]) for one in used[:-1])]), strict=True))
    places = np.array([first[one] for one in owner]) + inside
    joined = torch.cat([column[one] for one in used])
    return joined[torch.as_tensor(places, device=joined.device)]
