"""Snapshots of a module and its optimizer: made, held on a device or in memory, and put back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from resonax.core.errors import suggest
from resonax.torch.batches import byte_count, mapped, tensors_of, with_tensors

__all__ = ["PLACES", "Saved", "check_place", "put_back", "save"]

PLACES = ("device", "cpu", "pinned")


@dataclass(frozen=True, eq=False)
class Saved:
    """A copy of weights, buffers, the optimizer's state and that of a gradient scaler.

    States of the optimizer are in the order of the parameters of its groups. ``ready`` is an event
    of CUDA after which copies into pinned memory are complete.
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


def check_place(place: str) -> None:
    """Raise `ArgumentError` for a place in which copies cannot be held."""
    if place not in PLACES:
        raise suggest("snapshots", str(place), PLACES)


def save(
    tensors: Sequence[Tensor], states: Sequence[dict[str, Any]], scaler: Any, place: str
) -> Saved:
    """Return a copy that is held at a place; single numbers stay on their device."""

    def copy(tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        if place == "device" or not tensor.ndim:
            return tensor.clone()
        if place == "pinned" and tensor.is_cuda:
            pinned = torch.empty_like(tensor, device="cpu", pin_memory=True)
            return pinned.copy_(tensor, non_blocking=True)
        return tensor.to("cpu", copy=True)

    kept = [copy(one) for one in tensors], [mapped(copy, one) for one in states]
    ready = None
    if place == "pinned" and any(one.is_cuda for one in tensors):
        ready = torch.cuda.Event()
        ready.record()
    return Saved(*kept, scaler, ready)


@torch.no_grad()
def put_back(
    saved: Saved, tensors: Sequence[Tensor], states: Any, weights: Sequence[Tensor]
) -> None:
    """Write a copy into the tensors that are trained; the copy stays as it is.

    Parameters
    ----------
    saved
        The copy.
    tensors
        Weights and buffers of the module.
    states, weights
        ``optimizer.state``, and the parameters in the order of the optimizer's groups.
    """
    saved.wait()
    for tensor, kept in zip(tensors, saved.tensors, strict=True):
        tensor.copy_(kept)
    for weight, kept in zip(weights, saved.states, strict=True):
        if kept:
            states[weight] = _state_from(kept, states.get(weight, {}), weight)
        else:
            states.pop(weight, None)


def _state_from(kept: dict[str, Any], held: dict[str, Any], weight: Tensor) -> dict[str, Any]:
    """Return the state of a parameter as it was kept, in the tensors that are held if they fit."""
    old, new = tensors_of(held), tensors_of(kept)
    # In place a sparse tensor would keep its mark that no index comes twice.
    is_sparse = any(one.is_sparse for one in new)
    if not is_sparse and [(one.shape, one.dtype) for one in old] == [
        (one.shape, one.dtype) for one in new
    ]:
        for one, two in zip(old, new, strict=True):
            one.detach().copy_(two)
        return with_tensors(kept, iter(old))

    def copy(tensor: Tensor) -> Tensor:
        return tensor.to(weight.device, copy=True) if tensor.ndim else tensor.clone()

    return mapped(copy, kept)
