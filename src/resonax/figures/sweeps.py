"""The figure of a sweep: a map where its first axis is fine, else curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resonax.figures.curves import plot_curves
from resonax.figures.heatmaps import plot_heatmaps

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from resonax.store import Layout

__all__ = ["drawn_part", "plot_sweep"]

_MAX_POINTS = 2_000  # along an axis of a map: a figure has fewer pixels
_MIN_MAP_ROWS = 12  # values of the first axis from which a sweep is drawn as a map


def drawn_part(layout: Layout) -> tuple[list[str], int | None]:
    """Return the variables of a sweep that its figure shows, and how many points of an axis.

    A map shows no single runs, and no more points than it has pixels: it is drawn from a part of
    the results that is bounded, however many they are.
    """
    variables = layout.variables
    if len(layout.coords[variables["log_response"].dims[1]]) < _MIN_MAP_ROWS:
        return list(variables), None
    return [name for name, variable in variables.items() if "run" not in variable.dims], _MAX_POINTS


def plot_sweep(dataset: xr.Dataset) -> Figure:
    """Return the figure of a dataset that `run_sweep` or `open_store` returned.

    Responses over the second axis: a map, with the lines of the theory that was asked for, if the
    first axis has at least 12 values, else a curve for each of them.
    """
    is_map = len(dataset[dataset.log_response.dims[1]]) >= _MIN_MAP_ROWS
    return plot_heatmaps(dataset) if is_map else plot_curves(dataset)
