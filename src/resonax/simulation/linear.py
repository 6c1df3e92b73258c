r"""The compiled loop of linear models: the error of the weights under drawn batches.

The error :math:`e = \theta-\theta^*` obeys, with the factor :math:`F` of `batches`,

.. math:: g = 2 F^\top\bigl(F e - \tfrac{\sigma}{\sqrt n}\zeta\bigr) = H e - p .

Paths share their inputs among the cells of a column, so :math:`H` and :math:`p` are drawn once
for each path and step, a block of steps at a time, and each cell then takes its own steps.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from resonax.learners import Features, Momentum
from resonax.simulation.batches import INPUT, Draws, draw, draw_factor
from resonax.simulation.linear_state import (
    LinearState,
    add_distances,
    distance,
    narrowed,
    rescale,
    transposed,
    widened,
)
from resonax.simulation.position_form import position_form
from resonax.simulation.random_numbers import BEGINNING, normals, uniforms
from resonax.simulation.schedule import BLOCK
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Loop, begin_walk, cell_at, shuffled_laws, vmap_cells, walk

__all__ = ["begin_linear", "gradients", "step_linear"]

_PARTS = 4  # in which the factors of the steps of a block are formed
_UNROLL = 2  # the recursion of two positions swaps its arrays in place of copying them


def _active(values: Any, dim: int) -> list[Array] | None:
    if "dim" not in values:
        return None
    return [jnp.where(place < values["dim"], 1.0, 0.0) for place in range(dim)]


def gradients(training: Training, grid: Grid, loop: Loop, laws: Any, draws: Draws) -> Any:
    """Return H and p, or F and its noise, of every step, over (steps, paths, cells or 1)."""

    def factor(values: Any, given: Draws, law: Any) -> tuple[Any, Any]:
        cell = cell_at(training, values)
        assert isinstance(cell.model, Features)
        rows = draw_factor(
            given,
            law,
            cell.model,
            rows=loop.rows,
            scatter=loop.scatter,
            batch=None if loop.batch_varies else cell.batch,
        )
        spread = jnp.sqrt(jnp.asarray(cell.noise) / (1.0 if loop.batch_varies else cell.batch))
        noise = [spread * given.noise[place] for place in range(len(rows)) if loop.noisy]
        return tuple(map(tuple, rows)), tuple(noise)

    def gram(values: Any, rows: Any, noise: Any) -> tuple[Any, Any]:
        scale = 2 * grid.scale(cell_at(training, values).batch, values)
        size = range(len(rows[0]))
        hessian = [scale * sum(row[i] * row[j] for row in rows) for i in size for j in range(i + 1)]
        pairs = list(zip(rows, noise, strict=True)) if loop.noisy else []
        pull = [scale * sum(row[i] * one for row, one in pairs) for i in size if pairs]
        return tuple(hessian), tuple(pull)

    def one(values: Any, given: Draws, law: Any) -> tuple[Any, Any]:
        found = factor(values, given, law)
        return gram(values, *found) if loop.gram else found

    def over_steps(function: Any, laws: Any, draws: Draws) -> Any:
        over = jax.vmap(vmap_cells(function, grid, loop), in_axes=(0, 0 if loop.ordered else None))
        return over(draws, laws)

    if not loop.wide or not loop.gram:
        return over_steps(one, laws, draws)
    # XLA would form the rows of F anew for each entry of H. A loop stores what it computes.
    given = (laws if loop.ordered else (), draws)
    parts = jax.tree.map(lambda leaf: leaf.reshape(_PARTS, -1, *leaf.shape[1:]), given)
    found = jax.lax.map(
        lambda part: over_steps(factor, part[0] if loop.ordered else laws, part[1]), parts
    )
    rows, noise = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), found)
    over = vmap_cells(lambda values, _, *found: gram(values, *found), grid, loop)
    return jax.vmap(lambda *found: over([], *found))(rows, noise)


def _slope(
    grid: Grid,
    cell: Training,
    loop: Loop,
    values: Any,
    gradient: Any,
    weights: tuple[Array, ...],
    unit: ArrayLike,
) -> list[Any]:
    """Return the gradient: H e - p, or 2 F'(F e - noise) with fewer products where F is short."""
    if loop.wide:
        hessian, pull = gradient
        (errors,) = weights
        places = range(errors.shape[1])
        slope = sum(hessian[..., j, None] * errors[:, j, None] for j in places)
        return [slope - unit * pull if loop.noisy else slope]
    places = range(len(weights))
    if loop.gram:
        hessian, pull = gradient

        def entry(i: int, j: int) -> Array:
            i, j = max(i, j), min(i, j)
            return hessian[i * (i + 1) // 2 + j]

        slope = [sum(entry(i, j) * weights[j] for j in places) for i in places]
        return [g - unit * p for g, p in zip(slope, pull, strict=True)] if loop.noisy else slope
    rows, noise = gradient
    gaps = [sum(f * e for f, e in zip(row, weights, strict=True)) for row in rows]
    if loop.noisy:
        gaps = [gap - unit * one for gap, one in zip(gaps, noise, strict=True)]
    if loop.batch_varies:  # of the rows drawn, this cell takes the first ``batch``
        batch = jnp.asarray(cell.batch)
        gaps = [jnp.where(number < batch, gap / batch, 0.0) for number, gap in enumerate(gaps)]
    scale = 2 * grid.scale(cell.batch, values)
    pairs = list(zip(rows, gaps, strict=True))
    return [scale * sum(row[i] * gap for row, gap in pairs) for i in places]


def _cell_step(
    training: Training,
    grid: Grid,
    loop: Loop,
    values: Any,
    gradient: Any,
    weights: tuple[Array, ...],
    state: Any,
    target: tuple[Array, ...],
    unit: ArrayLike,
) -> tuple[tuple[Array, ...], Any]:
    """Return weights and optimizer of one cell after one step."""
    cell = cell_at(training, values)
    slope = _slope(grid, cell, loop, values, gradient, weights, unit)
    if loop.dim_varies:  # weights of masked inputs are 0 and stay 0
        active = _active(values, cell.process.dim) or []
        slope = [*(g * on for g, on in zip(slope, active, strict=False)), *slope[len(active) :]]
    optimizer: Any = cell.optimizer
    params = weights
    if isinstance(optimizer, Momentum):
        # The decay pulls the weights themselves towards zero: e + theta* in units of the cell.
        if loop.decays:
            pairs = zip(slope, weights, target, strict=True)
            slope = [g + optimizer.weight_decay * (e + unit * t) for g, e, t in pairs]
        optimizer = replace(optimizer, weight_decay=0.0)
    else:
        params = tuple(e + t for e, t in zip(weights, target, strict=True))
    transform: Any = position_form(optimizer)
    moves, state = transform.update(tuple(slope), state, params)
    return tuple(e + move for e, move in zip(weights, moves, strict=True)), state


@functools.partial(jax.jit, static_argnames=("loop",))
def begin_linear(training: Training, grid: Grid, *, loop: Loop) -> LinearState:
    """Return the state of all cells before the first step."""
    dim, size = training.process.dim, training.size

    def begin(values: Any, given: list[Array]) -> Any:
        cell = cell_at(training, values)
        if training.start_law == "normal":
            scale = jnp.sqrt(jnp.asarray(cell.start))
            drawn = [scale * number for number in given]
        else:
            drawn = [cell.start * (2 * number - 1) for number in given]
        active = _active(values, dim) or [jnp.ones(())] * dim
        active = active + [jnp.ones(())] * (size - dim) if size > dim else active[:size]
        target = tuple(on * number for on, number in zip(active, drawn[size:], strict=True))
        drawn_weights = tuple(on * n for on, n in zip(active, drawn[:size], strict=True))
        error = tuple(n - t for n, t in zip(drawn_weights, target, strict=True))
        optimizer: Any = cell.optimizer
        params = error if isinstance(optimizer, Momentum) else drawn_weights
        return error, position_form(optimizer).init(params), target

    numbers = normals if training.start_law == "normal" else uniforms
    given = [number[0] for number in numbers(grid.keys, BEGINNING, INPUT, 2 * size)]
    # All cells of a path begin at the same place, whether or not their laws vary.
    over = vmap_cells(begin, grid, loop._replace(law_varies=True))
    error, optimizer, target = over(given)
    flat = jnp.zeros_like(error[0])
    process = begin_walk(training, grid, loop)
    return LinearState(process, error, optimizer, target, flat, flat, flat - jnp.inf)


def _prepared(loop: Loop, gradient: Any) -> Any:
    """Return the gradients of a block in the layout of the steps, the steps first."""
    if not loop.wide:
        return jax.tree.map(
            lambda leaf: leaf.swapaxes(1, 2) if loop.law_varies else leaf[:, :, 0], gradient
        )
    hessian, pull = jax.tree.map(lambda leaf: leaf[:, :, 0], gradient)
    size = range(int((2 * len(hessian)) ** 0.5))  # size (size + 1) / 2 entries
    rows = [[hessian[max(i, j) * (max(i, j) + 1) // 2 + min(i, j)] for j in size] for i in size]
    full = jnp.stack([jnp.stack(row, axis=-1) for row in rows], axis=-2)
    return full, jnp.stack(pull, axis=-1)[..., None] if loop.noisy else ()


def _draw_block(
    training: Training, grid: Grid, loop: Loop, state: Any, first: Array, still: Any
) -> tuple[Any, Any]:
    """Return the state of the processes after a block of steps, and its gradients."""
    steps = first + jnp.arange(BLOCK)
    draws = draw(grid.keys, steps, loop.needs(training.process))
    state, laws = walk(training, grid, loop, state, steps, draws.process, still)
    return state, gradients(training, grid, loop, laws, draws)


def _vmap_steps(training: Training, grid: Grid, loop: Loop) -> Any:
    """Return `_cell_step` over all cells, ``(gradient, weights, state, target, unit)``."""

    def one(columns: Any, shared: Any, *rest: Any) -> Any:
        return _cell_step(training, grid, loop, {**columns, **shared}, *rest)

    if loop.wide:  # numbers of a path are (paths, 1, 1), those of its cells (cells,)
        columns = {name: array[:, None, None] for name, array in grid.columns.items()}
        return functools.partial(one, columns, grid.shared)
    over_paths = jax.vmap(one, in_axes=(0, None, 0, 0, 0, 0, 0))
    over_cells = jax.vmap(over_paths, in_axes=(None, 0, 0 if loop.law_varies else None, 0, 0, 0, 0))
    return functools.partial(over_cells, grid.columns, grid.shared)


@functools.partial(jax.jit, static_argnames=("loop",), donate_argnames=("state",))
def step_linear(
    training: Training,
    grid: Grid,
    state: LinearState,
    first: Array,
    blocks: Array,
    record: Array,
    *,
    loop: Loop,
) -> LinearState:
    """Advance all cells by some blocks of steps; with ``record``, sum the distances up."""
    step_cells = _vmap_steps(training, grid, loop)
    still = None if loop.ordered else shuffled_laws(training, grid, loop)

    def one(state: LinearState, gradient: Any, measured: bool) -> tuple[LinearState, None]:
        unit = jnp.exp2(jnp.minimum(-state.shift, 100.0)) if training.is_linear else 1.0
        unit = jnp.broadcast_to(unit, state.shift.shape)
        weights, optimizer = step_cells(
            gradient, state.weights, state.optimizer, state.target, unit
        )
        total = state.total + distance(weights) if measured else state.total
        return state._replace(weights=weights, optimizer=optimizer, total=total), None

    def plain(before: LinearState, given: Any) -> LinearState:
        step = functools.partial(one, measured=False)
        return jax.lax.scan(step, before, given, unroll=_UNROLL)[0]

    def measured(before: LinearState, given: Any) -> LinearState:
        fresh = before._replace(total=jnp.zeros_like(before.total))
        step = functools.partial(one, measured=True)
        return add_distances(before, jax.lax.scan(step, fresh, given, unroll=_UNROLL)[0])

    def block(number: Array, state: LinearState) -> LinearState:
        now = first + number * BLOCK
        process, drawn = _draw_block(training, grid, loop, state.process[0], now, still)
        given = _prepared(loop, drawn)
        before = state._replace(process=(process, state.process[1]))
        # One branch for each block: on a GPU each is a transfer to the host.
        after = jax.lax.cond(record, measured, plain, before, given)
        return rescale(after) if training.is_linear else after

    if loop.wide:
        return narrowed(jax.lax.fori_loop(0, blocks, block, widened(state)))
    return transposed(jax.lax.fori_loop(0, blocks, block, transposed(state)))
