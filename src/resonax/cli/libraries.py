"""Load what theory and stores of the paper need: for workers that are copies of one process.

Nothing is computed here, and jax has not begun to use its threads or a device, so that a process
that has loaded this module may be forked.
"""

import numpy as np
import scipy.interpolate
import xarray.backends
import zarr.codecs
import zarr.storage

import resonax.cli.running
import resonax.paper.sweep
import resonax.paper.switching_adam
import resonax.paper.theory_maps
import resonax.simulation.network
import resonax.sweeps.theory  # noqa: F401

__all__ = ["scipy", "xarray", "zarr"]

# What xarray would look for at its first use.
xarray.backends.list_engines()
xarray.DataArray(np.zeros(1), dims="place").mean()
