"""Figures of a check: map of rates, training, surrogates and spectrum of the rows."""

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

__all__ = ["CheckLike", "plot_check", "plot_panels"]

_MIN_POWER = 1e-5  # lower end of the axis of the spectrum, whose largest value is 1
_TITLE_WIDTH = 150  # characters
_BINS_PER_DECADE = 100  # of the spectrum


class CheckLike(Protocol):
    """The attributes of a `resonax.checking.result.Check` that its figures use."""

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


def plot_check(check: CheckLike) -> Figure:
    """Return one figure with all panels for which the check has data."""
    right = ["training", "rhythms"] if "error" in check.dataset else ["rhythms"]
    with matplotlib.rc_context(STYLE):
        figure = new_figure(13.2, 8.8 if "without_values" in check.dataset else 7.6)
        title = textwrap.fill(f"{check.verdict.capitalize()}: {check.meaning()}", _TITLE_WIDTH)
        figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        halves = figure.subfigures(1, 2, wspace=0.03, squeeze=False)
        for half, column in zip(halves[0], (["map", "orders"], right), strict=True):
            heights = [_PANELS[name][1] for name in column]
            parts = half.subfigures(len(column), 1, height_ratios=heights, squeeze=False)
            for part, name in zip(parts[:, 0], column, strict=True):
                _PANELS[name][0](part, check)
    return figure


def plot_panels(check: CheckLike, names: Container[str] | None = None) -> dict[str, Figure]:
    """Return the panels "map", "training", "orders" and "rhythms", each as a figure of its own.

    Parameters
    ----------
    check
        A check.
    names
        Panels to draw; all by default. Without a target there is no "training".
    """
    figures = {}
    for name, (draw, height) in _PANELS.items():
        if names is not None and name not in names:
            continue
        if name == "training" and "error" not in check.dataset:
            continue
        if name == "rhythms" and "without_values" not in check.dataset:
            height = 3.4  # only one of its two axes
        with matplotlib.rc_context(STYLE):
            figures[name] = new_figure(6.6, height)
            draw(figures[name], check)
    return figures


def _draw_training(figure: Figure | SubFigure, check: CheckLike) -> None:
    """Draw the loss of the model, trained on the rows in order and shuffled."""
    axes = figure.add_subplot()
    step = check.dataset.step.values
    orders = {
        "shuffled": (BLUE, "the same rows shuffled"),
        "chronological": (RED, "rows in order"),
    }
    for order, (color, label) in orders.items():
        error = check.dataset.error.sel(order=order).values
        error = np.where(np.isfinite(error), error, np.nan)
        axes.plot(step, error, color=color, linewidth=1.3, label=label)
        if "learner_error" in check.dataset:
            learner_error = check.dataset.learner_error.sel(order=order).values
            axes.plot(
                step,
                learner_error,
                ".",
                color=color,
                markersize=3.5,
                label=f"your learner, {order}",
            )
        if order == "chronological" and check.verdict == "diverges":
            # The axis has the decimal logarithm of a square: twice that of the distance.
            trend = 2 * _cause_rate(check) / math.log(10) * step
            trend += np.nanmedian(error - trend)
            axes.plot(step, trend, color=INK, linewidth=0.9, linestyle="--", label="average growth")
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.09 * len(axes.lines) * (high - low))  # room for the legend
    exponent_axis(axes.yaxis)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.xaxis.set_major_locator(MaxNLocator(6))
    loss = "squared error" if check.settings["loss"] == "squared" else "logistic loss"
    axes.set(xlabel="step", ylabel=loss, title="The model, trained on these rows")
    axes.legend(loc="upper left")


def _draw_rhythms(figure: Figure | SubFigure, check: CheckLike) -> None:
    """Draw the spectrum of the rows, and below it the rate without each band of periods."""
    dataset = check.dataset
    if "without_values" in dataset:
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=[1, 1.1])
        _draw_rates_without_bands(below, check)
    else:
        axes = below = figure.add_subplot()
    below.set_xlabel("period (steps)")
    axes.set_xscale("log")
    axes.set_yscale("log")
    if "tongues" in dataset:
        # Periods at which, by theory, one pure rhythm of this strength is unstable.
        for index, (low, high) in enumerate(dataset.tongues.values):
            label = "a pure rhythm grows" if index == 0 else None  # one entry in the legend
            axes.axvspan(low, high, color=RED, alpha=0.14, linewidth=0, label=label)
    lines = (("power_products", GREY, "products of columns"), ("power", INK, "columns"))
    period = dataset.period.values
    for name, color, label in lines:
        middle, power = _power_per_octave(period, dataset[name].values)
        axes.plot(middle, power, color=color, linewidth=1.1, label=label)
    axes.set_xlim(period.min(), period.max())
    axes.set_ylim(bottom=max(axes.get_ylim()[0], _MIN_POWER), top=6)
    if check.period is not None:
        for part in {axes, below}:
            part.axvline(check.period, color=RED, linewidth=1.0, linestyle=(0, (1, 1.5)))
        _label_period(axes, check.period, float(period.min()), float(period.max()))
    log_axis(axes.xaxis)
    log_axis(axes.yaxis)
    axes.set(ylabel="power, largest = 1", title="The rhythms in the data")
    axes.legend(loc="best", fontsize=8.5)


def _label_period(axes: Axes, period: float, shortest: float, longest: float) -> None:
    """Write a period beside its line, on the left of it near the right end of the axis."""
    is_near_end = math.log(period / shortest) > 0.7 * math.log(longest / shortest)
    axes.annotate(
        f"{period:.3g} steps",
        (period, 1),
        (-4 if is_near_end else 4, -10),
        ("data", "axes fraction"),
        "offset points",
        color=RED,
        fontsize=9,
        fontweight="bold",
        ha="right" if is_near_end else "left",
    )


def _draw_rates_without_bands(axes: Axes, check: CheckLike) -> None:
    """Draw the rate of the rows without each band of periods."""
    dataset = check.dataset
    lines = (
        ("without_size", GREY, "s", "removed from the size of the rows"),
        ("without_values", INK, "o", "removed from their values"),
    )
    for name, color, marker, label in lines:
        style: Any = {"color": color, "marker": marker, "markersize": 3.5, "linewidth": 1.1}
        axes.plot(dataset.band, dataset[name], label=label, **style)
    rate = _cause_rate(check)
    axes.axhline(rate, color=RED, linewidth=1.0, linestyle="--", label="nothing removed")
    axes.set(ylabel="growth per step", title="Growth without a band of periods")
    _shade_growth(axes)
    axes.legend(loc="best", fontsize=8.5)


def _draw_orders(figure: Figure | SubFigure, check: CheckLike) -> None:
    """Draw the rates of surrogates of the rows: shuffled, phase-randomised, stretched in time."""
    dataset = check.dataset
    groups = [("shuffled", dataset.shuffled.values, BLUE)]
    if "randomised" in dataset:
        groups.append(("random\nphases", dataset.randomised.values, GREY))
    has_stretched = "stretched" in dataset
    if has_stretched:
        axes, stretched_axes = figure.subplots(1, 2, sharey=True, width_ratios=[1.1, 1])
        _draw_stretched(stretched_axes, check)
    else:
        axes = figure.add_subplot()
    interval = [[check.rate - check.low], [check.high - check.rate]]
    axes.errorbar([0], [check.rate], interval, fmt="o", color=RED, capsize=4, markersize=7)
    for x, (_, rates, color) in enumerate(groups, start=1):
        jitter = 0.14 * np.sin(2.4 * np.arange(len(rates)))  # so that equal dots stay apart
        axes.plot(x + jitter, rates, "o", color=color, alpha=0.6, markeredgewidth=0, ms=5)
    axes.set_xticks(range(1 + len(groups)), ["in order", *(name for name, _, _ in groups)])
    axes.set_xlim(-0.6, len(groups) + 0.6)
    axes.set(ylabel="growth per step", title="Surrogates of the rows")
    _shade_growth(axes, has_words=not has_stretched)
    if has_stretched:
        _shade_growth(stretched_axes)


def _draw_stretched(axes: Axes, check: CheckLike) -> None:
    """Draw the rate of the rows stretched in time; the rows themselves have the factor 1."""
    dataset = check.dataset
    style: Any = {"color": INK, "markersize": 3.5, "linewidth": 1.1}
    axes.set_xscale("log")
    axes.plot(dataset.stretch, dataset.stretched, "o-", **style)
    axes.plot([1.0], [_cause_rate(check)], "o", color=RED, markersize=7)
    axes.xaxis.set_major_locator(FixedLocator([0.5, 0.7, 1, 1.4, 2]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.set_xlabel("factor of stretching in time")


def _shade_growth(axes: Axes, has_words: bool = True) -> None:
    """Shade the positive and the negative side of an axis of rates, and say which one grows."""
    low, high = axes.get_ylim()
    margin = 0.15 * max(abs(low), abs(high))
    low, high = min(low, -margin), max(high, margin)
    axes.axhline(0, color=INK, linewidth=0.8, zorder=-1)
    for end, word, color, va in ((high, "grows", RED, "bottom"), (low, "falls", BLUE, "top")):
        axes.axhspan(0, 2 * end, color=color, alpha=0.05, linewidth=0, zorder=-2)
        if has_words:
            shift = (5, math.copysign(3, end))
            coordinates = ("axes fraction", "data")
            style: Any = {"color": color, "fontsize": 9, "va": va}
            axes.annotate(word, (1, 0), shift, coordinates, "offset points", **style)
    axes.set_ylim(low, high)
    axes.yaxis.set_major_formatter("{x:g}")


def _cause_rate(check: CheckLike) -> float:
    """Return the rate over the rows in which a cause was searched, which may be a part of them."""
    return float(check.dataset.attrs.get("rate", check.rate))


def _power_per_octave(period: np.ndarray, power: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the middle and the mean power per octave of logarithmic bins, the largest being 1.

    Over a logarithmic axis of periods, equal areas under it are equal powers. Periods ascend.
    """
    weighted = power / period
    bins = np.floor(np.log10(period) * _BINS_PER_DECADE).astype(int)
    starts = np.flatnonzero(np.diff(bins, prepend=bins[0] - 1))  # of the bins that are not empty
    counts = np.diff(np.append(starts, len(period)))
    means = np.add.reduceat(weighted, starts) / counts
    middle = np.exp(np.add.reduceat(np.log(period), starts) / counts)
    return middle, means / max(float(means.max()), 1e-300)


_PANELS: dict[str, tuple[Callable[..., None], float]] = {
    "map": (draw_map, 4.3),
    "training": (_draw_training, 3.3),
    "orders": (_draw_orders, 3.6),
    "rhythms": (_draw_rhythms, 5.2),
}
