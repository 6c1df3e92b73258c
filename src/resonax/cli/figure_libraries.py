"""Load what figures need: for workers that have nothing else to do.

As in `resonax.cli.libraries`, nothing is computed here.
"""

import contourpy
import matplotlib.backends.backend_agg
import matplotlib.backends.backend_svg
import matplotlib.font_manager
from PIL import Image

import resonax.figures.curves
import resonax.figures.heatmaps  # noqa: F401

__all__ = ["contourpy", "matplotlib"]

Image.preinit()  # what it would look for at its first use
