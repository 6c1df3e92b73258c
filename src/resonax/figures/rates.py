"""Growth rates with their intervals, beside the line between growth and decay."""

from __future__ import annotations

import textwrap
from typing import Protocol

import matplotlib
from matplotlib.figure import Figure

from resonax.figures.style import BLUE, GREY, INK, RED, STYLE, escape_text, new_figure

__all__ = ["plot_rates"]


class RatesLike(Protocol):
    """What has growth rates, each with its interval."""

    def intervals(self) -> dict[str, tuple[float, float, float]]: ...


def plot_rates(result: RatesLike) -> Figure:
    """Return the rates of a result: red grows, blue falls, grey is an interval that includes 0."""
    rows = list(result.intervals().items())
    title = escape_text(str(result).partition("\n")[0])
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.2, 1.3 + 0.36 * max(len(rows), 1))
        axes = figure.add_subplot()
        axes.axvline(0, color=INK, linewidth=0.8)
        for place, (_, (rate, low, high)) in enumerate(rows):
            color = RED if low > 0 else BLUE if high < 0 else GREY
            axes.plot([low, high], [place, place], color=color, linewidth=2.2)
            axes.plot([rate], [place], "o", color=color)
        axes.set_yticks(range(len(rows)), [escape_text(name) for name, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("growth rate per step:  ← converges    diverges →")
        axes.set_title(textwrap.fill(title, 72), fontsize=10)
    return figure
