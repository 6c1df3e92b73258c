"""Figures: they read labelled datasets only, so that restyling never recomputes."""

from resonax.figures.map import plot_map
from resonax.figures.style import save_figure

__all__ = ["plot_map", "save_figure"]
