"""Buffers of a module as they were before a step: batch norm changes them in a forward pass."""

from __future__ import annotations

import torch
from torch import Tensor

from resonax.torch.snapshots import copy_tensors

__all__ = ["Buffers"]

_SMALL = 2**14  # numbers of a buffer that is copied at every step


class Buffers:
    """Copies of the buffers of a module.

    Small ones are copied at every step, as batch norm changes its own without a trace. Each tensor
    counts its other changes, so that a large one which never changes is copied once.
    """

    def __init__(self, model: torch.nn.Module):
        owners = [one for one in model.modules() if one._buffers]
        self._places = [(one._buffers, name) for one in owners for name in one._buffers]
        self._kept: list[tuple[Tensor, int, Tensor] | None] = [None] * len(self._places)

    def keep(self) -> None:
        """Copy the buffers as they are now."""
        if not self._places:
            return
        copies, buffers = [], []
        for place, (held, name) in enumerate(self._places):
            buffer, kept = held[name], self._kept[place]
            if buffer is None:
                self._kept[place] = None
            elif kept is None or kept[0] is not buffer:
                self._kept[place] = buffer, buffer._version, buffer.detach().clone()
            elif buffer.numel() <= _SMALL or kept[1] != buffer._version:
                self._kept[place] = buffer, buffer._version, kept[2]
                copies.append(kept[2])
                buffers.append(buffer.detach())
        copy_tensors(copies, buffers)

    @torch.no_grad()
    def restore(self) -> None:
        """Give the buffers what they held when they were kept."""
        for (held, name), kept in zip(self._places, self._kept, strict=True):
            if kept is not None:
                held[name] = kept[0]
                kept[0].detach().copy_(kept[2])
