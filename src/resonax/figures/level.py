"""The level at which an error settles, over the period of the inputs."""

from __future__ import annotations

from typing import Protocol

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from resonax.core.errors import ArgumentError
from resonax.figures.style import BLUE, GREY, INK, RED, STYLE, new_figure

__all__ = ["plot_level", "plot_orbit"]


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


class Driven(Protocol):
    """What the picture needs to know of an orbit."""

    @property
    def rms(self) -> float | None: ...
    @property
    def over_iid(self) -> float | None: ...
    @property
    def orbit(self) -> float | None: ...
    @property
    def period_low(self) -> float | None: ...
    @property
    def period_high(self) -> float | None: ...
    @property
    def periods(self) -> tuple[float, ...]: ...
    @property
    def distances(self) -> tuple[float, ...]: ...
    @property
    def orbits(self) -> tuple[float, ...]: ...


def plot_orbit(orbit: Driven) -> Figure:
    """Return distance and swing of the weights over the period, and what random order gives."""
    if orbit.rms is None or orbit.over_iid is None or orbit.orbit is None:
        raise ArgumentError("there is no level to draw: print the result to see why")
    with matplotlib.rc_context(STYLE):
        figure = new_figure(6.4, 3.8)
        axes = figure.subplots()
        iid = orbit.rms / orbit.over_iid
        axes.axhline(iid, color=GREY, lw=1.0, ls="--", label="the same rows in random order")
        _shade(axes, orbit.period_low, orbit.period_high)
        if orbit.periods:
            label = "distance from the best weights"
            axes.plot(orbit.periods, orbit.distances, color=BLUE, lw=1.6, label=label)
            if any(orbit.orbits):
                axes.plot(orbit.periods, orbit.orbits, color=RED, lw=1.3, label="the orbit alone")
            _set_periods(axes)
        else:
            axes.axhline(orbit.rms, color=BLUE, lw=1.6, label="distance from the best weights")
        top = float(np.nanmax([*orbit.distances, *orbit.orbits, orbit.rms, iid]))
        axes.set_ylim(0, 1.1 * top)
        axes.set_xlabel("period (steps)")
        axes.set_ylabel("root mean square")
        axes.legend(loc="best", fontsize=8, labelcolor=INK)
    return figure


def _shade(axes: Axes, low: float | None, high: float | None) -> None:
    if low is not None and high is not None:
        axes.axvspan(low, high, color=RED, alpha=0.12, label="more than 1.5 times that")


def _set_periods(axes: Axes) -> None:
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))


def plot_level(level: Settled) -> Figure:
    """Return the distance over the period, with the level in random order and the raised band."""
    if level.distance is None or level.over_iid is None:
        raise ArgumentError("there is no level to draw: print the result to see why")
    with matplotlib.rc_context(STYLE):
        figure = new_figure(6.4, 3.8)
        axes = figure.subplots()
        iid = level.distance / level.over_iid
        axes.axhline(iid, color=GREY, lw=1.0, ls="--", label="the same inputs in random order")
        _shade(axes, level.period_low, level.period_high)
        if level.periods:
            axes.plot(level.periods, level.distances, color=BLUE, lw=1.6, label="predicted level")
            _set_periods(axes)
        else:
            axes.axhline(level.distance, color=BLUE, lw=1.6, label="predicted level")
        top = float(np.nanmax([*level.distances, level.distance, iid]))
        axes.set_ylim(0, 1.1 * top)
        axes.set_xlabel("period (steps)")
        axes.set_ylabel("distance from the best weights")
        axes.legend(loc="best", fontsize=8, labelcolor=INK)
    return figure
