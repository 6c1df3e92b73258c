"""Load all that the paper needs: for workers that are copies of one process, and share it all.

As in `resonax.cli.libraries`, nothing is computed here.
"""

import importlib

import diffrax
import scipy.integrate
import scipy.signal
import scipy.stats

import resonax.cli.figure_libraries
import resonax.cli.libraries  # noqa: F401
from resonax.paper.catalogue import EXPERIMENTS

__all__ = ["diffrax", "scipy"]

for entry in EXPERIMENTS.values():
    if isinstance(entry, str):
        importlib.import_module(entry.partition(":")[0])
