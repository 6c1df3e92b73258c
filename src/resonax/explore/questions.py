"""Models of the JSON that the page sends, checked before any work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import Field, Strict, model_validator

from resonax.core.errors import ArgumentError, shorten, suggest
from resonax.core.labels import CRITERIA
from resonax.explore.code import is_whole
from resonax.explore.schema import LIMITS, NAMES
from resonax.spec.checks import CheckOptions, check_options
from resonax.spec.models import Spec, read
from resonax.spec.settings import AxisName, check_setting, is_adaptive

__all__ = [
    "CheckCodeQuestion",
    "parse_map",
    "parse_options",
    "parse_page",
    "parse_runs",
    "parse_setting",
    "points",
    "read_question",
]

_Count = Annotated[int, Field(ge=1, le=LIMITS["cells"])]


class _Axis(Spec):
    """An axis of a map: a range of evenly spaced points."""

    name: AxisName
    first: float
    last: float
    count: _Count
    log: bool = False

    @model_validator(mode="after")
    def _is_range(self) -> _Axis:
        if not self.first < self.last and self.count > 1:
            raise ValueError("must run from a smaller to a larger number")
        if self.log and self.first <= 0:
            raise ValueError("must start above 0 for a log range")
        return self


class _SettingQuestion(Spec):
    setting: dict[str, Any]


class _RunsQuestion(_SettingQuestion):
    steps: int = Field(default=2000, ge=1, le=LIMITS["steps"])
    runs: int = Field(default=4, ge=1, le=LIMITS["runs"])
    seed: int = Field(default=0, ge=0, le=2**53)


class _MapQuestion(_SettingQuestion):
    x: _Axis
    y: _Axis
    criterion: str | None = None

    @model_validator(mode="after")
    def _is_map(self) -> _MapQuestion:
        if self.x.name == self.y.name:
            raise ValueError(f"x and y must be two numbers, got {self.x.name} for both")
        if (cells := self.x.count * self.y.count) > LIMITS["cells"]:
            raise ValueError(f"a map has at most {LIMITS['cells']} cells here, got {cells}")
        return self


class _PageQuestion(_MapQuestion, _RunsQuestion):
    """All that a page shows of one setting."""


class CheckCodeQuestion(Spec):
    """A check whose code is wanted."""

    options: dict[str, str]
    name: Annotated[str, Strict(False)]
    example: bool = False


def read_question(model: type[Any], body: Any) -> Any:
    """Return a question; raise `ArgumentError` for one that is no JSON object of its names.

    Examples
    --------
    >>> read_question(_SettingQuestion, {"setting": {}, "colour": "red"})
    Traceback (most recent call last):
    resonax.ArgumentError: colour is not a known key, use one of setting
    """
    if not isinstance(body, dict):
        names = ", ".join(model.model_fields)
        raise ArgumentError(f"give a JSON object with {names}, got {shorten(body)}")
    return read(model, body)


def parse_setting(body: Any) -> dict[str, Any]:
    """Return the setting of a question that has nothing else."""
    return _setting(read_question(_SettingQuestion, body).setting)


def _setting(given: dict[str, Any]) -> dict[str, Any]:
    """Return a setting by its names, checked; numbers are in one form, so that none compiles.

    Examples
    --------
    >>> _setting({"process": "iid", "lr": 1, "momentum": 0, "batch": 4.0})
    {'process': 'iid', 'lr': 1.0, 'momentum': 0.0, 'batch': 4}
    """
    for name in given:
        if name not in NAMES:
            raise suggest("name", name, sorted(NAMES))
    if given.get("process") == "recorded":
        raise ArgumentError("process must not be recorded here: check a file instead")
    asked = {name: _one_form(name, value) for name, value in given.items()}
    check_setting(asked)
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


def points(axis: Mapping[str, Any]) -> np.ndarray:
    """Return the values of an axis, each once where they are rounded to whole numbers."""
    make = np.geomspace if axis["log"] else np.linspace
    found = make(axis["first"], axis["last"], axis["count"])
    return np.unique(np.round(found)) if is_whole(axis) else found


def parse_map(body: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]:
    """Return the setting of a map, its axes x and y, and the criterion."""
    return _map(read_question(_MapQuestion, body))


def _map(question: _MapQuestion) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], str]:
    x, y = question.x.model_dump(), question.y.model_dump()
    # An axis may stand for a number that is left out.
    setting = question.setting
    for axis in (x, y):
        setting = {**setting, axis["name"]: setting.get(axis["name"], axis["first"])}
    asked = _setting(setting)
    usual = "level" if is_adaptive(asked) else "map"
    criterion = usual if question.criterion is None else question.criterion
    if criterion not in (*CRITERIA, "level"):
        raise suggest("criterion", criterion, (*CRITERIA, "level"))
    if is_adaptive(asked) and criterion != "level":
        raise ArgumentError(f"criterion must be level for this optimizer, got {criterion}")
    for axis in (x, y):  # a cycle of a level has all steps of a period, or of many broken ones
        axis["whole"] = axis["name"] == "batch" or (axis["name"], criterion) == ("period", "level")
    check_setting({**asked, **{axis["name"]: points(axis) for axis in (x, y)}})
    return asked, x, y, criterion


def parse_runs(body: Any) -> tuple[dict[str, Any], int, int, int]:
    """Return the setting of simulated runs, their steps, their number and the seed."""
    return _runs(read_question(_RunsQuestion, body))


def _runs(question: _RunsQuestion) -> tuple[dict[str, Any], int, int, int]:
    return _setting(question.setting), question.steps, question.runs, question.seed


def parse_page(body: Any) -> tuple[Any, ...]:
    """Return what `page_code` takes: all that a page shows of one setting."""
    question = read_question(_PageQuestion, body)
    asked, *numbers = _runs(question)
    _, x, y, criterion = _map(question)
    axes = (y, x)
    values = tuple(points(axis).tolist() for axis in axes)
    return asked, tuple(numbers), axes, values, criterion


def parse_options(fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a form, checked; empty fields are left out.

    Examples
    --------
    >>> parse_options({"lr": "0.01", "momentum": "0.9", "order-by": "date", "target": ""})
    {'lr': 0.01, 'momentum': 0.9, 'order_by': 'date'}
    """
    given = {field.replace("-", "_"): text for field, text in fields.items() if text != ""}
    for name in given:
        if name not in CheckOptions.model_fields or name == "confidence":
            raise suggest("option", name, [*CheckOptions.model_fields])
    asked = read(CheckOptions, given, strict=False).model_dump(exclude_unset=True)
    asked = {name: asked[name] for name in given}
    check_options(asked)
    return asked
