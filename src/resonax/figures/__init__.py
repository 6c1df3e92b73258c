"""Figures: they read labelled datasets only, so that restyling never recomputes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from resonax.figures.check import plot_check
from resonax.figures.dark import darken
from resonax.figures.map import plot_map
from resonax.figures.style import save_figure

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

__all__ = ["darken", "plot_check", "plot_experiment", "plot_map", "save_figure"]

_MANY = 12  # values of the first axis from which a sweep is drawn as a map


def plot_experiment(name: str, dataset: xr.Dataset) -> Figure:
    """Return the figure of an experiment, by its id; a sweep of one's own is a map or curves."""
    if name == "problem-setting":
        from resonax.figures.problem_setting import plot_problem_setting as plot
    elif name == "propositions":
        from resonax.figures.propositions import plot_propositions as plot
    elif name == "spectra":
        from resonax.figures.spectra import plot_spectra as plot
    elif name == "theory-maps":
        from resonax.figures.theory_maps import plot_theory_maps as plot
    elif len(dataset[dataset.log_response.dims[1]]) >= _MANY:
        from resonax.figures.heatmaps import plot_heatmaps as plot
    else:
        from resonax.figures.curves import plot_curves as plot
    return plot(dataset)
