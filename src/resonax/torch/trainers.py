"""What the callbacks for trainers share: options, and a guard from a saved state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict

import torch

from resonax.checks import ArgumentError, suggest
from resonax.guards.policy import checked_policy
from resonax.torch.groups import check_optimizer
from resonax.torch.guard import Guard

__all__ = ["GuardOptions", "check_options", "guard_of"]


class GuardOptions(TypedDict, total=False):
    """Options of `resonax.torch.Guard`; the scaler is the trainer's own."""

    candidates: Any
    budget: float
    burst: int
    search: int
    warmup: int
    curvature: str
    log: Callable[[dict[str, Any]], object]


def check_options(policy: str, options: GuardOptions) -> None:
    """Raise `ArgumentError` for a policy or an option that does not exist.

    Examples
    --------
    >>> check_options("safe", {"bugdet": 0.1})
    Traceback (most recent call last):
    resonax.checks.ArgumentError: unknown option 'bugdet', did you mean 'budget'? ...
    """
    checked_policy(policy)
    for name in options:
        if name not in GuardOptions.__annotations__:
            raise suggest("option", name, GuardOptions.__annotations__)


def guard_of(
    model: torch.nn.Module,
    optimizer: torch.optim.Optimizer,
    policy: str,
    options: GuardOptions,
    *,
    processes: int,
    send: Callable[[dict[str, float]], object],
    saved: dict[str, Any] | None = None,
) -> Guard:
    """Return a guard that continues from a saved state, if there is one.

    Parameters
    ----------
    model, optimizer, policy, options
        Those of `resonax.torch.Guard`.
    processes
        Over which the trainer spreads a batch.
    send
        Takes numbers to the logger of the trainer.
    saved
        State of the guard at the checkpoint from which the optimizer was restored.
    """
    check_optimizer(model, optimizer)
    if processes > 1:
        # Each would see a part of the batch only, and choose a momentum of its own.
        raise ArgumentError(f"a guard works in one process on one device, got {processes}")
    log = options.get("log")

    def record(found: dict[str, Any]) -> None:
        numbers = {name: found[name] for name in found if name not in ("step", "event")}
        send({f"resonax/{name}": number for name, number in numbers.items()})
        if log is not None:
            log(found)

    guard = Guard(model, optimizer, policy, **{**options, "log": record})
    if saved is not None:
        guard.load_state_dict(saved)
    return guard
