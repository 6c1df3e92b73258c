"""The frequency response of a learner: measured gains, the fitted pole pair, dangerous periods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from resonax.figures.style import BLUE, GREY, INK, RED, STYLE, escape_text, new_figure

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_response"]


class ResponseLike(Protocol):
    """What the picture needs to know of a response."""

    @property
    def dataset(self) -> xr.Dataset: ...
    @property
    def natural_period(self) -> float | None: ...
    @property
    def dangerous_periods(self) -> tuple[float, ...]: ...
    @property
    def depths(self) -> tuple[float | None, ...]: ...


def plot_response(response: ResponseLike) -> Figure:
    """Return the gain over the period with its fit; below it the sweep over periods, or the phase.

    Vertical lines stand at the natural period and where a rhythm of the data is dangerous.
    """
    data, swept = response.dataset, "ratio" in response.dataset
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, 5.4)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
        if "gain" in data:
            _curve(above, data, "gain")
            above.set_yscale("log")
            if not swept:
                _curve(below, data.assign(error=data.error / data.gain), "phase")
        if swept:
            _sweep(below, data)
        for axes in (above, below):
            _periods(axes, response)
        above.set_ylabel("gain of predictions\nover labels")
        below.set_ylabel("error over that\nin random order" if swept else "phase (radians)")
        below.set_xlabel("period (steps)")
        below.set_xscale("log")
        below.xaxis.set_major_formatter("{x:g}")
        below.xaxis.set_minor_formatter(NullFormatter())
        below.xaxis.set_major_locator(LogLocator(10, subs=(1, 2, 5)))
        above.set_title(escape_text(str(response).partition("\n")[0]), fontsize=10)
        if above.get_legend_handles_labels()[0]:
            above.legend(loc="lower right", fontsize=8)
    return figure


def _curve(axes: Axes, data: xr.Dataset, name: str) -> None:
    period = 1 / data.frequency.values
    bars = 1.96 * data.error.values
    axes.errorbar(period, data[name], bars, fmt="o", color=INK, ms=3, lw=0.8, label="measured")
    if "fitted_frequency" in data:
        fitted = 1 / data.fitted_frequency.values
        axes.plot(fitted, data[f"fitted_{name}"], color=BLUE, lw=1.4, label="fitted pole pair")


def _sweep(axes: Axes, data: xr.Dataset) -> None:
    ratio = data.ratio.values
    kept = np.isfinite(ratio)
    top = max(float(ratio[kept].max(initial=1.0)), 1.5) * 1.3
    axes.plot(data.period.values[kept], ratio[kept], "o-", color=INK, ms=3, lw=1.0)
    axes.plot(data.period.values[~kept], np.full((~kept).sum(), top), "^", color=RED, ms=5)
    axes.set_yscale("log")


def _periods(axes: Axes, response: ResponseLike) -> None:
    if response.natural_period is None:
        return
    axes.axvline(response.natural_period, color=GREY, lw=1.0, ls="--", label="natural period")
    pairs = zip(response.dangerous_periods, response.depths, strict=True)
    for place, (period, depth) in enumerate(pairs):
        if depth is None:  # no rhythm of this period lets an error grow
            continue
        name = "dangerous periods" if place == 0 else None
        axes.axvline(period, color=RED, lw=1.2 - 0.3 * place, ls=":", label=name)
