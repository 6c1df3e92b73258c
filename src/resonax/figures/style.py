"""One look for all figures: sober, colour-blind-safe, the same in PNG and SVG."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from resonax.results import replacing

__all__ = ["DIVERGING", "INK", "STYLE", "new_figure", "save_figure"]

INK = "#22272e"
# Blue to red through white, distinguishable with any common colour blindness: blue converges.
DIVERGING = "RdBu_r"

STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "resonax",
}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure in the house style, independent of any window or global state."""
    with matplotlib.rc_context(STYLE):
        return Figure(figsize=(width, height), layout="constrained")


# Equal figures are equal files: no format carries the time at which it was written.
_DATES: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure, whole or not at all; the ending of the name says the format."""
    kind = Path(path).suffix.lstrip(".").lower() or "png"
    with replacing(path) as temporary, matplotlib.rc_context(STYLE):
        figure.savefig(temporary, dpi=160, format=kind, metadata=_DATES.get(kind))
