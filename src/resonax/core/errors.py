"""Checks of what a person gives us: one sentence that names the argument and what is allowed.

jax arrays pass unchecked: inside compiled code they are traced, and were checked on their way in.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable
from numbers import Integral, Real
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "RANGES",
    "ArgumentError",
    "DataError",
    "Interrupted",
    "ResonaxError",
    "StoreError",
    "as_array",
    "check_covariance",
    "check_direction",
    "check_number",
    "check_numbers",
    "check_range",
    "check_whole",
    "is_number",
    "shorten",
    "suggest",
]


class ResonaxError(Exception):
    """The base of all errors that resonax raises by itself: one sentence that says what to do."""


class ArgumentError(ResonaxError, ValueError):
    """An argument that cannot be used."""


class DataError(ResonaxError, ValueError):
    """Data that cannot be used: a file, a column or a row of a recording."""


class StoreError(ResonaxError):
    """Stored results that are damaged, locked, of another specification, or cannot be written."""


class Interrupted(ResonaxError):  # noqa: N818
    """Work that was ended from outside before it was finished; what was finished is kept."""


for _error in (ResonaxError, ArgumentError):
    _error.__module__ = "resonax"  # the public name, which a traceback shows


class Range(NamedTuple):
    """The numbers that are allowed, from ``low`` to ``high``; an open end is not one of them."""

    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False

    def __str__(self) -> str:
        return _bounds(*self)


_SHARE = Range(0, 1, open_high=True)
_STEP = Range(0, 1e6, open_low=True)
_SMALL = Range(0, 1, open_low=True)

# Of the numbers that describe what is trained, the same wherever a person gives them.
RANGES: dict[str, Range] = {
    # The learner.
    "lr": _STEP,
    "momentum": _SHARE,
    "excitation": Range(0, 100, open_low=True),
    "dampening": _SHARE,
    "weight_decay": Range(0, 1e6),
    "beta1": _SHARE,
    "beta2": _SHARE,
    "width": Range(1e-6, 1e6),
    "degree": Range(1, 8),
    # Of optax, by its names.
    "decay": _SHARE,
    "rho": _SHARE,
    "eps": _SMALL,
    "eps_root": Range(0, 1),
    "initial_scale": Range(0, 1e6),
    "initial_accumulator_value": Range(0, 1e6),
    "alpha": Range(0, 1e6),
    "beta": Range(0, 1e6),
    "threshold": Range(0, 1e6),
    "eta_minus": Range(0, 1, open_low=True, open_high=True),
    "eta_plus": Range(1, 1e3, open_low=True),
    "min_step_size": _STEP,
    "max_step_size": _STEP,
    # The stream.
    "period": Range(1, 1e5),
    "amplitude": Range(0, 1e6),
    "variance": Range(0, 1e12),
    "swing": Range(0, 20),
    "phase": Range(-1e6, 1e6),
    "innovation": Range(1e-12, 0.5),
    "dim": Range(1, 1000),
    # The training.
    "batch": Range(1, 1e9),
    "noise": Range(0, 1e12),
    "drift": Range(0, 1e6),
    "start": _STEP,
}


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
    resonax.ArgumentError: momentum must be at least 0 and below 1, got 1.2
    """
    import numpy as np  # here, as the command line must start before numpy is loaded

    if hasattr(value, "aval"):  # a jax array
        return
    if isinstance(value, bool) or not isinstance(value, Real | np.ndarray):
        raise ArgumentError(f"{name} must be a number, got {shorten(value)}")
    try:
        array = np.asarray(value, dtype=float)
    except OverflowError:  # a whole number of hundreds of digits
        array = np.asarray(math.inf)
    if not np.isfinite(array).all():
        rule = ", ".join(filter(None, ["finite", _bounds(low, high, open_low, open_high)]))
        raise ArgumentError(f"{name} must be {rule}, got {shorten(value)}")
    inside = np.ones(array.shape, bool)
    inside &= (array > low) if open_low else (array >= low)
    inside &= (array < high) if open_high else (array <= high)
    if not inside.all():
        bad = array[~inside].flat[0] if array.ndim else array
        raise ArgumentError(
            f"{name} must be {_bounds(low, high, open_low, open_high)}, got {float(bad):g}"
        )


def check_range(name: str, value: object) -> None:
    """Raise `ArgumentError` unless a number lies in the range of its name.

    Examples
    --------
    >>> check_range("beta1", 1.0)
    Traceback (most recent call last):
    resonax.ArgumentError: beta1 must be at least 0 and below 1, got 1
    """
    check_number(name, value, **RANGES[name]._asdict())


def check_whole(name: str, value: object, *, low: int, high: float = math.inf) -> None:
    """Raise `ArgumentError` unless a whole number lies within the bounds."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ArgumentError(
            f"{name} must be a whole number of at least {low}, got {shorten(value)}"
        )
    if not low <= int(value) <= high:  # exact, where floats near 2^63 are equal
        bounds = _bounds(low, high, False, False)
        raise ArgumentError(f"{name} must be {bounds}, got {shorten(int(value))}")


def shorten(value: object, most: int = 60) -> str:
    """Return a value as it is written in a program, on one line and cut after some characters.

    Examples
    --------
    >>> shorten(10**70, 20)
    '10000000000000000...'
    """
    try:
        text = " ".join(repr(value).split())
    except ValueError:  # Python writes no whole number of more than 4300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= most else f"{text[: most - 3]}..."


def as_array(name: str, value: object) -> np.ndarray:
    """Return lists and tuples as an array of numbers; raise `ArgumentError` for anything else."""
    import numpy as np

    try:
        array = np.asarray(value)
        if isinstance(value, str) or array.dtype.kind in "mM":
            raise TypeError
        numbers = array if np.iscomplexobj(array) else array.astype(float)
    except (OverflowError, TypeError, ValueError):
        raise ArgumentError(f"{name} must be real numbers, got {shorten(value)}") from None
    if np.iscomplexobj(numbers):
        raise ArgumentError(f"{name} must be real numbers, got complex ones")
    return numbers


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
        raise ArgumentError(f"{name} must have {wanted} numbers for dim {shape[0]}, got {found}")
    if array.size == 0:
        raise ArgumentError(f"{name} must not be empty")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0]
        place = ", ".join(str(int(i)) for i in where)
        raise ArgumentError(
            f"{name} must be finite, got {array[tuple(where)]:g} at index ({place})"
        )


def check_covariance(variance: object, dim: int) -> float | np.ndarray:
    """Return a number, one for each input or a matrix; raise `ArgumentError` for anything else."""
    import numpy as np

    array = as_array("variance", variance)
    if array.ndim == 0:
        check_range("variance", float(array))
        return float(array)
    check_numbers("variance", array, (dim,) if array.ndim == 1 else (dim, dim))
    if array.ndim == 1:
        check_range("variance", array)
        return array
    check_number("variance", np.abs(array), high=RANGES["variance"].high)
    if not np.allclose(array, array.T):
        raise ArgumentError("variance must be symmetric where it is a matrix")
    least = float(np.linalg.eigvalsh(array)[0])
    if least < -1e-12 * np.abs(array).max():
        raise ArgumentError(
            f"variance must have eigenvalues of at least 0 where it is a matrix, got {least:g}"
        )
    return array


def check_direction(direction: object, dim: int) -> np.ndarray:
    """Return a direction as an array; raise `ArgumentError` unless it has a length above 0."""
    array = as_array("direction", direction)
    check_numbers("direction", array, (dim,))
    if not array.any():
        raise ArgumentError("direction must not be the zero vector")
    return array


def suggest(kind: str, given: str, allowed: Iterable[str]) -> ArgumentError:
    """Return the error for an unknown word, with the word that was probably meant.

    Examples
    --------
    >>> print(suggest("process", "sinusoidd", ["iid", "sinusoid"]))
    unknown process 'sinusoidd', did you mean 'sinusoid'? (one of: iid, sinusoid)
    """
    allowed = list(allowed)
    word = given[:60].lower()  # longer than any word that is meant: comparing takes the square
    close = [name for name in allowed if name == word or name.startswith(word[:3])]
    close = difflib.get_close_matches(word, allowed, n=1) or (close if word else [])
    hint = f", did you mean {close[0]!r}?" if close else ""
    return ArgumentError(f"unknown {kind} {shorten(given)}{hint} (one of: {', '.join(allowed)})")


_UNUSUAL = r"_|[^\x00-\x7f]"  # what Python takes in a number, and no file means


def is_number(text: str) -> bool:
    """Return whether a text reads as a number.

    Examples
    --------
    >>> is_number("1e-3"), is_number("nan"), is_number("0,5"), is_number("1_000")
    (True, True, False, False)
    """
    if re.search(_UNUSUAL, text):
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True
