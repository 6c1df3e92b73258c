"""The optimizer of a check or of an order: by its name, or one that was built."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from resonax.core.errors import ArgumentError
from resonax.learners import Momentum, check_optimizer
from resonax.spec.kinds import KINDS

__all__ = ["build_optimizer"]

_RIVER_INTERCEPT_LR = 0.01  # the default of river's linear models


def build_optimizer(
    given: str | Momentum,
    lr: float,
    momentum: float,
    intercept_lr: float | None,
    **rest: float,
) -> tuple[Momentum, float | None, str]:
    """Return the optimizer, the step size of a bias without momentum, and its name."""
    if isinstance(given, Momentum):
        numbers: dict[str, Any] = {name: number for name, number in rest.items() if number}
        return replace(given, lr=lr, momentum=momentum, **numbers), intercept_lr, "momentum"
    if not isinstance(given, str):
        check_optimizer(given)
        raise ArgumentError(
            "optimizer must be SGD with momentum, a name or a Momentum: response measures others"
        )
    if given == "river" and intercept_lr is None:
        intercept_lr = _RIVER_INTERCEPT_LR
    kind = KINDS["optimizer"][given]
    numbers = kind.without_zeros({"lr": lr, "momentum": momentum, **rest})
    return kind.load()(**numbers), intercept_lr, given
