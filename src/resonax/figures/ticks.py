"""Ticks of logarithmic axes at round numbers, and the borders of the cells of a map."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import Formatter, Locator, MaxNLocator, NullLocator

__all__ = ["cell_borders", "exponent_axis", "log_axis", "round_exponents"]

# Mantissas to try in turn, each with the smallest number of ticks for which it is taken.
_MANTISSAS = (
    ((1,), 4),
    ((1, 3), 4),
    ((1, 2, 5), 3),
    ((1, 2, 3, 4, 5, 6, 7, 8, 9), 4),
)
_LARGEST_EXPONENT = 300  # numbers beyond may not be floats


def cell_borders(values: np.ndarray) -> np.ndarray:
    """Return the borders of the cells around values, halfway between neighbours.

    Examples
    --------
    >>> cell_borders(np.array([1.0, 2.0, 4.0])).tolist()
    [0.5, 1.5, 3.0, 5.0]
    """
    half = np.diff(values) / 2 if len(values) > 1 else np.array([0.5])
    inner = values[:-1] + half[: len(values) - 1]
    return np.concatenate([[values[0] - half[0]], inner, [values[-1] + half[-1]]])


def round_exponents(low: float, high: float, max_ticks: int = 7) -> np.ndarray:
    """Return the decimal logarithms of round numbers between 10^low and 10^high.

    These numbers are powers of ten if the axis spans enough of them, else their products with the
    mantissas 1 and 3, with 1, 2 and 5, or with 1 to 9. Within a fraction of a decade they are
    evenly spaced.

    Examples
    --------
    >>> round_exponents(-3.1, 45.0).tolist()
    [0.0, 10.0, 20.0, 30.0, 40.0]
    >>> [f"{10**exponent:g}" for exponent in round_exponents(-0.9, 0.8)]
    ['0.2', '0.5', '1', '2', '5']
    >>> [f"{10**exponent:g}" for exponent in round_exponents(0.05, 0.15)]
    ['1.15', '1.2', '1.25', '1.3', '1.35', '1.4']
    """
    low, high = min(low, high), max(low, high)
    first, last = math.floor(low), math.ceil(high)
    if last - first > 3 * max_ticks:
        return _even_ticks(low, high, MaxNLocator(max_ticks, integer=True, steps=[1, 2, 5, 10]))
    exponents = np.array([])
    for mantissas, min_ticks in _MANTISSAS:
        exponents = np.arange(first, last + 1)[:, None] + np.log10(mantissas)
        exponents = exponents[(exponents >= low - 1e-9) & (exponents <= high + 1e-9)]
        if len(exponents) < min_ticks:
            continue
        if mantissas == (1,):
            step = math.ceil(len(exponents) / max_ticks)
            exponents = exponents[np.round(exponents) % step == 0]
        return exponents
    if max(abs(low), abs(high)) > _LARGEST_EXPONENT:
        return exponents
    numbers = _even_ticks(10**low, 10**high, MaxNLocator(max_ticks, steps=[1, 2, 5, 10]))
    numbers = numbers[numbers > 0]
    return np.log10(numbers) if len(numbers) > len(exponents) else exponents


def _even_ticks(low: float, high: float, locator: MaxNLocator) -> np.ndarray:
    """Return the ticks of a linear axis that lie inside it."""
    ticks = np.asarray(locator.tick_values(low, high))
    return ticks[(ticks >= low) & (ticks <= high)]


class _RoundLocator(Locator):
    """Ticks of `round_exponents`, on an axis of numbers or of their decimal logarithms."""

    def __init__(self, is_exponent: bool) -> None:
        self.is_exponent = is_exponent

    def __call__(self) -> np.ndarray:
        return self.tick_values(*self.axis.get_view_interval())  # pyrefly: ignore[missing-attribute]

    def tick_values(self, vmin: float, vmax: float) -> np.ndarray:  # pyrefly: ignore[bad-override]
        if self.is_exponent:
            return round_exponents(vmin, vmax)
        if min(vmin, vmax) <= 0:  # matplotlib asks before the scale is set to logarithmic
            return np.array([])
        return 10 ** round_exponents(math.log10(vmin), math.log10(vmax))


class _RoundFormatter(Formatter):
    """Labels of round numbers: plain if all are short, like 0.05, else all as powers of ten."""

    def __init__(self, is_exponent: bool) -> None:
        self.is_exponent = is_exponent

    def __call__(self, x: float, pos: int | None = None) -> str:
        return self.format_ticks([x])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        if not self.is_exponent:
            values = [math.log10(value) if value > 0 else math.nan for value in values]
        is_plain = all(-4 <= value < 5 for value in values if math.isfinite(value))
        format_label = _plain_label if is_plain else _power_label
        return [format_label(value) if math.isfinite(value) else "" for value in values]


def _plain_label(exponent: float) -> str:
    return f"{10**exponent:.6g}"


def _power_label(exponent: float) -> str:
    power = math.floor(exponent + 1e-9)
    mantissa = f"{10 ** (exponent - power):.6g}"
    return f"$10^{{{power}}}$" if mantissa == "1" else f"${mantissa}·10^{{{power}}}$"


def log_axis(axis: Axis) -> None:
    """Set round ticks on an axis with a logarithmic scale."""
    axis.set_major_locator(_RoundLocator(is_exponent=False))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(_RoundFormatter(is_exponent=False))


def exponent_axis(axis: Axis) -> None:
    """Set round ticks on an axis of decimal logarithms, labelled by the numbers themselves.

    Logarithms are drawn where the numbers may be too large for floats.
    """
    axis.set_major_locator(_RoundLocator(is_exponent=True))
    axis.set_major_formatter(_RoundFormatter(is_exponent=True))
