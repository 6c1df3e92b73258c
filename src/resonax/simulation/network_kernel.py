"""Networks on a GPU: a block of steps is one kernel, of which each program trains one network.

A step of a small network is some twenty operations, each of them over in less time than it takes to
start it. In one kernel the weights stay in registers from step to step, and nothing is started in
between. Batches are drawn before, by the compiler's own kernels.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from resonax.learners import Momentum, Network
from resonax.simulation.network import NetworkState
from resonax.simulation.network_batches import TEST_ROWS, Batch, Laws, draw_batches, draw_tests
from resonax.simulation.position_form import update_weights
from resonax.simulation.schedule import BLOCK
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Loop, cell_at

__all__ = ["fits_kernel", "step_in_kernels"]

_LEAST = 16  # sides of a matrix that the units for products of matrices take
_MOST = 4096  # entries of a matrix that a program can hold
_ENTRIES = 512  # of a matrix, for each warp that trains a network
_CAPABILITY = 8.0  # of a GPU, from which on there are such units
# Each product is three of rounded numbers, which leaves an error of about 1e-6: on an H200 as fast
# as one, within a third, and faster than without these units.
_PRECISION: Any = jax.lax.DotAlgorithmPreset.TF32_TF32_F32_X3


def _filled(size: int, least: int = 1) -> int:
    """Return the next power of two: all arrays of a kernel have such sides."""
    return max(1 << (size - 1).bit_length(), least)


def _largest(training: Training, rows: int) -> int:
    """Return how many entries the largest matrix of a step has."""
    model = training.model
    assert isinstance(model, Network)
    sizes = [_filled(size) for size in (training.process.dim, *model.hidden, 1)]
    height = _filled(max(rows, TEST_ROWS), _LEAST)
    return max(height * max(sizes), *(one * other for one, other in itertools.pairwise(sizes)))


def fits_kernel(training: Training, grid: Grid, loop: Loop) -> bool:
    """Return whether `step_in_kernels` can train networks: small ones, on a GPU with CUDA."""
    (device,) = grid.keys.devices()
    if device.platform != "gpu" or "cuda" not in device.client.platform_version.lower():
        return False
    if float(getattr(device, "compute_capability", 0.0)) < _CAPABILITY:
        return False
    is_single = jax.dtypes.canonicalize_dtype(float) == jnp.float32
    is_known = isinstance(training.optimizer, Momentum)
    return is_single and is_known and _largest(training, loop.rows) <= _MOST


def _padded(leaf: Array, first: int, least: int = 1) -> Array:
    """Fill all axes from some one on up to powers of two by zeros, that one to ``least`` or more.

    Weights that are 0 on either side of a unit have a slope of 0: they stay.
    """
    sizes = leaf.shape[first:]
    filled = [_filled(size, 1 if place else least) for place, size in enumerate(sizes)]
    sides = [(0, after - before) for before, after in zip(sizes, filled, strict=True)]
    return jnp.pad(leaf, [(0, 0)] * first + sides)


def _product(inputs: Array, weights: Array) -> Array:
    """Return ``inputs @ weights``."""
    if min(*inputs.shape, *weights.shape) >= _LEAST:
        return jnp.dot(inputs, weights, precision=_PRECISION)
    return jnp.sum(inputs[:, :, None] * weights[None], axis=1)


def _loss(layers: Any, batch: Batch, rows: int) -> Array:
    """Return the mean squared error over the first ``rows``: the others fill the arrays up."""
    hidden = batch.inputs
    for weights, bias in layers[:-1]:
        hidden = jnp.maximum(_product(hidden, weights) + bias[None], 0.0)
    weights, bias = layers[-1]
    gap = jnp.sum(_product(hidden, weights) + bias[None], axis=1) - batch.outputs
    return jnp.sum(jnp.where(jnp.arange(len(gap)) < rows, gap**2, 0.0)) / rows


def _own(leaf: Array) -> pl.BlockSpec:
    """Return which part of an array (paths, cells, ...) is that of a network."""
    rest = leaf.shape[2:]
    return pl.BlockSpec((None, None, *rest), lambda *place: (*place, *(0 for _ in rest)))


def _of_path(leaf: Array) -> pl.BlockSpec:
    """Return which part of an array (steps, paths, cells or 1, ...) is that of a network."""
    steps, _, laws, *rest = leaf.shape
    return pl.BlockSpec(
        (steps, None, None, *rest),
        lambda path, cell: (0, path, cell if laws > 1 else 0, *(0 for _ in rest)),
    )


def _train(
    cells: Any, state: Any, batches: Batch, tests: Batch | None, loop: Loop, warps: int
) -> Any:
    """Return layers, states of optimizers and sums of losses of all networks after some steps.

    Parameters
    ----------
    cells
        The optimizer of each network and the factor of its gradients, arrays (paths, cells).
    state
        What is returned, before these steps, arrays (paths, cells, ...).
    batches, tests
        Of each step, arrays (steps, paths, cells or 1, ...); all of these are `_padded`.
    loop, warps
        What they are trained for, and by how many warps each.
    """
    leaves, tree = jax.tree.flatten((cells, state, batches, tests))
    after, out_tree = jax.tree.flatten(state)
    first, steps = len(jax.tree.leaves(cells)), len(batches.outputs)

    def kernel(*refs: Any) -> None:
        given, found = refs[: len(leaves)], refs[len(leaves) :]
        cells, state, batches, tests = jax.tree.unflatten(tree, given)
        optimizer, scale = jax.tree.map(lambda ref: ref[...], cells)

        def step(number: Array, state: Any) -> Any:
            layers, memory, total = state
            batch = jax.tree.map(lambda ref: ref[number], batches)
            slope = jax.grad(_loss)(layers, batch, loop.rows)
            slope = jax.tree.map(lambda leaf: scale * leaf, slope)
            layers, memory = update_weights(optimizer, slope, layers, memory, decays=loop.decays)
            if tests is not None:
                test = jax.tree.map(lambda ref: ref[number], tests)
                total = total + _loss(layers, test, TEST_ROWS)
            return layers, memory, total

        state = jax.lax.fori_loop(0, steps, step, jax.tree.map(lambda ref: ref[...], state))
        for ref, leaf in zip(found, jax.tree.leaves(state), strict=True):
            ref[...] = leaf

    found = pl.pallas_call(
        kernel,
        grid=after[-1].shape,
        in_specs=[
            *(_own(leaf) for leaf in jax.tree.leaves((cells, state))),
            *(_of_path(leaf) for leaf in jax.tree.leaves((batches, tests))),
        ],
        out_specs=[_own(leaf) for leaf in after],
        out_shape=[jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in after],
        input_output_aliases={first + place: place for place in range(len(after))},
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
    )(*leaves)
    return jax.tree.unflatten(out_tree, found)


@functools.partial(jax.jit, static_argnames=("loop",), donate_argnames=("state",))
def step_in_kernels(
    training: Training,
    grid: Grid,
    state: NetworkState,
    first: Array,
    blocks: Array,
    record: Array,
    *,
    loop: Loop,
) -> NetworkState:
    """Advance all cells by some blocks of steps; with ``record``, sum the test losses up."""

    def one(columns: Any, shared: Any) -> Any:
        values = {**columns, **shared}
        return cell_at(training, values).optimizer, grid.scale(loop.rows, values)

    over_cells = jax.vmap(one, in_axes=(None, 0))
    cells = jax.vmap(over_cells, in_axes=(0, None))(grid.columns, grid.shared)
    laws = Laws.of(training, grid, loop)
    warps = max(_largest(training, loop.rows) // _ENTRIES, 1)

    def train(networks: Any, batches: Batch, tests: Batch | None) -> Any:
        batches, tests = jax.tree.map(lambda leaf: _padded(leaf, 3, _LEAST), (batches, tests))
        return _train(cells, networks, batches, tests, loop, warps)

    def block(number: Array, before: tuple[Any, Any]) -> tuple[Any, Any]:
        steps = first + number * BLOCK + jnp.arange(BLOCK)
        process, batches = draw_batches(training, grid, loop, laws, before[0], steps)

        def measured(networks: Any) -> Any:
            return train(networks, batches, draw_tests(training, grid, loop, laws, steps))

        def plain(networks: Any) -> Any:
            return train(networks, batches, None)

        return process, jax.lax.cond(record, measured, plain, before[1])

    before = state.layers, state.optimizer, state.total
    padded = jax.tree.map(lambda leaf: _padded(leaf, 2), before)
    process, after = jax.lax.fori_loop(0, blocks, block, (state.process[0], padded))
    cut = jax.tree.map(lambda leaf, like: leaf[tuple(map(slice, like.shape))], after, before)
    return NetworkState((process, state.process[1]), *cut)
