"""Load what theory and simulation of the paper need: for workers that are copies of one process.

Nothing is computed here, and jax has not begun to use its threads or a device, so that a process
that has loaded this module may be forked.
"""

import scipy.interpolate
import xarray

import resonax.cli.running
import resonax.paper.sweep
import resonax.paper.switching_adam
import resonax.paper.theory_maps
import resonax.simulation.network
import resonax.sweeps.theory  # noqa: F401

__all__ = ["scipy", "xarray"]
