"""Responses over the period as curves, one for each value of the first axis."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from resonax.core.intervals import half_width
from resonax.figures.style import STYLE, escape_text, new_figure
from resonax.figures.ticks import exponent_axis
from resonax.figures.words import axis_words, panel_words, response_words, value_words
from resonax.sweeps.panels import read_panels, select_panel

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_curves"]

_PREDICTED = "predicted_distance"  # the variable of a prediction, if there is one
_PREDICTED_WORDS = "predicted"
_FEW = 40  # points of a curve up to which each has a dot
_WHOLE = ("period", "batch", "dim")  # axes whose ticks are whole numbers
_LOG_DECADES = 3.0  # powers of ten above which a logarithmic axis shows more


def _interval(panel: xr.Dataset, log: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the mean with a band: all runs on a logarithmic axis, else Student's 95% interval."""
    logs = panel.run_log_response.values
    if log:
        # Few runs carry a mean over many powers of ten: it lies above most of them.
        return tuple(
            array / np.log(10)
            for array in (panel.log_response.values, logs.min(axis=-1), logs.max(axis=-1))
        )
    kept = np.isfinite(logs)  # a run that overflowed has no place on the axis: the title counts it
    runs = np.exp(np.where(kept, logs, 0.0))
    count = np.maximum(kept.sum(axis=-1), 2)
    mean = np.where(kept.sum(axis=-1) > 1, (runs * kept).sum(axis=-1) / count, np.nan)
    spread = ((runs - mean[..., None]) ** 2 * kept).sum(axis=-1) / (count - 1)
    half = half_width(np.sqrt(spread), count, 0.025)
    return mean, mean - half, mean + half


def _draw(panel: xr.Dataset, axes: Axes, colours: dict[float, Any], log: bool) -> None:
    first, second = (str(name) for name in panel.log_response.dims)
    for number in panel[first].values:  # the limits of a panel may leave some of them out
        curve, colour = panel.sel({first: number}), colours[float(number)]
        x = curve[second].values
        middle, low, high = _interval(curve, log)
        shown = np.isfinite(middle) & ((x > 0) | (second != "period"))
        if not shown.any():
            continue
        axes.fill_between(x[shown], low[shown], high[shown], color=colour, alpha=0.18, lw=0)
        label = value_words(first, float(number))
        # Dots show which points were computed, and that a line between them was not.
        marker = "o" if len(x) <= _FEW else ""
        axes.plot(x[shown], middle[shown], marker=marker, ms=3.5, color=colour, lw=1.3, label=label)
        if _PREDICTED in curve:
            predicted = curve[_PREDICTED].values[shown]
            predicted = np.log10(predicted) if log else predicted
            axes.plot(x[shown], predicted, color=colour, lw=0.8, ls="--", label=_PREDICTED_WORDS)
        if second == "period" and x[0] == 0 and np.isfinite(middle[0]):
            axes.plot([0], middle[:1], marker="D", ms=4.5, color=colour, clip_on=False, zorder=4)


def plot_curves(dataset: xr.Dataset) -> Figure:
    """Return the responses of a sweep over its second axis, a panel for each variant.

    A diamond at period 0 is the same inputs in random order. Where the dataset has a
    ``predicted_distance`` it is drawn as a thin dashed line.
    """
    panels = read_panels(dataset)
    names = [str(name) for name in dataset.panel.values]
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    first, second = (str(name) for name in dataset.log_response.dims[1:])
    shades = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.86, len(dataset[first])))
    colours = dict(zip(map(float, dataset[first].values), shades, strict=True))
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.4 if columns == 1 else 11.0, 0.8 + (3.8 if rows == 1 else 3.0 * rows))
        grid = figure.subplots(rows, columns, squeeze=False)
        bands: list[tuple[str, str]] = []
        for name, axes in zip(names, grid.flat, strict=False):
            panel = select_panel(dataset, name)
            log10 = panel.log_response.values / np.log(10)
            finite = log10[np.isfinite(log10)]
            log = bool(np.ptp(finite) > _LOG_DECADES) if finite.size else False
            _draw(panel, axes, colours, log)
            lost = int(np.isposinf(panel.run_log_response.values).sum())
            words = panel_words(dataset, name) if len(names) > 1 else ""
            note = f"{lost} run{'s' * (lost > 1)} overflowed, not shown" if lost else ""
            axes.set_title(": ".join(filter(None, (words, note))))
            if log:
                exponent_axis(axes.yaxis)
            else:
                axes.set_ylim(bottom=0.0)
            axes.set_ylabel(response_words(panels[name]))
            axes.set_xlabel(axis_words(second))
            if second in _WHOLE:
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
            axes.grid(axis="y", color="0.9", lw=0.7)
            bands.append(("all runs", "log") if log else ("95% interval of the mean", "linear"))
        _legend(figure, grid, len(names), dataset[first], bands)
        figure.suptitle(escape_text(dataset.attrs.get("title", "")), x=0.01, ha="left", fontsize=12)
    return figure


def _legend(
    figure: Figure, grid: np.ndarray, panels: int, first: xr.DataArray, bands: list[tuple[str, str]]
) -> None:
    """Say what lines, bands and diamonds are, in a panel that is empty or beside all of them."""
    name, curves = str(first.name), {}
    for axes in grid.flat:
        handles, labels = axes.get_legend_handles_labels()
        curves |= {label: handle for handle, label in zip(handles, labels, strict=True)}
    labels = dict.fromkeys(value_words(name, float(number)) for number in first.values)
    lines = [curves[label] for label in labels if label in curves]
    marks: list[Any] = [Line2D([], [], color="0.45", lw=1.3, label="mean over the runs")]
    words = " or ".join(f"{name}\n({axis} axis)" for name, axis in dict.fromkeys(bands))
    if len(set(bands)) == 1:
        words = bands[0][0]
    marks.append(Patch(color="0.45", alpha=0.3, lw=0, label=words))
    if _PREDICTED_WORDS in curves:
        dashed: Any = {"color": "0.45", "lw": 0.8, "linestyle": "--"}
        marks.append(Line2D([], [], **dashed, label=_PREDICTED_WORDS))
    if any(line.get_marker() == "D" for axes in grid.flat for line in axes.lines):
        look: Any = {"color": "0.45", "linestyle": "", "marker": "D", "markersize": 4.5}
        marks.append(Line2D([], [], **look, label="random order"))
    title = "variance v of the mean" if name == "amplitude" else axis_words(name)
    spare = list(grid.flat)[panels:]
    for axes in spare:
        axes.set_axis_off()
    if spare:
        spare[0].legend(handles=[*lines, *marks], title=title, loc="center left", alignment="left")
    else:
        where = "outside right center"
        figure.legend(handles=[*lines, *marks], title=title, loc=where, alignment="left")
