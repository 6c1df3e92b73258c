"""What the callbacks for trainers share: options, and a guard whose steps a trainer makes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from resonax.core.errors import ArgumentError, suggest
from resonax.guards.policy import checked_policy
from resonax.torch.driven import DrivenReplay
from resonax.torch.guard import Guard
from resonax.torch.instruments import INSTRUMENTS, GuardOptions, check_options

__all__ = ["TrainerGuard", "check_trainer_options", "guard_of", "put_in_place"]


class TrainerGuard(Guard):
    """A guard of a run whose steps a trainer makes."""

    _replays = DrivenReplay

    @property
    def driven(self) -> DrivenReplay | None:
        """The instrument that is to be shown the batches; None for ``tangent``."""
        return self._inner if isinstance(self._inner, DrivenReplay) else None


def check_trainer_options(policy: str, instrument: str | None, options: GuardOptions) -> None:
    """Raise `ArgumentError` for options that do not exist, or are the trainer's own.

    Examples
    --------
    >>> check_trainer_options("safe", None, {"transform": None})
    Traceback (most recent call last):
    resonax.ArgumentError: transform is the trainer's own: leave it out
    """
    checked_policy(policy)
    if instrument is not None and instrument not in INSTRUMENTS:
        raise suggest("instrument", str(instrument), INSTRUMENTS)
    check_options(options, instrument)
    for name in ("scaler", "transform"):
        if name in options:
            raise ArgumentError(f"{name} is the trainer's own: leave it out")


def guard_of(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    policy: str,
    options: GuardOptions,
    *,
    instrument: str,
    processes: int,
    send: Callable[[dict[str, float]], object],
    saved: dict[str, Any] | None = None,
) -> TrainerGuard:
    """Return a guard that continues from a saved state, if there is one.

    Parameters
    ----------
    model, optimizer, policy, options, instrument
        Those of `resonax.torch.Guard`.
    processes
        Over which the trainer spreads a batch.
    send
        Takes numbers to the logger of the trainer.
    saved
        State of the guard at the checkpoint from which the optimizer was restored.
    """
    if processes > 1:
        # Each would see a part of the batch only, and choose a momentum of its own.
        raise ArgumentError(f"a guard works in one process on one device, got {processes}")
    log = options.get("log")

    def record(found: dict[str, Any]) -> None:
        numbers = {name: found[name] for name in found if name not in ("step", "event")}
        send({f"resonax/{name}": float(number) for name, number in numbers.items()})
        if log is not None:
            log(found)

    made: GuardOptions = {**options, "log": record}
    guard = TrainerGuard(model, optimizer, policy, instrument=instrument, **made)
    if saved is not None:
        guard.load_state_dict(saved)
    return guard


def put_in_place(owner: object, name: str, value: object) -> Callable[[], None]:
    """Give an object another attribute; return what undoes it.

    Examples
    --------
    >>> class Trainer:
    ...     def step(self):
    ...         return "its own"
    >>> trainer = Trainer()
    >>> undo = put_in_place(trainer, "step", lambda: "ours")
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
