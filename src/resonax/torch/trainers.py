"""What the callbacks for trainers share: a guard from a saved state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from resonax.checks import ArgumentError
from resonax.torch.groups import check_optimizer
from resonax.torch.guard import Guard
from resonax.torch.instruments import GuardOptions

__all__ = ["guard_of"]


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
    check_optimizer(optimizer)
    if processes > 1:
        # Each would see a part of the batch only, and choose a momentum of its own.
        raise ArgumentError(f"a guard works in one process on one device, got {processes}")
    log = options.get("log")

    def record(found: dict[str, Any]) -> None:
        numbers = {name: found[name] for name in found if name not in ("step", "event")}
        send({f"resonax/{name}": number for name, number in numbers.items()})
        if log is not None:
            log(found)

    guard = Guard(model, optimizer, policy, instrument="tangent", **{**options, "log": record})
    if saved is not None:
        guard.load_state_dict(saved)
    return guard
