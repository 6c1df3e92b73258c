"""What can be asked of a check, and its limits: told before anything heavy is loaded."""

from __future__ import annotations

from typing import Any

from resonax.checks import ArgumentError, check_number, check_whole, suggest

__all__ = ["LOSSES", "TAKES", "check_asked"]

LOSSES = ("squared", "logistic")
# What each optimizer takes besides step size and momentum.
TAKES: dict[str, tuple[str, ...]] = {
    "heavy_ball": ("dampening", "weight_decay"),
    "nesterov": ("weight_decay",),
    "sgd": ("weight_decay",),
    "torch": ("dampening", "weight_decay"),
    "optax": (),
    "river": ("weight_decay",),
}


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
    resonax.checks.ArgumentError: momentum must be 0 for the optimizer sgd, got 0.9
    """
    if loss not in LOSSES:
        raise suggest("loss", str(loss), LOSSES)
    if intercept_lr is not None:
        check_number("intercept_lr", intercept_lr, low=0, high=1e6)
    if isinstance(optimizer, str):
        if optimizer not in TAKES:
            raise suggest("optimizer", optimizer, TAKES)
        check_number("momentum", momentum, low=0, high=1, open_high=True)
        if optimizer == "sgd" and momentum:
            raise ArgumentError(f"momentum must be 0 for the optimizer sgd, got {momentum:g}")
        for name, number in rest.items():
            if number and name not in TAKES[optimizer]:
                raise ArgumentError(f"the optimizer {optimizer} has no {name}: leave it out")
    for name, number in (("batch", batch), ("epochs", epochs)):
        check_whole(name, number, low=1)
    check_whole("grid", grid, low=2, high=256)
    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_number("lr", lr, low=0, high=1e4, open_low=True)
    check_number("level", level, low=0, high=1, open_low=True, open_high=True)
