"""A guarded run: its loss, what it trained with, what the guard tried and what it did."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from resonax.figures.style import BLUE, GREY, INK, RED, STYLE, escape_text, new_figure

__all__ = ["plot_guarded_run"]

_MIN_LABEL_WIDTH = 0.05  # share of the width below which a setting has no label


def plot_guarded_run(report: Any) -> Figure:
    """Return the loss of a run and its momentum over the steps, with the decisions of the guard.

    Dots are the loss on past data where it was judged, triangles replays: those in grey changed
    nothing. Red lines are where the run went back, shaded what was trained again, grey lines where
    it returned to an earlier setting. Steps whose rows were mixed are dashed. The bar above the
    momentum is as long as the rhythm of the inputs.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, 4.6)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        _draw_loss(above, report)
        for one in report.decisions:
            is_back = one.why == "return"
            for axes in (above, below):
                axes.axvline(one.step, color=GREY if is_back else RED, linewidth=0.9, zorder=1)
            if not is_back:
                above.axvspan(one.step - one.rewound, one.step, color=RED, alpha=0.1, linewidth=0)
        _draw_tests(above, report)
        _draw_momentum(below, report)
        _draw_rhythm(below, report)
        above.set_title(escape_text(_title(report)), fontsize=10, pad=12)
        above.set_xlim(0, max(report.step, 1))
        handles, labels = above.get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside lower center", ncols=4, fontsize=8, handlelength=1.5
        )
    return figure


def _title(report: Any) -> str:
    changed = "" if report.setting == report.own else f" (at first {report.own})"
    return f"{report.setting}{changed}, policy {report.policy}"


def _draw_loss(axes: Any, report: Any) -> None:
    steps = report.spacing * (0.5 + np.arange(len(report.losses)))
    losses = np.where(np.isfinite(report.losses), report.losses, np.nan)
    axes.plot(steps, losses, color=BLUE, label=f"loss, mean of {report.spacing} steps")
    judged = () if report.log is None else report.log.judged
    seen = [
        (one.step, one.losses[0]) for one in judged if one.losses and np.isfinite(one.losses[0])
    ]
    if seen:
        axes.plot(*zip(*seen, strict=True), ".", color=INK, markersize=4, label="on past data")
    shown = np.array([*losses, *(loss for _, loss in seen)])
    if np.nanmax(shown, initial=0) > 0 and np.nanmin(shown, initial=np.inf) > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
        axes.yaxis.set_minor_formatter("{x:g}")
    axes.set_ylabel("loss")


def _draw_tests(axes: Any, report: Any) -> None:
    """Mark the steps after which something was replayed, along the upper edge."""
    judged = () if report.log is None else report.log.judged
    replayed = {one.step for one in judged if len(one.losses) > 1}
    changed = {one.step for one in report.decisions}
    for steps, colour, label in (
        (replayed - changed, GREY, "replay, nothing changed"),
        (changed, RED, "replay and change"),
    ):
        if steps:
            places = sorted(steps)
            axes.plot(
                places, [1.0] * len(places), "v", color=colour, markersize=6, label=label,
                transform=axes.get_xaxis_transform(), clip_on=False, zorder=3,
            )  # fmt: skip


def _draw_momentum(axes: Any, report: Any) -> None:
    edges = [0, *(one.step for one in report.decisions), max(report.step, 1)]
    changes = report.policy != "watch"
    used = [one.before for one in report.decisions]
    used.append(report.decisions[-1].after if used and changes else report.candidate)
    for first, last, one in zip(edges[:-1], edges[1:], used, strict=True):
        style = "--" if one.is_mixed else "-"
        axes.plot([first, last], [one.momentum] * 2, style, color=BLUE, linewidth=2)
        if last - first > _MIN_LABEL_WIDTH * edges[-1] or len(used) == 1:
            axes.annotate(
                _candidate_label(one), (first, one.momentum), (4, -4), textcoords="offset points",
                fontsize=8, va="top",
            )  # fmt: skip
    axes.set(ylim=(-0.05, 1.05), ylabel="momentum", xlabel="step")


def _candidate_label(candidate: Any) -> str:
    parts = [f"{candidate.momentum:g}"]
    if candidate.lr != 1:
        parts.append(f"lr x {candidate.lr:g}")
    if candidate.is_mixed:
        parts.append("rows mixed")
    return ", ".join(parts)


def _draw_rhythm(axes: Any, report: Any) -> None:
    """Draw a bar as long as the rhythm, in the lower right corner."""
    if not report.period or report.period > 0.5 * report.step:
        return
    last = 0.98 * report.step
    first = last - report.period
    axes.plot([first, last], [0.08] * 2, "|-", color=INK, linewidth=1.2, markersize=7)
    axes.annotate(
        f"the batches repeat about every {report.period:.1f} steps", (first, 0.08), (-6, 0),
        textcoords="offset points", ha="right", va="center", fontsize=8,
    )  # fmt: skip
