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

_COLOURS = {"input": "#8fb8de", "mean": "#D55E00"}
_NAMES = {
    "sinusoid": "Sinusoid",
    "ar2": "AR(2)",
    "square": "Square wave",
    "switching": "Switching",
}
_LOW, _HIGH = 1e-4, 1e3  # of the density; a strictly periodic mean has nothing between its lines
_FREQUENCIES = 0.15  # shown up to here, in cycles per step
_STEPS = 160
_CLOSED: Any = {"color": INK, "linewidth": 0.8, "linestyle": (0, (3, 1.5))}
_PEAK: Any = {"color": INK, "linestyle": "", "marker": "v", "markersize": 4.5}
_TROUGH: Any = {**_PEAK, "marker": "^", "markerfacecolor": "white"}


def _title(panel: xr.Dataset) -> str:
    name, symbol = str(panel.process.values), str(panel.symbol.values)
    number = float(1 / panel.period if symbol == "f" else panel.period)
    return f"{_NAMES.get(name, name)}, {symbol} = {number:g}"


def _path(panel: xr.Dataset, axes: Axes) -> None:
    """Draw the beginning of the path: inputs as dots, as they are independent given the mean."""
    kept = panel.isel(step=slice(_STEPS))
    inputs, mean = (kept.path.sel(series=name) for name in ("input", "mean"))
    axes.scatter(kept.step, inputs, s=4, color=_COLOURS["input"], linewidth=0)
    step = str(panel.process.values) in ("square", "switching")
    axes.plot(
        kept.step,
        mean,
        color=_COLOURS["mean"],
        linewidth=1.3,
        drawstyle="steps-post" if step else "default",
    )
    axes.set_xlim(0, _STEPS)
    axes.set_title(_title(panel), fontsize=10)
    axes.set_ylabel("x")


def _density(panel: xr.Dataset, axes: Axes) -> None:
    """Draw both estimates, the closed forms over them, and marks where the peaks should be."""
    kept = panel.sel(frequency=slice(0, _FREQUENCIES))
    for name, colour in _COLOURS.items():
        one = kept.sel(series=name)
        # Zero has no place on a logarithmic axis: lines that vanish run along its lower end.
        axes.plot(one.frequency, np.maximum(one.density, _LOW / 10), color=colour, linewidth=1.6)
        closed = np.maximum(one.closed_form, _LOW / 10)
        axes.plot(one.frequency, closed, **_CLOSED)
    kind, spacing = str(panel.process.values), 1 / float(panel.period)
    multiples = spacing * np.arange(1, int(_FREQUENCIES / spacing + 1e-9) + 1)
    peaks = multiples[::2] if kind == "square" else np.array([float(panel.peak)])
    axes.plot(peaks, np.full(len(peaks), _HIGH), **_PEAK, clip_on=False)
    if kind == "switching":
        axes.plot(multiples, np.full(len(multiples), _LOW), **_TROUGH, clip_on=False)
    axes.set_yscale("log")
    axes.set_ylim(_LOW, _HIGH)
    axes.set_xlim(0, _FREQUENCIES)
    axes.set_xticks([0.0, 0.05, 0.1, 0.15])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_locator(LogLocator(100))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_ylabel("density")


def _legend(figure: Figure) -> None:
    handles = [
        Line2D([], [], color=_COLOURS["input"], lw=1.6, marker="o", ms=3, label="input"),
        Line2D([], [], color=_COLOURS["mean"], lw=1.6, label="mean"),
        Line2D([], [], **_CLOSED, label="closed form, as the window sees it"),
        Line2D([], [], **_PEAK, label="expected peaks"),
        Line2D([], [], **_TROUGH, label="expected troughs"),
    ]
    figure.legend(handles=handles, loc="outside upper left", ncols=5)


def plot_spectra(dataset: xr.Dataset) -> Figure:
    """Return the 24 axes of `compute_spectra`: path and density of each of the twelve panels.

    The left half has the strictly periodic means (sinusoid above, square wave below), the right
    half the random ones (AR(2) above, switching below). Triangles mark where the definition of a
    process puts its peaks, and for switching its troughs.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(12.5, 12.5)
        grid = figure.subplots(6, 4, sharex="col", width_ratios=[1.25, 1, 1.25, 1])
        for number, label in enumerate(dataset.panel.values):
            family, place = divmod(number, 3)
            row, column = 3 * (family // 2) + place, 2 * (family % 2)
            panel = dataset.sel(panel=label)
            _path(panel, grid[row, column])
            _density(panel, grid[row, column + 1])
        for column, label in enumerate(("step k", "frequency (cycles per step)") * 2):
            grid[-1, column].set_xlabel(label)
        _legend(figure)
    return figure
