"""The figure of a sweep: a map where its first axis is fine, else curves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resonax.figures.curves import plot_curves
from resonax.figures.heatmaps import plot_heatmaps

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = ["plot_sweep"]

_MANY = 12  # values of the first axis from which a sweep is drawn as a map


def plot_sweep(dataset: xr.Dataset) -> Figure:
    """Return the figure of a sweep, of those that `run_sweep` and `open_store` return.

    Responses over the second axis: a map, with the lines of the theory that was asked for, if the
    first axis has at least 12 values, else a curve for each of them.
    """
    is_map = len(dataset[dataset.log_response.dims[1]]) >= _MANY
    return plot_heatmaps(dataset) if is_map else plot_curves(dataset)
