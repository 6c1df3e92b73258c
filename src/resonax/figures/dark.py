"""Figures for dark pages: the same marks, in colours that stand out from a dark ground."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import Collection, QuadMesh
from matplotlib.colors import to_rgb, to_rgba, to_rgba_array
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.text import Text

__all__ = ["PAPER", "contrast", "darken"]

PAPER, _LIGHT = "#1d2126", "#e3e5e8"  # the ground of a figure on a dark page, and its ink
_CHROMA = 0.12  # below it a colour is a grey
_CONTRAST = 4.5  # of WCAG 2, for text


def _luminance(color: Any) -> float:
    """Return the relative luminance of WCAG 2."""
    parts = np.array(to_rgb(color))
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: Any, other: Any) -> float:
    """Return the contrast of WCAG 2 between two colours, from 1 to 21.

    Examples
    --------
    >>> f"{contrast('black', 'white'):.0f}"
    '21'
    """
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def dark_color(color: Any) -> tuple[float, float, float, float]:
    """Return the colour that a mark has on a dark ground.

    Greys are turned over, from paper to ink; a colour keeps its hue and is mixed with white until
    it stands out.

    Examples
    --------
    >>> dark_color("white")[:3] == to_rgb(PAPER)
    True
    >>> contrast(dark_color("#2166ac"), PAPER) >= 4.5
    True
    """
    *rgb, alpha = to_rgba(color)
    return *_dark(*rgb), alpha


@functools.cache  # a figure has some hundred marks of a few colours
def _dark(red: float, green: float, blue: float) -> tuple[float, float, float]:
    rgb = np.array([red, green, blue])
    if np.ptp(rgb) < _CHROMA:
        ground, ink = np.array(to_rgb(PAPER)), np.array(to_rgb(_LIGHT))
        found = ground + (ink - ground) * (1 - rgb.mean())
    else:
        mixes = (rgb + white * (1 - rgb) for white in np.linspace(0, 1, 41))
        found = next(mix for mix in mixes if contrast(mix, PAPER) >= _CONTRAST)
    return float(found[0]), float(found[1]), float(found[2])


def darken(figure: Figure) -> None:
    """Give a figure, in place, the colours of a dark page.

    What lies on a coloured map keeps its colours, as the map does; so do marks with an outline of
    their own, which stand out from any ground.
    """
    for part in (figure, *figure.findobj(Axes)):
        part.set_facecolor(PAPER)
    kept: set[Any] = set()
    for axes in figure.findobj(Axes):
        assert isinstance(axes, Axes)
        if any(isinstance(item, QuadMesh) for item in axes.collections):
            for item in (*axes.lines, *axes.collections, *axes.patches, *axes.texts):
                kept.update(item.findobj())
        kept.add(axes.patch)
    kept.add(figure.patch)
    for artist in figure.findobj():
        if artist not in kept and not artist.get_path_effects():
            _repaint(artist)
    for axes in figure.findobj(Axes):  # ticks that are yet to be made, too
        axes.tick_params(which="both", color=_LIGHT, labelcolor=_LIGHT)


def _repaint(artist: Any) -> None:
    if isinstance(artist, Text):
        artist.set_color(dark_color(artist.get_color()))
        if (box := artist.get_bbox_patch()) is not None:
            _repaint(box)
    elif isinstance(artist, Line2D):
        for name in ("color", "markerfacecolor", "markeredgecolor"):
            value = getattr(artist, f"get_{name}")()
            if not isinstance(value, str) or value not in ("none", "auto"):
                getattr(artist, f"set_{name}")(dark_color(value))
    elif isinstance(artist, Patch):
        face, edge = artist.get_facecolor(), artist.get_edgecolor()
        artist.set_facecolor(dark_color(face))
        artist.set_edgecolor(dark_color(edge))
    elif isinstance(artist, Collection) and not isinstance(artist, QuadMesh | ContourSet):
        for get, put in (
            (artist.get_facecolor, artist.set_facecolor),
            (artist.get_edgecolor, artist.set_edgecolor),
        ):
            put([dark_color(color) for color in to_rgba_array(get())])
