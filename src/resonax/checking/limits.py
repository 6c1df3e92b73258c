"""Validation of the arguments of a check, before any heavy library is loaded."""

from __future__ import annotations

from typing import Any

from resonax.core.errors import check_number, check_whole, suggest
from resonax.registry import check_kind, find_kind, without_zeros

__all__ = ["LOSSES", "check_asked"]

LOSSES = ("squared", "logistic")


def check_asked(
    *,
    optimizer: Any,
    lr: float,
    momentum: float,
    batch: int,
    epochs: int,
    grid: int,
    seed: int,
    level: float = 0.95,
    intercept_lr: float | None = None,
    loss: str = "squared",
    **rest: float,
) -> None:
    """Raise `ArgumentError` for a number outside of its limits, or one the optimizer has not.

    Examples
    --------
    >>> check_asked(
    ...     optimizer="sgd", lr=0.1, momentum=0.9, batch=1, epochs=1, grid=8, seed=0, dampening=0.0
    ... )
    Traceback (most recent call last):
    resonax.ArgumentError: momentum is not a parameter of sgd, which takes lr, weight_decay
    """
    if loss not in LOSSES:
        raise suggest("loss", str(loss), LOSSES)
    if intercept_lr is not None:
        check_number("intercept_lr", intercept_lr, low=0, high=1e6)
    numbers = {"lr": lr, "momentum": momentum, **rest}
    if isinstance(optimizer, str):
        given = without_zeros(find_kind("optimizer", optimizer, "check"), numbers)
        check_kind("optimizer", optimizer, given, use="check")
    for name, number in (("batch", batch), ("epochs", epochs)):
        check_whole(name, number, low=1)
    check_whole("grid", grid, low=2, high=256)
    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_number("lr", lr, low=0, high=1e4, open_low=True)  # the map goes 32 times as far
    check_number("level", level, low=0, high=1, open_low=True, open_high=True)
