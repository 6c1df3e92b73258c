r"""The compiled loop of linear models: the error of the weights under drawn batches.

The error :math:`e = \theta-\theta^*` obeys, with the factor :math:`F` of `batches`,

.. math:: g = 2 F^\top\bigl(F e - \tfrac{\sigma}{\sqrt n}\zeta\bigr) = H e - p .

Streams share their inputs among the cells of a column, so :math:`H` and :math:`p` are drawn once
for each stream and step, a block of steps at a time, and each cell then takes its own steps.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.learners import Features, Momentum
from resonax.simulation.batches import INPUT, Draws, draw, draw_factor, needs_of
from resonax.simulation.positions import positions
from resonax.simulation.schedule import BLOCK
from resonax.simulation.streams import BEGINNING, normals, uniforms
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Shape, begin_walk, cell_at, over_law, walk

__all__ = ["LinearState", "advance_linear", "begin_linear", "gradients", "log_distance"]

_UNROLL = 2  # the recursion of two positions swaps its arrays in place of copying them
_RANGE = 20  # errors are kept within 2^-20..2^20 from block to block


class LinearState(NamedTuple):
    """Where all cells stand. Numbers of a cell are multiplied by 2^-shift of that cell."""

    process: Any
    weights: tuple[Array, ...]  # error of each weight, (streams, cells of a stream)
    optimizer: Any
    target: tuple[Array, ...]
    shift: Array
    total: Array  # sum of distances in the window, times 2^-level
    level: Array  # the largest shift in the window; it stays where the errors shrink on


def _active(values: Any, dim: int) -> list[Array] | None:
    if "dim" not in values:
        return None
    return [jnp.where(place < values["dim"], 1.0, 0.0) for place in range(dim)]


def gradients(training: Training, grid: Grid, shape: Shape, laws: Any, draws: Draws) -> Any:
    """Return H and p, or F and its noise, of every step, over (steps, streams, cells or 1)."""

    def one(values: Any, given: Draws, law: Any) -> tuple[Any, Any]:
        cell = cell_at(training, values)
        assert isinstance(cell.model, Features)
        rows = draw_factor(
            given,
            law,
            cell.model,
            rows=shape.rows,
            scatter=shape.scatter,
            batch=None if shape.batch_varies else cell.batch,
        )
        spread = jnp.sqrt(jnp.asarray(cell.noise) / (1.0 if shape.batch_varies else cell.batch))
        noise = [spread * given.noise[place] for place in range(len(rows))]
        if not shape.gram:
            return tuple(map(tuple, rows)), tuple(noise)
        scale = 2 * grid.scale(cell.batch)
        size = range(len(rows[0]))
        hessian = [scale * sum(row[i] * row[j] for row in rows) for i in size for j in range(i + 1)]
        pairs = list(zip(rows, noise, strict=True))
        pull = [scale * sum(row[i] * one for row, one in pairs) for i in size]
        return tuple(hessian), tuple(pull)

    return jax.vmap(over_law(one, grid, shape), in_axes=(0, 0 if shape.ordered else None))(
        draws, laws
    )


def _shared_slope(
    grid: Grid,
    cell: Training,
    shape: Shape,
    gradient: Any,
    weights: tuple[Array, ...],
    unit: ArrayLike,
) -> list[Any]:
    """Return the gradient H e - p."""
    del grid, cell
    hessian, pull = gradient
    size = range(len(weights))

    def entry(i: int, j: int) -> Array:
        i, j = max(i, j), min(i, j)
        return hessian[i * (i + 1) // 2 + j]

    slope = [sum(entry(i, j) * weights[j] for j in size) for i in size]
    return [g - unit * p for g, p in zip(slope, pull, strict=True)] if shape.noisy else slope


def _own_slope(
    grid: Grid,
    cell: Training,
    shape: Shape,
    gradient: Any,
    weights: tuple[Array, ...],
    unit: ArrayLike,
) -> list[Any]:
    """Return the gradient 2 F'(F e - noise): fewer products than H e where F has few rows."""
    rows, noise = gradient
    gaps = [sum(f * e for f, e in zip(row, weights, strict=True)) for row in rows]
    if shape.noisy:
        gaps = [gap - unit * one for gap, one in zip(gaps, noise, strict=True)]
    if shape.batch_varies:  # of the rows of all, this cell takes the first
        batch = jnp.asarray(cell.batch)
        gaps = [jnp.where(number < batch, gap / batch, 0.0) for number, gap in enumerate(gaps)]
    scale = 2 * grid.scale(cell.batch)
    pairs, places = list(zip(rows, gaps, strict=True)), range(len(weights))
    return [scale * sum(row[i] * gap for row, gap in pairs) for i in places]


def _cell_step(
    training: Training,
    grid: Grid,
    shape: Shape,
    values: Any,
    gradient: Any,
    weights: tuple[Array, ...],
    state: Any,
    target: tuple[Array, ...],
    unit: ArrayLike,
) -> tuple[tuple[Array, ...], Any]:
    """Return weights and optimizer of one cell after one step."""
    cell = cell_at(training, values)
    slope = (_shared_slope if shape.gram else _own_slope)(
        grid, cell, shape, gradient, weights, unit
    )
    if shape.dim_varies:  # weights that do not exist are 0, and stay it
        active = _active(values, cell.process.dim) or []
        slope = [*(g * on for g, on in zip(slope, active, strict=False)), *slope[len(active) :]]
    optimizer: Any = cell.optimizer
    params = weights
    if isinstance(optimizer, Momentum):
        # The decay pulls the weights themselves towards zero: e + theta* in units of the cell.
        if shape.decays:
            pairs = zip(slope, weights, target, strict=True)
            slope = [g + optimizer.weight_decay * (e + unit * t) for g, e, t in pairs]
        optimizer = replace(optimizer, weight_decay=0.0)
    else:
        params = tuple(e + t for e, t in zip(weights, target, strict=True))
    moves: Any
    moves, state = positions(optimizer).update(tuple(slope), state, params)
    return tuple(e + move for e, move in zip(weights, moves, strict=True)), state


@functools.partial(jax.jit, static_argnames="shape")
def begin_linear(training: Training, grid: Grid, *, shape: Shape) -> LinearState:
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
        return error, positions(optimizer).init(params), target

    numbers = normals if training.start_law == "normal" else uniforms
    given = [number[0] for number in numbers(grid.keys, BEGINNING, INPUT, 2 * size)]
    # All cells of a stream begin at the same place, whether or not their laws vary.
    over = over_law(begin, grid, shape._replace(law_varies=True))
    error, optimizer, target = over(given)
    flat = jnp.zeros_like(error[0])
    process = begin_walk(training, grid, shape)
    return LinearState(process, error, optimizer, target, flat, flat, flat - jnp.inf)


def _distance(weights: tuple[Array, ...]) -> Array:
    peak = _largest(weights)  # divided by it, no square is too small or too large
    safe = jnp.where(peak > 0, peak, 1.0)
    return peak * jnp.sqrt(sum((e / safe) ** 2 for e in weights))


def _largest(weights: tuple[Array, ...]) -> Array:
    return functools.reduce(jnp.maximum, [jnp.abs(e) for e in weights])


def _power_of_two(size: Array) -> tuple[Array, Array]:
    """Return the exponent of numbers out of range, else 0, and 2 to the power of its negative.

    Both are read from and written to the bits, which costs a tenth of a logarithm.
    """
    kind, fraction, bias = (
        (jnp.int64, 52, 1023) if size.dtype == jnp.float64 else (jnp.int32, 23, 127)
    )
    power = (jax.lax.bitcast_convert_type(size, kind) >> fraction) - bias
    power = jnp.where(jnp.abs(power) > _RANGE, jnp.clip(power, 1 - bias, bias - 1), 0)
    return power, jax.lax.bitcast_convert_type((bias - power) << fraction, size.dtype)


def _rescaled(state: LinearState) -> LinearState:
    """Bring errors that left their range back to about 1, and remember by how much."""
    power, factor = _power_of_two(_largest(state.weights))

    def scaled(leaf: Array) -> Array:
        return leaf * factor if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return state._replace(
        weights=jax.tree.map(scaled, state.weights),
        optimizer=jax.tree.map(scaled, state.optimizer),
        shift=state.shift + power.astype(state.shift.dtype),
    )


def _summed(before: LinearState, after: LinearState) -> LinearState:
    """Add the distances of a block, in units of its own, to those of the window before it."""
    level = jnp.maximum(before.level, before.shift)
    total = before.total * jnp.exp2(before.level - level)
    total = total + after.total * jnp.exp2(before.shift - level)
    return after._replace(total=total, level=level)


def _turned(state: LinearState) -> LinearState:
    """Swap streams and cells: what is last is what the processor vectorises over, streams are many.

    A column of a few cells would otherwise leave most of a vector empty.
    """
    turned = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), state._replace(process=()))
    return turned._replace(process=state.process)


@functools.partial(jax.jit, static_argnames="shape", donate_argnames="state")
def advance_linear(
    training: Training,
    grid: Grid,
    state: LinearState,
    first: Array,
    blocks: Array,
    record: Array,
    *,
    shape: Shape,
) -> LinearState:
    """Advance all cells by some blocks of steps; with ``record``, sum the distances up."""
    process = training.process
    needs = needs_of(
        process.dim,
        shape.rows,
        process=process.step_normals if shape.ordered else 0,
        scatter=shape.scatter,
        choice=shape.mixed,
    )
    over_streams = jax.vmap(
        lambda columns, shared, gradient, w, s, t, u: _cell_step(
            training, grid, shape, {**columns, **shared}, gradient, w, s, t, u
        ),
        in_axes=(0, None, 0, 0, 0, 0, 0),
    )
    over_cells = jax.vmap(
        over_streams, in_axes=(None, 0, 0 if shape.law_varies else None, 0, 0, 0, 0)
    )

    def one(state: LinearState, gradient: Any, measured: bool) -> tuple[LinearState, None]:
        unit = jnp.exp2(jnp.minimum(-state.shift, 100.0)) if training.is_linear else 1.0
        unit = jnp.broadcast_to(unit, state.shift.shape)
        weights, optimizer = over_cells(
            grid.columns, grid.shared, gradient, state.weights, state.optimizer, state.target, unit
        )
        total = state.total + _distance(weights) if measured else state.total
        return state._replace(weights=weights, optimizer=optimizer, total=total), None

    def plain(before: LinearState, given: Any) -> LinearState:
        advance = functools.partial(one, measured=False)
        return jax.lax.scan(advance, before, given, unroll=_UNROLL)[0]

    def measured(before: LinearState, given: Any) -> LinearState:
        fresh = before._replace(total=jnp.zeros_like(before.total))
        advance = functools.partial(one, measured=True)
        return _summed(before, jax.lax.scan(advance, fresh, given, unroll=_UNROLL)[0])

    def block(number: Array, state: LinearState) -> LinearState:
        steps = first + number * BLOCK + jnp.arange(BLOCK)
        draws = draw(grid.keys, steps, needs)
        process, laws = walk(training, grid, shape, state.process[0], steps, draws.process)
        given = gradients(training, grid, shape, laws, draws)
        given = jax.tree.map(
            lambda leaf: leaf.swapaxes(1, 2) if shape.law_varies else leaf[:, :, 0], given
        )
        before = state._replace(process=(process, state.process[1]))
        # One choice a block: a device asks its host for every one.
        after = jax.lax.cond(record, measured, plain, before, given)
        return _rescaled(after) if training.is_linear else after

    return _turned(jax.lax.fori_loop(0, blocks, block, _turned(state)))


@functools.partial(jax.jit, static_argnames="steps")
def log_distance(state: LinearState, *, steps: int) -> Array:
    """Return the logarithm of the mean distance over a window, or of the distance for 0 steps."""
    mean, shift = _distance(state.weights), state.shift
    if steps:
        mean, shift = state.total / steps, state.level
    least = jnp.finfo(mean.dtype).tiny
    return jnp.log(jnp.maximum(mean, least)) + shift * np.log(2.0)
