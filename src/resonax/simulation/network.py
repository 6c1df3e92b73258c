"""The compiled loop of networks: stochastic gradients by differentiation, all cells at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.errors import ArgumentError
from resonax.learners import Network
from resonax.simulation.batches import BLOCK
from resonax.simulation.cells import Grid, Loop, Training, begin_walk, cell_at, vmap_cells
from resonax.simulation.network_batches import Batch, Laws, draw_batches, draw_tests
from resonax.simulation.random_numbers import Purpose, normals
from resonax.simulation.schedule import Advance, Windowed, run_windows

__all__ = ["first_layers", "first_normals", "network_loop", "run_networks"]

_FEW_TERMS = 4  # up to which a product of small matrices costs more than its sums

Layers = tuple[tuple[Array, Array], ...]  # weights (in, out) and bias (out,) of each layer


class NetworkState(NamedTuple):
    """Where all cells stand, with leading axes (cells of a path, paths)."""

    process: Any
    layers: Layers
    optimizer: Any
    total: Array  # sum of test losses in the window

    def reset(self) -> NetworkState:
        """Return the same state at the beginning of a window."""
        return self._replace(total=jax.device_put(np.zeros(self.total.shape, self.total.dtype)))


def _product(inputs: Array, weights: Array) -> Array:
    """Return ``inputs @ weights``; few terms are added one by one, which is vectorised."""
    if len(weights) > _FEW_TERMS:
        return inputs @ weights
    return functools.reduce(
        jnp.add, [inputs[..., place, None] * row for place, row in enumerate(weights)]
    )


def apply_network(layers: Layers, inputs: Array) -> Array:
    """Return the predictions of a ReLU network, (..., dim) -> (...)."""
    hidden = inputs
    for weights, bias in layers[:-1]:
        hidden = jax.nn.relu(_product(hidden, weights) + bias)
    weights, bias = layers[-1]
    return (_product(hidden, weights) + bias)[..., 0]


def _loss(layers: Layers, inputs: Array, outputs: Array) -> Array:
    return jnp.mean((apply_network(layers, inputs) - outputs) ** 2)


def first_layers(given: Array, dim: int, hidden: tuple[int, ...]) -> Layers:
    """Return weights of variance 2 / inputs (He et al., 2015); the biases are 0."""
    layers, used = [], 0
    for before, after in itertools.pairwise((dim, *hidden, 1)):
        standard = given[used : used + before * after].reshape(before, after)
        layers.append((jnp.sqrt(2.0 / before) * standard, jnp.zeros(after)))
        used += before * after
    return tuple(layers)


def first_normals(grid: Grid, dim: int, hidden: tuple[int, ...]) -> Array:
    """Return the random numbers of `first_layers`, (paths, weights without biases)."""
    count = sum(before * after for before, after in itertools.pairwise((dim, *hidden, 1)))
    return normals(grid.keys, 0, Purpose.START, (count,))


@functools.partial(jax.jit, static_argnames=("loop",))
def begin_networks(training: Training, grid: Grid, *, loop: Loop) -> NetworkState:
    """Return the state of all cells before the first step."""
    model, dim = training.model, training.process.dim
    assert isinstance(model, Network)

    def begin(values: Any, given: Array) -> Any:
        layers = first_layers(given, dim, model.hidden)
        return layers, cell_at(training, values).optimizer.transform().init(layers)

    given = first_normals(grid, dim, model.hidden)
    layers, optimizer = vmap_cells(begin, grid, loop._replace(law_varies=True))(given)
    total = jnp.zeros(layers[-1][1].shape[:2])
    return NetworkState(begin_walk(training, grid, loop), layers, optimizer, total)


def _step(
    training: Training,
    grid: Grid,
    loop: Loop,
    values: Any,
    batch: Batch,
    layers: Layers,
    state: Any,
) -> tuple[Any, Any]:
    """Return layers and optimizer of one cell after one step."""
    import optax  # which takes long to load

    slope = jax.grad(_loss)(layers, *batch)
    slope = jax.tree.map(lambda leaf: grid.scale(loop.rows, values) * leaf, slope)
    transform = cell_at(training, values).optimizer.transform()
    moves, state = transform.update(slope, state, layers)
    return optax.apply_updates(layers, moves), state


@functools.partial(jax.jit, static_argnames=("loop",), donate_argnames=("state",))
def step_networks(
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
    cells, paths = state.total.shape
    values = {
        **{name: jnp.tile(numbers, cells) for name, numbers in grid.columns.items()},
        **{name: jnp.repeat(numbers, paths) for name, numbers in grid.shared.items()},
    }

    laws = Laws.of(training, grid, loop)
    step = functools.partial(_step, training, grid, loop)

    def one(state: NetworkState, now: tuple[Batch, Batch | None]) -> tuple[NetworkState, None]:
        batch, test = jax.tree.map(
            lambda leaf: _flat(jnp.broadcast_to(leaf, (cells, paths, *leaf.shape[2:]))), now
        )
        layers, optimizer = jax.vmap(step)(values, batch, state.layers, state.optimizer)
        total = state.total
        if test is not None:
            total = total + jax.vmap(_loss)(layers, *test)
        return state._replace(layers=layers, optimizer=optimizer, total=total), None

    def block(number: Array, state: NetworkState) -> NetworkState:
        # Batches are drawn for the block at once, and the loop stores what it is given: XLA would
        # fuse the draws with each of their uses, and recompute them there.
        now = first + number * BLOCK
        process, batches = draw_batches(training, grid, loop, laws, state.process, now)
        state = state._replace(process=process)

        def measured(state: NetworkState) -> NetworkState:
            tests = draw_tests(training, grid, loop, laws, now)
            return jax.lax.scan(one, state, (batches, tests))[0]

        def plain(state: NetworkState) -> NetworkState:
            return jax.lax.scan(one, state, (batches, None))[0]

        return jax.lax.cond(record, measured, plain, state)

    # One axis of networks: the compiler vectorises a second one of length 1 badly (6 times slower).
    flat = jax.tree.map(_flat, state._replace(process=()))._replace(process=state.process)
    after = jax.lax.fori_loop(0, blocks, block, flat)
    split = jax.tree.map(
        lambda leaf: leaf.reshape(cells, paths, *leaf.shape[1:]), after._replace(process=())
    )
    return split._replace(process=after.process)


def _flat(leaf: Array) -> Array:
    return leaf.reshape(-1, *leaf.shape[2:])


def log_mean_loss(state: Windowed, steps: int) -> np.ndarray:
    """Return the logarithm of the mean loss; it is infinite for a network that overflowed."""
    mean = np.asarray(state.total, float) / steps
    return np.log(np.where(np.isfinite(mean), np.maximum(mean, 1e-300), np.inf))


def network_loop(device: str) -> str:
    """Return the loop that trains networks by default on a ``cpu`` or ``gpu``: numba or jax."""
    from resonax.simulation.network_cpu import has_numba

    return "numba" if device == "cpu" and has_numba() else "jax"


def run_networks(
    training: Training,
    grid: Grid,
    loop: Loop,
    steps: int,
    window: int,
    advance: Advance,
    numba: bool | None,
) -> list[np.ndarray]:
    """Return the logarithms of the test loss at the start, and over windows in middle and end.

    The loss at the start is that of the first 20 steps. ``numba`` says whether Numba compiles the
    loop or jax; None: Numba where it can.
    """
    from resonax.simulation.network_cpu import CompiledNetworks, unsupported_reason

    reason = "" if numba is False else unsupported_reason(training, grid)
    if numba and reason:
        raise ArgumentError(f"numba cannot train these networks: {reason}")
    begin: Callable[[], Any]
    step_blocks: Callable[..., Any]
    if reason is None:
        begin = functools.partial(CompiledNetworks, training, grid, loop)
        step_blocks = CompiledNetworks.step
    else:
        begin = functools.partial(begin_networks, training, grid, loop=loop)
        step_blocks = functools.partial(step_networks, training, grid, loop=loop)
    start = log_mean_loss(step_blocks(begin(), 0, 1, True), BLOCK)  # its state is donated
    measure = functools.partial(log_mean_loss, steps=window)
    return [start, *run_windows(begin(), step_blocks, measure, steps, window, advance)]
