"""Copies of a module and its optimizer: made, held somewhere, and put back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from resonax.checks import suggest
from resonax.torch.batches import byte_count, tensors_of, with_tensors

__all__ = ["HOLDERS", "Holder", "Saved", "copy_back"]

HOLDERS = ("device", "cpu", "pinned")


class Saved(NamedTuple):
    """A copy of weights, buffers, the optimizer's state and that of a gradient scaler.

    States of the optimizer are in the order of the parameters of its groups. ``ready`` is an event
    after which a copy that is made beside the training is complete.
    """

    tensors: list[Tensor]
    states: list[dict[str, Any]]
    scaler: dict[str, Any] | None
    ready: Any = None

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return byte_count((self.tensors, self.states))

    def wait(self) -> None:
        """Return when the copy is complete."""
        if self.ready is not None:
            self.ready.synchronize()


class Holder:
    """Makes copies that live on the device of the model, in memory, or in pinned memory.

    Copies into pinned memory run beside the training: a copy on the device is made first, which
    takes little time, and travels on a stream of its own. Single numbers stay where they are.
    """

    def __init__(self, where: str, model: torch.nn.Module):
        if where not in HOLDERS:
            raise suggest("snapshots", str(where), HOLDERS)
        self.where = where
        devices = {one.device for one in model.parameters()}
        is_beside = where == "pinned" and len(devices) == 1 and next(iter(devices)).type == "cuda"
        self._stream = torch.cuda.Stream(devices.pop()) if is_beside else None

    def save(
        self, tensors: Sequence[Tensor], states: Sequence[dict[str, Any]], scaler: Any
    ) -> Saved:
        """Return a copy."""
        inner = tensors_of(list(states))
        copies, ready = self._copies([*tensors, *inner])
        rest = iter(copies[len(tensors) :])
        kept = [with_tensors(state, rest) for state in states]
        return Saved(copies[: len(tensors)], kept, scaler, ready)

    def _copies(self, tensors: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        found = [one.detach() for one in tensors]
        if self.where == "device":
            return [one.clone() for one in found], None
        if self._stream is None:
            return [one.to("cpu", copy=True) if one.ndim else one.clone() for one in found], None
        staged = [one.clone() for one in found]
        self._stream.wait_stream(torch.cuda.current_stream(self._stream.device))
        with torch.cuda.stream(self._stream):
            made = [_pinned(one, self._stream) for one in staged]
            ready = torch.cuda.Event()
            ready.record()
        return made, ready


def _pinned(staged: Tensor, stream: torch.cuda.Stream) -> Tensor:
    """Return a copy in pinned memory, which is complete when the stream has reached it."""
    if not (staged.is_cuda and staged.ndim):
        return staged
    staged.record_stream(stream)  # its memory is used there until the copy is made
    made = torch.empty_like(staged, device="cpu", pin_memory=True)
    return made.copy_(staged, non_blocking=True)


@torch.no_grad()
def copy_back(
    saved: Saved, tensors: Sequence[Tensor], states: Any, weights: Sequence[Tensor]
) -> None:
    """Put a copy back, into the same tensors where there are such; the copy stays as it is."""
    saved.wait()
    for tensor, kept in zip(tensors, saved.tensors, strict=True):
        tensor.detach().copy_(kept)
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
