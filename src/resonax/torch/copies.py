"""Copies of tensors that come again and again, made in blocks of memory that are filled again."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import torch
from torch import Tensor

__all__ = ["Copies", "copy_alone"]

_COUNT = 32  # copies in a block
_LARGEST = 2**24  # bytes of a block at most
_MOST = 256  # blocks that are looked at
_ALIGNED = 256  # bytes; each copy begins at a multiple of it, as if it were alone

# How many tensors share a memory. Without this function of torch no block is filled again.
_sharing: Callable[[int], int] | None = getattr(torch._C, "_storage_Use_Count", None)


class Copies:
    """Copies of lists of tensors; those of one form share blocks of memory.

    Hundreds of small copies that live long, each on its own, would lie between the gradients that
    are freed and allocated at every step, and the memory of a process would grow by several times
    their size. A block is filled again when nobody holds a tensor of it any more: fresh memory
    takes longer to get than to fill.
    """

    def __init__(self) -> None:
        self._form: Any = None
        self._odd: Any = None  # the last form, if it was another
        self._blocks: list[_Block] = []  # the oldest first
        self._slots: list[list[Tensor]] = []  # of the last block, not filled yet

    def of(self, tensors: Sequence[Tensor], form: Any) -> list[Tensor]:
        """Return copies of tensors, whose shapes, types and devices are their ``form``."""
        if form != self._form:  # perhaps the last batch of an epoch, which comes alone
            if form == self._odd:
                self._form, self._blocks, self._slots = form, [], []
            self._odd = form
            return copy_alone(tensors)
        self._odd = None
        if not self._slots:
            self._slots = self._next_slots(tensors)
        return _filled(self._slots.pop(), tensors) if self._slots else copy_alone(tensors)

    def clear(self) -> None:
        """Let go of all memory; copies that somebody holds stay."""
        self._blocks, self._slots = [], []

    def _next_slots(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """Return places for copies; none where a block makes no sense."""
        if not all(map(_is_plain, tensors)):
            return []
        blocks = self._blocks
        free = next((place for place, one in enumerate(blocks) if one.is_free()), None)
        if free is None:
            known = [] if _sharing is None else blocks[-_MOST:]
            self._blocks = [*known, _Block(tensors)]
        else:  # somebody keeps those before it longer than the guard does
            self._blocks = [*blocks[free + 1 :], blocks[free]]
        return self._blocks[-1].slots[::-1]


def copy_alone(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies of tensors, each in memory of its own."""
    return [one.detach().clone() for one in tensors]


def _filled(slot: list[Tensor], tensors: Sequence[Tensor]) -> list[Tensor]:
    plain = [one.detach() if one.requires_grad else one for one in tensors]
    torch._foreach_copy_(slot, plain)
    return slot


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) is Tensor and tensor.layout is torch.strided and tensor.is_contiguous()


class _Block:
    """Places for copies of tensors; those of each lie side by side in one memory."""

    def __init__(self, like: Sequence[Tensor]):
        count = max(1, min(_COUNT, _LARGEST // max(*map(_padded, like), 1)))
        columns = [_column(one, count) for one in like]
        self.slots = [list(slot) for slot in zip(*columns, strict=True)]
        self._memories = [one.untyped_storage() for one in self.slots[0]]
        del columns
        self._alone = self._holders()

    def _holders(self) -> tuple[int, int]:
        """Return how many hold the tensors of this block, and how many tensors share its memory."""
        shared = 0 if _sharing is None else sum(_sharing(one._cdata) for one in self._memories)
        return sum(sum(map(getrefcount, slot)) for slot in self.slots), shared

    def is_free(self) -> bool:
        """Return whether nobody else holds a tensor of this block, or one that shares its memory.

        Such may be a batch that is kept, a checkpoint, or what the user's loss has put aside.
        """
        return _sharing is not None and self._holders() == self._alone


def _padded(tensor: Tensor) -> int:
    """Return the bytes from one copy of a tensor to the next."""
    return -(-tensor.nbytes // _ALIGNED) * _ALIGNED


def _column(like: Tensor, count: int) -> list[Tensor]:
    """Return places for copies of a tensor; the changes of each are counted by itself.

    Those on a CPU are in pages of their own, apart from what comes and goes.
    """
    apart = _padded(like)
    if like.device.type == "cpu" and apart:
        memory = torch.frombuffer(mmap.mmap(-1, count * apart), dtype=torch.uint8)
    else:
        memory = torch.empty(count * apart, dtype=torch.uint8, device=like.device)
    rows = memory.view(count, apart)[:, : like.nbytes].unbind()
    return [row.view(like.dtype).view(like.shape).data for row in rows]
