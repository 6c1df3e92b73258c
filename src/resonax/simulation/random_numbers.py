"""Random numbers of paths: pure functions of the key of a path, a purpose and a block of steps.

Each path has its own key, so that results do not depend on which columns are computed together.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from enum import IntEnum

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # its parts are loaded where they are used
from jax import Array
from jax.typing import ArrayLike
from numpy.polynomial import Chebyshev

from resonax.core.algebra import double_precision

__all__ = ["MIN_FREEDOM", "Purpose", "chi", "normals", "path_keys", "uniforms"]

MIN_FREEDOM = 9  # least degrees of freedom of `chi`
_MAX_NORMAL = 5.5  # above all normal numbers that jax draws in 32 bits


class Purpose(IntEnum):
    """What random numbers are used for; each purpose has its own key."""

    START = 0  # initial weights and target
    BEGIN = 1  # initial state of the process
    PROCESS = 2
    INPUT = 3
    CHOICE = 4  # component of a mixture
    NOISE = 5
    TEST = 6
    TEST_CHOICE = 7


@double_precision  # a seed has up to 64 bits
def path_keys(seed: int, columns: np.ndarray, runs: int) -> Array:
    """Return the keys of paths, (columns x runs,), given labels of the columns.

    The upper and the lower 32 bits of a label, and then the number of the run, are folded into the
    key of the seed.

    Examples
    --------
    >>> keys = [jax.random.key(7)]
    >>> for number in (0, 5, 1):
    ...     keys.append(jax.random.fold_in(keys[-1], number))
    >>> (path_keys(7, np.array([5]), 2)[1] == keys[-1]).item()
    True
    """
    labels = np.repeat(np.asarray(columns, np.uint64), runs)
    run = np.tile(np.arange(runs), len(columns))
    keys = jax.random.key(int(seed))
    for numbers in (labels >> np.uint64(32), labels % 2**32, run):
        keys = _fold_each(keys, numbers.astype(np.uint32))
    return keys


@jax.jit
def _fold_each(keys: Array, numbers: Array) -> Array:
    return jax.vmap(jax.random.fold_in, in_axes=(0 if keys.ndim else None, 0))(keys, numbers)


def _draw(
    distribution: Callable[..., Array],
    keys: Array,
    block: ArrayLike,
    purpose: Purpose,
    shape: tuple,
) -> Array:
    def one(key: Array) -> Array:
        key = jax.random.fold_in(jax.random.fold_in(key, purpose), block)
        # In 32 bits, so that simulations in single and double precision have the same numbers.
        return distribution(key, shape, jnp.float32).astype(float)

    if 0 in shape:
        return jnp.zeros((len(keys), *shape))
    return jax.vmap(one)(keys)


def normals(keys: Array, block: ArrayLike, purpose: Purpose, shape: tuple[int, ...]) -> Array:
    """Return standard normal numbers for a block of steps, (paths, *shape)."""
    return _draw(jax.random.normal, keys, block, purpose, shape)


def uniforms(keys: Array, block: ArrayLike, purpose: Purpose, shape: tuple[int, ...]) -> Array:
    """Return numbers uniform in 0..1 for a block of steps, (paths, *shape)."""
    return _draw(jax.random.uniform, keys, block, purpose, shape)


def chi(normal: Array, freedom: int) -> Array:
    r"""Return chi-distributed numbers of at least 9 degrees of freedom from normal ones.

    A normal number :math:`z` gives the quantile of the chi distribution at :math:`\Phi(z)`. This is
    a nearly linear function of :math:`z` (Fisher), so that a short Chebyshev series is exact up to
    rounding in 32 bits, and to 1e-12 in 64 bits.
    """
    series = _chi_series(freedom, normal.dtype == jnp.float64)
    x = normal / _MAX_NORMAL
    b1, b2 = jnp.zeros_like(x), jnp.zeros_like(x)
    for coefficient in series[:0:-1]:  # Clenshaw's recursion
        b1, b2 = coefficient + 2 * x * b1 - b2, b1
    return series[0] + x * b1 - b2


@functools.cache
def _chi_series(freedom: int, double: bool) -> tuple[float, ...]:
    """Return Chebyshev coefficients of the quantile as a function of z / _MAX_NORMAL."""

    def quantile(normal: np.ndarray) -> np.ndarray:
        special = scipy.special
        lower = special.gammaincinv(freedom / 2, special.ndtr(np.minimum(normal, 0)))
        upper = special.gammainccinv(freedom / 2, special.ndtr(-np.maximum(normal, 0)))
        return np.sqrt(2 * np.where(normal < 0, lower, upper))

    series = Chebyshev.interpolate(quantile, 32, domain=[-_MAX_NORMAL, _MAX_NORMAL])
    short = series.trim((1e-14 if double else 1e-8) * series.coef[0])
    return tuple(float(coefficient) for coefficient in short.coef)
