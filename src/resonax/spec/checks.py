"""A check of a file: how the file is read, and the numbers of the check.

The command line and the page ask for a check by the names of its options; `check` and `order` take
the same numbers as Python keywords.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from resonax.core.errors import check_number
from resonax.spec.kinds import check_kind, find_kind
from resonax.spec.models import NameFormat, Spec, read
from resonax.spec.settings import check_basis, check_optimizer

__all__ = ["CheckOptions", "check_numbers", "check_options"]

_Loss = Literal["squared", "logistic"]
_OPTIMIZER = ("lr", "momentum", "dampening", "weight_decay")


class ReadingOptions(Spec):
    """How a file becomes rows: arguments of `read_recording`."""

    target: str | None = None
    features: str | None = None
    order_by: str | None = None
    group_by: str | None = None
    horizon: Annotated[int, Field(ge=1)] | None = None
    drop_missing: bool | None = None
    separator: str | None = None
    decimal: str | None = None
    standardise: bool | None = None


class CheckNumbers(Spec):
    """The numbers of a check: arguments of `check` beside the data and the model."""

    lr: float | None = None
    momentum: float | None = None
    dampening: float | None = None
    weight_decay: float | None = None
    batch: Annotated[int, Field(ge=1)] | None = None
    epochs: int = Field(default=1, ge=1)
    grid: int = Field(default=32, ge=2, le=256)
    seed: int = Field(default=0, ge=0, lt=2**63)
    confidence: float = Field(default=0.95, gt=0, lt=1)
    intercept_lr: float | None = None
    loss: _Loss = "squared"

    @field_validator("lr")
    @classmethod
    def _check_lr(cls, lr: float | None) -> float | None:
        if lr is not None:
            check_number("lr", lr, low=0, high=1e4, open_low=True)  # the map goes 32 times as far
        return lr

    @field_validator("intercept_lr")
    @classmethod
    def _check_intercept_lr(cls, lr: float | None) -> float | None:
        if lr is not None:
            check_number("intercept_lr", lr, low=0, high=1e6)
        return lr


class CheckOptions(ReadingOptions, CheckNumbers):
    """All options of a check, by the names of the command line."""

    optimizer: str = "heavy_ball"
    basis: str = "linear"
    bias: bool | None = None
    width: float | None = None


def check_numbers(optimizer: Any, **numbers: Any) -> None:
    """Raise `ArgumentError` for a number out of its limits, or one the optimizer does not have.

    Examples
    --------
    >>> check_numbers("sgd", lr=0.1, momentum=0.9)
    Traceback (most recent call last):
    resonax.ArgumentError: momentum is not a parameter of sgd, which takes lr, weight_decay
    """
    if isinstance(optimizer, str):
        own = {name: numbers[name] for name in _OPTIMIZER if name in numbers}
        own = find_kind("optimizer", optimizer, "check").without_zeros(own)
        check_kind("optimizer", optimizer, own, use="check")
    read(CheckNumbers, numbers)


def check_options(
    given: Mapping[str, Any], format_name: NameFormat = str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of `read_recording`, and those of `check`, for options by their names.

    The features are their part of a setting, under the name ``basis``: it is built later.

    Parameters
    ----------
    given
        Options of the command line ``resonax check``; what is left out has its default.
    format_name
        Formats the name of an option for error messages.

    Examples
    --------
    >>> reading, asked = check_options({"target": "y", "lr": 0.01, "momentum": 0.9})
    >>> reading, asked["momentum"], asked["epochs"], asked["optimizer"]
    ({'target': 'y', 'labels': False}, 0.9, 1, 'heavy_ball')
    """
    optimizer = check_optimizer(given, "check", format_name)
    basis = check_basis(given, format_name)
    options = read(CheckOptions, given, format_name=format_name)
    reading = options.model_dump(include=set(ReadingOptions.model_fields), exclude_none=True)
    numbers = options.model_dump(include=set(CheckNumbers.model_fields) - set(_OPTIMIZER))
    numbers |= {"momentum": 0.0, **optimizer.given, "optimizer": optimizer.kind.name}
    del numbers["confidence"]
    return reading | {"labels": options.loss == "logistic"}, numbers | {"basis": basis}
