"""Figures: they read labelled datasets only, so that restyling never recomputes."""

from resonax.figures.check import plot_check
from resonax.figures.dark import darken
from resonax.figures.map import plot_map
from resonax.figures.style import save_figure
from resonax.figures.sweeps import drawn_part, plot_sweep

__all__ = ["darken", "drawn_part", "plot_check", "plot_map", "plot_sweep", "save_figure"]
