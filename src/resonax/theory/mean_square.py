r"""The mean-square criterion: exact growth of :math:`E\|\theta_k-\theta^*\|^2`, and its floor."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import Scaled, double_precision, rescaled
from resonax.core.errors import ArgumentError
from resonax.dynamics import Map, Setting
from resonax.theory.cells import Advance, Values
from resonax.theory.coordinates import symmetric_basis
from resonax.theory.discrete import rates_by, rational_periods
from resonax.theory.products import SECOND_MOMENT

__all__ = ["mean_square_rates", "noise_floor"]

_CHUNK = 256
_MAX_WEIGHTS = 24  # the second moment has (2 p)^2 / 2 entries, its propagator the square of that


def _propagator(setting: Setting, steps: Array | int, limit: Array | int) -> Scaled:
    """Return what one period does to the second moment, as a matrix on symmetric matrices.

    Acting on a basis costs a power of the size less than a product of Kronecker matrices.
    """
    discrete = Map(setting)
    basis, row, column = symmetric_basis(2 * setting.size)

    def body(index: Array, product: Scaled) -> Scaled:
        step = discrete.second_moment(setting.process.moments(index))
        after = jax.vmap(step)(product.matrix)
        flat = rescaled(after.reshape(len(basis), -1), product.exponent)
        after = Scaled(flat.matrix.reshape(after.shape), flat.exponent)
        return jax.tree.map(lambda new, old: jnp.where(index < steps, new, old), after, product)

    start = Scaled(jnp.asarray(basis), jnp.zeros((), jnp.int64))
    end = jax.lax.fori_loop(0, limit, body, start)
    return Scaled(end.matrix[:, row, column].T, end.exponent)


@jax.jit
def _products(setting: Setting, values: dict[str, Array], steps: Array) -> Scaled:
    limit = jnp.max(steps)
    return jax.vmap(lambda v, n: _propagator(setting.at(v), n, limit))(values, steps)


def mean_square_rates(
    setting: Setting, values: Values, advance: Advance | None = None
) -> np.ndarray:
    """Return the rate per step of every cell: half that of the second moment."""
    if setting.size > _MAX_WEIGHTS:
        raise ArgumentError(
            f"the mean_square criterion takes at most {_MAX_WEIGHTS} weights, got {setting.size}: "
            "use another criterion"
        )
    return rates_by(SECOND_MOMENT, _products, setting, values, _CHUNK, advance) / 2


@jax.jit
def _floor(setting: Setting, steps: Array) -> Array:
    discrete = Map(setting)
    size = setting.size

    def forced(moment: Array, index: Array) -> Array:
        moments = setting.process.moments(index)
        return discrete.second_moment(moments)(moment) + discrete.noise(moments)

    # One period from 0 gives the noise q added in it; with it the fixed point S = P S + q, and from
    # there one more period gives the average.
    zero = jnp.zeros((2 * size, 2 * size))
    gathered = jax.lax.fori_loop(0, steps, lambda k, moment: forced(moment, k), zero)
    propagator = _propagator(setting, steps, steps)
    _, row, column = symmetric_basis(2 * size)
    linear = jnp.ldexp(propagator.matrix, propagator.exponent)
    fixed = jnp.linalg.solve(jnp.eye(len(row)) - linear, gathered[row, column])
    moment = zero.at[row, column].set(fixed).at[column, row].set(fixed)

    def average(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        moment, total = carry
        moment = forced(moment, index)
        return moment, total + jnp.trace(moment[:size, :size])

    return jax.lax.fori_loop(0, steps, average, (moment, jnp.zeros(())))[1] / steps


@double_precision
def noise_floor(setting: Setting) -> float | None:
    r"""Return the :math:`\sqrt{E\|\theta-\theta^*\|^2}` at which a convergent run settles.

    Averaged over a period. Weight decay moves the point that the run settles around as well; that
    part, which depends on the unknown target, is not counted. None where it exceeds all numbers.
    """
    own = {"momentum": np.array([float(setting.optimizer.momentum)])}
    values, steps = rational_periods(setting, own)
    single = setting.at({name: float(array[0]) for name, array in values.items()})
    square = float(_floor(single, jnp.asarray(int(steps[0]))))
    # A run may grow without bounds inside one period and still converge from period to period.
    return math.sqrt(max(square, 0.0)) if math.isfinite(square) else None
