"""Words of the figures of sweeps: names of panels and axes, some of them other people's."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from resonax.figures.style import foreign
from resonax.labels import LABELS, axis_label

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["axis_words", "panel_words", "response_words", "value_words"]

_SYMBOLS = ((r"\bar2\b", "AR(2)"), (r"\blr\b(?: =)?", "η ="))


def axis_words(name: str) -> str:
    """Return what an axis is of, in our words where it is ours."""
    return axis_label(name) if name in LABELS else foreign(name)


def value_words(name: str, number: float) -> str:
    """Return one value of an axis, as a legend names a curve.

    Examples
    --------
    >>> value_words("momentum", 0.95), value_words("amplitude", 0.5)
    ('μ = 0.95', 'v = 0.25')
    """
    if name == "amplitude":
        return f"v = {number**2:.3g}"  # the variance of the mean, as the paper counts
    return f"{LABELS[name][1] if name in LABELS else foreign(name)} = {number:.4g}"


def panel_words(name: str) -> str:
    """Return the name of a panel with the symbols that figures use.

    Examples
    --------
    >>> panel_words("ar2, lr 0.01"), panel_words("allround")
    ('AR(2), η = 0.01', 'allround')
    """
    words = foreign(name)
    for pattern, symbol in _SYMBOLS:
        words = re.sub(pattern, symbol, words)
    return words


def response_words(dataset: xr.Dataset, name: str) -> str:
    """Return what the response of a panel is, from the record of the sweep."""
    sweep = json.loads(dataset.attrs["specification"])
    panel = next(panel for panel in sweep["panels"] if panel["name"] == name)
    kind = {**sweep["model"], **panel["model"]}.get("kind", "linear")
    return "test loss" if "network" in kind else "distance from the solution"
