"""Sample paths and power spectral densities of the paper's processes, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullLocator

from resonax.figures.style import INK, STYLE, new_figure

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_spectra"]

_COLORS = {"input": "#8fb8de", "mean": "#D55E00"}
_TITLES = {
    "sinusoid": "Sinusoid",
    "ar2": "AR(2)",
    "square": "Square wave",
    "switching": "Switching",
}
# Limits of the density axis. The density of a strictly periodic mean is 0 between its spectral
# lines, which a logarithmic axis cannot show.
_MIN_DENSITY, _MAX_DENSITY = 1e-4, 1e3
_MAX_FREQUENCY = 0.15  # cycles per step
_SHOWN_STEPS = 160
_CLOSED_FORM_STYLE: Any = {"color": INK, "linewidth": 0.8, "linestyle": (0, (3, 1.5))}
_PEAK_STYLE: Any = {"color": INK, "linestyle": "", "marker": "v", "markersize": 4.5}
_TROUGH_STYLE: Any = {**_PEAK_STYLE, "marker": "^", "markerfacecolor": "white"}


def _title(panel: xr.Dataset) -> str:
    name, symbol = str(panel.process.values), str(panel.symbol.values)
    number = float(1 / panel.period if symbol == "f" else panel.period)
    return f"{_TITLES.get(name, name)}, {symbol} = {number:g}"


def _draw_path(panel: xr.Dataset, axes: Axes) -> None:
    """Draw the first steps of a sample path: the inputs as dots, their mean as a line."""
    shown = panel.isel(step=slice(_SHOWN_STEPS))
    inputs, mean = shown.path.sel(series="input"), shown.path.sel(series="mean")
    axes.scatter(shown.step, inputs, s=4, color=_COLORS["input"], linewidth=0)
    is_piecewise_constant = str(panel.process.values) in ("square", "switching")
    axes.plot(
        shown.step,
        mean,
        color=_COLORS["mean"],
        linewidth=1.3,
        drawstyle="steps-post" if is_piecewise_constant else "default",
    )
    axes.set_xlim(0, _SHOWN_STEPS)
    axes.set_title(_title(panel), fontsize=10)
    axes.set_ylabel("x")


def _draw_density(panel: xr.Dataset, axes: Axes) -> None:
    """Draw the estimated densities, their closed forms, and triangles at the expected peaks."""
    shown = panel.sel(frequency=slice(0, _MAX_FREQUENCY))
    for name, color in _COLORS.items():
        series = shown.sel(series=name)
        # A logarithmic axis has no 0: draw densities that vanish just below its lower end.
        density = np.maximum(series.density, _MIN_DENSITY / 10)
        closed_form = np.maximum(series.closed_form, _MIN_DENSITY / 10)
        axes.plot(series.frequency, density, color=color, linewidth=1.6)
        axes.plot(series.frequency, closed_form, **_CLOSED_FORM_STYLE)
    _mark_extrema(panel, axes)
    axes.set_yscale("log")
    axes.set_ylim(_MIN_DENSITY, _MAX_DENSITY)
    axes.set_xlim(0, _MAX_FREQUENCY)
    axes.set_xticks([0.0, 0.05, 0.1, 0.15])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(LogLocator(100))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("density")


def _mark_extrema(panel: xr.Dataset, axes: Axes) -> None:
    """Draw triangles where the definition of the process puts its peaks and troughs."""
    process, fundamental = str(panel.process.values), 1 / float(panel.period)
    count = int(_MAX_FREQUENCY / fundamental + 1e-9)
    harmonics = fundamental * np.arange(1, count + 1)
    # A square wave has odd harmonics only; switching has troughs at all harmonics.
    peaks = harmonics[::2] if process == "square" else np.array([float(panel.peak)])
    axes.plot(peaks, np.full(len(peaks), _MAX_DENSITY), **_PEAK_STYLE, clip_on=False)
    if process == "switching":
        troughs = np.full(len(harmonics), _MIN_DENSITY)
        axes.plot(harmonics, troughs, **_TROUGH_STYLE, clip_on=False)


def _draw_legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], color=_COLORS["input"], lw=1.6, marker="o", ms=3, label="input"),
        Line2D([], [], color=_COLORS["mean"], lw=1.6, label="mean"),
        Line2D([], [], **_CLOSED_FORM_STYLE, label="closed form, smoothed by the window"),
        Line2D([], [], **_PEAK_STYLE, label="expected peaks"),
        Line2D([], [], **_TROUGH_STYLE, label="expected troughs"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=5)


def plot_spectra(dataset: xr.Dataset) -> Figure:
    """Return a figure of four processes with three periods each: a sample path and its density.

    The left half shows the processes with a periodic mean (sinusoid above, square wave below), the
    right half those with a random mean (AR(2) above, switching below). Triangles mark where the
    definition of a process puts the peaks of its density, and for switching the troughs.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(12.5, 12.5)
        grid = figure.subplots(6, 4, sharex="col", width_ratios=[1.25, 1, 1.25, 1])
        for number, label in enumerate(dataset.panel.values):
            process, period = divmod(number, 3)  # indices: panels are ordered by process
            row = 3 * (process // 2) + period
            column = 2 * (process % 2)
            panel = dataset.sel(panel=label)
            _draw_path(panel, grid[row, column])
            _draw_density(panel, grid[row, column + 1])
        for column, label in enumerate(("step k", "frequency (cycles per step)") * 2):
            grid[-1, column].set_xlabel(label)
        _draw_legend(figure)
    return figure
