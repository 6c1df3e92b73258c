"""A guarded run: its loss, what it trained with, and what the guard did."""

from __future__ import annotations

from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from resonax.figures.style import BLUE, GREY, RED, STYLE, foreign, new_figure

__all__ = ["plot_guarded_run"]


def plot_guarded_run(report: Any) -> Figure:
    """Return the loss of a run and its momentum over the steps, with the decisions of the guard.

    Red lines are where it went back, shaded what was trained again, grey ones where it returned to
    an earlier setting. Steps whose rows were mixed are dashed.
    """
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, 4.4)
        above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
        steps = report.spacing * (0.5 + np.arange(len(report.losses)))
        losses = np.where(np.isfinite(report.losses), report.losses, np.nan)
        above.plot(steps, losses, color=BLUE, drawstyle="default")
        above.set_ylabel(f"loss, mean of {report.spacing} steps")
        if np.nanmax(losses, initial=0) > 0 and np.nanmin(losses, initial=np.inf) > 0:
            above.set_yscale("log")
        for one in report.decisions:
            is_back = one.why == "return"
            for axes in (above, below):
                axes.axvline(one.step, color=GREY if is_back else RED, linewidth=0.9)
            if not is_back:
                above.axvspan(one.step - one.rewound, one.step, color=RED, alpha=0.1, linewidth=0)
        _draw_momentum(below, report)
        above.set_title(foreign(str(report).partition("\n")[0]), fontsize=10)
    return figure


def _draw_momentum(axes: Any, report: Any) -> None:
    edges = [0, *(one.step for one in report.decisions), max(report.step, 1)]
    changes = report.policy != "watch"
    used = [one.before for one in report.decisions]
    used.append(report.decisions[-1].after if used and changes else report.candidate)
    for first, last, one in zip(edges[:-1], edges[1:], used, strict=True):
        style = "--" if one.is_mixed else "-"
        axes.plot([first, last], [one.momentum] * 2, style, color=BLUE, linewidth=2)
        if one.lr != 1:
            axes.annotate(f"lr x {one.lr:g}", (first, one.momentum), fontsize=8, va="bottom")
    axes.set(ylim=(-0.05, 1.05), ylabel="momentum", xlabel="step")
