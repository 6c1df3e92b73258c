"""The grid of cells, and the law of the inputs along each path."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.simulation.batches import PROCESS, Needs, needs_of, split
from resonax.simulation.random_numbers import BEGINNING, normals
from resonax.simulation.training import Training
from resonax.streams import Process

__all__ = [
    "Grid",
    "Loop",
    "begin_walk",
    "cell_at",
    "has_diagonal_roots",
    "shuffled_laws",
    "stationary_laws",
    "vmap_cells",
    "walk",
]


class Grid(NamedTuple):
    """Cells: paths that differ in some numbers, and the cells of each, which differ in others."""

    columns: dict[str, Array]  # (paths,) each
    shared: dict[str, Array]  # (cells of a path,) each
    keys: Array  # (paths, 2)
    summed: Array  # 1 where the loss is summed over the batch, 0 for its mean

    def scale(self, batch: ArrayLike, values: Mapping[str, Any]) -> Array:
        """Return the factor of the gradient of the mean loss in a cell of some values."""
        return 1 + values.get("summed", self.summed) * (jnp.asarray(batch) - 1)


class Loop(NamedTuple):
    """What a compiled loop is made for."""

    law_varies: bool  # whether cells of one path differ in the law of their inputs
    batch_varies: bool  # whether cells of one path differ in how many of its inputs they take
    dim_varies: bool  # whether they differ in how many coordinates of the inputs they see
    gram: bool  # whether a path's matrix H is formed, for many cells to share
    wide: bool  # whether the weights of a cell are one array in place of one array each
    rows: int  # inputs of the largest batch
    scatter: bool  # whether their sufficient statistics are drawn in their place
    ordered: bool  # whether inputs come in the order of the process, or shuffled
    mixed: bool  # whether their law is a mixture
    noisy: bool  # whether targets have noise
    decays: bool  # whether weights decay

    def needs(self, process: Process) -> Needs:
        """Return how many random numbers a step of a path takes."""
        needs = needs_of(
            process.dim,
            self.rows,
            process=process.step_normals if self.ordered else 0,
            scatter=self.scatter,
            choice=self.mixed,
        )
        return needs if self.noisy else needs._replace(noise=0)


def cell_at(training: Training, values: dict[str, Any]) -> Training:
    """Return what one cell trains.

    ``dim`` is no number of it: inputs beyond it are masked. Nor is ``summed``: see `Grid.scale`.
    """
    apart = ("dim", "summed")
    return training.at({name: number for name, number in values.items() if name not in apart})


def vmap_cells(function: Any, grid: Grid, loop: Loop) -> Any:
    """Map ``function(values, numbers, ...)`` over paths, and their cells where laws vary.

    ``numbers`` are a path's random numbers, lists of arrays (paths,); the rest has leading
    axes (paths, cells of a path or 1), and so has the result.
    """

    def over_shared(columns: dict[str, Array], numbers: Any, *rest: Any) -> Any:
        if loop.law_varies:
            each = jax.vmap(lambda shared, *inner: function({**columns, **shared}, numbers, *inner))
            return each(grid.shared, *rest)
        alone = jax.tree.map(lambda leaf: leaf[0], rest)
        return jax.tree.map(lambda leaf: leaf[None], function(columns, numbers, *alone))

    return lambda numbers, *rest: jax.vmap(over_shared)(grid.columns, numbers, *rest)


def has_diagonal_roots(process: Process) -> bool:
    """Return whether the coordinates of an input are independent, given the mean."""
    return np.ndim(getattr(process, "variance", 0.0)) < 2


def walk(
    training: Training,
    grid: Grid,
    loop: Loop,
    state: Any,
    steps: Array,
    numbers: list[Array],
    still: Any = None,
) -> tuple[Any, Any]:
    """Return the state of the processes after some steps, and the laws of the inputs in each.

    The laws have leading axes (steps, paths, cells of a path or 1); the one law of shuffled
    inputs, which is that of every step, has no axis of steps. It is ``still``, if that is known.
    """
    diagonal = has_diagonal_roots(training.process)

    def law_of(values: Any, given: list[Array], state: Any, step: Array) -> tuple[Any, Any]:
        state, law = cell_at(training, values).process.step(_row(given), state, step)
        return state, split(law, diagonal)

    def one(state: Any, now: tuple[Array, list[Array]]) -> tuple[Any, Any]:
        step, given = now
        return vmap_cells(lambda v, n, s: law_of(v, n, s, step), grid, loop)(given, state)

    if not loop.ordered:
        return state, shuffled_laws(training, grid, loop) if still is None else still
    if training.process.random_mean:
        return jax.lax.scan(one, state, (steps, numbers))
    return state, jax.vmap(lambda *now: one(state, now)[1])(steps, numbers)


def shuffled_laws(training: Training, grid: Grid, loop: Loop) -> Any:
    """Return the law of the inputs in random order, (paths, cells of a path or 1).

    It may be the root of a matrix: a loop of many blocks takes it once, before the first.
    """
    diagonal = has_diagonal_roots(training.process)
    law = vmap_cells(lambda values, _: split(_stationary(training, values), diagonal), grid, loop)
    return law([])


def stationary_laws(training: Training, grid: Grid, loop: Loop) -> Any:
    """Return the same law with its roots, for what is tested."""
    return vmap_cells(lambda values, _: _stationary(training, values), grid, loop)([])


def _stationary(training: Training, values: Any) -> Any:
    return cell_at(training, values).process.stationary()


def begin_walk(training: Training, grid: Grid, loop: Loop) -> Any:
    """Return the state of the processes before the first step."""

    def begin(values: Any, given: list[Array]) -> Any:
        # A leaf even for a process without a state: something to map over.
        return cell_at(training, values).process.init(_row(given)), jnp.zeros(())

    given = normals(grid.keys, BEGINNING, PROCESS, training.process.init_normals)
    return vmap_cells(begin, grid, loop)([number[0] for number in given])


def _row(numbers: list[Array]) -> Array:
    return jnp.stack(numbers) if numbers else jnp.zeros(0)
