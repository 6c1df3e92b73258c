"""Load what the jobs of the paper need, and no more: for workers that are copies of one process.

Nothing is computed here, and jax has not begun to use its threads or a device, so that a process
that has loaded this module may be forked.
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

import resonax.cli.running
import resonax.figures.curves
import resonax.figures.heatmaps
import resonax.simulation.network  # noqa: F401
from resonax.paper.catalogue import EXPERIMENTS

__all__ = ["contourpy", "diffrax", "matplotlib", "scipy", "zarr"]

for entry in EXPERIMENTS.values():
    if isinstance(entry, str):
        importlib.import_module(entry.partition(":")[0])
# What these libraries would look for at their first use.
xarray.backends.list_engines()
Image.preinit()
