"""The problem setting as a picture: the regression, and its inputs over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from resonax.figures.style import INK, STYLE, new_figure

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_problem_setting"]

# One colour for each moment (Okabe and Ito's, which colour-blind readers can tell apart).
_COLOURS = ("#D55E00", "#009E73", "#0072B2")


def _regression(dataset: xr.Dataset, axes: Axes) -> None:
    """Draw the line, the samples of each moment, and where their inputs come from."""
    x = dataset.x.values
    axes.plot(x, dataset.line, color=INK, linewidth=1.4, zorder=1)
    low = float(dataset.target.sel(step=dataset.moment).min())
    floor = min(low, float(dataset.line.min())) - 0.45
    height = 0.4 / float(dataset.density.max())
    for colour, moment in zip(_COLOURS, dataset.moment.values, strict=False):
        bump = floor + height * dataset.density.sel(moment=moment).values
        axes.fill_between(x, floor, bump, color=colour, alpha=0.25, linewidth=0)
        axes.plot(x, bump, color=colour, linewidth=0.9)
        seen = dataset.sel(step=moment)
        axes.scatter(
            seen.input, seen.target, s=22, color=colour, edgecolor="white", linewidth=0.4, zorder=2
        )
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(floor, None)
    axes.set_xlabel("input x")
    axes.set_ylabel("target y")
    slope, bias = dataset.attrs["weights"]
    sign = "+" if bias >= 0 else "−"
    axes.set_title(f"A fixed line: y = {slope:g} x {sign} {abs(bias):g} + noise")


def _inputs_over_time(dataset: xr.Dataset, axes: Axes) -> None:
    """Draw the mean, a sample of each step, and the law at the three moments."""
    step, mean = dataset.step.values, dataset["mean"].values
    spread = 2 * np.sqrt(dataset.attrs["variance"])
    axes.plot(step, mean, color=INK, linewidth=1.6, label="mean")
    band = (mean - spread, mean + spread)
    label = "± 2 standard deviations"
    axes.fill_between(step, *band, color=INK, alpha=0.08, linewidth=0, label=label)
    dots = dataset.input.isel(sample=0)
    axes.scatter(step, dots, s=6, color=INK, alpha=0.5, linewidth=0, label="one sample a step")
    width = 16 / float(dataset.density.max())
    for colour, moment in zip(_COLOURS, dataset.moment.values, strict=False):
        law = dataset.density.sel(moment=moment)
        kept = law.values > 0.01 * float(law.max())
        x, bump = dataset.x.values[kept], width * law.values[kept]
        axes.fill_betweenx(x, moment, moment + bump, color=colour, alpha=0.35, linewidth=0)
        axes.plot(moment + bump, x, color=colour, linewidth=1.0)
        axes.plot([moment, moment], x[[0, -1]], color=colour, linewidth=1.0)
        axes.annotate(
            f"k = {moment}",
            (moment, x[-1]),
            xytext=(0, 3),
            textcoords="offset points",
            ha="center",
            color=colour,
            fontsize=9,
        )
    axes.set_xlim(0, step[-1])
    axes.set_ylim(dataset.x.values[0] - 0.15, dataset.x.values[-1])  # room for the legend
    axes.set_xlabel("step k")
    axes.set_ylabel("input x")
    axes.legend(loc="lower left", ncols=3, fontsize=8.5, handlelength=1.4, columnspacing=1.2)
    axes.set_title("Inputs from a Gaussian whose mean moves")


def plot_problem_setting(dataset: xr.Dataset) -> Figure:
    """Return the two panels made from `compute_problem_setting`.

    Left, the regression: samples of three moments about the line that never changes, and below them
    the laws that the inputs were drawn from. Right, the mean over time with a band of two standard
    deviations, one sample of each step, and the laws of the same three moments.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(10.0, 3.9)
        left, right = figure.subplots(1, 2, width_ratios=[1, 1.35])
        _regression(dataset, left)
        _inputs_over_time(dataset, right)
    return figure
