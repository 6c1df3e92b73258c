r"""The inputs of one step: drawn one by one, or by their sufficient statistics.

A linear model depends on a batch only by :math:`\frac1n\sum_i\phi_i\phi_i^\top = F^\top F`. Any
factor :math:`F` that gives :math:`F^\top F` its law can be used, and the noise of the targets given
the inputs is :math:`\frac1n\sum_i\phi_i\epsilon_i \sim \frac{\sigma}{\sqrt n} F^\top\zeta` with
:math:`\zeta\sim\mathcal N(0, I)`. For a Gaussian batch larger than its dimension the rows of
:math:`F` are the mean and the scatter's factor: :math:`d+1` rows in place of :math:`n`.

Vectors are lists of scalars here: the engine maps all of this over cells, and a list keeps each
component a contiguous array over them, which the compiler vectorises.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.moments import Moments
from resonax.learners import Features, Linear
from resonax.simulation.random_numbers import Purpose, chi, normals, uniforms

__all__ = [
    "BLOCK",
    "Draws",
    "Gaussian",
    "Law",
    "Mixture",
    "Needs",
    "draw",
    "draw_factor",
    "needs_of",
    "signal_of",
    "split",
]

Vector = list[Array]

BLOCK = 20  # steps drawn at once


class Needs(NamedTuple):
    """How many random numbers one step of one path takes."""

    process: int  # normal
    input: int  # normal
    choice: int  # uniform
    noise: int  # normal


class Draws(NamedTuple):
    """The random numbers of a step, by purpose: arrays, or lists of their entries."""

    process: Any
    input: Any
    choice: Any
    noise: Any


def draw(keys: Array, block: ArrayLike, needs: Needs) -> Draws:
    """Draw the numbers of a block of steps of all paths, arrays (paths, steps, count)."""
    return Draws(
        normals(keys, block, Purpose.PROCESS, (BLOCK, needs.process)),
        normals(keys, block, Purpose.INPUT, (BLOCK, needs.input)),
        uniforms(keys, block, Purpose.CHOICE, (BLOCK, needs.choice)),
        normals(keys, block, Purpose.NOISE, (BLOCK, needs.noise)),
    )


def needs_of(
    dim: int, rows: int, *, process: int, scatter: bool = False, choice: bool = False
) -> Needs:
    """Return how many numbers a batch takes, drawn in one of the ways of `draw_factor`."""
    if not scatter:
        return Needs(process, rows * dim, rows if choice else 0, rows)
    return Needs(process, dim + dim * (dim + 1) // 2, 0, dim + 1)


class Gaussian(NamedTuple):
    """A law of inputs with independent coordinates, as scalars."""

    mean: tuple[Array, ...]
    scale: tuple[Array, ...]
    signal: Array | None = None


class Mixture(NamedTuple):
    """A mixture of such laws."""

    mean: Array  # (components, dim)
    scale: Array  # (components, dim)
    weight: Array  # (components,)
    signal: Array | None = None  # (components,)


Law = Gaussian | Mixture | Moments


def split(law: Moments, diagonal: bool) -> Law:
    """Return a law without its roots, if those are diagonal; a single Gaussian as scalars."""
    components, dim = law.mean.shape
    if not law.is_sampled or not diagonal:
        return law
    if components > 1:
        scale = jnp.diagonal(law.root, axis1=-2, axis2=-1)
        return Mixture(law.mean, scale, law.weight, law.signal)
    mean, root, places = law.mean[0], law.root[0], range(dim)
    # One by one: XLA would gather a diagonal entry by entry.
    signal = None if law.signal is None else law.signal[0]
    return Gaussian(tuple(mean[i] for i in places), tuple(root[i, i] for i in places), signal)


def _size(law: Law) -> int:
    return len(law.mean) if isinstance(law, Gaussian) else law.mean.shape[1]


def _moved(law: Law, standard: list[Array], which: ArrayLike = 0) -> Vector:
    """Return mean + root z."""
    if isinstance(law, Gaussian):
        triples = zip(law.mean, law.scale, standard, strict=True)
        return [mean + scale * normal for mean, scale, normal in triples]
    mean, places = law.mean[which], range(len(standard))
    if isinstance(law, Mixture):
        scale = law.scale[which]
        return [mean[i] + scale[i] * standard[i] for i in places]
    root = law.root[which]
    return [mean[i] + sum(root[i, j] * standard[j] for j in places) for i in places]


def _component(draws: Draws, law: Law, row: int) -> ArrayLike:
    """Return the number of the component from which a row comes."""
    if isinstance(law, Gaussian) or len(law.mean) == 1:
        return 0
    return jnp.sum(draws.choice[row] > jnp.cumsum(law.weight)[:-1])


def signal_of(draws: Draws, law: Law, row: int) -> Array:
    """Return the signal of the law from which a row comes."""
    assert law.signal is not None  # a problem with a drift has one
    return law.signal if isinstance(law, Gaussian) else law.signal[_component(draws, law, row)]


def draw_inputs(draws: Draws, law: Law, rows: int) -> list[Vector]:
    """Return the inputs of a batch, drawn one by one; for a recording, its rows."""
    dim = _size(law)
    if isinstance(law, Moments) and not law.is_sampled:
        return [list(row) for row in law.mean]
    inputs = []
    for row in range(rows):
        standard = [draws.input[row * dim + place] for place in range(dim)]
        inputs.append(_moved(law, standard, _component(draws, law, row)))
    return inputs


def _scatter_rows(draws: Draws, law: Law, batch: int, features: Linear) -> list[Vector]:
    """Return the rows of a factor by Bartlett's decomposition of the scatter (1933)."""
    dim = _size(law)
    share = 1 / np.sqrt(batch)
    assert not isinstance(law, Mixture)  # a batch from a mixture has no such statistics
    if isinstance(law, Gaussian):
        still: Law = law._replace(mean=(jnp.zeros(()),) * dim)
    else:
        still = replace(law, mean=jnp.zeros_like(law.mean))
    pad = [[jnp.ones(())], [jnp.zeros(())]] if features.bias else [[], []]
    rows = [_moved(law, [share * draws.input[place] for place in range(dim)]) + pad[0]]
    used = dim
    for column in range(dim):
        length = chi(draws.input[used], batch - 1 - column)
        below = [share * number for number in draws.input[used + 1 : used + dim - column]]
        used += dim - column
        factor = [jnp.zeros(())] * column + [share * length, *below]
        rows.append(_moved(still, factor) + pad[1])
    return rows


def draw_factor(
    draws: Draws,
    law: Law,
    features: Features,
    *,
    rows: int,
    scatter: bool,
    batch: ArrayLike | None,
) -> list[Vector]:
    """Return the rows of a factor F of one step's batch.

    Parameters
    ----------
    draws, law, features
        Random numbers (see `needs_of`), law of the inputs and feature map.
    rows
        Inputs to draw one by one, of which the first ``batch`` count.
    scatter
        Draw the sufficient statistics of a batch of ``rows`` inputs in their place.
    batch
        Size of the batch; None for rows of weight 1, where the cells of a path differ in it.
    """
    if scatter:
        assert isinstance(features, Linear)
        return _scatter_rows(draws, law, rows, features)
    inputs = draw_inputs(draws, law, rows)
    if batch is None:
        return [_features(features, row) for row in inputs]
    share = 1 / jnp.sqrt(jnp.asarray(batch, dtype=float))
    factor = []
    for number, row in enumerate(inputs):
        weight = jnp.where(number < jnp.asarray(batch), share, 0.0)
        factor.append([weight * feature for feature in _features(features, row)])
    return factor


def _features(features: Features, row: Vector) -> Vector:
    if isinstance(features, Linear):
        return [*row, jnp.ones(())] if features.bias else row
    applied = features.apply(jnp.stack(row))
    return [applied[place] for place in range(applied.shape[0])]
