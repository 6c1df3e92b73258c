"""Which loop trains networks: lanes where they can, and jax everywhere else."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from resonax.checks import ArgumentError
from resonax.simulation.schedule import Advance
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Loop

if TYPE_CHECKING:
    from resonax.lanes import Plan

__all__ = ["choose_loop", "network_loop", "run_networks"]

_ABSENT = 'llvmlite is not installed: `pip install "resonax[lanes]"`'


def network_loop(device: str) -> str:
    """Return what trains networks wherever it can on a kind of device, ``cpu`` or ``gpu``.

    Lanes have a number that changes with their bits; those of jax depend on its version.
    """
    if device != "cpu" or importlib.util.find_spec("llvmlite") is None:
        return "jax"
    from resonax.lanes import VERSION, host_machine

    return f"lanes {VERSION}" if host_machine().bits else "jax"


def choose_loop(training: Training, grid: Grid, loop: Loop) -> tuple[Plan | None, str]:
    """Return the plan of lanes for some networks; or None, and why jax trains them."""
    if {device.platform for device in grid.keys.devices()} != {"cpu"}:
        return None, "they are on a GPU"
    if importlib.util.find_spec("llvmlite") is None:
        return None, _ABSENT
    from resonax.lanes import Unsupported
    from resonax.simulation.network_lanes import plan_networks

    try:
        return plan_networks(training, loop), ""
    except Unsupported as reason:
        return None, str(reason)


def run_networks(
    training: Training,
    grid: Grid,
    loop: Loop,
    paths: int,
    steps: int,
    window: int,
    advance: Advance,
    lanes: bool | None,
) -> list[Any]:
    """Return the logarithms of the test loss at the start, and over windows in middle and end.

    ``lanes`` says by which loop; None: by lanes where they can.
    """
    plan, reason = choose_loop(training, grid, loop) if lanes is not False else (None, "")
    if plan is not None:
        from resonax.simulation.network_lanes import run_lanes

        return run_lanes(plan, training, grid, loop, paths, steps, window, advance)
    if lanes:
        raise ArgumentError(f"lanes cannot train these networks: {reason}")
    from resonax.simulation.network import run_networks as run_jax

    if {device.platform for device in grid.keys.devices()} == {"gpu"}:
        from resonax.simulation.network_kernel import fits_kernel, step_in_kernels

        if fits_kernel(training, grid, loop):
            return run_jax(training, grid, loop, steps, window, advance, step_in_kernels)
    return run_jax(training, grid, loop, steps, window, advance)
