"""What is checked: the model and optimizer that a caller names, and how progress is shown."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

from resonax.core.errors import ArgumentError, shorten
from resonax.learners import Features, Linear, Momentum, check_optimizer
from resonax.recordings.recording import Recording
from resonax.rows.subject import Advance
from resonax.spec.kinds import KINDS

__all__ = [
    "OnFinding",
    "Stage",
    "build_optimizer",
    "choose_basis",
    "ignore_finding",
    "ignore_progress",
]


Stage = Callable[[str, int], AbstractContextManager[Advance | None]]  # of its name and steps
OnFinding = Callable[[str, Any], None]  # called with what was found, and its name


def ignore_progress(name: str, steps: int) -> AbstractContextManager[None]:
    """Show no progress."""
    del name, steps
    return contextlib.nullcontext()


def ignore_finding(name: str, finding: Any) -> None:
    """Report no finding before the end."""


def choose_basis(
    basis: Features | Callable[[int], Features] | None,
    bias: bool,
    recording: Recording,
    intercept_lr: float | None,
) -> tuple[Features, float | None]:
    """Return the features, and the step size of a bias, which only a linear model has."""
    if basis is None:
        basis = Linear(bias)
    elif not bias:
        raise ArgumentError("bias belongs to the linear model: leave it as it is with a basis")
    elif not isinstance(basis, Features) and callable(basis):
        basis = basis(recording.inputs.shape[1])
    if not isinstance(basis, Features):
        raise ArgumentError(
            f"basis must be features like Polynomial(2), or make them, got {shorten(basis)}"
        )
    has_bias = isinstance(basis, Linear) and basis.bias
    return basis, intercept_lr if has_bias else None


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
