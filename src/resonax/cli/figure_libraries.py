"""Load what is left: what figures need, what is read from a store, and what is compiled anew.

As in `resonax.cli.libraries`, nothing is computed here.
"""

import importlib

import contourpy
import diffrax
import matplotlib.backends.backend_agg
import matplotlib.backends.backend_svg
import matplotlib.font_manager
import scipy.integrate
import scipy.signal
import scipy.stats
import xarray.backends
import zarr.codecs
import zarr.storage
from PIL import Image

import resonax.cli.libraries
import resonax.figures.curves
import resonax.figures.heatmaps  # noqa: F401
from resonax.paper.catalogue import EXPERIMENTS

__all__ = ["contourpy", "diffrax", "matplotlib", "scipy", "zarr"]

for entry in EXPERIMENTS.values():
    if isinstance(entry, str):
        importlib.import_module(entry.partition(":")[0])
# What these libraries would look for at their first use.
xarray.backends.list_engines()
Image.preinit()
