"""Load what simulates on a GPU: for the processes that own one, while they wait for their jobs."""

import resonax.simulation.network_kernel
import resonax.sweeps.runner
import resonax.sweeps.theory  # noqa: F401

__all__: list[str] = []
