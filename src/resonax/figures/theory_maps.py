"""The six theory maps as one figure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

import matplotlib
from matplotlib.cm import ScalarMappable
from matplotlib.colors import AsinhNorm
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from resonax.figures.map import add_scale, paint
from resonax.figures.style import DIVERGING, INK, STYLE, new_figure
from resonax.labels import axis_label

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_theory_maps"]

# Growth per 1000 steps: close to proportional near 0, logarithmic beyond, one scale for all.
_TICKS = [-100.0, -30.0, -10.0, -3.0, 0.0, 3.0, 10.0, 30.0, 100.0]


def plot_theory_maps(maps: Mapping[str, xr.Dataset]) -> Figure:
    """Return the maps of `compute_theory_maps`: a row for each step size, zoomed and wide."""
    with matplotlib.rc_context(STYLE):
        figure = new_figure(11.0, 9.6)
        norm = AsinhNorm(linear_width=3.0, vmin=-160.0, vmax=160.0)
        grid = figure.subplots(len(maps) // 2, 2, sharex="col", sharey="col")
        for place, (dataset, axes) in enumerate(zip(maps.values(), grid.flat, strict=True)):
            paint(dataset, axes, norm)
            lr = json.loads(dataset.attrs["setting"])["optimizer"]["lr"]
            axes.set_title(f"η = {lr:g}" + (", all momenta" if place % 2 else ", high momenta"))
            axes.set_ylabel(axis_label("momentum"))
            if place % 2:
                zoom = list(maps.values())[place - 1]
                low, high = zoom.period.values[[0, -1]], zoom.momentum.values[[0, -1]]
                corner, size = (low[0], high[0]), (low[1] - low[0], high[1] - high[0])
                axes.add_patch(Rectangle(corner, *size, fill=False, ls=":", lw=1.0, ec=INK))
        for axes in grid[-1]:
            axes.set_xlabel(axis_label("period"))
        add_scale(figure, ScalarMappable(norm, DIVERGING), grid, _TICKS)
        figure.suptitle(
            "Where the flow diverges: sinusoidal mean of amplitude 0.5, inputs of variance 1; "
            "the line is ρ = 1, the dotted frame the left panel",
            x=0.01,
            ha="left",
            fontsize=11,
        )
    return figure
