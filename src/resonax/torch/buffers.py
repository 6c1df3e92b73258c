"""Buffers of a module as they were before a step: batch norm changes them in a forward pass."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

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

    @torch.no_grad()
    def keep(self) -> None:
        """Copy the buffers as they are now."""
        again: Any = defaultdict(lambda: ([], []))
        for place, (held, name) in enumerate(self._places):
            buffer, kept = held[name], self._kept[place]
            if buffer is None:
                self._kept[place] = None
            elif kept is None or kept[0] is not buffer:
                self._kept[place] = buffer, buffer._version, buffer.detach().clone()
            elif buffer.numel() <= _SMALL or kept[1] != buffer._version:
                self._kept[place] = buffer, buffer._version, kept[2]
                copies, buffers = again[buffer.device, buffer.dtype]
                copies.append(kept[2])
                buffers.append(buffer.detach())
        for copies, buffers in again.values():
            torch._foreach_copy_(copies, buffers)  # pyright: ignore[reportPrivateImportUsage]

    @torch.no_grad()
    def restore(self) -> None:
        """Give the buffers what they held when they were kept."""
        for (held, name), kept in zip(self._places, self._kept, strict=True):
            if kept is not None:
                held[name] = kept[0]
                kept[0].detach().copy_(kept[2])
