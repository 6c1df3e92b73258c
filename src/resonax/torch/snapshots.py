"""Copies of a module and its optimizer: made, held somewhere, put back, and made again in place."""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from resonax.core.errors import suggest
from resonax.torch.batches import byte_count, tensors_of, with_tensors

__all__ = ["HOLDERS", "Holder", "Saved", "copy_back", "copy_tensors"]

HOLDERS = ("device", "cpu", "pinned")
_FREE = 1  # copies that nobody holds any more, kept to be filled again


@dataclass(frozen=True, eq=False)
class Saved:
    """A copy of weights, buffers, the optimizer's state and that of a gradient scaler.

    States of the optimizer are in the order of the parameters of its groups. ``ready`` is an event
    after which a copy that is made beside the training is complete.
    """

    tensors: list[Tensor]
    states: list[dict[str, Any]]
    scaler: dict[str, Any] | None
    size: int  # bytes of all tensors
    ready: Any = None

    def wait(self) -> None:
        """Return when the copy is complete."""
        if self.ready is not None:
            self.ready.synchronize()


class _Buffers(NamedTuple):
    """The tensors of a copy, the form of what is copied, and their bytes."""

    tensors: list[Tensor]
    form: list[Any]
    size: int


class Holder:
    """Makes copies that live on the device of the model, in memory, or in pinned memory.

    The tensors of a copy that nobody holds any more are filled again: fresh memory would take
    longer to get than to fill. Copies into pinned memory run beside the training: they are made on
    the device first, which takes little time, and travel on a stream of their own. Single numbers
    stay where they are.

    Attributes
    ----------
    size, most
        Bytes of all copies now, and the most so far.
    """

    def __init__(self, where: str, model: torch.nn.Module):
        if where not in HOLDERS:
            raise suggest("snapshots", str(where), HOLDERS)
        self.where = where
        self.size = self.most = 0
        devices = {one.device for one in model.parameters()}
        is_beside = where == "pinned" and len(devices) == 1 and next(iter(devices)).type == "cuda"
        self._stream = torch.cuda.Stream(devices.pop()) if is_beside else None
        self._staged: list[Tensor] = []
        self._is_staged_read: Any = None  # an event
        self._free: list[_Buffers] = []
        self._ends: weakref.WeakKeyDictionary[Saved, Any] = weakref.WeakKeyDictionary()

    def save(
        self, tensors: Sequence[Tensor], states: Sequence[dict[str, Any]], scaler: Any
    ) -> Saved:
        """Return a copy."""
        found = [*tensors, *tensors_of(list(states))]
        buffers = self._take(found)
        ready = self._fill(buffers.tensors, found)
        count, rest = len(tensors), iter(buffers.tensors[len(tensors) :])
        kept = [with_tensors(state, rest) for state in states]
        saved = Saved(buffers.tensors[:count], kept, scaler, buffers.size, ready)
        self._ends[saved] = _at_end(saved, self._free.append, buffers)
        return saved

    def adopt(self, tensors: list[Tensor], states: list[dict[str, Any]], scaler: Any) -> Saved:
        """Return a copy of tensors that are somebody else's too, and are never filled again."""
        saved = Saved(tensors, states, scaler, byte_count((tensors, states)))
        self._count(saved.size)
        _at_end(saved, self._count, -saved.size)
        return saved

    def share(self, saved: Saved) -> None:
        """Let others hold the tensors of a copy: they are not filled again."""
        saved.wait()
        end = self._ends.pop(saved, None)
        if end is not None:
            end.detach()
            _at_end(saved, self._count, -saved.size)

    def _count(self, size: int) -> None:
        self.size += size
        self.most = max(self.most, self.size)

    def _take(self, like: list[Tensor]) -> _Buffers:
        """Return tensors to be filled; those of a copy that is free, where they fit."""
        form, taken = _form(like), None
        while self._free and (taken is None or len(self._free) > _FREE):
            free = self._free.pop()
            if taken is None and free.form == form:
                taken = free
            else:
                self._count(-free.size)
        if taken is None:
            made = [self._empty(one) for one in like]
            taken = _Buffers(made, form, byte_count(made))
            self._count(taken.size)
        return taken

    def _empty(self, like: Tensor) -> Tensor:
        if self.where == "device" or not like.ndim:
            return torch.empty_like(like, requires_grad=False)
        return torch.empty_like(like, device="cpu", pin_memory=self._stream is not None)

    def _fill(self, copies: list[Tensor], found: list[Tensor]) -> Any:
        """Copy tensors; an event after which that is done, if it is done beside the training."""
        if self._stream is None:
            copy_tensors(copies, found)
            return None
        pairs = list(zip(copies, found, strict=True))
        here = [pair for pair in pairs if pair[0].device == pair[1].device]
        away = [pair for pair in pairs if pair[0].device != pair[1].device]
        copy_tensors([one for one, _ in here], [one for _, one in here])
        return self._send([one for one, _ in away], [one for _, one in away], self._stream)

    def _send(self, to: list[Tensor], of: list[Tensor], beside: torch.cuda.Stream) -> Any:
        """Copy tensors on their device, and from there on a stream beside the training."""
        now = torch.cuda.current_stream(beside.device)
        if self._is_staged_read is not None:
            now.wait_event(self._is_staged_read)
        if _form(self._staged) != _form(of):
            self._count(byte_count(of) - byte_count(self._staged))
            self._staged = [torch.empty_like(one) for one in of]
        copy_tensors(self._staged, of)
        beside.wait_stream(now)
        with torch.cuda.stream(beside):
            for copy, staged in zip(to, self._staged, strict=True):
                copy.copy_(staged, non_blocking=True)
            self._is_staged_read = torch.cuda.Event()
            self._is_staged_read.record()
        return self._is_staged_read


def _at_end(saved: Saved, function: Any, *args: Any) -> Any:
    """Call a function when nobody holds a copy any more, but not when the program ends."""
    end: Any = weakref.finalize(saved, function, *args)
    end.atexit = False
    return end


def _form(tensors: Sequence[Tensor]) -> list[Any]:
    return [(one.shape, one.dtype, one.device) for one in tensors]


@torch.no_grad()
def copy_tensors(to: Sequence[Tensor], of: Sequence[Tensor]) -> None:
    """Copy tensors into others, those of one kind at once."""
    kinds: Any = defaultdict(lambda: ([], []))
    for copy, tensor in zip(to, of, strict=True):
        copies, tensors = kinds[copy.device, tensor.device, tensor.dtype]
        copies.append(copy)
        tensors.append(tensor)
    for copies, tensors in kinds.values():
        torch._foreach_copy_(copies, tensors)


@torch.no_grad()
def copy_back(
    saved: Saved, tensors: Sequence[Tensor], states: Any, weights: Sequence[Tensor]
) -> None:
    """Put a copy back, into the same tensors where there are such; the copy stays as it is."""
    saved.wait()
    copy_tensors(tensors, saved.tensors)
    for weight, kept in zip(weights, saved.states, strict=True):
        if kept:
            states[weight] = _put_back(states.get(weight, {}), kept, weight)
        else:
            states.pop(weight, None)


def _put_back(held: dict[str, Any], kept: dict[str, Any], weight: Tensor) -> dict[str, Any]:
    """Return the state of a parameter as it was kept, in the tensors that are held if they fit."""
    old, new = tensors_of(held), tensors_of(kept)
    fits = len(old) == len(new) and all(
        one.shape == two.shape and one.dtype == two.dtype for one, two in zip(old, new, strict=True)
    )
    if fits:
        for one, two in zip(old, new, strict=True):
            one.detach().copy_(two)
        return with_tensors(kept, iter(old))
    return with_tensors(kept, _on_device(new, weight))


def _on_device(kept: Sequence[Tensor], weight: Tensor) -> Iterator[Tensor]:
    """Return copies on the device of a parameter; single numbers stay where they are."""
    for one in kept:
        yield one.to(weight.device, copy=True) if one.ndim else one.clone()
