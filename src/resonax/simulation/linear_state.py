"""The state of linear models: errors as numbers near 1 times a power of two, so none overflows."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = [
    "RANGE",
    "LinearState",
    "add_distances",
    "distance",
    "log_distance",
    "narrowed",
    "rescale",
    "transposed",
    "widened",
]

RANGE = 20  # errors are kept within 2^-20..2^20 from block to block


class LinearState(NamedTuple):
    """Where all cells stand. Numbers of a cell are multiplied by 2^-shift of that cell."""

    process: Any
    weights: tuple[Array, ...]  # error of each weight, (paths, cells of a path)
    optimizer: Any
    target: tuple[Array, ...]
    shift: Array
    total: Array  # sum of distances in the window, times 2^-level
    level: Array  # the largest shift in the window; it stays where the errors shrink on

    def reset(self) -> LinearState:
        """Return the same state at the beginning of a window."""
        flat = np.zeros(self.total.shape, self.total.dtype)  # not by jax, which would compile it
        return self._replace(total=jax.device_put(flat), level=jax.device_put(flat - np.inf))


def transposed(state: LinearState) -> LinearState:
    """Swap paths and cells: what is last is what the processor vectorises over, paths are many.

    A column of a few cells would otherwise leave most of a vector empty.
    """
    swapped = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), state._replace(process=()))
    return swapped._replace(process=state.process)


def widened(state: LinearState) -> LinearState:
    """Join the weights of a cell into one array, (paths, weights, cells).

    XLA has no kernels of several outputs on a CPU: with an array for each of n weights, n kernels
    read all weights of all cells. One kernel finds those of a path, a few kilobytes, in the cache.
    """
    joined = jax.tree.map(
        lambda node: (jnp.stack(node, axis=1),) if _is_tuple(node) else node[:, None],
        state._replace(process=()),
        is_leaf=_is_tuple,
    )
    return joined._replace(process=state.process)


def narrowed(state: LinearState) -> LinearState:
    """Undo `widened`."""
    parted = jax.tree.map(
        lambda node: tuple(jnp.moveaxis(node[0], 1, 0)) if _is_tuple(node) else node[:, 0],
        state._replace(process=()),
        is_leaf=_is_tuple,
    )
    return parted._replace(process=state.process)


def _is_tuple(node: Any) -> bool:
    return type(node) is tuple and bool(node)  # one entry for each weight


def distance(weights: tuple[Array, ...]) -> Array:
    """Return the length of the error of each cell."""
    peak = _largest(weights)  # divided by it, no square is too small or too large
    safe = jnp.where(peak > 0, peak, 1.0)
    return peak * jnp.sqrt(sum((e / safe) ** 2 for e in _each(weights)))


def _largest(weights: tuple[Array, ...]) -> Array:
    return functools.reduce(jnp.maximum, [jnp.abs(e) for e in _each(weights)])


def _each(weights: tuple[Array, ...]) -> tuple[Array, ...]:
    """Return an array for each weight, in either layout."""
    first = weights[0]
    if first.ndim < 3:
        return weights
    return tuple(first[:, place : place + 1] for place in range(first.shape[1]))


def _power_of_two(size: Array) -> tuple[Array, Array]:
    """Return the exponent of numbers out of range, else 0, and 2 to the power of its negative.

    Both are read from and written to the bits, which costs a tenth of a logarithm.
    """
    kind, fraction, bias = (
        (jnp.int64, 52, 1023) if size.dtype == jnp.float64 else (jnp.int32, 23, 127)
    )
    power = (jax.lax.bitcast_convert_type(size, kind) >> fraction) - bias
    power = jnp.where(jnp.abs(power) > RANGE, jnp.clip(power, 1 - bias, bias - 1), 0)
    return power, jax.lax.bitcast_convert_type((bias - power) << fraction, size.dtype)


def rescale(state: LinearState) -> LinearState:
    """Bring errors that left their range back to about 1, and remember by how much."""
    power, factor = _power_of_two(_largest(state.weights))

    def scaled(leaf: Array) -> Array:
        return leaf * factor if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf

    return state._replace(
        weights=jax.tree.map(scaled, state.weights),
        optimizer=jax.tree.map(scaled, state.optimizer),
        shift=state.shift + power.astype(state.shift.dtype),
    )


def add_distances(before: LinearState, after: LinearState) -> LinearState:
    """Add the distances of a block, in units of its own, to those of the window before it."""
    level = jnp.maximum(before.level, before.shift)
    total = before.total * jnp.exp2(before.level - level)
    total = total + after.total * jnp.exp2(before.shift - level)
    return after._replace(total=total, level=level)


@jax.jit
def log_distance(state: LinearState, steps: Array) -> Array:
    """Return the logarithm of the mean distance over a window, or of the distance for 0 steps."""
    over = steps > 0
    mean = jnp.where(over, state.total / jnp.maximum(steps, 1), distance(state.weights))
    shift = jnp.where(over, state.level, state.shift)
    least = jnp.finfo(mean.dtype).tiny
    return jnp.log(jnp.maximum(mean, least)) + shift * np.log(2.0)
