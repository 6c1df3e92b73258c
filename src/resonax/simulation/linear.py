r"""The compiled loop of linear models: the error of the weights under drawn batches.

The error :math:`e = \theta-\theta^*` obeys, with the factor :math:`F` of `batches`,

.. math:: g = 2 F^\top\bigl(F e - \tfrac{\sigma}{\sqrt n}\zeta\bigr) = H e - p .

Paths share their inputs among the cells of a column, so :math:`H` and :math:`p` are formed once
for each path and step, a block of steps at a time, and each cell then takes its own steps. Errors
are numbers near 1 times a power of two, so that none overflows.
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

from resonax.learners import Features, Joint, Momentum
from resonax.simulation.batches import BLOCK, Draws, draw, draw_factor, signal_of
from resonax.simulation.cells import (
    Grid,
    Loop,
    Training,
    begin_walk,
    cell_at,
    shuffled_laws,
    vmap_cells,
    walk,
)
from resonax.simulation.random_numbers import Purpose, normals, uniforms

__all__ = ["begin_linear", "gradient", "log_distance", "step_linear"]

_MAX_EXPONENT = 20  # errors are kept within 2^-20..2^20 from block to block


class LinearState(NamedTuple):
    """Where all cells stand. Numbers of a cell are multiplied by 2^-shift of that cell."""

    process: Any
    weights: tuple[Array, ...]  # error of each weight, (cells of a path, paths)
    optimizer: Any
    target: tuple[Array, ...]
    shift: Array
    total: Array  # sum of distances in the window, times 2^-total_shift
    total_shift: Array  # of that sum: the largest shift in the window

    def reset(self) -> LinearState:
        """Return the same state at the beginning of a window."""
        zeros = jnp.zeros_like(self.total)
        return self._replace(total=zeros, total_shift=zeros - jnp.inf)


def _distance(weights: tuple[Array, ...]) -> Array:
    """Return the length of the error of each cell."""
    peak = _largest(weights)  # divided by it, no square is too small or too large
    safe = jnp.where(peak > 0, peak, 1.0)
    return peak * jnp.sqrt(sum((e / safe) ** 2 for e in weights))


def _largest(weights: tuple[Array, ...]) -> Array:
    return functools.reduce(jnp.maximum, [jnp.abs(e) for e in weights])


def _rescale(state: LinearState) -> LinearState:
    """Bring errors that left their range back to about 1, and remember by how much."""
    _, power = jnp.frexp(_largest(state.weights))
    power = jnp.where(jnp.abs(power) > _MAX_EXPONENT, power, 0)

    def scaled(leaf: Array) -> Array:
        return jnp.ldexp(leaf, -power) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return state._replace(
        weights=jax.tree.map(scaled, state.weights),
        optimizer=jax.tree.map(scaled, state.optimizer),
        shift=state.shift + power.astype(state.shift.dtype),
    )


def _add_distances(before: LinearState, after: LinearState) -> LinearState:
    """Add the distances of a block, in units of its own, to those of the window before it."""
    shift = jnp.maximum(before.total_shift, before.shift)
    total = before.total * jnp.exp2(before.total_shift - shift)
    total = total + after.total * jnp.exp2(before.shift - shift)
    return after._replace(total=total, total_shift=shift)


@jax.jit
def log_distance(state: LinearState, steps: Array) -> Array:
    """Return the logarithm of the mean distance over a window, or of the distance for 0 steps."""
    over = steps > 0
    mean = jnp.where(over, state.total / jnp.maximum(steps, 1), _distance(state.weights))
    shift = jnp.where(over, state.total_shift, state.shift)
    least = jnp.finfo(mean.dtype).tiny
    return jnp.log(jnp.maximum(mean, least)) + shift * np.log(2.0)


def _active(values: Any, dim: int) -> list[Array] | None:
    if "dim" not in values:
        return None
    return [jnp.where(place < values["dim"], 1.0, 0.0) for place in range(dim)]


def gradient(training: Training, grid: Grid, loop: Loop, law: Any, draws: Draws) -> Any:
    """Return H and p, or F and its noise, of one step, over (cells or 1, paths).

    With them comes how far the best weights have moved, where they drift.
    """

    def one(values: Any, given: Draws, law: Any) -> tuple[Any, Any, Any]:
        cell = cell_at(training, values)
        assert isinstance(cell.model, Features)
        model = cell.model if cell.omitted is None else Joint(cell.model, cell.omitted)
        rows = draw_factor(
            given,
            law,
            model,
            rows=loop.rows,
            scatter=loop.scatter,
            batch=None if loop.batch_varies else cell.batch,
        )
        spread = jnp.sqrt(jnp.asarray(cell.noise) / (1.0 if loop.batch_varies else cell.batch))
        noise = [spread * given.noise[place] for place in range(len(rows)) if loop.noisy]
        if cell.omitted is not None:  # what the features cannot fit is noise to them
            noise = [one + row[-1] for one, row in zip(noise, rows, strict=True)]
            rows = [row[:-1] for row in rows]
        best: tuple[Array, ...] = ()
        if loop.drifts:
            moves = [
                list(cell.motion(signal_of(given, law, 0 if loop.scatter else row)))
                for row in range(1 if loop.scatter else len(rows))
            ]
            best = tuple(moves[0])
            moves *= len(rows) // len(moves)
            noise = [
                one + sum(f * entry for f, entry in zip(row, move, strict=True))
                for one, row, move in zip(noise, rows, moves, strict=True)
            ]
        if not loop.gram:
            return tuple(map(tuple, rows)), tuple(noise), best
        scale = 2 * grid.scale(cell.batch, values)
        size = range(len(rows[0]))
        hessian = [scale * sum(row[i] * row[j] for row in rows) for i in size for j in range(i + 1)]
        pairs = list(zip(rows, noise, strict=True)) if loop.noisy else []
        pull = [scale * sum(row[i] * one for row, one in pairs) for i in size if pairs]
        return tuple(hessian), tuple(pull), best

    return vmap_cells(one, grid, loop)(draws, law)


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
    places = range(len(weights))
    if loop.gram:
        hessian, pull, _ = gradient

        def entry(i: int, j: int) -> Array:
            i, j = max(i, j), min(i, j)
            return hessian[i * (i + 1) // 2 + j]

        slope = [sum(entry(i, j) * weights[j] for j in places) for i in places]
        return [g - unit * p for g, p in zip(slope, pull, strict=True)] if loop.noisy else slope
    rows, noise, _ = gradient
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
    moves, state = optimizer.transform().update(tuple(slope), state, params)
    return tuple(e + move for e, move in zip(weights, moves, strict=True)), state


@functools.partial(jax.jit, static_argnames=("loop",))
def begin_linear(training: Training, grid: Grid, *, loop: Loop) -> LinearState:
    """Return the state of all cells before the first step."""
    dim, size = training.process.dim, training.size

    def begin(values: Any, given: Array) -> Any:
        cell = cell_at(training, values)
        if training.start_law == "normal":
            drawn = jnp.sqrt(jnp.asarray(cell.start)) * given
        else:
            drawn = cell.start * (2 * given - 1)
        active = _active(values, dim) or [jnp.ones(())] * dim
        active = active + [jnp.ones(())] * (size - dim) if size > dim else active[:size]
        target = tuple(on * number for on, number in zip(active, drawn[size:], strict=True))
        weights = tuple(on * number for on, number in zip(active, drawn[:size], strict=True))
        error = tuple(n - t for n, t in zip(weights, target, strict=True))
        optimizer: Any = cell.optimizer
        params = error if isinstance(optimizer, Momentum) else weights
        return error, optimizer.transform().init(params), target

    numbers = normals if training.start_law == "normal" else uniforms
    given = numbers(grid.keys, 0, Purpose.START, (2 * size,))
    # All cells of a path begin at the same place, whether or not their laws vary.
    error, optimizer, target = vmap_cells(begin, grid, loop._replace(law_varies=True))(given)
    zeros = jnp.zeros_like(error[0])
    process = begin_walk(training, grid, loop)
    return LinearState(process, error, optimizer, target, zeros, zeros, zeros - jnp.inf)


def _form_block(
    training: Training, grid: Grid, loop: Loop, state: Any, first: Array, shuffled: Any
) -> tuple[Any, Any]:
    """Return the state of the processes after a block of steps, and the gradients of these.

    The loop stores what it is given and what it returns: XLA would fuse the draws with each of
    their uses, and recompute them there.
    """

    def one(state: Any, now: tuple[Array, Draws]) -> tuple[Any, Any]:
        step, numbers = now
        law = shuffled
        if loop.ordered:
            state, law = walk(training, grid, loop, state, step, numbers.process.T)
        lists = Draws(*(list(part) for part in numbers))
        return state, gradient(training, grid, loop, law, lists)

    draws = draw(grid.keys, first // BLOCK, loop.needs(training.process))
    by_step = jax.tree.map(lambda leaf: leaf.transpose(1, 2, 0), draws)
    return jax.lax.scan(one, state, (first + jnp.arange(BLOCK), by_step))


def _vmap_steps(training: Training, grid: Grid, loop: Loop) -> Any:
    """Return `_cell_step` over all cells, ``(gradient, weights, state, target, unit)``."""

    def one(columns: Any, shared: Any, *rest: Any) -> Any:
        return _cell_step(training, grid, loop, {**columns, **shared}, *rest)

    over_paths = jax.vmap(one, in_axes=(0, None, 0, 0, 0, 0, 0))
    over_cells = jax.vmap(over_paths, in_axes=(None, 0, 0 if loop.law_varies else None, 0, 0, 0, 0))

    def step(gradient: Any, *rest: Any) -> Any:
        given = gradient if loop.law_varies else jax.tree.map(lambda leaf: leaf[0], gradient)
        return over_cells(grid.columns, grid.shared, given, *rest)

    return step


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
    shuffled = None if loop.ordered else shuffled_laws(training, grid, loop)

    def one(state: LinearState, gradient: Any, measured: bool) -> tuple[LinearState, None]:
        unit = jnp.exp2(jnp.minimum(-state.shift, 100.0)) if training.is_linear else 1.0
        unit = jnp.broadcast_to(unit, state.shift.shape)
        weights, optimizer = step_cells(
            gradient, state.weights, state.optimizer, state.target, unit
        )
        total = state.total
        if measured:
            apart = weights
            if loop.drifts:
                pairs = zip(state.weights, gradient[2], strict=True)
                apart = tuple(weight - unit * best for weight, best in pairs)
            total = total + _distance(apart)
        return state._replace(weights=weights, optimizer=optimizer, total=total), None

    def plain(before: LinearState, given: Any) -> LinearState:
        return jax.lax.scan(functools.partial(one, measured=False), before, given)[0]

    def measured(before: LinearState, given: Any) -> LinearState:
        fresh = before._replace(total=jnp.zeros_like(before.total))
        after = jax.lax.scan(functools.partial(one, measured=True), fresh, given)[0]
        return _add_distances(before, after)

    def block(number: Array, state: LinearState) -> LinearState:
        now = first + number * BLOCK
        process, given = _form_block(training, grid, loop, state.process, now, shuffled)
        # One branch for each block: on a GPU each is a transfer to the host.
        after = jax.lax.cond(record, measured, plain, state._replace(process=process), given)
        return _rescale(after) if training.is_linear else after

    return jax.lax.fori_loop(0, blocks, block, state)
