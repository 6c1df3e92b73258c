"""The pictures of a check: map, rhythms, surrogates, training."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any, Protocol

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from resonax.figures.check_map import draw_map
from resonax.figures.style import BLUE, GREY, INK, RED, STYLE, new_figure
from resonax.figures.ticks import exponent_axis, log_axis

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Checked", "plot_check", "plot_panels"]

_DECADES = 5  # of power that are shown
_TITLE = 150  # characters of a line of the title
_BINS = 100  # of the spectrum, in each decade of periods


class Checked(Protocol):
    """What the pictures need to know of a check."""

    @property
    def dataset(self) -> xr.Dataset: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def safe(self) -> dict[str, float | int | None]: ...
    @property
    def verdict(self) -> str: ...
    @property
    def rate(self) -> float: ...
    @property
    def low(self) -> float: ...
    @property
    def high(self) -> float: ...
    @property
    def period(self) -> float | None: ...
    def meaning(self) -> str: ...


def plot_check(check: Checked) -> Figure:
    """Return one figure with all pictures for which a check has the numbers."""
    right = ["training", "rhythms"] if "error" in check.dataset else ["rhythms"]
    with matplotlib.rc_context(STYLE):
        figure = new_figure(13.2, 8.8 if "without_values" in check.dataset else 7.6)
        title = textwrap.fill(f"{check.verdict.capitalize()}: {check.meaning()}", _TITLE)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        halves = figure.subfigures(1, 2, wspace=0.03, squeeze=False)
        for half, column in zip(halves[0], (["map", "orders"], right), strict=True):
            heights = [_PANELS[name][1] for name in column]
            parts = half.subfigures(len(column), 1, height_ratios=heights, squeeze=False)
            for part, name in zip(parts[:, 0], column, strict=True):
                _PANELS[name][0](part, check)
    return figure


def plot_panels(check: Checked, names: Container[str] | None = None) -> dict[str, Figure]:
    """Return each picture as a figure of its own: map, training, orders and rhythms.

    Or those that are named. There is no training without a target, and less of the rest where no
    rhythm was looked for.
    """
    figures = {}
    for name, (draw, height) in _PANELS.items():
        if names is not None and name not in names:
            continue
        if name == "training" and "error" not in check.dataset:
            continue
        short = name == "rhythms" and "without_values" not in check.dataset
        with matplotlib.rc_context(STYLE):
            figures[name] = new_figure(6.6, 3.4 if short else height)
            draw(figures[name], check)
    return figures


def _draw_training(figure: Figure | SubFigure, check: Checked) -> None:
    """Draw the squared error of the model in both orders, and the growth that was measured."""
    axes = figure.add_subplot()
    step = check.dataset.step.values
    looks = {"shuffled": (BLUE, "the same rows shuffled"), "chronological": (RED, "rows in order")}
    for order, (color, label) in looks.items():
        error = check.dataset.error.sel(order=order).values
        error = np.where(np.isfinite(error), error, np.nan)
        axes.plot(step, error, color=color, linewidth=1.3, label=label)
        if "learner_error" in check.dataset:
            own = check.dataset.learner_error.sel(order=order).values
            axes.plot(step, own, ".", color=color, markersize=3.5, label=f"your learner, {order}")
        if order == "chronological" and check.verdict == "diverges":
            line = 2 * _rate(check) / math.log(10) * step
            line += np.nanmedian(error - line)
            axes.plot(step, line, color=INK, linewidth=0.9, linestyle="--", label="average growth")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.09 * len(axes.lines) * (high - low))  # room for the legend
    exponent_axis(axes.yaxis)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    loss = "squared error" if check.settings["loss"] == "squared" else "logistic loss"
    axes.set(xlabel="step", ylabel=loss, title="The model, trained on these rows")
    axes.legend(loc="upper left")


def _draw_rhythms(figure: Figure | SubFigure, check: Checked) -> None:
    """Draw how strong the rhythms are, and under it the rate with each of them taken out."""
    dataset = check.dataset
    if "without_values" in dataset:
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.1])
        _draw_bands(below, check)
    else:
        axes = below = figure.add_subplot()
    below.set_xlabel("period (steps)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    if "tongues" in dataset:
        for place, (low, high) in enumerate(dataset.tongues.values):
            label = None if place else "a pure rhythm grows"
            axes.axvspan(low, high, color=RED, alpha=0.14, linewidth=0, label=label)
    lines = (("power_products", GREY, "products of columns"), ("power", INK, "columns"))
    period = dataset.period.values
    for name, color, label in lines:
        axes.plot(*_octaves(period, dataset[name].values), color=color, linewidth=1.1, label=label)
    axes.set_xlim(period.min(), period.max())
    axes.set_ylim(bottom=max(axes.get_ylim()[0], 10.0**-_DECADES), top=6)
    if (found := check.period) is not None:
        for part in {axes, below}:
            part.axvline(found, color=RED, linewidth=1.0, linestyle=(0, (1, 1.5)))
        place, text = ("data", "axes fraction"), f"{found:.3g} steps"
        late = math.log(found / period.min()) > 0.7 * math.log(period.max() / period.min())
        look: Any = {"color": RED, "fontsize": 9, "fontweight": "bold"}
        look["ha"] = "right" if late else "left"
        axes.annotate(text, (found, 1), (-4 if late else 4, -10), place, "offset points", **look)
    log_axis(axes.xaxis)
    log_axis(axes.yaxis)
    axes.set(ylabel="power, largest = 1", title="The rhythms in the data")
    axes.legend(loc="best", fontsize=8.5)


def _draw_bands(axes: Axes, check: Checked) -> None:
    """Draw the rate with each band of periods taken out."""
    dataset = check.dataset
    lines = (
        ("without_size", GREY, "s", "out of the size of the rows"),
        ("without_values", INK, "o", "out of their values"),
    )
    for name, color, marker, label in lines:
        look: Any = {"color": color, "marker": marker, "markersize": 3.5, "linewidth": 1.1}
        axes.plot(dataset.band, dataset[name], label=label, **look)
    axes.axhline(_rate(check), color=RED, linewidth=1.0, linestyle="--", label="nothing taken out")
    axes.set(ylabel="growth per step", title="Growth without the rhythms around one period")
    _tint(axes)
    axes.legend(loc="best", fontsize=8.5)


def _draw_orders(figure: Figure | SubFigure, check: Checked) -> None:
    """Draw the rates of the same rows otherwise: shuffled, with random phases, stretched."""
    dataset = check.dataset
    groups = [("shuffled", dataset.shuffled.values, BLUE)]
    if "randomised" in dataset:
        groups.append(("random\nphases", dataset.randomised.values, GREY))
    if "stretched" in dataset:
        axes, beside = figure.subplots(1, 2, sharey=True, width_ratios=[1.1, 1])
        beside.set_xscale("log")
        look: Any = {"color": INK, "markersize": 3.5, "linewidth": 1.1}
        beside.plot(dataset.stretch, dataset.stretched, "o-", **look)
        beside.plot([1.0], [_rate(check)], "o", color=RED, markersize=7)
        beside.xaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 1.4, 2]))
        beside.xaxis.set_minor_locator(NullLocator())
        beside.xaxis.set_major_formatter("{x:g}")
        beside.set_xlabel("stretched in time, factor")
    else:
        axes, beside = figure.add_subplot(), None
    spread = [[check.rate - check.low], [check.high - check.rate]]
    axes.errorbar([0], [check.rate], spread, fmt="o", color=RED, capsize=4, markersize=7)
    for place, (_, rates, color) in enumerate(groups, start=1):
        shift = 0.14 * np.sin(2.4 * np.arange(len(rates)))  # so that equal dots stay apart
        axes.plot(place + shift, rates, "o", color=color, alpha=0.6, markeredgewidth=0, ms=5)
    axes.set_xticks(range(1 + len(groups)), ["in order", *(name for name, _, _ in groups)])
    axes.set_xlim(-0.6, len(groups) + 0.6)
    axes.set(ylabel="growth per step", title="The same rows otherwise")
    _tint(axes, words=beside is None)
    if beside is not None:
        _tint(beside)


def _tint(axes: Axes, words: bool = True) -> None:
    """Say on an axis of rates which side grows."""
    low, high = axes.get_ylim()
    reach = max(abs(low), abs(high))
    low, high = min(low, -0.15 * reach), max(high, 0.15 * reach)
    axes.axhline(0, color=INK, linewidth=0.8, zorder=-1)
    for end, word, color, side in ((high, "grows", RED, "bottom"), (low, "falls", BLUE, "top")):
        axes.axhspan(0, 2 * end, color=color, alpha=0.05, linewidth=0, zorder=-2)
        if words:
            place, shift = ("axes fraction", "data"), (5, math.copysign(3, end))
            look: Any = {"color": color, "fontsize": 9, "va": side}
            axes.annotate(word, (1, 0), shift, place, "offset points", **look)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter("{x:g}")


def _rate(check: Checked) -> float:
    """Return the rate where the cause was looked for, which can be a part of the rows."""
    return float(check.dataset.attrs.get("rate", check.rate))


def _octaves(period: np.ndarray, power: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the power per octave, so that areas over a logarithmic axis count, in even bins."""
    weighted = power / period
    places = np.floor(np.log10(period) * _BINS).astype(int)
    edges = np.flatnonzero(np.diff(places, prepend=places[0] - 1))  # periods are in order
    counts = np.diff(np.append(edges, len(period)))
    means = np.add.reduceat(weighted, edges) / counts
    middle = np.exp(np.add.reduceat(np.log(period), edges) / counts)
    return middle, means / max(float(means.max()), 1e-300)


_PANELS: dict[str, tuple[Callable[..., None], float]] = {
    "map": (draw_map, 4.3),
    "training": (_draw_training, 3.3),
    "orders": (_draw_orders, 3.6),
    "rhythms": (_draw_rhythms, 5.2),
}
