"""The six theory maps as one figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib
from matplotlib.cm import ScalarMappable
from matplotlib.colors import AsinhNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from resonax.core.labels import axis_label
from resonax.figures.map import add_scale, paint
from resonax.figures.style import DIVERGING, INK, STYLE, new_figure

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_theory_maps"]

# Growth per 1000 steps: close to proportional near 0, logarithmic beyond, one scale for all.
_TICKS = [-100.0, -30.0, -10.0, -3.0, 0.0, 3.0, 10.0, 30.0, 100.0]


def plot_theory_maps(dataset: xr.Dataset) -> Figure:
    """Return the maps: a row for each step size, high momenta and all momenta."""
    wide = dataset[["wide_rate"]].rename(
        wide_rate="rate", wide_momentum="momentum", wide_period="period"
    )
    zoom = dataset[["rate"]]
    with matplotlib.rc_context(STYLE):
        figure = new_figure(11.0, 9.6)
        norm = AsinhNorm(linear_width=3.0, vmin=-160.0, vmax=160.0)
        grid = figure.subplots(len(dataset.lr), 2, sharex="col", sharey="col")
        for row, lr in enumerate(dataset.lr.values):
            for axes, maps, words in zip(
                grid[row], (zoom, wide), ("high momenta", "all momenta"), strict=True
            ):
                paint(maps.sel(lr=lr), axes, norm)
                axes.set_title(f"η = {lr:g}, {words}")
                axes.set_ylabel(axis_label("momentum"))
            best = wide.sel(lr=lr).rate.idxmin("momentum")
            grid[row][1].plot(best.period, best, color=INK, ls="--", lw=1.0)
            low, high = zoom.period.values[[0, -1]], zoom.momentum.values[[0, -1]]
            corner, size = (low[0], high[0]), (low[1] - low[0], high[1] - high[0])
            grid[row][1].add_patch(Rectangle(corner, *size, fill=False, ls=":", lw=1.0, ec=INK))
        for axes in grid[-1]:
            axes.set_xlabel(axis_label("period"))
        add_scale(figure, ScalarMappable(norm, DIVERGING), grid, _TICKS)
        figure.suptitle(
            "Where the flow diverges: sinusoidal mean of amplitude 0.5, inputs of variance 1; "
            "solid line ρ = 1,\ndashed line the fastest momentum, dotted frame the left panel",
            x=0.01,
            ha="left",
            fontsize=11,
        )
    return figure
