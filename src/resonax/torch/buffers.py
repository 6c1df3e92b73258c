"""Buffers of a module as they were before a step: batch norm changes them in a forward pass."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["Buffers"]


class Buffers:
    """Copies of the buffers of a module, made again only of those that were changed.

    Each tensor counts its changes, so that a buffer which never changes is copied once.
    """

    def __init__(self, model: torch.nn.Module):
        owners = [one for one in model.modules() if one._buffers]
        self._places = [(one._buffers, name) for one in owners for name in one._buffers]
        self._kept: list[tuple[Tensor, int, Tensor] | None] = [None] * len(self._places)

    def keep(self) -> None:
        """Copy the buffers as they are now."""
        for place, (held, name) in enumerate(self._places):
            buffer, kept = held[name], self._kept[place]
            if buffer is None or (
                kept is not None and kept[0] is buffer and kept[1] == buffer._version
            ):
                continue
            if kept is not None and kept[2].shape == buffer.shape:
                copy = kept[2].copy_(buffer)
            else:
                copy = buffer.detach().clone()
            self._kept[place] = buffer, buffer._version, copy

    @torch.no_grad()
    def restore(self) -> None:
        """Give the buffers what they held when they were kept."""
        for (held, name), kept in zip(self._places, self._kept, strict=True):
            if kept is not None and (held[name] is not kept[0] or kept[0]._version != kept[1]):
                held[name] = kept[0]
                kept[0].copy_(kept[2])
