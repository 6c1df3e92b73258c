"""The style of all figures: safe for the colour-blind, the same in PNG and SVG."""

from __future__ import annotations

import io
import warnings
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from resonax.core.labels import printable
from resonax.store import Location, replacing

__all__ = [
    "BLUE",
    "DIVERGING",
    "GREY",
    "INK",
    "PALE",
    "RED",
    "STYLE",
    "escape_text",
    "new_figure",
    "png_of",
    "save_figure",
]

INK = "#22272e"
BLUE, RED, GREY = "#2166ac", "#b2182b", "#7a828c"  # converges, diverges, neither
PALE = "#e4e6e9"
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


# What a format would record of the moment or the machine: the same numbers give the same bytes.
_NO_METADATA = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {"Software": None}}
_DPI = 160


class Picture(Figure):
    """A figure that a notebook shows when it is the value of a cell, with no backend chosen."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """Return the picture and the size at which it is sharp on fine screens too."""
        width, height = self.get_size_inches()
        scale = 0.75 * _DPI
        return png_of(self), {"width": round(scale * width), "height": round(scale * height)}


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure in the house style, independent of any window or global state."""
    with matplotlib.rc_context(STYLE):
        return Picture(figsize=(width, height), layout="constrained")


def escape_text(text: object) -> str:
    r"""Return text that others wrote as words of a figure: no mark-up, no mathematics.

    Examples
    --------
    >>> print(escape_text("price in $, then in $"))
    price in \$, then in \$
    """
    return printable(text, limit=100).replace("$", r"\$")


def png_of(figure: Figure) -> bytes:
    """Return a figure as the bytes of a PNG."""
    stream = io.BytesIO()
    _write(figure, stream, "png")
    return stream.getvalue()


def save_figure(figure: Figure, path: str | Location) -> None:
    """Write a figure, whole or not at all; the ending of the name says the format."""
    with replacing(path) as temporary:
        _write(figure, temporary, Path(str(path)).suffix.lstrip(".").lower() or "png")


def _write(figure: Figure, target: Path | io.BytesIO, kind: str) -> None:
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # A name in letters that the font does not have is shown as boxes, and that says it.
        warnings.filterwarnings("ignore", "Glyph .* missing from", UserWarning)
        if kind == "png":
            _print_png(figure, target)
        else:
            figure.savefig(target, dpi=_DPI, format=kind, metadata=_NO_METADATA.get(kind))


def _print_png(figure: Figure, target: Path | io.BytesIO) -> None:
    """Write a PNG as `savefig` does, which draws everything twice: once more to lay it out."""
    canvas, dpi = figure.canvas, figure.dpi
    figure.dpi = _DPI
    try:
        FigureCanvasAgg(figure).print_png(target, metadata=_NO_METADATA["png"])
    finally:
        figure.dpi = dpi
        figure.set_canvas(canvas)
