"""The checks of both propositions and of the theorem, one panel each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MultipleLocator

from resonax.figures.style import INK, STYLE, new_figure

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_propositions"]

# Okabe and Ito's colours, which colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
_NAMES = {"sinusoid": "sinusoid", "ar2": "AR(2)", "square": "square wave", "switching": "switching"}
_TURNS, _DECADES = 100, (-12.0, 8.0)  # shown of the trajectories
_DOWN, _UP = "#2166ac", "#b2182b"  # the ends of the maps' colours: converges, diverges


def _gradients(dataset: xr.Dataset, axes: Axes) -> None:
    """Draw drawn against expected gradients, in standard errors, and the limit of the largest."""
    scores = (dataset.gradient_mean - dataset.gradient_expected) / dataset.gradient_error
    for colour, name in zip(_COLOURS, dataset.process.values, strict=False):
        of_process = {"process": name, "weight": dataset.weight < dataset.weights.sel(process=name)}
        axes.scatter(
            dataset.gradient_expected.sel(of_process).values.ravel(),
            scores.sel(of_process).values.ravel(),
            s=16,
            color=colour,
            alpha=0.8,
            linewidth=0,
            label=_NAMES.get(str(name), str(name)),
        )
    limit = float(dataset.gradient_limit)
    axes.axhline(0, color=INK, linewidth=0.6)
    for edge in (-limit, limit):
        axes.axhline(edge, color=INK, linewidth=1.0, linestyle="--")
    axes.annotate(
        f"limit of the largest score (significance {dataset.attrs['significance']:g})",
        (0.02, limit),
        xycoords=("axes fraction", "data"),
        xytext=(0, 3),
        textcoords="offset points",
        fontsize=8.5,
    )
    axes.set_ylim(-1.45 * limit, 1.45 * limit)
    axes.set_xlabel("component of B (θ − θ*)")
    axes.set_ylabel("drawn mean − B (θ − θ*), in standard errors")
    axes.set_title("Prop. 1: the gradient is linear")
    axes.legend(loc="lower left", ncols=2, fontsize=8.5, handletextpad=0.1, columnspacing=0.8)


def _orders(dataset: xr.Dataset, axes: Axes) -> None:
    """Draw the errors over the step size, with lines of the slopes that first order means."""
    lr = dataset.lr.values
    kinds = (
        ("global_error", _COLOURS[0], 0.5, "at a fixed time: ∝ √η"),
        ("local_error", _COLOURS[1], 1.0, "after one step: ∝ η"),
    )
    for name, colour, slope, label in kinds:
        for marker, error in zip("os^v", dataset[name].values, strict=False):
            axes.plot(lr, error, marker, color=colour, markersize=6, fillstyle="none")
        last = dataset[name].values[0, -1]
        axes.plot(lr, last * (lr / lr[-1]) ** slope, color=colour, linewidth=1.1, label=label)
    frictions = [f"friction {float(friction):g}" for friction in dataset.friction.values]
    marks = [
        Line2D([], [], marker=marker, linestyle="", color=INK, fillstyle="none", label=label)
        for marker, label in zip("os^v", frictions, strict=False)
    ]
    axes.set_xscale("log")
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.set_ylim(low / 4, high * 2)
    axes.set_xlabel("step size η")
    axes.set_ylabel("distance of SGDm from the exact flow")
    axes.set_title("Prop. 2: first order in h = √η")
    lines = axes.get_legend_handles_labels()[0]
    axes.legend(handles=[*lines, *marks], loc="lower right", fontsize=8.5)


def _growth(dataset: xr.Dataset, axes: Axes) -> None:
    """Draw the size of the state under the flow, and the lines that the radius predicts."""
    flow = dataset.sel(dynamics="flow", start=dataset.start[0]).isel(turn=slice(_TURNS + 1))
    turn = flow.turn.values
    for label in flow.setting.values:
        one = flow.sel(setting=label)
        log, slope = one.log_size.values / np.log(10), float(one.log_radius) / np.log(10)
        colour = _UP if slope > 0 else _DOWN
        # Only slopes are compared: each is shifted onto its line once the start is forgotten.
        log = log - np.mean((log - slope * turn)[len(turn) // 2 :])
        axes.plot(turn, log, color=colour, linewidth=2.2, alpha=0.4, solid_capstyle="butt")
        axes.plot(turn, slope * turn, color=INK, linewidth=0.8, linestyle=(0, (4, 2)))
    axes.axhline(0, color=INK, linewidth=0.6)
    axes.set_ylim(*_DECADES)
    axes.yaxis.set_major_locator(MultipleLocator(4))
    axes.set_xlim(0, turn[-1])
    axes.set_xlabel("periods")
    axes.set_ylabel("size of the state, powers of ten")
    axes.set_title("Thm. 1: growth by ρ per period")
    handles = [
        Line2D([], [], color=_UP, linewidth=2.2, alpha=0.5, label="trajectory, ρ > 1"),
        Line2D([], [], color=_DOWN, linewidth=2.2, alpha=0.5, label="trajectory, ρ < 1"),
        Line2D([], [], color=INK, lw=0.8, ls=(0, (4, 2)), label="slope log ρ"),
    ]
    axes.legend(handles=handles, loc="lower right", fontsize=8.5)


def plot_propositions(dataset: xr.Dataset) -> Figure:
    """Return the three panels made from `compute_propositions`.

    Left, means of drawn gradients less what Proposition 1 expects, each a dot, in standard errors.
    Middle, how far SGDm is from the exact flow as the step size falls with the friction held: marks
    are measured, lines have the slopes of first order. Right, trajectories of the flow over many
    periods beside the growth that the spectral radius gives.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(13.0, 4.4)
        first, second, third = figure.subplots(1, 3)
        _gradients(dataset, first)
        _orders(dataset, second)
        _growth(dataset, third)
    return figure
