"""What networks are trained and tested on: the batches of a block of steps, drawn at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.moments import Moments
from resonax.simulation.batches import (
    CHOICE,
    INPUT,
    NOISE,
    PROCESS,
    Gaussian,
    Law,
    Mixture,
    Needs,
    needs_of,
)
from resonax.simulation.random_numbers import normal_array, normals, uniform_array
from resonax.simulation.training import Training
from resonax.simulation.walk import (
    Grid,
    Loop,
    cell_at,
    shuffled_laws,
    stationary_laws,
    vmap_cells,
    walk,
)

__all__ = [
    "TEST",
    "TEST_CHOICE",
    "TEST_ROWS",
    "Batch",
    "Laws",
    "draw_batches",
    "draw_tests",
    "target",
]

TEST_ROWS = 10  # fresh inputs from the stationary law, for the loss of each recorded step
TEST, TEST_CHOICE = 4 * 2**20, 5 * 2**20  # the first of their slots


class _Numbers(NamedTuple):
    """The random numbers of a step, with the paths first."""

    input: Array
    choice: Array
    noise: Array


class Batch(NamedTuple):
    """Inputs (rows, dim) and outputs (rows,)."""

    inputs: Array
    outputs: Array


def _draw(grid: Grid, steps: Array, needs: Needs, slots: tuple[int, int, int]) -> _Numbers:
    """Return the numbers of some steps, (steps, paths, count) each."""
    counts = (needs.input, needs.choice, needs.noise)
    kinds = (normal_array, uniform_array, normal_array)
    drawn = (
        kind(grid.keys, steps, first, count).swapaxes(0, 1)
        for kind, first, count in zip(kinds, slots, counts, strict=True)
    )
    return _Numbers(*drawn)


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

    tested: Any
    still: Any

    @classmethod
    def of(cls, training: Training, grid: Grid, loop: Loop) -> Laws:
        """Return those of a grid."""
        still = None if loop.ordered else shuffled_laws(training, grid, loop)
        return cls(stationary_laws(training, grid, loop), still)


def draw_batches(
    training: Training, grid: Grid, loop: Loop, laws: Laws, process: Any, steps: Array
) -> tuple[Any, Batch]:
    """Return the state of the processes after some steps, and the batches of these."""
    walks = training.process.step_normals if loop.ordered else 0
    needs = needs_of(training.process.dim, loop.rows, process=walks, choice=loop.mixed)

    def batch_of(values: Any, given: _Numbers, law: Law) -> Batch:
        inputs = _inputs(law, given.input, given.choice)
        noise = jnp.sqrt(jnp.asarray(cell_at(training, values).noise)) * given.noise
        return Batch(inputs, target(inputs) + noise)

    walked = normals(grid.keys, steps, PROCESS, needs.process)
    process, law = walk(training, grid, loop, process, steps, walked, laws.still)
    of_steps = 0 if loop.ordered else None
    draw_all = jax.vmap(vmap_cells(batch_of, grid, loop), in_axes=(0, of_steps))
    return process, draw_all(_draw(grid, steps, needs, (INPUT, CHOICE, NOISE)), law)


def draw_tests(training: Training, grid: Grid, loop: Loop, laws: Laws, steps: Array) -> Batch:
    """Return fresh inputs from the stationary law for some steps, with targets without noise."""

    def test_of(values: Any, given: _Numbers, law: Law) -> Batch:
        del values
        inputs = _inputs(law, given.input, given.choice)
        return Batch(inputs, target(inputs))

    needs = Needs(0, TEST_ROWS * training.process.dim, TEST_ROWS, 0)
    given = _draw(grid, steps, needs, (TEST, TEST_CHOICE, NOISE))
    return jax.vmap(vmap_cells(test_of, grid, loop), in_axes=(0, None))(given, laws.tested)
