"""Blocks of steps of linear models with many weights: each lane of a register holds a cell.

XLA has no kernels of several outputs on a CPU, and so a kernel of it takes one step, and reads
all weights of a cell for each of them. `linear_blocks` writes a block of steps as LLVM code, with
the bits of `step_linear`, which takes the steps of every other kind.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.simulation.batches import factor_columns
from resonax.simulation.linear import draw_block, step_linear
from resonax.simulation.linear_state import LinearState, add_distances
from resonax.simulation.position_form import has_positions
from resonax.simulation.schedule import BLOCK
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Loop, cell_at, has_diagonal_roots
from resonax.threads import count_threads

__all__ = ["choose_steps", "fits_lanes", "step_in_lanes"]

_PARTS = 2  # in which the paths of a thread are handed out: each costs the time of some steps
_FEWEST = 12  # cells of a path on ARM


def choose_steps(
    training: Training, grid: Grid, loop: Loop, lanes: bool | None
) -> Callable[[LinearState, int, int, bool], LinearState]:
    """Return what takes blocks of steps: lanes where they can, unless they are not wanted."""
    by_jax = functools.partial(step_linear, training, grid, loop=loop)
    if lanes is False or not fits_lanes(training, grid, loop):
        return by_jax

    from resonax.lanes import host_machine

    is_arm = host_machine().is_arm

    def step_blocks(state: LinearState, first: int, blocks: int, record: bool) -> LinearState:
        if record and not is_arm:  # the bits of sums of distances are known for ARM
            return by_jax(state, first, blocks, record)
        return step_in_lanes(training, grid, state, first, blocks, record, loop=loop)

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

    machine, cells = host_machine(), _cells(grid)
    if machine.is_arm and (cells % machine.lanes(double=False) or cells < _FEWEST):
        return False  # XLA's code for short loops and for the last cells fuses other products
    return bool(machine.bits)


def _cells(grid: Grid) -> int:
    return len(next(iter(grid.shared.values())))


@jax.jit
def _numbers(training: Training, grid: Grid) -> tuple[Array, Array, Array]:
    """Return momentum and step size of each cell, (paths, cells), and the scale of H of a path."""
    columns = {name: array[:, None] for name, array in grid.columns.items()}
    optimizer: Any = cell_at(training, {**columns, **grid.shared}).optimizer
    cells = len(grid.keys), _cells(grid)
    scale = 2 * grid.scale(cell_at(training, grid.columns).batch, grid.columns)
    return (
        jnp.broadcast_to(optimizer.momentum, cells),
        jnp.broadcast_to(optimizer.alpha, cells),
        jnp.broadcast_to(scale, cells[:1]),
    )


@functools.partial(jax.jit, static_argnames=("loop",))
def _draw(
    training: Training,
    grid: Grid,
    process: Any,
    first: Array,
    inputs: Any,
    *,
    loop: Loop,
) -> tuple[Any, tuple[Array, ...]]:
    """Return the processes after a block of steps, and the entries of H, (steps, paths) each.

    Without ``loop.gram`` they are those of the factor of H that `factor_columns` names, row by row.
    ``inputs`` are the normal numbers that were drawn for it, or None.
    """
    process, (drawn, _) = draw_block(training, grid, loop, process, first, None, inputs)
    if not loop.gram:
        columns = factor_columns(training.size, len(drawn), has_diagonal_roots(training.process))
        drawn = [[row[j] for j in own] for row, own in zip(drawn, columns, strict=True)]
    return process, tuple(entry[:, :, 0] for entry in jax.tree.leaves(drawn))


@jax.jit
def _add_distances(before: LinearState, fresh: Array) -> LinearState:
    return add_distances(before, before._replace(total=fresh))


def step_in_lanes(
    training: Training,
    grid: Grid,
    state: LinearState,
    first: int,
    blocks: int,
    record: bool,
    *,
    loop: Loop,
) -> LinearState:
    """Advance all cells by some blocks of steps; with ``record``, sum the distances up."""
    from resonax.lanes import host_machine
    from resonax.simulation.linear_blocks import GROUPS, scratch_size

    machine, (paths, cells), size = host_machine(), state.shift.shape, len(state.weights)
    lanes, threads = machine.lanes(double=False), count_threads()
    vectors = -(-cells // lanes)

    def spread(*arrays: Array) -> np.ndarray:
        """Return (paths, cells) of each array as (paths, vectors, arrays, lanes)."""
        made = np.zeros((paths, vectors, len(arrays), lanes), np.float32)
        for place, array in enumerate(arrays):
            filled = np.pad(np.asarray(array), ((0, 0), (0, vectors * lanes - cells)))
            made[:, :, place] = filled.reshape(paths, vectors, lanes)
        return made

    def gathered(array: np.ndarray) -> tuple[Array, ...]:
        parts = np.moveaxis(array, 2, 0).reshape(array.shape[2], paths, -1)
        # Copies: jax may keep the memory that it is given, and the next block is written to it.
        return tuple(jax.device_put(np.array(part[:, :cells], order="C")) for part in parts)

    forms = machine.is_arm and loop.scatter
    rows = training.process.dim + 1 if forms else 0
    loop = loop._replace(gram=not forms)
    momentum, alpha, scale = _numbers(training, grid)
    weights, before = spread(*state.weights), spread(*state.optimizer)
    arrays = [weights, before, shift := spread(state.shift), spread(momentum), spread(alpha)]
    arrays += [np.asarray(scale), total := spread(state.total)]
    places = [array.ctypes.data for array in arrays]
    take_block = _compiled(size, rows, record, has_diagonal_roots(training.process))
    least = GROUPS * lanes if forms else 1
    part = -(-paths // (threads * _PARTS * least)) * least
    parts = [(low, min(part, paths - low)) for low in range(0, paths, part)]
    process, also = state.process
    normals = None
    if forms:
        from resonax.simulation.linear_normals import NormalsAhead

        count = loop.needs(training.process).input
        normals = NormalsAhead(np.asarray(grid.keys), count, first)

    def draw(block: int) -> tuple[Array, ...]:
        nonlocal process
        inputs = normals and normals.numbers(block)
        process, drawn = _draw(training, grid, process, first + block * BLOCK, inputs, loop=loop)
        return drawn

    def normal_jobs(block: int) -> list[Callable[[], None]]:
        return normals.jobs(block) if normals and block < blocks else []

    def take_part(given: _Entries, part: tuple[int, int], before: Future | None) -> None:
        if before is not None:
            before.result()  # of the block before: begun earlier, perhaps by another thread
        scratch = np.empty(scratch_size(size, rows, lanes), np.float32)
        own = *places, scratch.ctypes.data, given.table.ctypes.data
        take_block(*part, paths, vectors, *own)

    with ThreadPoolExecutor(threads) as pool:
        taken: list[Future | None] = [None] * len(parts)
        for given in _draw_ahead(pool, draw, normal_jobs, blocks):
            # Handed out while those of the block before are taken: no thread waits for the others.
            jobs = zip(parts, taken, strict=True)
            taken = [pool.submit(take_part, given, part, before) for part, before in jobs]
            if record:
                _finish(taken)
                state = _add_distances(state, *gathered(total))
                state = state._replace(shift=gathered(shift)[0])  # that of the next block
        _finish(taken)
    return state._replace(
        process=(process, also),
        weights=gathered(weights),
        optimizer=gathered(before),
        shift=gathered(shift)[0],
    )


class _Entries(NamedTuple):
    """The entries of H of a block, and where they lie."""

    arrays: list[np.ndarray]
    table: np.ndarray


def _draw_ahead(
    pool: ThreadPoolExecutor,
    draw: Callable[[int], tuple[Array, ...]],
    normal_jobs: Callable[[int], list[Callable[[], None]]],
    blocks: int,
) -> Iterator[_Entries]:
    """Yield the entries of H of each block; jax draws those of the next while a block is taken.

    ``normal_jobs`` draw the normal numbers that a block needs, into memory that the block two
    before it has read.
    """
    ahead: list[Future | None] = [*map(pool.submit, normal_jobs(0))]
    for block in range(blocks):
        _finish(ahead)
        drawn = draw(block)
        ahead = [*map(pool.submit, normal_jobs(block + 1))]
        arrays = [np.asarray(entry) for entry in drawn]
        yield _Entries(arrays, np.array([array.ctypes.data for array in arrays], np.uint64))


def _finish(jobs: list[Future | None]) -> None:
    """Wait for jobs, and raise what one of them raised."""
    for job in filter(None, jobs):
        job.result()


@functools.cache
def _compiled(size: int, rows: int, record: bool, diagonal: bool) -> Callable[..., None]:
    """Return the function that takes a block of steps of models with so many weights."""
    from resonax.lanes.compiled import load_function
    from resonax.lanes.machine import host_machine
    from resonax.simulation.linear_blocks import REAL, WHOLE, write_block

    machine = host_machine()
    lanes = machine.lanes(double=False)
    code = write_block(size, rows, lanes, machine.triple, record=record, diagonal=diagonal)
    return load_function("take_block", code, len(WHOLE), len(REAL) + 1)
