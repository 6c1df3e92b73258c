"""Draw what the order of two domains costs networks, measured, and what theory predicts.

The numbers are those of ``benchmarks/network_bands.py keep``.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter

from resonax.figures.style import BLUE, GREY, INK, RED, STYLE, new_figure

HERE = Path(__file__).parent
COLORS = {0.5: GREY, 0.9: BLUE, 0.95: RED}
SHOWN = 0.003  # step size


def draw(axes: Axes, part: dict[str, Any]) -> None:
    """Draw measured and predicted excess losses over the period, and where theory is unstable."""
    periods, loss = np.array(part["period"][1:], float), np.array(part["loss"])
    excess = loss[:, 1:] - loss[:, :1]
    mixed = {state["beta1"]: state for state in part["states"] if state["period"] == 0}
    for beta1, color in COLORS.items():
        seeds = excess[part["beta1"].index(beta1)]
        error = seeds.std(-1, ddof=1) / np.sqrt(seeds.shape[-1])
        axes.errorbar(
            periods, seeds.mean(-1), error, color=color, lw=1.6, label=f"measured, beta1 {beta1}"
        )
        predicted = np.array(mixed[beta1]["averaged"])
        if beta1 > 0.5 and np.isfinite(predicted).all():
            label = f"predicted, beta1 {beta1}"
            axes.plot(periods, predicted, color=color, lw=1.2, ls="--", label=label)
    unstable = np.array(mixed[0.95]["rate"]) > 1e-4
    edges = np.sqrt(periods[1:] * periods[:-1])
    low, high = np.r_[periods[0], edges], np.r_[edges, periods[-1]]
    label = "theory is unstable, beta1 0.95"
    for one in np.flatnonzero(unstable):
        axes.axvspan(low[one], high[one], color=RED, alpha=0.1, lw=0, label=label)
        label = ""
    axes.axhline(0, color=INK, lw=0.6)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlim(periods[0], periods[-1])
    axes.set_title(part["name"].replace("-", ", "))


def ordered(axes: Axes) -> tuple[list[Any], list[str]]:
    """Return handles and labels of a legend, what was measured first."""
    handles, labels = axes.get_legend_handles_labels()
    pairs = sorted(zip(handles, labels, strict=True), key=lambda pair: pair[1])
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]


def draw_networks(parts: list[dict[str, Any]]) -> Figure:
    """Return the picture of all networks."""
    figure = new_figure(9.0, 5.6)
    grid = figure.subplots(2, 3, sharex=True)
    for axes, part in zip(grid.T.flat, sorted(parts, key=lambda part: part["name"]), strict=True):
        draw(axes, part)
    for axes in grid[1]:
        axes.set_xlabel("period (steps)")
    for axes in grid[:, 0]:
        axes.set_ylabel("loss above mixed batches (nats)")
    handles, labels = ordered(grid[0, 0])
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    return figure


def draw_transformer(parts: list[dict[str, Any]]) -> Figure:
    """Return the picture of the transformer on text alone."""
    figure = new_figure(6.4, 3.6)
    axes = figure.subplots()
    draw(axes, next(part for part in parts if part["name"] == "transformer-text"))
    axes.set_title("")
    axes.set_xlabel("period of two domains that alternate (steps)")
    axes.set_ylabel("loss above mixed batches (nats)")
    axes.legend(*ordered(axes), loc="upper left", fontsize=8, labelcolor=INK)
    axes.set_ylim(-0.1, 0.45)
    return figure


def read() -> list[dict[str, Any]]:
    """Return what was measured and predicted at the step size that is shown."""
    parts = json.loads((HERE / "network_bands.json").read_text())
    return [part for part in parts if part["lr"] == SHOWN]


if __name__ == "__main__":
    with rc_context(STYLE):
        draw_networks(read()).savefig(HERE / "networks.png", dpi=150)
        draw_transformer(read()).savefig(HERE / "transformer.png", dpi=150)
