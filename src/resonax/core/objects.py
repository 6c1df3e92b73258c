"""Result objects: what every answer of resonax can do, in one place.

A result is a frozen dataclass that extends `Result`. It has a short ``repr``, a table for
notebooks, ``to_dict``, ``save`` (`resonax.load` reads it again) and ``plot``.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, ClassVar

from resonax.core.labels import plain
from resonax.core.markup import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Result", "call", "deferred", "is_deferred", "plain_values", "short"]

_WIDTH = 88


class _Deferred:
    """What stands behind a `deferred` field."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            raise AttributeError(self.name)  # so that the field has no default
        value = instance.__dict__[self.name]
        if callable(value):
            value = instance.__dict__[self.name] = value()
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value


def deferred() -> Any:
    """Declare a field that may be given as a function, which is called when it is first read.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Answer:
    ...     picture: str = deferred()
    >>> answer = Answer(lambda: "drawn")
    >>> is_deferred(answer, "picture"), answer.picture, is_deferred(answer, "picture")
    (True, 'drawn', False)
    """
    return _Deferred()


def is_deferred(instance: Any, name: str) -> bool:
    """Whether a field was given as a function and has not been read yet."""
    return callable(instance.__dict__[name])


class Result:
    """The base of results: declare subclasses with ``dataclass(frozen=True, repr=False)``.

    Whoever draws, stores or loads lives above whoever computes. A result names them as
    ``module:function``, and they are loaded when they are called for.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, repr=False)
    ... class Answer(Result):
    ...     verdict: str
    ...     rate: float
    >>> answer = Answer("converges", -1 / 3)
    >>> answer
    Answer(verdict='converges', rate=-0.3333)
    >>> answer.to_dict()
    {'verdict': 'converges', 'rate': -0.3333333333333333}
    """

    figure: ClassVar[str] = "resonax.figures.rates:plot_rates"

    def summary(self) -> dict[str, Any]:
        """Return what is worth a glance, by name: by default all fields that are plain."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # pyrefly: ignore[bad-argument-type]
        return {
            name: value for name, value in values.items() if isinstance(value, str | int | float)
        }

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return growth rates per step, each with the ends of its interval, by their labels."""
        raise NotImplementedError(f"{type(self).__name__} names no growth rates")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return plain_values(self)

    def plot(self) -> Figure:
        """Return a picture of it, a matplotlib figure."""
        return call(self.figure, self)

    def save(self, path: str | Path) -> Path:
        """Write it to a ``.json`` file, whole or not at all; `resonax.load` reads it again."""
        return call("resonax.store.saved:save_result", self, path)

    def __str__(self) -> str:
        """Return it in words; the first line can stand alone."""
        return ", ".join(f"{name} {short(value)}" for name, value in self.summary().items())

    def __repr__(self) -> str:
        """Return the summary in one line or a few."""
        return _show(type(self).__name__, self.summary())

    def _repr_html_(self) -> str:
        """Return the summary as a table, which notebooks show."""
        words = str(self).partition("\n")[0]
        values = {name: short(value) for name, value in self.summary().items()}
        return render("result.html", kind=type(self).__name__, words=words, summary=values)


def _show(kind: str, summary: dict[str, Any]) -> str:
    """Return a summary as a call of its kind would be written, on several lines if it is long."""
    text = ", ".join(f"{name}={short(value, quoted=True)}" for name, value in summary.items())
    if len(kind) + len(text) + 2 <= _WIDTH:
        return f"{kind}({text})"
    inner = textwrap.fill(
        text, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    return f"{kind}(\n{inner}\n)"


def short(value: Any, *, quoted: bool = False) -> str:
    """Return a value in a few characters, numbers to four digits.

    Examples
    --------
    >>> short(1 / 3), short({"lr": 0.01, "momentum": None}), short(12345)
    ('0.3333', '{lr: 0.01, momentum: None}', '12345')
    """
    if isinstance(value, dict):
        return f"{{{', '.join(f'{name}: {short(part)}' for name, part in value.items())}}}"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = plain(value)
    return repr(text) if quoted and isinstance(value, str) else text


def plain_values(value: Any) -> Any:
    """Return a result, or any part of one, as values that JSON has.

    JSON has no word for what is infinite or no number: it becomes None.
    """
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    elif hasattr(value, "tolist"):  # of numpy
        value = value.tolist()
    elif hasattr(value, "data_vars"):  # of xarray
        value = value.to_dict()
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {name: plain_values(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def call(name: str, *given: Any) -> Any:
    """Call what a low room knows by name alone, as ``module:function``."""
    return resolve_name(name)(*given)
