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

from resonax.guards import replay
from resonax.torch.batches import KeptBatch, copied
from resonax.torch.replay import ReplayInstrument, check_call

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
            self._state = replay.with_snapshot(self._state, self._config, self._learner)
        return self._kept

    def begin(self, loss_fn: Callable[..., Tensor], *part: Any) -> tuple[Any, ...]:
        """Take a part of a batch before its forward pass; return what to train on."""
        check_call(loss_fn, (part,))
        if not self._parts:
            with self._replaying():
                self._resume(loss_fn)
        self._kept = kept = self._start()._replace(loss_fn=loss_fn)
        mine = kept._replace(parts=(copied(part),))
        self._check_batch(mine)
        number, self._parts = len(self._parts), (*self._parts, *mine.parts)
        used = self.setting
        if not used.is_mixed:
            return part
        # Each part draws rows of its own; the first draws those of a step of one part.
        config = replace(self._config, seed=self._config.seed + (number << 32))
        state = replay.with_batch(self._state, config, self._learner, mine)
        count = len(state.ladder.batches)
        return replay.trained_on(state, config, self._learner, used, count).parts[0]

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
        config, learner = self._config, self._learner
        learner.random.end(kept.random)
        state = replay.with_batch(self._state, config, learner, kept._replace(parts=parts))
        learner.set(config.candidates[state.place])
        self._state, self._is_pending = replay.count_step(state, config, loss), True
        with self._replaying():
            self._finish()

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
