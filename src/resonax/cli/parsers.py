"""From the text of an option to numbers or a location; an error is one sentence."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from resonax.core.errors import ArgumentError, ResonaxError, shorten
from resonax.spec.settings import parse_numbers

if TYPE_CHECKING:
    import numpy as np

    from resonax.store import Location

__all__ = [
    "OptionError",
    "axis",
    "location",
    "number",
    "option_name",
    "parser",
    "variances",
    "whole",
    "whole_axis",
]

_MAX_DIGITS, _MAX_POINTS = 40, 100_000
T = TypeVar("T")


class OptionError(ResonaxError):
    """An option that cannot be read. It is no ValueError: typer would put its own words to it."""


def option_name(name: str) -> str:
    """Return an option as it is typed.

    Examples
    --------
    >>> option_name("weight_decay")
    '--weight-decay'
    """
    return f"--{name.replace('_', '-')}"


def parser(kind: Callable[[str, str], T], name: str) -> Callable[[Any], T]:
    """Return the parser of one option, for typer; a default is what it is."""

    def parse(text: Any) -> T:
        try:
            return kind(name, text) if isinstance(text, str) else text
        except ArgumentError as error:
            raise OptionError(str(error)) from None

    return parse


def location(name: str, text: str) -> Location:
    """Return the folder or the URL that is to be written to."""
    from resonax.store import as_location

    if not text:
        raise OptionError(f"{name} must name a folder or a URL")
    return as_location(text)


def number(name: str, text: str) -> float:
    """Return one number."""
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"{name} must be a number, got {shorten(text)}") from None


def whole(name: str, text: str) -> int:
    """Return one whole number, exact whatever its size.

    Examples
    --------
    >>> whole("--seed", "9007199254740993"), whole("--steps", "1e4")
    (9007199254740993, 10000)
    """
    try:
        value = Decimal(text)
        if not value.is_finite() or value != value.to_integral_value():
            raise ArithmeticError
    except ArithmeticError:
        raise OptionError(f"{name} must be a whole number, got {shorten(text)}") from None
    if value.adjusted() >= _MAX_DIGITS:
        raise OptionError(
            f"{name} must be a whole number of at most {_MAX_DIGITS} digits, got {shorten(text)}"
        )
    return int(value)


def variances(name: str, text: str) -> list[float] | np.ndarray:
    """Return numbers separated by commas, or the points of a range."""
    return _points(name, text) if ":" in text else parse_numbers(name, text)


def axis(name: str, text: str) -> float | np.ndarray:
    """Return one number, or the points of a range ``first:last:count[:log]``.

    Examples
    --------
    >>> axis("--period", "22"), axis("--period", "15:60:4").tolist()
    (22.0, [15.0, 30.0, 45.0, 60.0])
    """
    return _points(name, text) if ":" in text else number(name, text)


def whole_axis(name: str, text: str) -> int | np.ndarray:
    """Return one whole number, or the points of a range."""
    return _points(name, text).round(9) if ":" in text else whole(name, text)


def _points(name: str, text: str) -> np.ndarray:
    import numpy as np

    parts = text.split(":")
    try:
        first, last, count = float(parts[0]), float(parts[1]), int(parts[2])
        if parts[3:] not in ([], ["log"]):
            raise ValueError
    except (ValueError, IndexError):
        raise OptionError(
            f"{name} must be a number or a range first:last:count[:log], got {shorten(text)}"
        ) from None
    if not 1 <= count <= _MAX_POINTS:
        raise OptionError(f"{name} must have 1 to {_MAX_POINTS} points, got {shorten(count)}")
    if not (np.isfinite(first) and np.isfinite(last) and (first < last or count == 1)):
        raise OptionError(f"{name} must run from a smaller to a larger number, got {shorten(text)}")
    if len(parts) == 3:
        return np.linspace(first, last, count)
    if first <= 0:
        raise OptionError(f"{name} must start above 0 for a log range, got {first:g}")
    return np.geomspace(first, last, count)
