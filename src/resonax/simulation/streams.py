r"""Random numbers by counting: each is a pure function of a stream, a step and a slot.

The generator is Threefry-2x32 with 20 rounds (Salmon et al., SC 2011), the one behind
``jax.random``. It is written out here for two reasons. A number depends on its place alone, so
that neither the chunks in which cells are computed nor the steps that are drawn at once change a
result. And XLA can melt it into what consumes it, where jax's own kernel on the CPU goes through
memory in every round: that made random numbers the larger half of a sweep.
"""

from __future__ import annotations

import functools
import operator

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

__all__ = [
    "BEGINNING",
    "chi_square",
    "chi_square_needs",
    "normal_array",
    "normals",
    "stream_keys",
    "uniform_array",
    "uniforms",
]

BEGINNING = np.array(
    [2**32 - 1], np.uint32
)  # the step before the first, whose draws are for the start
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PRODUCT = 16  # uniform numbers multiplied before a logarithm: far from underflow in 32 bits
_FEW = 48  # degrees of freedom up to which a chi-square is a sum
_ATTEMPTS = 6


def threefry(key: tuple[Array, Array], counter: tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    """Return two words of 32 random bits for a key of two words and a counter of two words."""
    one, two = key
    words = (one, two, one ^ two ^ np.uint32(0x1BD11BDA))
    left = jnp.asarray(counter[0], jnp.uint32) + words[0]
    right = jnp.asarray(counter[1], jnp.uint32) + words[1]
    for turn in range(5):
        for shift in _ROTATIONS[turn % 2]:
            left = left + right
            right = (right << np.uint32(shift)) | (right >> np.uint32(32 - shift))
            right = right ^ left
        left = left + words[(turn + 1) % 3]
        right = right + words[(turn + 2) % 3] + np.uint32(turn + 1)
    return left, right


def stream_keys(seed: int, columns: np.ndarray, runs: int) -> Array:
    """Return the keys of streams, (columns x runs, 2), by the labels of the columns."""
    # By hand, as a number above 32 bits loses its upper half where jax computes in 32 bits.
    root = jax.random.wrap_key_data(jnp.array([seed >> 32, seed % 2**32], jnp.uint32))

    def key(column: Array, run: Array) -> Array:
        return jax.random.key_data(jax.random.fold_in(jax.random.fold_in(root, column), run))

    labels = jnp.repeat(jnp.asarray(columns, jnp.uint32), runs)
    return jax.vmap(key)(labels, jnp.tile(jnp.arange(runs), len(columns)))


def _pairs(keys: Array, steps: ArrayLike, first: int, count: int) -> tuple[Array, Array]:
    """Return words for pairs of slots, (pairs, steps, streams) each."""
    step = jnp.asarray(steps, jnp.uint32)[None, :, None]
    pair = jnp.arange(first // 2, (first + count + 1) // 2, dtype=jnp.uint32)[:, None, None]
    return threefry((keys[:, 0], keys[:, 1]), (step, pair))


def _unit(word: Array) -> Array:
    """Return 32 random bits as a number in the open interval 0..1."""
    if jnp.zeros(()).dtype == jnp.float64:
        return (word.astype(float) + 0.5) * 2.0**-32
    return ((word >> np.uint32(9)).astype(jnp.float32) + 0.5) * np.float32(2.0**-23)


def _interleaved(even: Array, odd: Array, count: int) -> list[Array]:
    # Slices of one array each: joined into one, every number would be copied.
    return [(odd if place % 2 else even)[place // 2] for place in range(count)]


def uniforms(keys: Array, steps: ArrayLike, first: int, count: int) -> list[Array]:
    """Return numbers uniform in the open interval 0..1, a list of arrays (steps, streams).

    They have the slots from ``first``, an even number, on.
    """
    even, odd = _pairs(keys, steps, first, count)
    return _interleaved(_unit(even), _unit(odd), count)


def normals(keys: Array, steps: ArrayLike, first: int, count: int) -> list[Array]:
    """Return standard normal numbers, a list of arrays (steps, streams), after Box and Muller.

    The compiler stores what a root and a cosine give, and so does not draw a number anew for each
    of its uses, as it would with the polynomials of an inverse error function.
    """
    even, odd = _pairs(keys, steps, first, count)
    radius, angle = jnp.sqrt(-2 * jnp.log(_unit(even))), 2 * np.pi * _unit(odd)
    return _interleaved(radius * jnp.cos(angle), radius * jnp.sin(angle), count)


def normal_array(keys: Array, steps: ArrayLike, first: int, count: int) -> Array:
    """Return the numbers of `normals` as one array, (streams, steps, count)."""
    even, odd = _pairs(keys, steps, first, count)
    radius, angle = jnp.sqrt(-2 * jnp.log(_unit(even))), 2 * np.pi * _unit(odd)
    both = jnp.stack([radius * jnp.cos(angle), radius * jnp.sin(angle)], axis=1)
    return jnp.moveaxis(both.reshape(-1, *even.shape[1:])[:count], 0, -1).swapaxes(0, 1)


def uniform_array(keys: Array, steps: ArrayLike, first: int, count: int) -> Array:
    """Return the numbers of `uniforms` as one array, (streams, steps, count)."""
    both = jnp.stack([_unit(word) for word in _pairs(keys, steps, first, count)], axis=1)
    return jnp.moveaxis(both.reshape(-1, *both.shape[2:])[:count], 0, -1).swapaxes(0, 1)


def chi_square_needs(freedom: int) -> tuple[int, int]:
    """Return how many normal and uniform numbers `chi_square` takes."""
    return (freedom % 2, freedom // 2) if freedom <= _FEW else (_ATTEMPTS, _ATTEMPTS)


def chi_square(normal: list[Array], uniform: list[Array], freedom: int) -> Array:
    r"""Return a chi-square number of whole degrees of freedom.

    Few: :math:`-2\log\prod U_i` has two degrees for each uniform :math:`U_i`, and a squared normal
    has one. Many: Marsaglia and Tsang's rejection (ACM TOMS 26, 2000) with six attempts, which all
    fail with a probability below 1e-12, so that the cost does not depend on the number.
    """
    if freedom <= _FEW:
        total = normal[0] ** 2 if freedom % 2 else jnp.zeros(())
        for begin in range(0, freedom // 2, _PRODUCT):
            product = functools.reduce(operator.mul, uniform[begin : begin + _PRODUCT])
            total = total - 2 * jnp.log(product)
        return total
    shape = freedom / 2 - 1 / 3
    standard = jnp.stack(normal)
    cube = (1 + standard / np.sqrt(9 * shape)) ** 3
    safe = jnp.maximum(cube, 1e-30)
    bound = 0.5 * standard**2 + shape * (1 - cube + jnp.log(safe))
    accepted = (cube > 0) & (jnp.log(jnp.stack(uniform)) < bound)
    return 2 * shape * safe[jnp.argmax(accepted)]
