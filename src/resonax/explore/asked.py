"""From the JSON of a request to what is asked for, checked in every point before any work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np  # before any thread of `work` loads it

from resonax.core.errors import ArgumentError, check_number, check_whole, shorten, suggest
from resonax.core.labels import CRITERIA
from resonax.explore.code import is_whole
from resonax.explore.schema import LIMITS, NAMES
from resonax.request import AXES, is_adaptive, setting_of

__all__ = ["asked_map", "asked_page", "asked_runs", "asked_setting", "points", "take"]


def take(body: Any, needed: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a JSON object, all that are needed and none that is unknown.

    Examples
    --------
    >>> take({"setting": {}, "colour": "red"}, ("setting",))
    Traceback (most recent call last):
    resonax.ArgumentError: unknown field 'colour' (one of: setting)
    """
    if not isinstance(body, dict):
        raise ArgumentError(f"give a JSON object with {', '.join(needed)}, got {shorten(body)}")
    for name in body:
        if name not in (*needed, *optional):
            raise suggest("field", name, (*needed, *optional))
    for name in needed:
        if name not in body:
            raise ArgumentError(f"the field {name} is missing")
    return body


def asked_setting(given: Any) -> dict[str, Any]:
    """Return a setting by its names, which can be; numbers are in one form, so that none compiles.

    Examples
    --------
    >>> asked_setting({"process": "iid", "lr": 1, "momentum": 0, "batch": 4.0})
    {'process': 'iid', 'lr': 1.0, 'momentum': 0.0, 'batch': 4}
    """
    if not isinstance(given, dict):
        raise ArgumentError(f"setting must be an object of names and numbers, got {shorten(given)}")
    for name in given:
        if name not in NAMES:
            raise suggest("name", name, sorted(NAMES))
    if given.get("process") == "recorded":
        raise ArgumentError("process must not be recorded here: check a file instead")
    asked = {name: _one_form(name, value) for name, value in given.items()}
    setting_of(asked)
    return asked


def _one_form(name: str, value: Any) -> Any:
    """Return whole numbers as floats but for counts, and counts as whole numbers."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    if name in ("batch", "dim"):
        return int(value) if value % 1 == 0 else value
    try:
        return float(value)
    except OverflowError:
        raise ArgumentError(f"{name} must be finite, got {shorten(value)}") from None


def _asked_axis(where: str, given: Any) -> dict[str, Any]:
    axis = {"log": False, **take(given, ("name", "first", "last", "count"), ("log",))}
    if not isinstance(axis["name"], str) or axis["name"] not in AXES:
        raise suggest(f"axis {where}", str(axis["name"]), AXES)
    if not isinstance(axis["log"], bool):
        raise ArgumentError(f"log of the axis {where} must be true or false")
    check_whole(f"count of the axis {where}", axis["count"], low=1, high=LIMITS["cells"])
    for end in ("first", "last"):
        check_number(f"{end} of the axis {where}", axis[end])
        axis[end] = float(axis[end])
    if not axis["first"] < axis["last"] and axis["count"] > 1:
        raise ArgumentError(f"the axis {where} must run from a smaller to a larger number")
    if axis["log"] and axis["first"] <= 0:
        raise ArgumentError(f"the axis {where} must start above 0 for a log range")
    return axis


def points(axis: Mapping[str, Any]) -> np.ndarray:
    """Return the values of an axis, each once where they are rounded to whole numbers."""
    make = np.geomspace if axis["log"] else np.linspace
    found = make(axis["first"], axis["last"], axis["count"])
    return np.unique(np.round(found)) if is_whole(axis) else found


def asked_map(body: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]:
    """Return the setting of a map, its axes x and y, and the criterion."""
    given = take(body, ("setting", "x", "y"), ("criterion",))
    x, y = _asked_axis("x", given["x"]), _asked_axis("y", given["y"])
    if x["name"] == y["name"]:
        raise ArgumentError(f"x and y must be two numbers, got {x['name']} for both")
    if x["count"] * y["count"] > LIMITS["cells"]:
        cells = x["count"] * y["count"]
        raise ArgumentError(f"a map has at most {LIMITS['cells']} cells here, got {cells}")
    setting = given["setting"]
    if isinstance(setting, dict):  # an axis may stand for a number that is left out
        for axis in (x, y):
            setting = {**setting, axis["name"]: setting.get(axis["name"], axis["first"])}
    asked = asked_setting(setting)
    criterion = given.get("criterion", "level" if is_adaptive(asked) else "map")
    if not isinstance(criterion, str) or criterion not in (*CRITERIA, "level"):
        raise suggest("criterion", str(criterion), (*CRITERIA, "level"))
    if (criterion == "level") != is_adaptive(asked):
        word = "level" if is_adaptive(asked) else f"one of {', '.join(CRITERIA)}"
        raise ArgumentError(f"criterion must be {word} for this optimizer, got {criterion}")
    for axis in (x, y):  # a cycle of a level has all steps of a period, or of many broken ones
        axis["whole"] = axis["name"] == "batch" or (axis["name"], criterion) == ("period", "level")
    setting_of({**asked, **{axis["name"]: points(axis) for axis in (x, y)}})
    return asked, x, y, criterion


def asked_runs(body: Any) -> tuple[dict[str, Any], int, int, int]:
    """Return the setting of simulated runs, their steps, their number and the seed."""
    given = take(body, ("setting",), ("steps", "runs", "seed"))
    numbers = []
    for name, usual, high in (
        ("steps", 2000, LIMITS["steps"]),
        ("runs", 4, LIMITS["runs"]),
        ("seed", 0, 2**53),
    ):
        number = given.get(name, usual)
        check_whole(name, number, low=0 if name == "seed" else 1, high=high)
        numbers.append(number)
    return asked_setting(given["setting"]), *numbers


def asked_page(body: Any) -> tuple[Any, ...]:
    """Return what `page_code` takes: all that a page shows of one setting."""
    drawn, run = ("x", "y", "criterion"), ("steps", "runs", "seed")
    given = take(body, ("setting", "x", "y"), ("criterion", *run))

    def part(names: tuple[str, ...]) -> dict[str, Any]:
        return {name: given[name] for name in ("setting", *names) if name in given}

    asked, *numbers = asked_runs(part(run))
    _, x, y, criterion = asked_map(part(drawn))
    axes = (y, x)
    values = tuple(points(axis).tolist() for axis in axes)
    return asked, tuple(numbers), axes, values, criterion
