"""A check by the names of its options: checked before anything is read, then made.

The command line and `resonax explore` ask for a check in the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from resonax.checking.limits import check_asked
from resonax.request import check_optimizer, features_of

__all__ = ["READING", "asked_check"]

READING = (  # how a file becomes rows
    "target",
    "features",
    "order_by",
    "group_by",
    "horizon",
    "drop_missing",
    "separator",
    "decimal",
    "standardise",
)
_NUMBERS = {"batch": None, "epochs": 1, "grid": 32, "seed": 0, "intercept_lr": None}


def asked_check(
    given: Mapping[str, Any], place: Callable[[str], str] = str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of `read_recording`, and those of `check`, for options by their names.

    Parameters
    ----------
    given
        Options of the command line ``resonax check``; what is left out has its default.
    place
        How a name is spelled to who gave it.

    Examples
    --------
    >>> reading, asked = asked_check({"target": "y", "lr": 0.01, "momentum": 0.9})
    >>> reading, asked["momentum"], asked["epochs"], asked["optimizer"]
    ({'target': 'y', 'labels': False}, 0.9, 1, 'heavy_ball')
    """
    _, numbers = check_optimizer(given, "check", place)
    basis, loss = features_of(given, place), given.get("loss", "squared")
    asked: dict[str, Any] = {"momentum": 0.0, **numbers, "loss": loss}
    asked |= {name: given.get(name, usual) for name, usual in _NUMBERS.items()}
    asked["optimizer"] = given.get("optimizer", "heavy_ball")
    one: dict[str, Any] = {"batch": 1} if asked["batch"] is None else {}
    check_asked(**asked | one)
    reading = {name: given[name] for name in READING if given.get(name) is not None}
    return reading | {"labels": loss == "logistic"}, asked | {"basis": basis}
