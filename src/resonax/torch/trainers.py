"""Guards of runs whose steps a trainer makes: what the callbacks for trainers share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from resonax.core.errors import ArgumentError
from resonax.guards import guarded_run
from resonax.guards.state import GuardConfig
from resonax.torch.batches import KeptBatch, byte_count, copied
from resonax.torch.guard import Guard
from resonax.torch.processes import replicas_of
from resonax.torch.refusals import check_unsharded
from resonax.torch.training import FACTS, GuardedTraining, GuardOptions, check_options

__all__ = ["DrivenTraining", "TrainerGuard", "check_trainer_options", "guard_of", "replaced"]


class DrivenTraining(GuardedTraining):
    """A guarded run whose steps a trainer makes, with its own clipping, scaling and updates.

    For each step `begin` comes before the forward pass of each part of the batch, and may hand back
    other rows; `add` comes after it, and `finish` after the update, during which a candidate is in
    force.
    """

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._batch: KeptBatch | None = None  # of the step that is being made
        self._parts: tuple[tuple[Any, ...], ...] = ()  # of that batch so far
        self._loss: Any = 0.0
        self._in_force = ExitStack()  # what is undone after an update

    _needs_rows = True

    def _start(self) -> KeptBatch:
        """Keep what a step begins with; the update of some trainers begins before its loss."""
        if self._batch is None:
            self._batch = self.learner.keep(_no_batch, ())
            self.run = guarded_run.begin(self.run, self.learner)
        return self._batch

    def begin(self, loss_fn: Callable[..., Tensor], *part: Any) -> tuple[Any, ...]:
        """Take a part of a batch before its forward pass; return what to train on."""
        with self.processes.together(FACTS) as shared:
            self._check_batch(loss_fn, (part,))
            kept = copied(part)
            shared.mine = self._facts(KeptBatch(loss_fn, (kept,), (), None))
        self._agreed(shared)
        self.learner.check_replicas()
        if not self._parts:
            with self.making_steps():
                self._resume(loss_fn)
        batch = self._start()._replace(loss_fn=loss_fn, parts=(kept,))
        number, self._batch, self._parts = len(self._parts), batch, (*self._parts, *batch.parts)
        if not self.setting.is_mixed:
            return part
        # Each part draws its own rows; the first draws those of a step of one part.
        config = replace(self.run.config, seed=self.run.config.seed + (number << 32))
        run = replace(self.run, config=config)
        return guarded_run.trained_on(run, self.learner, batch).parts[0]

    def add(self, loss: Tensor) -> None:
        """Add the loss of a part, as it is differentiated."""
        self._loss = self._loss + loss.detach()

    def before_step(self) -> None:
        """Put the candidate in force before the trainer's update."""
        if not self._is_stepping:
            own = self._start().own
            self._in_force.enter_context(self.learner.groups.in_force(own, self.setting))

    def after_step(self) -> None:
        """Give the optimizer its own hyperparameters back."""
        if not self._is_stepping:
            self._in_force.close()

    def finish(self) -> None:
        """Count the step that was made, and do what is due."""
        batch, parts, loss = self._batch, self._parts, self._loss
        self._batch, self._parts, self._loss = None, (), 0.0
        if batch is None or not parts:
            return
        size = int(self.processes.gather([byte_count(parts) + batch.random.size]).max())
        with self.making_steps():
            self._count(batch._replace(parts=parts, size=size), loss)

    def end(self, *, quiet: bool) -> None:
        """Give the optimizer back as it was, also in the middle of an update."""
        self._in_force.close()
        super().end(quiet=quiet)


def _no_batch(*_: Any) -> Tensor:
    raise AssertionError("a step began and no part of its batch was given to `begin`")


class TrainerGuard(Guard):
    """A guard of a run whose steps a trainer makes."""

    _kind = DrivenTraining

    @property
    def driven(self) -> DrivenTraining:
        """The run, to which the trainer's batches are given."""
        assert isinstance(self._training, DrivenTraining)
        return self._training

    def saved(self) -> dict[str, Any]:
        """Return the states of all ranks on the first, which writes the checkpoint.

        All ranks call this, while the guard is open: later they exchange nothing, and nothing is
        returned.
        """
        processes = self.driven.processes
        if processes.count == 1:
            return self.state_dict()
        if self._is_closed:
            return {}
        states = processes.to_first(self.state_dict())
        return {} if states is None else {"ranks": states}

    def restore(self, saved: dict[str, Any]) -> None:
        """Continue from what `saved` returned on the first rank, or one process alone."""
        states = saved.get("ranks", [saved])
        self.load_state_dict(states[min(self.driven.processes.rank, len(states) - 1)])


def check_trainer_options(policy: str, options: GuardOptions) -> None:
    """Raise `ArgumentError` for options that do not exist, or are the trainer's own.

    Examples
    --------
    >>> check_trainer_options("safe", {"transform": None})
    Traceback (most recent call last):
    resonax.ArgumentError: transform is the trainer's own: leave it out
    """
    GuardConfig((), policy=policy).checked()
    check_options(options)
    for name in ("scaler", "transform"):
        if name in options:
            raise ArgumentError(f"{name} is the trainer's own: leave it out")


def guard_of(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    policy: str,
    options: GuardOptions,
    *,
    devices: int,
    send: Callable[[dict[str, float]], object],
    saved: dict[str, Any] | None = None,
) -> TrainerGuard:
    """Return a guard that continues from a saved state, if there is one.

    Parameters
    ----------
    model, optimizer, policy, options
        Those of `resonax.torch.Guard`; the model as the trainer calls it, if that is wrapped in
        `DistributedDataParallel`.
    devices
        Over which the trainer spreads a batch.
    send
        Takes numbers to the logger of the trainer.
    saved
        What `TrainerGuard.saved` returned at the checkpoint from which the optimizer was restored.
    """
    check_unsharded(model, optimizer)
    if devices > 1 and not replicas_of(model):
        raise ArgumentError(
            f"the trainer spreads a batch over {devices} devices without DistributedDataParallel: "
            "use that, or one device"
        )
    log = options.get("log")

    def record(found: dict[str, Any]) -> None:
        numbers = {name: found[name] for name in found if name not in ("step", "event")}
        send({f"resonax/{name}": float(number) for name, number in numbers.items()})
        if log is not None:
            log(found)

    made: GuardOptions = {**options, "log": record}
    guard = TrainerGuard(model, optimizer, policy, **made)
    if saved is not None:
        guard.restore(saved)
    return guard


def replaced(owner: object, name: str, value: object) -> Callable[[], None]:
    """Give an object another attribute; return what undoes it.

    Examples
    --------
    >>> class Trainer:
    ...     def step(self):
    ...         return "its own"
    >>> trainer = Trainer()
    >>> undo = replaced(trainer, "step", lambda: "ours")
    >>> trainer.step()
    'ours'
    >>> undo()
    >>> trainer.step(), vars(trainer)
    ('its own', {})
    """
    had, before = name in vars(owner), getattr(owner, name)
    setattr(owner, name, value)

    def undo() -> None:
        if had:
            setattr(owner, name, before)
        else:
            delattr(owner, name)

    return undo
