"""Load what computes on a GPU: for the processes that own one, while they begin to use it."""

import importlib

__all__: list[str] = []

# Jobs wait for the first of them.
for name in (
    "resonax.sweeps.runner",
    "resonax.simulation.network_kernel",
    "optax",
    "scipy.special",
):
    importlib.import_module(name)
