"""What a module returns, kept from a forward pass until its loss is known and no longer.

Outputs hold the graph of their batch. Inside `Guard.step` the passes of the closure are those of
the loss. In a loop of one's own nobody says which passes belong to a loss, so that a few are kept;
where more come, as in an evaluation, none is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor

from resonax.torch.products import outputs_of

__all__ = ["MOST_PASSES", "Forwards"]

MOST_PASSES = 16  # whose outputs are kept in a loop of one's own


class _Hook:
    """A forward hook that stays behind when its module is copied or saved.

    There a method of the standard library takes its place that does nothing with three arguments.
    """

    def __init__(self, keep: Callable[[Any], None]):
        self._keep = keep

    def __call__(self, module: Any, inputs: Any, outputs: Any) -> None:
        self._keep(outputs)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class Forwards:
    """The outputs of a module since they were last taken."""

    def __init__(self, model: torch.nn.Module):
        self._model = model
        self._hook: Any = None
        self.forget()

    def keep(self, on: bool) -> None:
        """Keep the outputs of some passes from now on, or of none."""
        if not on:
            self.forget()
        if on and self._hook is None and "_forward_hooks" in vars(self._model):
            self._hook = self._model.register_forward_hook(_Hook(self._saw))
        elif not on and self._hook is not None:
            self._hook.remove()
            self._hook = None

    @contextmanager
    def keeping(self, on: bool) -> Iterator[None]:
        """Keep the outputs of all passes of a block, if wanted."""
        self.keep(False)
        hook = self._model.register_forward_hook(_Hook(self._add)) if on else None
        try:
            yield
        finally:
            if hook is not None:
                hook.remove()

    def take(self) -> list[Tensor] | None:
        """Return what was kept, and keep it no longer; None after too many passes."""
        kept = self._kept if self._passes <= MOST_PASSES else None
        self.forget()
        return kept

    def forget(self) -> None:
        """Keep what there is no longer."""
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
