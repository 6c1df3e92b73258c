"""Checks of what a person gives us: one sentence that names the argument and what is allowed.

jax arrays pass unchecked: inside compiled code they are traced, and were checked on their way in.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "ArgumentError",
    "as_array",
    "check_number",
    "check_numbers",
    "check_whole",
    "is_number",
    "suggest",
]


class ArgumentError(ValueError):
    """An argument that cannot be used; its text is one sentence that says what to do."""


def _bounds(low: float, high: float, open_low: bool, open_high: bool) -> str:
    parts = []
    if math.isfinite(low):
        parts.append(f"above {low:g}" if open_low else f"at least {low:g}")
    if math.isfinite(high):
        parts.append(f"below {high:g}" if open_high else f"at most {high:g}")
    return " and ".join(parts)


def check_number(
    name: str,
    value: object,
    *,
    low: float = -math.inf,
    high: float = math.inf,
    open_low: bool = False,
    open_high: bool = False,
) -> None:
    """Raise `ArgumentError` unless a plain number lies within the bounds.

    Examples
    --------
    >>> check_number("momentum", 1.2, low=0, high=1, open_high=True)
    Traceback (most recent call last):
    resonax.checks.ArgumentError: momentum must be at least 0 and below 1, got 1.2
    """
    import numpy as np  # here, as the command line must start before numpy is loaded

    if hasattr(value, "aval"):  # a jax array
        return
    if isinstance(value, bool) or not isinstance(value, Real | np.ndarray):
        raise ArgumentError(f"{name} must be a number, got {value!r}")
    array = np.asarray(value, dtype=float)
    if not np.isfinite(array).all():
        rule = ", ".join(filter(None, ["finite", _bounds(low, high, open_low, open_high)]))
        raise ArgumentError(f"{name} must be {rule}, got {_short(value)}")
    inside = np.ones(array.shape, bool)
    inside &= (array > low) if open_low else (array >= low)
    inside &= (array < high) if open_high else (array <= high)
    if not inside.all():
        bad = array[~inside].flat[0] if array.ndim else array
        raise ArgumentError(
            f"{name} must be {_bounds(low, high, open_low, open_high)}, got {float(bad):g}"
        )


def check_whole(name: str, value: object, *, low: int, high: float = math.inf) -> None:
    """Raise `ArgumentError` unless a whole number lies within the bounds."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentError(f"{name} must be a whole number of at least {low}, got {value!r}")
    check_number(name, value, low=low, high=high)


def _short(value: object) -> str:
    text = repr(value).replace("\n", " ")
    return text if len(text) <= 60 else f"{text[:57]}..."


def as_array(name: str, value: object) -> np.ndarray:
    """Return lists and tuples as an array of numbers; raise `ArgumentError` for anything else."""
    import numpy as np

    try:
        if isinstance(value, str):
            raise TypeError
        array = np.asarray(value)
        if np.iscomplexobj(array):
            raise ArgumentError(f"{name} must be real numbers, got complex ones")
        if array.dtype.kind in "mM":
            raise TypeError
        return array.astype(float)
    except ArgumentError:
        raise
    except (TypeError, ValueError):
        raise ArgumentError(f"{name} must be real numbers, got {_short(value)}") from None


def check_numbers(name: str, array: np.ndarray, shape: tuple[int | None, ...]) -> None:
    """Raise `ArgumentError` unless an array is finite and of this shape (None: any length)."""
    import numpy as np

    fits = array.ndim == len(shape) and all(
        want in (None, have) for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        if None in shape:
            raise ArgumentError(f"{name} must be a table, rows by columns, got {array.ndim} axes")
        wanted = " x ".join(str(want) for want in shape)
        found = " x ".join(str(have) for have in array.shape)
        raise ArgumentError(f"{name} must have {wanted} numbers for {shape[0]} inputs, got {found}")
    if array.size == 0:
        raise ArgumentError(f"{name} must not be empty")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0]
        place = ", ".join(str(int(i)) for i in where)
        raise ArgumentError(
            f"{name} must be finite, got {array[tuple(where)]:g} at index ({place})"
        )


def suggest(kind: str, given: str, allowed: Iterable[str]) -> ArgumentError:
    """Return the error for an unknown word, with the word that was probably meant.

    Examples
    --------
    >>> print(suggest("process", "sinusoidd", ["iid", "sinusoid"]))
    unknown process 'sinusoidd', did you mean 'sinusoid'? (one of: iid, sinusoid)
    """
    allowed = list(allowed)
    word = given.lower()
    close = [name for name in allowed if name == word or name.startswith(word[:3])]
    close = difflib.get_close_matches(word, allowed, n=1) or (close if word else [])
    hint = f", did you mean {close[0]!r}?" if close else ""
    return ArgumentError(f"unknown {kind} {given!r}{hint} (one of: {', '.join(allowed)})")


def is_number(text: str) -> bool:
    """Return whether a text reads as a number.

    Examples
    --------
    >>> is_number("1e-3"), is_number("nan"), is_number("0,5")
    (True, True, False)
    """
    try:
        float(text)
    except ValueError:
        return False
    return True
