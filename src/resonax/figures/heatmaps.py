"""Simulated maps as pictures, with the contours of the theory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from resonax.figures.style import STYLE, new_figure
from resonax.labels import LABELS, axis_label

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_heatmaps"]

_RADII = (1.0, 1.1, 1.25, 1.5)  # per period
_REDS = ("white", "#fdbe85", "#fd6a4a", "#c51b24")
_OWN = {
    "map_rate": "boundary of the expected update",
    "lyapunov_rate": "boundary for almost every run",
    "mean_square_rate": "boundary of the mean square",
}
_PERIODS = np.array([20, 25, 30, 40, 60, 100, 200, 1000])


def _edges(values: np.ndarray) -> np.ndarray:
    half = np.diff(values) / 2 if len(values) > 1 else np.array([0.5])
    inner = values[:-1] + half[: len(values) - 1]
    return np.concatenate([[values[0] - half[0]], inner, [values[-1] + half[-1]]])


def _inverse(values: np.ndarray) -> bool:
    """Whether values are evenly spaced in their inverse, as periods of even frequencies are."""
    if len(values) < 3 or values[0] <= 0:
        return False
    return bool(np.ptp(np.diff(1 / values)) < 1e-6 * abs(1 / values[0] - 1 / values[-1]))


def _paint(panel: xr.Dataset, axes: Axes, limits: tuple[float, float]) -> Any:
    vertical, horizontal = panel.log_response.dims
    y, x = panel[vertical].values, panel[horizontal].values
    scaled = 1 / x if _inverse(x) else x
    order = np.argsort(scaled)
    values = panel.log_response.values[:, order] / np.log(10)
    image = axes.pcolormesh(
        _edges(scaled[order]),
        _edges(y),
        values,
        cmap="viridis",
        vmin=limits[0],
        vmax=limits[1],
        rasterized=True,
    )
    if "flow_rate" in panel and horizontal == "period" and np.isfinite(panel.flow_rate).all():
        log_radius = (panel.flow_rate * panel.period).values[:, order]
        levels = [np.log(radius) for radius in _RADII if np.log(radius) < log_radius.max()]
        if levels and min(log_radius.shape) > 1:
            colours = _REDS[: len(levels)]
            axes.contour(scaled[order], y, log_radius, levels, colors=colours, linewidths=1.1)
    for name in _OWN:
        if name in panel and np.isfinite(panel[name]).all() and min(values.shape) > 1:
            rate = panel[name].values[:, order]
            if rate.min() < 0 < rate.max():
                axes.contour(
                    scaled[order],
                    y,
                    rate,
                    [0.0],
                    colors="white",
                    linestyles="--",
                    linewidths=1.1,
                )
    if _inverse(x):
        ticks = _PERIODS[(x.min() * 0.999 <= _PERIODS) & (x.max() * 1.001 >= _PERIODS)]
        axes.set_xticks(1 / ticks, [f"{tick:d}" for tick in ticks])
        axes.set_xlim(scaled.min(), scaled.max())
        axes.invert_xaxis()
    return image


def _legend(dataset: xr.Dataset) -> list[Line2D]:
    lines = []
    if "flow_rate" in dataset:
        largest = float(np.exp((dataset.flow_rate * dataset.period).max()))
        for radius, colour in zip(_RADII, _REDS, strict=True):
            if radius >= largest:
                continue
            label = "flow: ρ = 1" if radius == 1 else f"ρ = {radius:g}"
            lines.append(Line2D([], [], color=colour, linewidth=1.4, label=label))
    for name, words in _OWN.items():
        if name in dataset and bool(np.isfinite(dataset[name]).any()):
            lines.append(Line2D([], [], color="white", ls="--", linewidth=1.4, label=words))
    return lines


def plot_heatmaps(dataset: xr.Dataset) -> Figure:
    """Return the maps of a sweep: the colour is the response, the lines are the theory's."""
    names = [str(name) for name in dataset.panel.values]
    columns = 1 if len(names) == 1 else 2
    rows = -(-len(names) // columns)
    vertical, horizontal = (str(name) for name in dataset.log_response.dims[1:])
    log10 = dataset.log_response.values / np.log(10)
    limits = (max(-6.0, float(np.nanmin(log10))), min(6.0, float(np.nanmax(log10))))
    if limits[0] >= limits[1]:
        limits = (limits[0] - 1.0, limits[0] + 1.0)
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.4 if columns == 1 else 11.0, 0.9 + (4.4 if rows == 1 else 3.2 * rows))
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        image = None
        for name, axes in zip(names, grid.flat, strict=False):
            image = _paint(dataset.sel(panel=name), axes, limits)
            if len(names) > 1:
                axes.set_title(name.replace("ar2", "AR(2)").replace("lr", "η ="))
        for axes in list(grid.flat)[len(names) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel(axis_label(horizontal) if horizontal in LABELS else horizontal)
        for axes in grid[:, 0]:
            axes.set_ylabel(axis_label(vertical) if vertical in LABELS else vertical)
        bar = figure.colorbar(image, ax=grid, extend="both", pad=0.02, aspect=30)  # pyright: ignore[reportArgumentType]
        bar.set_label("log₁₀ of the mean distance from the solution, last steps")
        lines = _legend(dataset)
        if lines:
            figure.legend(
                handles=lines,
                loc="outside lower center",
                ncols=3 if columns == 1 else len(lines),
                frameon=True,
                facecolor="#3b528b",
                labelcolor="white",
                edgecolor="none",
            )
        figure.suptitle(dataset.attrs.get("title", ""), x=0.01, ha="left", fontsize=12)
    return figure
