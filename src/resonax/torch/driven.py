"""Replay where a trainer makes the steps: it is shown each part of a batch before it is used.

A trainer owns its forward passes, gradients, clipping and updates. What it does is left to it: the
instrument sees each part of a batch first, and may hand back other rows; it has its candidate in
force while the optimizer updates; and it acts when the step is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from torch import Tensor

from resonax.guards import replay_run
from resonax.torch.batches import KeptBatch, byte_count
from resonax.torch.replay import ReplayInstrument

__all__ = ["DrivenReplay"]


class DrivenReplay(ReplayInstrument):
    """Replay a run whose steps a trainer makes.

    For each step `begin` comes before the forward pass of each part of the batch, `add` after it,
    and `finish` after the update.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._kept: KeptBatch | None = None  # the step that goes on; its parts so far
        self._parts: tuple[tuple[Any, ...], ...] = ()
        self._loss: Any = 0.0
        self._force = ExitStack()  # what is undone after an update

    def _start(self) -> KeptBatch:
        """Keep what a step begins with; the update of some trainers begins before its loss."""
        if self._kept is None:
            self._kept = self._learner.keep(_unknown, ())
            if not self._steps:
                self._run = replay_run.begin(self._run, self._learner)
        return self._kept

    def begin(self, loss_fn: Callable[..., Tensor], *part: Any) -> tuple[Any, ...]:
        """Take a part of a batch before its forward pass; return what to train on."""
        (form,) = self._check(loss_fn, (part,))
        if not self._parts:
            with self._replaying():
                self._resume(loss_fn)
        self._kept = kept = self._start()._replace(loss_fn=loss_fn)
        mine = kept._replace(parts=(self._learner.copied(part, form),), size=kept.size + self._size)
        number, self._parts = len(self._parts), (*self._parts, *mine.parts)
        if not self.setting.is_mixed:
            return part
        # Each part draws rows of its own; the first draws those of a step of one part.
        config = replace(self._run.config, seed=self._run.config.seed + (number << 32))
        run = replace(self._run, config=config)
        return replay_run.trained_on(run, self._learner, mine).parts[0]

    def add(self, loss: Tensor) -> None:
        """Take the loss of a part, as it is differentiated."""
        self._loss = self._loss + loss.detach()

    def before_step(self) -> None:
        if not self._is_stepping:
            own = self._start().own
            self._force.enter_context(self._learner.hyperparameters.in_force(own, self.setting))

    def after_step(self) -> None:
        if not self._is_stepping:
            self._force.close()

    def finish(self) -> None:
        """Count the step that was made, and do what is due."""
        kept, parts, loss = self._kept, self._parts, self._loss
        self._kept, self._parts, self._loss = None, (), 0.0
        if kept is None or not parts:
            return
        self._learner.random.end()
        with self._replaying():
            self._add(kept._replace(parts=parts, size=kept.size + byte_count(parts)), loss)

    @contextmanager
    def _replaying(self) -> Iterator[None]:
        """Make steps that are not the trainer's, and leave no gradients: it may add to them."""
        self._is_stepping = True
        try:
            yield
        finally:
            self._is_stepping = False
            self._learner.optimizer.zero_grad()

    def end(self, *, quiet: bool) -> None:
        """Give the optimizer back as it was, also in the middle of an update."""
        self._force.close()
        super().end(quiet=quiet)


def _unknown(*_: Any) -> Tensor:
    raise AssertionError("a step began and no part of its batch was shown")
