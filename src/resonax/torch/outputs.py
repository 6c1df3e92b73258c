"""The outputs of a module, kept from a forward pass until its loss is known.

Outputs hold the graph of their batch. Inside `Guard.step` the passes of the closure are those of
the loss. In the user's own loop it is not known which passes belong to a loss: up to `MOST_PASSES`
are kept, and none where there are more, as in an evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from resonax.torch.products import outputs_of

__all__ = ["MOST_PASSES", "OutputRecorder"]

MOST_PASSES = 16  # whose outputs are kept in the user's own loop


class _Hook:
    """A forward hook that is not copied or saved with its module.

    It is pickled as a method of the standard library that does nothing with three arguments.
    """

    def __init__(self, keep: Callable[[Any], None]):
        self._keep = keep

    def __call__(self, module: Any, inputs: Any, outputs: Any) -> None:
        self._keep(outputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class OutputRecorder:
    """Records the outputs of a module."""

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self._hook: Any = None
        self.clear()

    def record(self, on: bool) -> None:
        """Start or stop recording up to `MOST_PASSES` passes."""
        if not on:
            self.clear()
        if on and self._hook is None and "_forward_hooks" in vars(self._model):
            self._hook = self._model.register_forward_hook(_Hook(self._saw))
        elif not on and self._hook is not None:
            self._hook.remove()
            self._hook = None

    @contextmanager
    def recording_all(self, on: bool) -> Iterator[None]:
        """Record all passes in a block, if wanted."""
        self.record(False)
        hook = self._model.register_forward_hook(_Hook(self._add)) if on else None
        try:
            yield
        finally:
            if hook is not None:
                hook.remove()

    def take(self) -> list[Tensor] | None:
        """Return and release what was recorded; None after too many passes."""
        kept = self._kept if self._passes <= MOST_PASSES else None
        self.clear()
        return kept

    def clear(self) -> None:
        """Release what was recorded."""
        self._kept: list[Tensor] = []
        self._passes = 0

    def _add(self, outputs: Any) -> None:
        if torch.is_grad_enabled():
            self._kept += outputs_of(outputs)

    def _saw(self, outputs: Any) -> None:
        self._passes += torch.is_grad_enabled()
        self._add(outputs)
        if self._passes > MOST_PASSES:
            self._kept = []
