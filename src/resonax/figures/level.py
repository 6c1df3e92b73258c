"""The level of an adaptive optimizer over the period of its inputs."""

from __future__ import annotations

from typing import Protocol

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from resonax.core.errors import ArgumentError
from resonax.figures.style import BLUE, GREY, INK, RED, STYLE, new_figure

__all__ = ["plot_level"]


class Settled(Protocol):
    """What the picture needs to know of a level."""

    @property
    def distance(self) -> float | None: ...
    @property
    def over_iid(self) -> float | None: ...
    @property
    def period_low(self) -> float | None: ...
    @property
    def period_high(self) -> float | None: ...
    @property
    def periods(self) -> tuple[float, ...]: ...
    @property
    def distances(self) -> tuple[float, ...]: ...


def plot_level(level: Settled) -> Figure:
    """Return the distance over the period, with the level in random order and the raised band."""
    if level.distance is None or level.over_iid is None:
        raise ArgumentError("there is no level to draw: print the result to see why")
    with matplotlib.rc_context(STYLE):
        figure = new_figure(6.4, 3.8)
        axes = figure.subplots()
        iid = level.distance / level.over_iid
        axes.axhline(iid, color=GREY, lw=1.0, ls="--", label="the same inputs in random order")
        if level.period_low is not None and level.period_high is not None:
            label = "more than 1.5 times that"
            axes.axvspan(level.period_low, level.period_high, color=RED, alpha=0.12, label=label)
        if level.periods:
            axes.plot(level.periods, level.distances, color=BLUE, lw=1.6, label="predicted level")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        else:
            axes.axhline(level.distance, color=BLUE, lw=1.6, label="predicted level")
        top = float(np.nanmax([*level.distances, level.distance, iid]))
        axes.set_ylim(0, 1.1 * top)
        axes.set_xlabel("period (steps)")
        axes.set_ylabel("distance from the best weights")
        axes.legend(loc="best", fontsize=8, labelcolor=INK)
    return figure
