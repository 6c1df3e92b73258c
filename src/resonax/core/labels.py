"""Labels of numbers and criteria, for figures and messages; and foreign text made printable."""

from __future__ import annotations

import functools
from importlib.metadata import PackageNotFoundError, version

__all__ = ["CRITERIA", "LABELS", "axis_label", "printable", "versions"]

# name: (meaning, symbol, unit)
LABELS: dict[str, tuple[str, str, str]] = {
    "momentum": ("momentum", "μ", "1"),
    "period": ("period", "T", "steps"),
    "lr": ("step size", "η", "1"),
    "amplitude": ("amplitude of the mean", "a", "1"),
    "batch": ("batch", "n", "samples"),
    "dim": ("inputs", "d", "1"),
    "dampening": ("dampening", "τ", "1"),
    "weight_decay": ("weight decay", "λ", "1"),
    "beta1": ("momentum of Adam", "β₁", "1"),
    "variance": ("variance of the inputs", "c", "1"),
    "swing": ("swing of the log variance", "s", "1"),
    "phase": ("phase", "φ", "rad"),
    "innovation": ("variance of the innovations", "σ²", "1"),
    "noise": ("variance of the noise", "σ²", "1"),
    "drift": ("drift of the target", "δ", "1"),
    "distance": ("distance from the best weights", "", "1"),
    "rate": ("growth rate", "log ρ / T", "1/step"),
    "radius": ("spectral radius per period", "ρ", "1"),
    "low": ("lower end of the interval of the rate", "", "1/step"),
    "high": ("upper end of the interval of the rate", "", "1/step"),
}

CRITERIA: dict[str, str] = {
    "flow": "differential equation of the expected gradient (the paper's)",
    "map": "exact update of the expected weights",
    "mean_square": "exact mean square error, with the sampling noise of the batch",
    "lyapunov": "almost every single run",
}


def axis_label(name: str) -> str:
    """Return the words at an axis of a figure.

    Examples
    --------
    >>> axis_label("period"), axis_label("momentum")
    ('period T (steps)', 'momentum μ')
    """
    meaning, symbol, unit = LABELS[name]
    words = f"{meaning} {symbol}".strip()
    return words if unit == "1" else f"{words} ({unit})"


def printable(text: object, limit: int = 200) -> str:
    r"""Return foreign text, such as the name of a file or a column, in printable characters.

    Others (controls, marks that turn the direction of writing, line breaks, halves of surrogate
    pairs) become the escapes that Python's `repr` writes, and of a long text the middle is left
    out. The mark-up of HTML, rich or matplotlib is escaped where these are written.

    Examples
    --------
    >>> print(printable("speed\x1b[31m"), printable("a\u202eb"), printable("größe"))
    speed\x1b[31m a\u202eb größe
    >>> printable("x" * 1000, limit=9)
    'xxxx…xxxx'
    """
    raw = str(text)
    if len(raw) > limit:
        half = (limit - 1) // 2
        raw = f"{raw[: limit - 1 - half]}…{raw[len(raw) - half :]}"
    if raw.isprintable():
        return raw
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in raw
    )


def versions() -> dict[str, str]:
    """Return the versions that a result depends on."""
    return {package: _version(package) for package in ("resonax", "jax", "numpy")}


@functools.cache
def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:  # run from a source tree that was not installed
        return "unknown"
