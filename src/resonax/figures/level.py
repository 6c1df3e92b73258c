"""The level at which an error settles, over the period of the inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from resonax.core.errors import ArgumentError
from resonax.figures.style import BLUE, GREY, INK, RED, STYLE, new_figure

__all__ = ["plot_level", "plot_orbit"]


class _CurveLike(Protocol):
    """What the picture needs to know of any level."""

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


class LevelLike(_CurveLike, Protocol):
    """The level of an adaptive optimizer."""

    @property
    def distance(self) -> float | None: ...


class OrbitLike(_CurveLike, Protocol):
    """The level of SGD with momentum, on an orbit if the best weights move."""

    @property
    def rms(self) -> float | None: ...
    @property
    def orbits(self) -> tuple[float, ...]: ...


def plot_level(level: LevelLike) -> Figure:
    """Return the distance over the period, with the level in random order and the raised band."""
    return _plot(level, level.distance, "predicted level", "distance from the best weights")


def plot_orbit(orbit: OrbitLike) -> Figure:
    """Return distance and swing of the weights over the period, and what random order gives."""
    label = "distance from the best weights"
    return _plot(orbit, orbit.rms, label, "root mean square", orbit.orbits)


def _plot(
    level: _CurveLike, own: float | None, label: str, quantity: str, orbits: Sequence[float] = ()
) -> Figure:
    if own is None or level.over_iid is None:
        raise ArgumentError("there is no level to draw: print the result to see why")
    with matplotlib.rc_context(STYLE):
        figure = new_figure(6.4, 3.8)
        axes = figure.subplots()
        iid, low, high = own / level.over_iid, level.period_low, level.period_high
        axes.axhline(iid, color=GREY, lw=1.0, ls="--", label="the same rows in random order")
        if low is not None and high is not None:
            axes.axvspan(low, high, color=RED, alpha=0.12, label="more than 1.5 times that")
        if level.periods:
            axes.plot(level.periods, level.distances, color=BLUE, lw=1.6, label=label)
            if any(orbits):
                axes.plot(level.periods, orbits, color=RED, lw=1.3, label="swing of the weights")
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
            axes.xaxis.set_minor_formatter(NullFormatter())
            axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        else:
            axes.axhline(own, color=BLUE, lw=1.6, label=label)
        axes.set_ylim(0, 1.1 * float(np.nanmax([*level.distances, *orbits, own, iid])))
        axes.set_xlabel("period (steps)")
        axes.set_ylabel(quantity)
        axes.legend(loc="best", fontsize=8, labelcolor=INK)
    return figure
