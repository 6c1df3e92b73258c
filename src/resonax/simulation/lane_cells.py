"""Cells of linear models with many weights in the memory of lanes, and their blocks of steps.

From one part of a run to the next the weights stay there: only what is measured goes back to jax.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.programs import program
from resonax.simulation.batches import factor_columns
from resonax.simulation.linear import draw_block
from resonax.simulation.linear_state import LinearState, add_distances
from resonax.simulation.schedule import BLOCK
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Loop, cell_at, has_diagonal_roots
from resonax.threads import count_threads

__all__ = ["LaneCells"]

_PARTS = 8  # in which the paths of a thread are handed out
Job = Callable[[np.ndarray], None]  # is given the memory that a thread has for itself


@program
def _numbers(training: Training, grid: Grid) -> tuple[Array, Array, Array]:
    """Return momentum and step size of each cell, (paths, cells), and the scale of H of a path."""
    columns = {name: array[:, None] for name, array in grid.columns.items()}
    optimizer: Any = cell_at(training, {**columns, **grid.shared}).optimizer
    cells = len(grid.keys), len(next(iter(grid.shared.values())))
    scale = 2 * grid.scale(cell_at(training, grid.columns).batch, grid.columns)
    return (
        jnp.broadcast_to(optimizer.momentum, cells),
        jnp.broadcast_to(optimizer.alpha, cells),
        jnp.broadcast_to(scale, cells[:1]),
    )


@functools.partial(program, static=("loop",))
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


@program
def _add_distances(before: LinearState, fresh: Array) -> LinearState:
    return add_distances(before, before._replace(total=fresh))


class LaneCells:
    """Cells (paths, cells of a path) whose steps are taken in lanes.

    A state whose weights are here has none itself.

    Parameters
    ----------
    training, grid, loop
        Which cells, see `linear_lanes.fits_lanes`.
    paths
        How many of the paths count: those after them are copies, and stay behind.
    """

    def __init__(self, training: Training, grid: Grid, loop: Loop, paths: int) -> None:
        from resonax.lanes import host_machine
        from resonax.simulation.linear_blocks import GROUPS, scratch_size

        machine = host_machine()
        self._lanes, self._threads = machine.lanes(double=False), count_threads()
        self._paths, self._cells = len(grid.keys), len(next(iter(grid.shared.values())))
        self._vectors = -(-self._cells // self._lanes)
        self._forms = machine.is_arm and loop.scatter
        self._rows = training.process.dim + 1 if self._forms else 0
        self._training, self._grid, self._loop = training, grid, loop._replace(gram=not self._forms)
        least = GROUPS * self._lanes if self._forms else 1
        self._taken = min(-(-paths // least) * least, self._paths)
        part = -(-self._taken // (self._threads * _PARTS * least)) * least
        lows = range(0, self._taken, part)
        self._parts = [(low, min(part, self._taken - low)) for low in lows]
        count = scratch_size(training.size, self._rows, self._lanes)
        self._scratch = [np.empty(count, np.float32) for _ in range(self._threads)]
        self._memory: dict[str, np.ndarray] = {}

    def _spread(self, *arrays: Array) -> np.ndarray:
        """Return (paths, cells) of each array as (paths, vectors, arrays, lanes)."""
        shape = self._paths, self._vectors, len(arrays), self._lanes
        made = np.zeros(shape, np.float32)
        for place, array in enumerate(arrays):
            more = self._vectors * self._lanes - self._cells
            filled = np.pad(np.asarray(array), ((0, 0), (0, more)))
            made[:, :, place] = filled.reshape(self._paths, self._vectors, self._lanes)
        return made

    def _gather(self, name: str) -> tuple[Array, ...]:
        """Return what `_spread` was given."""
        array = self._memory[name]
        parts = np.moveaxis(array, 2, 0).reshape(array.shape[2], self._paths, -1)
        # Copies: jax may keep the memory that it is given, and the next block is written to it.
        return tuple(jax.device_put(np.array(part[:, : self._cells], order="C")) for part in parts)

    def _take_over(self, state: LinearState) -> None:
        """Put the cells of a state into memory, in the order of the arguments of the code."""
        self._memory = {
            "weights": self._spread(*state.weights),
            "before": self._spread(*state.optimizer),
            "shift": self._spread(state.shift),
            **self._constants,
            "total": self._spread(state.total),
        }

    @functools.cached_property
    def _constants(self) -> dict[str, np.ndarray]:
        momentum, alpha, scale = _numbers(self._training, self._grid)
        spread = {"momentum": self._spread(momentum), "alpha": self._spread(alpha)}
        return {**spread, "scale": np.asarray(scale)}

    def give_back(self, state: LinearState) -> LinearState:
        """Return a state with its weights."""
        if state.weights:
            return state
        return state._replace(weights=self._gather("weights"), optimizer=self._gather("before"))

    def _draw(
        self, process: Any, step: int, inputs: np.ndarray | None
    ) -> tuple[Any, tuple[Array, ...], np.ndarray]:
        """Return the processes after a block, the entries that `_draw` gives, and where they are.

        Entries stay where they are as long as someone holds them.
        """
        given = self._training, self._grid, process, step, inputs
        process, entries = jax.block_until_ready(_draw(*given, loop=self._loop))
        places = [entry.unsafe_buffer_pointer() for entry in entries]
        return process, entries, np.array(places, np.uint64)

    def _step_jobs(self, table: np.ndarray, record: bool) -> list[Job]:
        """Return what takes the steps of a block, given where the entries of H are."""
        size, diagonal = self._training.size, has_diagonal_roots(self._training.process)
        take_block = _compiled(size, self._rows, record, diagonal)
        places = [array.ctypes.data for array in self._memory.values()]

        def take_part(part: tuple[int, int], scratch: np.ndarray) -> None:
            own = *places, scratch.ctypes.data, table.ctypes.data
            take_block(*part, self._paths, self._vectors, *own)

        return [functools.partial(take_part, part) for part in self._parts]

    def step(self, state: LinearState, first: int, blocks: int, record: bool) -> LinearState:
        """Advance all cells by some blocks of steps; with ``record``, sum the distances up."""
        if state.weights:
            self._take_over(state)
            state = state._replace(weights=(), optimizer=())
        process, also = state.process
        normals = None
        if self._forms:
            from resonax.simulation.linear_normals import NormalsAhead

            count = self._loop.needs(self._training.process).input
            normals = NormalsAhead(np.asarray(self._grid.keys), count, first, self._taken)

        def draw(process: Any, block: int) -> tuple[Any, tuple[Array, ...], np.ndarray]:
            inputs = normals.numbers(block) if normals else None
            return self._draw(process, first + block * BLOCK, inputs)

        def normal_jobs(block: int) -> list[Job]:
            return normals.jobs(block) if normals and block < blocks else []

        with ThreadPoolExecutor(self._threads) as pool:

            def begin(jobs: list[Job]) -> list[Future[None]]:
                todo = iter(jobs)  # of which a thread takes the next one that no other has
                return [pool.submit(_do_all, todo, scratch) for scratch in self._scratch]

            _wait(begin([*normal_jobs(0), *normal_jobs(1)]))
            process, entries, table = draw(process, 0)
            for block in range(blocks):
                running = begin([*self._step_jobs(table, record), *normal_jobs(block + 2)])
                before = entries  # which the steps read
                if block + 1 < blocks:  # jax draws the next ones meanwhile
                    process, entries, table = draw(process, block + 1)
                _wait(running)
                del before
                if record:
                    state = _add_distances(state, *self._gather("total"))
                    state = state._replace(shift=self._gather("shift")[0])  # of the next block
        return state._replace(process=(process, also), shift=self._gather("shift")[0])


def _do_all(jobs: Iterator[Job], scratch: np.ndarray) -> None:
    for job in jobs:
        job(scratch)


def _wait(running: list[Future[None]]) -> None:
    for one in running:
        one.result()


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
