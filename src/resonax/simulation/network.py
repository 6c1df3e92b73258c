"""The compiled loop of networks: stochastic gradients by differentiation, all cells at once."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from resonax.moments import Moments
from resonax.simulation.batches import (
    CHOICE,
    INPUT,
    NOISE,
    PROCESS,
    Gaussian,
    Law,
    Mixture,
    needs_of,
)
from resonax.simulation.schedule import BLOCK, schedule
from resonax.simulation.streams import BEGINNING, normal_array, normals, uniform_array
from resonax.simulation.training import Network, Training
from resonax.simulation.walk import Grid, Shape, begin_walk, over_law, walk

__all__ = ["Layers", "apply_network", "run_networks", "target"]

_TEST_ROWS = 20  # fresh inputs from the stationary law, for the loss of each recorded step
TEST, TEST_CHOICE = 4 * 2**20, 5 * 2**20  # the first of their slots

Layers = tuple[tuple[Array, Array], ...]  # weights (in, out) and bias (out,) of each layer


class _Numbers(NamedTuple):
    """The random numbers of a step, with the streams first."""

    input: Array
    choice: Array
    noise: Array


class NetworkState(NamedTuple):
    """Where all cells stand, with leading axes (streams, cells of a stream)."""

    process: Any
    layers: Layers
    optimizer: Any
    total: Array  # sum of test losses in the window


def target(inputs: Array) -> Array:
    r"""Return :math:`\cos(\pi\lVert x\rVert)`."""
    return jnp.cos(np.pi * jnp.sqrt(jnp.sum(inputs**2, axis=-1)))


def apply_network(layers: Layers, inputs: Array) -> Array:
    """Return the predictions of a ReLU network, (..., dim) -> (...)."""
    hidden = inputs
    for weights, bias in layers[:-1]:
        hidden = jax.nn.relu(hidden @ weights + bias)
    weights, bias = layers[-1]
    return (hidden @ weights + bias)[..., 0]


def _loss(layers: Layers, inputs: Array, outputs: Array) -> Array:
    return jnp.mean((apply_network(layers, inputs) - outputs) ** 2)


def he_layers(given: Array, dim: int, hidden: tuple[int, ...]) -> Layers:
    """Return weights of variance 2 / inputs (He et al., 2015); the biases are 0."""
    layers, used = [], 0
    for before, after in itertools.pairwise((dim, *hidden, 1)):
        standard = given[used : used + before * after].reshape(before, after)
        layers.append((jnp.sqrt(2.0 / before) * standard, jnp.zeros(after)))
        used += before * after
    return tuple(layers)


def _weights(dim: int, hidden: tuple[int, ...]) -> int:
    return sum(before * after for before, after in itertools.pairwise((dim, *hidden, 1)))


def _inputs(law: Law, standard: Array, choice: Array) -> Array:
    """Return inputs of a law as an array (rows, dim)."""
    if isinstance(law, Gaussian):
        dim = len(law.mean)
        return jnp.stack(law.mean) + jnp.stack(law.scale) * standard.reshape(-1, dim)
    if isinstance(law, Moments) and not law.drawn:
        return law.mean
    standard = standard.reshape(-1, law.mean.shape[1])
    if len(law.mean) == 1:
        assert isinstance(law, Moments)
        return law.mean[0] + standard @ law.root[0].T
    which = jnp.sum(choice[:, None] > jnp.cumsum(law.weight)[:-1], axis=1)
    if isinstance(law, Mixture):
        return law.mean[which] + law.scale[which] * standard
    return law.mean[which] + jnp.einsum("nij,nj->ni", law.root[which], standard)


@functools.partial(jax.jit, static_argnames="shape")
def begin_networks(training: Training, grid: Grid, *, shape: Shape) -> NetworkState:
    """Return the state of all cells before the first step."""
    model, dim = training.model, training.process.dim
    assert isinstance(model, Network)

    def begin(values: Any, given: Array) -> Any:
        layers = he_layers(given, dim, model.hidden)
        return layers, training.at(values).optimizer.transform().init(layers)

    given = normal_array(grid.keys, BEGINNING, INPUT, _weights(dim, model.hidden))[:, 0]
    layers, optimizer = over_law(begin, grid, shape._replace(law_varies=True))(given)
    total = jnp.zeros(layers[-1][1].shape[:2])
    return NetworkState(begin_walk(training, grid, shape), layers, optimizer, total)


@functools.partial(jax.jit, static_argnames="shape", donate_argnames="state")
def advance_networks(
    training: Training,
    grid: Grid,
    state: NetworkState,
    first: Array,
    blocks: Array,
    record: Array,
    *,
    shape: Shape,
) -> NetworkState:
    """Advance all cells by some blocks of steps; with ``record``, sum the test losses up."""
    dim = training.process.dim
    walks = training.process.step_normals if shape.ordered else 0
    needs = needs_of(dim, shape.rows, process=walks, choice=shape.mixed)
    every = shape._replace(law_varies=True)

    def step_cell(values: Any, given: _Numbers, law: Law, layers: Layers, optimizer: Any) -> Any:
        cell = training.at(values)
        inputs = _inputs(law, given.input, given.choice)
        noise = jnp.sqrt(jnp.asarray(cell.noise)) * given.noise
        slope = jax.grad(_loss)(layers, inputs, target(inputs) + noise)
        slope = jax.tree.map(lambda leaf: grid.scale(shape.rows) * leaf, slope)
        moves, optimizer = cell.optimizer.transform().update(slope, optimizer, layers)
        return optax.apply_updates(layers, moves), optimizer

    def judge_cell(values: Any, given: tuple[Array, Array], layers: Layers) -> Array:
        inputs = _inputs(training.at(values).process.stationary(), *given)
        return _loss(layers, inputs, target(inputs))

    def judged(layers: Layers, step: Array) -> Array:
        standard = normal_array(grid.keys, step[None], TEST, _TEST_ROWS * dim)[:, 0]
        choice = uniform_array(grid.keys, step[None], TEST_CHOICE, _TEST_ROWS)[:, 0]
        return over_law(judge_cell, grid, every)((standard, choice), layers)

    def one(state: NetworkState, now: Any, measured: bool) -> tuple[NetworkState, None]:
        step, given, laws = now
        cells = state.total.shape
        laws = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (*cells, *leaf.shape[2:])), laws)
        each = over_law(step_cell, grid, every)
        layers, optimizer = each(given, laws, state.layers, state.optimizer)
        total = state.total + judged(layers, step) if measured else state.total
        return state._replace(layers=layers, optimizer=optimizer, total=total), None

    def block(number: Array, state: NetworkState) -> NetworkState:
        steps = first + number * BLOCK + jnp.arange(BLOCK)
        numbers = _Numbers(
            normal_array(grid.keys, steps, INPUT, needs.input),
            uniform_array(grid.keys, steps, CHOICE, needs.choice),
            normal_array(grid.keys, steps, NOISE, needs.noise),
        )
        given = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), numbers)
        walked = normals(grid.keys, steps, PROCESS, needs.process)
        process, laws = walk(training, grid, shape, state.process[0], steps, walked)
        if not shape.ordered:
            laws = jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (BLOCK, *leaf.shape)), laws)
        state = state._replace(process=(process, state.process[1]))
        plain, measured = (functools.partial(one, measured=choice) for choice in (False, True))
        return jax.lax.cond(
            record,
            lambda state, now: jax.lax.scan(measured, state, now)[0],
            lambda state, now: jax.lax.scan(plain, state, now)[0],
            state,
            (steps, given, laws),
        )

    return jax.lax.fori_loop(0, blocks, block, state)


def run_networks(
    training: Training,
    grid: Grid,
    shape: Shape,
    steps: int,
    window: int,
    tell: Callable[[float], None],
) -> list[np.ndarray]:
    """Return the logarithms of the test loss at the start, and over windows in middle and end.

    The loss at the start is that of the first 20 steps. A network that overflowed has an infinite
    loss.
    """

    def log_mean(state: NetworkState, count: int) -> np.ndarray:
        mean = np.asarray(state.total, float) / count
        return np.log(np.where(np.isfinite(mean), np.maximum(mean, 1e-300), np.inf))

    state = begin_networks(training, grid, shape=shape)
    logs = [log_mean(advance_networks(training, grid, state, 0, 1, True, shape=shape), BLOCK)]
    state = begin_networks(training, grid, shape=shape)
    for part in schedule(steps, window):
        if part.opens:
            state = state._replace(total=jnp.zeros_like(state.total))
        now = part.start, part.blocks, part.record
        state = advance_networks(training, grid, state, *now, shape=shape)
        jax.block_until_ready(state.total)
        tell(part.blocks * BLOCK / steps)
        if part.closes:
            logs.append(log_mean(state, window))
    return logs
