"""An audit of a loader: its batches over the steps, and the runs on them in order and mixed."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from resonax.figures.style import BLUE, GREY, INK, PALE, RED, STYLE, escape_text, new_figure

__all__ = ["plot_audit"]


def plot_audit(audit: Any) -> Figure:
    """Return the loss of the run in order and of those on mixed rows, above what batches hold.

    The arrow goes from where the run is at its end to where mixed rows were as good: its length is
    the lost steps. Below are the numbers of the batches in which an order was looked for, one row
    for each, and above them a bar as long as the rhythm.
    """
    with matplotlib.rc_context(STYLE):
        if not audit.marks:
            figure = new_figure(7.2, 2.4)
            _draw_batches(figure.subplots(), audit)
            return figure
        figure = new_figure(7.2, 4.6)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        _draw_runs(above, audit)
        _draw_batches(below, audit)
        above.set_title(escape_text(_title(audit)), fontsize=10)
    return figure


def _title(audit: Any) -> str:
    words = [audit.order, *([audit.harm] if audit.harm != "none" else [])]
    return ", ".join(words) + (f": {audit.cause}" if audit.cause else "")


def _draw_runs(axes: Any, audit: Any) -> None:
    low, high = audit.loss_limits()
    for number, one in enumerate(audit.mixed):
        label = "mixed rows" if number == 0 else None
        axes.plot(audit.marks, _finite(one), color=BLUE, linewidth=0.9, alpha=0.6, label=label)
    colour = RED if audit.harm == "harmful" else INK
    axes.plot(audit.marks, _finite(audit.own), color=colour, linewidth=1.8, label="in this order")
    axes.set_ylim(low, high)
    lost = audit.lost_steps
    if lost is not None and lost.low > 0 and np.isfinite(lost.own) and lost.own < high:
        axes.annotate(
            "", (lost.position, lost.own), (audit.steps, lost.own),
            arrowprops={"arrowstyle": "->", "color": INK},
        )  # fmt: skip
        axes.annotate(
            f"{lost.lost:.0f} steps lost", (lost.position + lost.lost / 2, lost.own), (0, 4),
            textcoords="offset points", ha="center", fontsize=8,
            bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
        )  # fmt: skip
    axes.set_ylabel("loss on all rows")
    axes.legend(fontsize=8)


def _finite(losses: Any) -> np.ndarray:
    values = np.asarray(losses, float)
    return np.where(np.isfinite(values), values, np.nan)


def _draw_batches(axes: Any, audit: Any) -> None:
    series = np.asarray(audit.series)
    if series.size:
        axes.imshow(
            series.T, aspect="auto", cmap="RdBu_r", vmin=-2.5, vmax=2.5, interpolation="nearest",
            extent=(0, audit.steps, 0, series.shape[1]),
        )  # fmt: skip
    if audit.period and audit.period < audit.steps:
        rows = series.shape[1]
        axes.plot([0, audit.period], [rows * 1.1] * 2, "|-", color=INK, clip_on=False, markersize=6)
        axes.annotate(
            f"repeats about every {audit.period:.3g} steps", (audit.period, rows * 1.1), (6, 0),
            textcoords="offset points", va="center", fontsize=8, annotation_clip=False,
        )  # fmt: skip
    axes.set(xlabel="step", ylabel="numbers\nof a batch", yticks=[])
    axes.set_facecolor(PALE)
    axes.tick_params(colors=GREY)
