"""The map of a check: growth over step size and momentum, with the user's point in it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import BoundaryNorm, Colormap, ListedColormap
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FixedLocator, NullLocator

from resonax.figures.style import DIVERGING, INK
from resonax.figures.ticks import log_axis

if TYPE_CHECKING:
    from resonax.figures.check import CheckLike

__all__ = ["draw_map"]

_MOMENTA = (0, 0.5, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
_STEPS = (1000, 300, 100, 30, 10, 3)  # of doubling or halving, at which the colour changes


def draw_map(figure: Figure | SubFigure, check: CheckLike) -> None:
    """Paint the rate over step size and momentum, and where the user and the safe values are."""
    dataset = check.dataset
    lrs, momenta, rate = dataset.lr.values, _depth(dataset.momentum.values), dataset.rate.values
    axes = figure.add_subplot()
    axes.set_xscale("log")
    colors, norm = _colors(float(np.nanquantile(np.abs(rate), 0.99)))
    image = axes.pcolormesh(
        lrs, momenta, rate, cmap=colors, norm=norm, shading="nearest", rasterized=True
    )
    if np.nanmin(rate) < 0 < np.nanmax(rate):
        axes.contour(lrs, momenta, rate, levels=[0.0], colors="black", linewidths=1.4)
    if "order_proof" in dataset:
        _draw_order_proof(axes, lrs, _depth(dataset.order_proof.values))
    _mark(axes, check.settings, check.safe)
    axes.yaxis.set_major_locator(FixedLocator([_depth(value) for value in _MOMENTA]))
    axes.yaxis.set_major_formatter(lambda y, _: f"{1 - 10**-y:.3g}")
    log_axis(axes.xaxis)
    axes.set(xlabel="step size (lr)", ylabel="momentum")
    axes.set_title("Growth of the distance from the best weights")

    bar = figure.colorbar(image, ax=axes, extend="both", pad=0.02, aspect=26, spacing="uniform")
    bar.set_ticks([edge for edge in norm.boundaries if edge])
    bar.ax.yaxis.set_major_formatter(lambda y, _: f"{math.log(2) / abs(y):.0f}")
    bar.ax.yaxis.set_minor_locator(NullLocator())
    bar.ax.axhline(0, color="black", linewidth=1.4)
    bar.set_label("← halves in … steps      doubles in … steps →")
    bar.outline.set_linewidth(0.5)


def _draw_order_proof(axes: Axes, lrs: np.ndarray, depth: np.ndarray) -> None:
    """Draw the largest momentum that every order of the rows allows."""
    if not np.isfinite(depth).any():
        return
    limits = axes.axis()
    axes.plot(lrs, depth, color=INK, linewidth=1.2, linestyle="--", label="safe in every order")
    axes.axis(limits)
    axes.legend(loc="lower left", fontsize=9)


def _colors(reach: float) -> tuple[Colormap, BoundaryNorm]:
    """Return a few colours on either side of 0, none so pale that its side is in doubt."""
    edges = [math.log(2) / steps for steps in _STEPS]
    edges = edges[: max(2, sum(edge <= reach for edge in edges))]
    shades = np.linspace(0.07, 0.48, len(edges) + 1)
    table = matplotlib.colormaps[DIVERGING](np.concatenate([0.5 - shades[::-1], 0.5 + shades]))
    middle = ListedColormap(table[1:-1]).with_extremes(under=table[0], over=table[-1])
    return middle, BoundaryNorm([*(-edge for edge in edges[::-1]), 0.0, *edges], len(table) - 2)


def _mark(axes: Axes, settings: Mapping[str, Any], safe: Mapping[str, float | int | None]) -> None:
    """Mark the user's point, and the safe values on the lines through it."""
    here = (settings["lr"], _depth(settings["momentum"]))
    lrs, depths = axes.get_xlim(), axes.get_ylim()
    depth, lr = _depth(safe.get("momentum") or 0.0), safe.get("lr")
    higher = bool(depth > here[1])
    rule: Any = {"color": INK, "linewidth": 0.9, "linestyle": (0, (3, 2))}
    look: Any = {"color": "white", "markeredgecolor": INK, "markersize": 8}
    if safe.get("momentum") is not None:
        axes.plot([here[0]] * 2, [here[1], depth], **rule)
        axes.plot(here[0], depth, "^" if higher else "v", **look)
        _tag(axes, f"safe: {safe['momentum']:.3g}", (here[0], depth), above=higher)
    if lr is not None and lrs[0] < lr < lrs[1]:
        axes.plot([here[0], lr], [here[1]] * 2, **rule)
        axes.plot(lr, here[1], "<" if lr < here[0] else ">", **look)
        _tag(axes, f"safe: {lr:.3g}", (lr, here[1]), above=not higher, left=lr < here[0])
    axes.plot(*here, "o", color=INK, markeredgecolor="white", markersize=9, clip_on=False, zorder=7)
    _tag(axes, "you", here, above=not higher, fontweight="bold")
    axes.set(xlim=lrs, ylim=depths)


def _tag(
    axes: Axes,
    text: str,
    place: tuple[float, float],
    *,
    above: bool,
    left: bool = False,
    **look: Any,
) -> None:
    """Write beside a point, on that side of it where there is room inside the axes."""
    (x, y), limits = axes.transScale.transform(place), axes.viewLim.get_points()
    low, high = axes.transScale.transform(limits)
    across, up = (x - low[0]) / (high[0] - low[0]), (y - low[1]) / (high[1] - low[1])
    left = across > 0.7 or (left and across > 0.3)
    above = up < 0.15 or (above and up < 0.85)
    halo = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": "none", "alpha": 0.85}
    axes.annotate(
        text,
        place,
        (-8 if left else 8, 7 if above else -14),
        textcoords="offset points",
        ha="right" if left else "left",
        fontsize=9,
        bbox=halo,
        zorder=6,
        **look,
    )


def _depth(momentum: Any) -> Any:
    """Return the height at which a momentum is drawn: those near 1 are spread out."""
    return -np.log10(1 - np.asarray(momentum))
