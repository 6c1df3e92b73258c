"""Phases that alternate: growth and excess loss over the period, for each momentum."""

from __future__ import annotations

from typing import Protocol

import matplotlib
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from resonax.figures.style import GREY, INK, RED, STYLE, escape_text, new_figure

__all__ = ["plot_alternation"]


class Alternating(Protocol):
    """What the picture needs to know."""

    @property
    def period(self) -> int: ...
    @property
    def dataset(self) -> xr.Dataset: ...
    @property
    def momentum_name(self) -> str: ...


def plot_alternation(result: Alternating) -> Figure:
    """Return growth and excess loss over the period, a line for each momentum.

    Where a fixed second moment lets the orbit diverge its line ends; dashed is the excess with the
    second moment as a state, if it was computed.
    """
    dataset = result.dataset.isel(lr=0)
    name = result.momentum_name
    with matplotlib.rc_context(STYLE):
        figure = new_figure(10.0, 4.0)
        left, right = figure.subplots(1, 2)
        shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.9, len(dataset[name])))
        for momentum, color in zip(dataset[name].values, shades, strict=True):
            row = dataset.sel({name: momentum})
            label = f"{name} {momentum:g}"
            left.plot(row.period, 1000 * row.rate, color=color, lw=1.5, label=label)
            _draw(right, row.excess, color=color, lw=1.5, label=label)
            if "excess_settled" in row:
                _draw(right, row.excess_settled, color=color, lw=1.3, ls="--")
        left.axhline(0, color=INK, lw=0.8)
        unstable = 1000 * dataset.rate.where(dataset.rate > 0)
        if float(dataset.rate.max()) > 0:
            left.axhspan(0, 1.05 * float(unstable.max()), color=RED, alpha=0.08, lw=0)
        left.set_ylabel("growth per 1000 steps")
        right.set_ylabel("loss above that of mixed batches")
        for axes in (left, right):
            axes.axvline(result.period, color=GREY, lw=0.9, ls=":")
            axes.set_xscale("log", base=2)
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.set_xlabel("period (steps)")
        left.legend(fontsize=8, labelcolor=INK)
        figure.suptitle(escape_text(str(result)), x=0.01, ha="left", fontsize=9, wrap=True)
    return figure


def _draw(axes: Axes, line: xr.DataArray, **look: object) -> None:
    axes.plot(line.period, line.where(np.isfinite(line)), marker=".", ms=4, **look)  # pyrefly: ignore[bad-argument-type]
