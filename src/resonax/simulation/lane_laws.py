"""The laws of the inputs for lanes, and those that jax computes ahead of the steps.

Most processes take their steps in lanes; jax computes the laws of the others.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.lanes import LawForm
from resonax.moments import Moments
from resonax.simulation.batches import PROCESS, Gaussian, Law
from resonax.simulation.random_numbers import normals
from resonax.simulation.schedule import BLOCK
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Loop, walk

__all__ = ["LawsAhead", "law_form", "law_table", "merge_components"]

_MOST_NUMBERS = 2**21  # of laws that are computed at once
_MOST_BLOCKS = 25  # of steps, likewise
_FIRST_BLOCKS, _GROWTH = 2, 3  # of the first part; of the next, against all that were before


def law_form(law: Law, dim: int) -> LawForm:
    """Return how a law with leading axes is written for lanes."""
    if isinstance(law, Gaussian):
        return LawForm(dim)
    if isinstance(law, Moments) and not law.is_sampled:
        return LawForm(dim, rows=law.mean.shape[-2])
    return LawForm(dim, law.mean.shape[-2], not isinstance(law, Moments))


def law_table(law: Law, lanes: int) -> Array:
    """Return the numbers of a law (..., paths, cells), for blocks of so many paths.

    They are (blocks, ..., cells, numbers, lanes).
    """
    if isinstance(law, Gaussian):
        numbers = jnp.stack([*law.mean, *law.scale], axis=-1)
    elif isinstance(law, Moments) and not law.is_sampled:
        numbers = law.mean.reshape(*law.mean.shape[:-2], -1)
    else:
        root = law.root.reshape(*law.mean.shape[:-1], -1) if isinstance(law, Moments) else law.scale
        each = jnp.concatenate([law.mean, root], axis=-1)
        sums = jnp.cumsum(law.weight, axis=-1)[..., :-1]
        numbers = jnp.concatenate([each.reshape(*sums.shape[:-1], -1), sums], axis=-1)
    table = jnp.moveaxis(numbers, -3, -1)
    return jnp.moveaxis(table.reshape(*table.shape[:-1], -1, lanes), -2, 0)


def merge_components(form: LawForm, table: np.ndarray) -> tuple[LawForm, np.ndarray]:
    """Return a mixture of equal components as one of them: its inputs are the same bit by bit.

    Examples
    --------
    >>> table = np.array([0.1, 2.0, 0.1, 2.0, 0.5]).reshape(1, 1, 5, 1)  # two components, a weight
    >>> merge_components(LawForm(1, 2), table)[0].components
    1
    >>> merge_components(LawForm(1, 2), table * [[1], [1], [1], [2], [1]])[0].components
    2
    """
    if form.components == 1:
        return form, table
    blocks, cells, _, lanes = table.shape
    shape = blocks, cells, form.components, form.component, lanes
    each = table[:, :, : form.components * form.component].reshape(shape)
    if (each != each[:, :, :1]).any():
        return form, table
    return form._replace(components=1), np.ascontiguousarray(each[:, :, 0])


@functools.partial(jax.jit, static_argnames=("loop", "most", "shape"))
def _laws(
    training: Training,
    grid: Grid,
    process: Any,
    first: Array,
    blocks: Array,
    *,
    loop: Loop,
    most: int,
    shape: tuple[int, ...],
) -> tuple[Any, Array]:
    """Return the processes after some blocks of steps, at most ``most``, and the laws in these.

    ``shape`` is that of the laws of a step: (blocks of lanes, cells or 1, numbers of a law, lanes).
    """
    needed = training.process.step_normals if loop.ordered else 0

    def of_block(number: Array, process: Any) -> tuple[Any, Array]:
        steps = first + number * BLOCK + jnp.arange(BLOCK)
        given = normals(grid.keys, steps, PROCESS, needed)
        process, law = walk(training, grid, loop, process, steps, given)
        return process, law_table(law, shape[-1])

    if not loop.ordered:
        process, law = of_block(jnp.zeros((), int), process)
        return process, law[:, None]

    def fill(number: Array, state: tuple[Any, Array]) -> tuple[Any, Array]:
        process, law = of_block(number, state[0])
        return process, jax.lax.dynamic_update_slice_in_dim(state[1], law, number * BLOCK, 1)

    laws = jnp.zeros((shape[0], most * BLOCK, *shape[1:]))
    return jax.lax.fori_loop(0, blocks, fill, (process, laws))


class LawsAhead:
    """The laws of the steps of a run, one after the other.

    While the networks take the steps of a part, jax computes the laws of the next one. The first
    parts are short, as the networks wait for the first.

    Parameters
    ----------
    training, grid, loop
        Whose inputs.
    process
        State of the processes before the first step.
    shape
        Of the laws of a step, (blocks of lanes, cells or 1, numbers of a law, lanes).
    blocks
        Of steps, in all.
    """

    def __init__(
        self,
        training: Training,
        grid: Grid,
        loop: Loop,
        process: Any,
        shape: tuple[int, ...],
        blocks: int,
    ) -> None:
        most = int(np.clip(_MOST_NUMBERS // (BLOCK * math.prod(shape)), 1, _MOST_BLOCKS))
        self._most, self._blocks, self._begun = most, blocks, 0
        self._ordered, self._process = loop.ordered, process
        self._compute = functools.partial(_laws, training, grid, loop=loop, most=most, shape=shape)
        self._ready = np.zeros((0, 0))  # (blocks of lanes, steps, ...)
        self._coming: tuple[int, Array] | None = None
        self._begin()

    def _begin(self) -> None:
        """Let jax compute the next part, if there is one; this does not wait for it."""
        most = min(self._most, max(_FIRST_BLOCKS, _GROWTH * self._begun))
        count = min(most, self._blocks - self._begun)
        if count and (self._ordered or not self._begun):
            self._process, laws = self._compute(self._process, self._begun * BLOCK, count)
            self._coming = count * BLOCK, laws
        self._begun += count

    def take(self, steps: int) -> tuple[int, np.ndarray]:
        """Return laws for the next steps, at most so many, and for how many; or the one of all."""
        if not self._ready.shape[1]:
            assert self._coming is not None
            count, laws = self._coming
            self._begin()
            self._ready = np.asarray(laws)[:, :count]
        if not self._ordered:
            return steps, self._ready
        here, self._ready = self._ready[:, :steps], self._ready[:, steps:]
        return here.shape[1], here
