"""What networks are trained and tested on: the batches of a block of steps, drawn at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.moments import Moments
from resonax.simulation.batches import BLOCK, Draws, Gaussian, Law, Mixture, draw, needs_of
from resonax.simulation.cells import (
    Grid,
    Loop,
    Training,
    cell_at,
    shuffled_laws,
    stationary_laws,
    vmap_cells,
    walk,
)
from resonax.simulation.random_numbers import Purpose, normals, uniforms

__all__ = [
    "Batch",
    "Laws",
    "draw_batches",
    "draw_tests",
    "target",
]

_TEST_ROWS = 10  # fresh inputs from the stationary law, for the loss of each recorded step


class Batch(NamedTuple):
    """Inputs (rows, dim) and outputs (rows,)."""

    inputs: Array
    outputs: Array


def target(inputs: Array) -> Array:
    r"""Return :math:`\cos(\pi\lVert x\rVert)`."""
    return jnp.cos(np.pi * jnp.sqrt(jnp.sum(inputs**2, axis=-1)))


def _inputs(law: Law, standard: Array, choice: Array) -> Array:
    """Return inputs of a law as an array (rows, dim)."""
    if isinstance(law, Gaussian):
        dim = len(law.mean)
        return jnp.stack(law.mean) + jnp.stack(law.scale) * standard.reshape(-1, dim)
    if isinstance(law, Moments) and not law.is_sampled:
        return law.mean
    standard = standard.reshape(-1, law.mean.shape[1])
    if len(law.mean) == 1:
        assert isinstance(law, Moments)
        return law.mean[0] + standard @ law.root[0].T
    which = jnp.sum(choice[:, None] > jnp.cumsum(law.weight)[:-1], axis=1)
    if isinstance(law, Mixture):
        return law.mean[which] + law.scale[which] * standard
    return law.mean[which] + jnp.einsum("nij,nj->ni", law.root[which], standard)


class Laws(NamedTuple):
    """What is the same in all steps: the law of tests, and that of inputs in random order."""

    stationary: Any
    shuffled: Any

    @classmethod
    def of(cls, training: Training, grid: Grid, loop: Loop) -> Laws:
        """Return those of a grid."""
        at_random = None if loop.ordered else shuffled_laws(training, grid, loop)
        return cls(stationary_laws(training, grid, loop), at_random)


def draw_batches(
    training: Training, grid: Grid, loop: Loop, laws: Laws, process: Any, first: Array
) -> tuple[Any, Batch]:
    """Return the state of the processes after a block of steps, and the batches of these."""
    walks = training.process.step_normals if loop.ordered else 0
    needs = needs_of(training.process.dim, loop.rows, process=walks, choice=loop.mixed)
    draws = draw(grid.keys, first // BLOCK, needs)

    def batch_of(values: Any, given: Draws, law: Law) -> Batch:
        inputs = _inputs(law, given.input, given.choice)
        noise = jnp.sqrt(jnp.asarray(cell_at(training, values).noise)) * given.noise
        return Batch(inputs, target(inputs) + noise)

    def one(process: Any, now: tuple[Array, Draws]) -> tuple[Any, Batch]:
        step, given = now
        law = laws.shuffled
        if loop.ordered:
            process, law = walk(training, grid, loop, process, step, given.process)
        return process, vmap_cells(batch_of, grid, loop)(given, law)

    by_step = jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), draws)
    return jax.lax.scan(one, process, (first + jnp.arange(BLOCK), by_step))


def draw_tests(training: Training, grid: Grid, loop: Loop, laws: Laws, first: Array) -> Batch:
    """Return fresh inputs from the stationary law for a block, with targets without noise."""

    def test_of(values: Any, given: tuple[Array, Array], law: Law) -> Batch:
        del values
        inputs = _inputs(law, *given)
        return Batch(inputs, target(inputs))

    shapes = (BLOCK, _TEST_ROWS * training.process.dim), (BLOCK, _TEST_ROWS)
    given = (
        normals(grid.keys, first // BLOCK, Purpose.TEST, shapes[0]).swapaxes(0, 1),
        uniforms(grid.keys, first // BLOCK, Purpose.TEST_CHOICE, shapes[1]).swapaxes(0, 1),
    )
    return jax.lax.map(lambda one: vmap_cells(test_of, grid, loop)(one, laws.stationary), given)
