"""Simulated maps as pictures, with the contours of the theory."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke

from resonax.figures.style import INK, STYLE, escape_text, new_figure
from resonax.figures.ticks import cell_borders
from resonax.figures.words import axis_words, panel_words, response_words
from resonax.sweeps.panels import StoredPanel, read_panels, select_panel

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["plot_heatmaps"]

_RADII = (1.1, 1.25, 1.5)  # per period, beside 1
# Lines are seen on the darkest and on the brightest cell: a stroke of the other kind lies below.
_WHITE: Any = {"color": "white", "path_effects": [withStroke(linewidth=2.6, foreground=INK)]}
_RED: Any = {"color": "#b2182b", "path_effects": [withStroke(linewidth=1.8, foreground="white")]}
_BOUNDARIES = {
    "map": ("boundary of the expected update", (0, (5, 2))),
    "lyapunov": ("boundary for almost every run", (0, (1, 1.4))),
    "mean_square": ("boundary of the mean square", (0, (6, 1.5, 1, 1.5))),
}
_PERIODS = (20, 25, 30, 40, 60, 100, 200, 500, 1000)
_TICK_SPACING = 0.07  # of the axis, between two ticks


def _inverse(values: np.ndarray) -> bool:
    """Whether values are evenly spaced in their inverse, as periods of even frequencies are."""
    if len(values) < 3 or values[0] <= 0:
        return False
    return bool(np.ptp(np.diff(1 / values)) < 1e-6 * abs(1 / values[0] - 1 / values[-1]))


def _paint(
    panel: xr.Dataset, criteria: Collection[str], axes: Axes, limits: tuple[float, float]
) -> Any:
    vertical, horizontal = panel.log_response.dims
    y, x = panel[vertical].values, panel[horizontal].values
    scaled = 1 / x if _inverse(x) else x
    order = np.argsort(scaled)
    values = panel.log_response.values[:, order] / np.log(10)
    image = axes.pcolormesh(
        cell_borders(scaled[order]),
        cell_borders(y),
        values,
        cmap="viridis",
        vmin=limits[0],
        vmax=limits[1],
        rasterized=True,
    )
    drawable = min(values.shape) > 1
    if drawable and "flow" in criteria and "period" in panel.dims:
        log_radius = (panel.flow_rate * panel.period).values[:, order]
        _contour(axes, (scaled[order], y, log_radius), np.log(_RADII), 0.8, _RED)
        _contour(axes, (scaled[order], y, log_radius), [0.0], 1.2, _WHITE)
    for name, (_, dashes) in _BOUNDARIES.items():
        if drawable and name in criteria:
            rate = panel[f"{name}_rate"].values[:, order]
            _contour(axes, (scaled[order], y, rate), [0.0], 1.2, {**_WHITE, "linestyle": dashes})
    if _inverse(x):
        ticks = _even_ticks(x)
        names = ["∞" if np.isinf(tick) else f"{tick:g}" for tick in ticks]
        axes.set_xticks([1 / tick for tick in ticks], names)
        axes.set_xlim(scaled.max(), scaled.min())
    return image


def _contour(axes: Axes, grid: tuple[Any, Any, Any], levels: Any, width: float, look: Any) -> None:
    """Draw those of the levels that the values cross."""
    values = grid[2]
    crossed = [level for level in levels if (values < level).any() and (values > level).any()]
    if crossed:
        lines = axes.contour(
            *grid,
            crossed,
            colors=look["color"],
            linewidths=width,
            linestyles=[look.get("linestyle", "solid")],
        )
        lines.set_path_effects(look["path_effects"])


def _even_ticks(periods: np.ndarray) -> list[float]:
    """Return round periods that do not crowd where the axis is even in frequencies."""
    low, high = float(periods.min()), float(periods.max())
    reach, kept = 1 / low - 1 / high, []
    for period in [*_PERIODS, *([np.inf] if np.isinf(high) else [])]:
        if 0.999 * low <= period <= 1.001 * high and (
            not kept or 1 / kept[-1] - 1 / period > _TICK_SPACING * reach
        ):
            kept.append(period)
    return kept


def _legend(dataset: xr.Dataset, panels: Iterable[StoredPanel]) -> list[Line2D]:
    lines = []
    criteria = {name for panel in panels for name in panel.criteria}
    if "flow" in criteria and "period" in dataset.dims:
        lines.append(Line2D([], [], **_WHITE, lw=1.4, label="flow: ρ = 1"))
        largest = float(np.exp((dataset.flow_rate * dataset.period).max()))
        if inner := ", ".join(f"{radius:g}" for radius in _RADII if radius < largest):
            lines.append(Line2D([], [], **_RED, lw=1.0, label=f"flow: ρ = {inner}, inwards"))
    for name, (words, dashes) in _BOUNDARIES.items():
        if name in criteria:
            lines.append(Line2D([], [], **_WHITE, lw=1.4, ls=dashes, label=words))
    return lines


def plot_heatmaps(dataset: xr.Dataset) -> Figure:
    """Return the maps of a sweep: the colour is the response, the lines are the theory's."""
    panels = read_panels(dataset)
    names = [str(name) for name in dataset.panel.values]
    cells = {name: select_panel(dataset, name) for name in names}
    columns = 1 if len(names) == 1 else 2
    rows = -(-len(names) // columns)
    vertical, horizontal = (str(name) for name in dataset.log_response.dims[1:])
    log10 = np.concatenate([panel.log_response.values.ravel() for panel in cells.values()])
    log10 /= np.log(10)
    limits = (max(-6.0, float(np.nanmin(log10))), min(6.0, float(np.nanmax(log10))))
    if limits[0] >= limits[1]:
        limits = (limits[0] - 1.0, limits[0] + 1.0)
    with matplotlib.rc_context(STYLE):
        figure = new_figure(7.4 if columns == 1 else 11.0, 0.9 + (4.4 if rows == 1 else 3.2 * rows))
        grid = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
        image = None
        for name, axes in zip(names, grid.flat, strict=False):
            image = _paint(cells[name], panels[name].criteria, axes, limits)
            if len(names) > 1:
                axes.set_title(panel_words(dataset, name))
        for axes in list(grid.flat)[len(names) :]:
            axes.set_visible(False)
        for axes in grid[-1]:
            axes.set_xlabel(axis_words(horizontal))
        for axes in grid[:, 0]:
            axes.set_ylabel(axis_words(vertical))
        bar = figure.colorbar(
            image,  # pyrefly: ignore[bad-argument-type]
            ax=grid,
            extend="both",
            extendfrac=0.03,
            pad=0.02,
            aspect=30,
        )
        kinds = dict.fromkeys(response_words(panel) for panel in panels.values())
        bar.set_label(f"log₁₀ of the mean {' or '.join(kinds)}, last steps")
        lines = _legend(dataset, panels.values())
        if lines:
            figure.legend(handles=lines, loc="outside lower center", ncols=2)
        figure.suptitle(escape_text(dataset.attrs.get("title", "")), x=0.01, ha="left", fontsize=12)
    return figure
