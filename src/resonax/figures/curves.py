"""Responses over the period as curves, one for each value of the first axis."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from resonax.figures.style import STYLE, new_figure
from resonax.labels import LABELS, axis_label

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_curves"]

_SPAN = 3.0  # powers of ten above which a logarithmic axis shows more


def _symbol(name: str, number: float) -> str:
    if name == "amplitude":
        return f"v = {number**2:.3g}"  # the variance of the mean, as the paper counts
    return f"{LABELS[name][1] if name in LABELS else name} = {number:.4g}"


def _interval(panel: xr.Dataset, log: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a curve with a band: quartiles on a logarithmic axis, else the 95% interval."""
    if log:
        logs = (panel.log_response, panel.log_low, panel.log_high)
        middle, low, high = (array.values / np.log(10) for array in logs)
        return middle, low, high
    logs = panel.run_log_response.values
    kept = np.isfinite(logs)  # a run that overflowed has no place on the axis: the title counts it
    runs = np.exp(np.where(kept, logs, 0.0))
    count = np.maximum(kept.sum(axis=-1), 2)
    mean = np.where(kept.sum(axis=-1) > 1, (runs * kept).sum(axis=-1) / count, np.nan)
    spread = ((runs - mean[..., None]) ** 2 * kept).sum(axis=-1) / (count - 1)
    half = 1.96 * np.sqrt(spread / count)
    return mean, mean - half, mean + half


def _draw(panel: xr.Dataset, axes: Axes, colours: np.ndarray, log: bool) -> None:
    first, second = (str(name) for name in panel.log_response.dims)
    for colour, number in zip(colours, panel[first].values, strict=True):
        curve = panel.sel({first: number})
        x = curve[second].values
        middle, low, high = _interval(curve, log)
        shown = np.isfinite(middle) & ((x > 0) | (second != "period"))
        if not shown.any():
            continue
        axes.fill_between(x[shown], low[shown], high[shown], color=colour, alpha=0.18, lw=0)
        label = _symbol(first, float(number))
        axes.plot(x[shown], middle[shown], color=colour, lw=1.3, label=label)
        if second == "period" and x[0] == 0 and np.isfinite(middle[0]):
            axes.plot([0], middle[:1], marker="D", ms=4.5, color=colour, clip_on=False, zorder=4)


def _power(value: float, _: int) -> str:
    return f"$10^{{{value:g}}}$"


def plot_curves(dataset: xr.Dataset) -> Figure:
    """Return the responses of a sweep over its second axis, a panel for each variant.

    A diamond at period 0 is the same inputs in random order.
    """
    names = [str(name) for name in dataset.panel.values]
    columns = min(2, len(names))
    rows = -(-len(names) // columns)
    first, second = (str(name) for name in dataset.log_response.dims[1:])
    colours = matplotlib.colormaps["viridis"](np.linspace(0.0, 0.9, len(dataset[first])))
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.4 if columns == 1 else 11.0, 0.8 + (3.8 if rows == 1 else 3.0 * rows))
        grid = figure.subplots(rows, columns, squeeze=False)
        for name, axes in zip(names, grid.flat, strict=False):
            panel = dataset.sel(panel=name)
            log10 = panel.log_response.values / np.log(10)
            finite = log10[np.isfinite(log10)]
            log = bool(np.ptp(finite) > _SPAN) if finite.size else False
            _draw(panel, axes, colours, log)
            lost = int(np.isposinf(panel.run_log_response.values).sum())
            words = f"{name} (overflowed and left out: {lost})" if lost else name
            axes.set_title(words if len(names) > 1 or lost else "")
            if log:
                axes.yaxis.set_major_locator(MaxNLocator(integer=True))
                axes.yaxis.set_major_formatter(FuncFormatter(_power))
            else:
                axes.set_ylim(bottom=0.0)
            axes.set_ylabel("test loss" if "network" in _kind(dataset, name) else "distance")
            axes.set_xlabel(axis_label(second) if second in LABELS else second)
            axes.grid(axis="y", color="0.9", lw=0.7)
        for axes in list(grid.flat)[len(names) :]:
            axes.set_visible(False)
        handles, labels = grid.flat[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside right upper")
        figure.suptitle(dataset.attrs.get("title", ""), x=0.01, ha="left", fontsize=12)
    return figure


def _kind(dataset: xr.Dataset, name: str) -> str:
    """Return the kind of model of a panel, from the record of the sweep."""
    import json

    sweep = json.loads(dataset.attrs["specification"])
    panel = next(panel for panel in sweep["panels"] if panel["name"] == name)
    return {**sweep["model"], **panel["model"]}.get("kind", "linear")
