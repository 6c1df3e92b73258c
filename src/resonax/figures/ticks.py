"""Ticks of logarithmic axes: round numbers, however many powers of ten an axis spans."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axis import Axis
from matplotlib.ticker import Formatter, Locator, MaxNLocator, NullLocator

__all__ = ["exponent_axis", "log_axis", "round_exponents"]

# Digits before a power of ten, and how many ticks they have to give.
_MANTISSAS = (((1,), 4), ((1, 3), 4), ((1, 2, 5), 3), (tuple(range(1, 10)), 4))


def round_exponents(low: float, high: float, most: int = 7) -> np.ndarray:
    """Return the logarithms, base 10, of round numbers from 10^low to 10^high.

    They are powers of ten where the axis spans enough of them, else multiples of such by 1 and 3,
    by 1, 2 and 5, or by all digits; and within a fraction of a decade evenly spaced numbers.

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
    if last - first > 3 * most:
        locator = MaxNLocator(most, integer=True, steps=[1, 2, 5, 10])
        found = np.asarray(locator.tick_values(low, high))
        return found[(found >= low) & (found <= high)]
    inside = np.array([])
    for mantissas, enough in _MANTISSAS:
        powers = np.arange(first, last + 1)[:, None] + np.log10(mantissas)
        inside = powers[(powers >= low - 1e-9) & (powers <= high + 1e-9)]
        if len(inside) >= enough:
            step = -(-len(inside) // most) if mantissas == (1,) else 1
            return inside[(np.round(inside) % step == 0)] if step > 1 else inside
    if abs(low) > 300 or abs(high) > 300:  # numbers that no float holds
        return inside
    locator = MaxNLocator(most, steps=[1, 2, 5, 10])
    numbers = np.asarray(locator.tick_values(10**low, 10**high))
    numbers = numbers[(numbers >= 10**low) & (numbers <= 10**high) & (numbers > 0)]
    return np.log10(numbers) if len(numbers) > len(inside) else inside


class _Round(Locator):
    """Places the ticks of `round_exponents`, on an axis of numbers or of their logarithms."""

    def __init__(self, numbers: bool) -> None:
        self.numbers = numbers

    def __call__(self) -> np.ndarray:
        return self.tick_values(*self.axis.get_view_interval())  # pyrefly: ignore[missing-attribute]

    def tick_values(self, vmin: float, vmax: float) -> np.ndarray:  # pyrefly: ignore[bad-override]
        if not self.numbers:
            return round_exponents(vmin, vmax)
        if min(vmin, vmax) <= 0:  # before the scale has been set
            return np.array([])
        return 10 ** round_exponents(math.log10(vmin), math.log10(vmax))


class _Words(Formatter):
    """Writes round numbers: all written out where all are short, else all as powers of ten."""

    def __init__(self, numbers: bool) -> None:
        self.numbers = numbers

    def __call__(self, x: float, pos: int | None = None) -> str:
        return self.format_ticks([x])[0]

    def format_ticks(self, values: Sequence[float]) -> list[str]:
        if self.numbers:
            values = [math.log10(value) if value > 0 else math.nan for value in values]
        known = [value for value in values if math.isfinite(value)]
        short = all(-4 <= value < 5 for value in known)
        return [_word(value, short) if math.isfinite(value) else "" for value in values]


def _word(exponent: float, short: bool) -> str:
    if short:
        return f"{10**exponent:.6g}"
    power = math.floor(exponent + 1e-9)
    mantissa = f"{10 ** (exponent - power):.6g}"
    return f"$10^{{{power}}}$" if mantissa == "1" else f"${mantissa}·10^{{{power}}}$"


def log_axis(axis: Axis) -> None:
    """Give an axis with a logarithmic scale round ticks."""
    axis.set_major_locator(_Round(numbers=True))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(_Words(numbers=True))


def exponent_axis(axis: Axis) -> None:
    """Give an axis of logarithms, base 10, the numbers that they are of: they can be too large."""
    axis.set_major_locator(_Round(numbers=False))
    axis.set_major_formatter(_Words(numbers=False))
