"""Blocks of steps of linear models with many weights: each lane of a register holds a cell.

XLA has no kernels of several outputs on a CPU, and so a kernel of it takes one step, and reads
all weights of a cell for each of them. `linear_blocks` writes a block of steps as LLVM code, with
the bits of `step_linear`, which takes the steps of every other kind.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable

import jax.numpy as jnp

from resonax.simulation.lane_cells import LaneCells
from resonax.simulation.linear import step_linear
from resonax.simulation.linear_state import LinearState
from resonax.simulation.position_form import has_positions
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Loop

__all__ = ["choose_steps", "fits_lanes"]

_FEWEST = 12  # cells of a path on ARM


def choose_steps(
    training: Training, grid: Grid, loop: Loop, lanes: bool | None, paths: int
) -> Callable[[LinearState, int, int, bool], LinearState]:
    """Return what takes blocks of steps: lanes where they can, unless they are not wanted.

    All paths after the first ``paths`` are copies, which no one looks at.
    """
    by_jax = functools.partial(step_linear, training, grid, loop=loop)
    if lanes is False or not fits_lanes(training, grid, loop):
        return by_jax

    from resonax.lanes import host_machine

    is_arm, cells = host_machine().is_arm, LaneCells(training, grid, loop, paths)

    def step_blocks(state: LinearState, first: int, blocks: int, record: bool) -> LinearState:
        if record and not is_arm:  # the bits of sums of distances are known for ARM
            return by_jax(cells.give_back(state), first, blocks, record)
        return cells.step(state, first, blocks, record)

    return step_blocks


def fits_lanes(training: Training, grid: Grid, loop: Loop) -> bool:
    """Return whether the steps of some cells can be taken in lanes."""
    if not has_positions(training.optimizer) or not training.is_linear:
        return False
    if not loop.wide or not loop.ordered or loop.noisy or loop.decays:
        return False
    # Where H has another scale for each path, XLA's loop fuses it with other products.
    if grid.summed.dtype != jnp.float32 or {"batch", "summed"} & set(grid.columns):
        return False
    if {device.platform for device in grid.keys.devices()} != {"cpu"}:
        return False
    if importlib.util.find_spec("llvmlite") is None:
        return False
    from resonax.lanes import host_machine

    machine, cells = host_machine(), len(next(iter(grid.shared.values())))
    if machine.is_arm and (cells % machine.lanes(double=False) or cells < _FEWEST):
        return False  # XLA's code for short loops and for the last cells fuses other products
    return bool(machine.bits)
