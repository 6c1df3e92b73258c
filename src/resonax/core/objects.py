"""Base class of the results that public functions return.

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

from resonax.core.labels import printable
from resonax.core.markup import render

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Result", "call_by_name", "deferred", "format_short", "is_deferred", "plain_values"]

_WIDTH = 88  # characters of a line of a repr


class _Deferred:
    """Descriptor of a `deferred` field: computes the value when it is first read."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            raise AttributeError(self.name)  # dataclass then sees a field without a default
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
    """Return whether a deferred field was given as a function that has not been called yet."""
    return callable(instance.__dict__[name])


class Result:
    """Base class of results: declare subclasses with ``dataclass(frozen=True, repr=False)``.

    Code that computes may not import code that draws or stores. So a result holds the names of
    such functions, as ``module:function``, and imports their modules when they are called.

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
        """Return the fields that ``repr`` shows, by name: by default all texts and numbers."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # pyrefly: ignore[bad-argument-type]
        return {
            name: value for name, value in values.items() if isinstance(value, str | int | float)
        }

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return growth rates per step with the ends of their intervals, by label, for `plot`."""
        raise NotImplementedError(f"{type(self).__name__} has no growth rates")

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as values that JSON can represent."""
        return plain_values(self)

    def plot(self) -> Figure:
        """Return a matplotlib figure of the result."""
        return call_by_name(self.figure, self)

    def save(self, path: str | Path) -> Path:
        """Write the result atomically to a ``.json`` file, which `resonax.load` reads again."""
        return call_by_name("resonax.store.saved:save_result", self, path)

    def __str__(self) -> str:
        """Return a description in words, whose first line is a summary."""
        return ", ".join(f"{name} {format_short(value)}" for name, value in self.summary().items())

    def __repr__(self) -> str:
        """Return the summary as a call, on several lines if it is long."""
        return _format_call(type(self).__name__, self.summary())

    def _repr_html_(self) -> str:
        """Return the summary as a table, which notebooks show."""
        first_line = str(self).partition("\n")[0]
        values = {name: format_short(value) for name, value in self.summary().items()}
        return render("result.html", kind=type(self).__name__, words=first_line, summary=values)


def _format_call(kind: str, summary: dict[str, Any]) -> str:
    """Return ``kind(name=value, ...)``, on several lines if it is long."""
    arguments = (f"{name}={format_short(value, is_quoted=True)}" for name, value in summary.items())
    text = ", ".join(arguments)
    if len(kind) + len(text) + 2 <= _WIDTH:
        return f"{kind}({text})"
    inner = textwrap.fill(
        text, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )
    return f"{kind}(\n{inner}\n)"


def format_short(value: Any, *, is_quoted: bool = False) -> str:
    """Return a value as a short text, numbers with four significant digits.

    Examples
    --------
    >>> format_short(1 / 3), format_short({"lr": 0.01, "momentum": None}), format_short(12345)
    ('0.3333', '{lr: 0.01, momentum: None}', '12345')
    """
    if isinstance(value, dict):
        items = (f"{name}: {format_short(part)}" for name, part in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, float):
        return f"{value:.4g}"
    text = printable(value)
    return repr(text) if is_quoted and isinstance(value, str) else text


def plain_values(value: Any) -> Any:
    """Return a result, or any part of one, as values that JSON can represent.

    JSON has no infinity and no nan: both become None.
    """
    if hasattr(value, "_asdict"):  # a named tuple
        value = value._asdict()
    elif hasattr(value, "tolist"):  # a NumPy array or scalar
        value = value.tolist()
    elif hasattr(value, "data_vars"):  # an xarray dataset
        value = value.to_dict()
    elif is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, dict):
        return {name: plain_values(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain_values(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def call_by_name(name: str, *arguments: Any) -> Any:
    """Import and call ``module:function``, for modules that may not be imported from here."""
    return resolve_name(name)(*arguments)
