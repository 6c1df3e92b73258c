r"""Random numbers by counting: each is a pure function of a stream, a step and a slot.

The generator is Threefry-2x32 with 20 rounds (Salmon et al., SC 2011), the one behind
``jax.random``. It is written out here for two reasons. A number depends on its place alone, so
that neither the chunks in which cells are computed nor the steps that are drawn at once change a
result. And XLA can melt it into what consumes it, where jax's own kernel on the CPU goes through
memory in every round: that made random numbers the larger half of a sweep.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

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
_PARTS = 4  # in which the steps of a block are drawn


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


def _circle(turns: Array) -> tuple[Array, Array]:
    """Return cosine and sine of an angle given in turns, 0..1, by their series in a quarter turn.

    A fifth of the cost of the library's, which are made for angles of any size.
    """
    quarter = jnp.round(4 * turns)
    angle = (4 * turns - quarter) * np.asarray(np.pi / 2, turns.dtype)
    terms = 9 if turns.dtype == jnp.float64 else 5  # the next one is below the rounding
    square, cosine, sine = angle * angle, jnp.zeros_like(angle), jnp.zeros_like(angle)
    for place in reversed(range(terms)):
        sign = (-1) ** place
        cosine = cosine * square + sign / math.factorial(2 * place)
        sine = sine * square + sign / math.factorial(2 * place + 1)
    sine, place = sine * angle, quarter.astype(jnp.int32)
    odd = (place & 1) == 1
    cosine, sine = jnp.where(odd, sine, cosine), jnp.where(odd, cosine, sine)
    cosine = jnp.where(((place + 1) & 2) == 2, -cosine, cosine)
    return cosine, jnp.where((place & 2) == 2, -sine, sine)


def _uniform_pairs(keys: Array, steps: Array, first: int, count: int) -> Array:
    even, odd = _pairs(keys, steps, first, count)
    return jax.lax.complex(_unit(even), _unit(odd))


def _normal_pairs(keys: Array, steps: Array, first: int, count: int) -> Array:
    even, odd = _pairs(keys, steps, first, count)
    radius, (cosine, sine) = jnp.sqrt(-2 * jnp.log(_unit(even))), _circle(_unit(odd))
    return jax.lax.complex(radius * cosine, radius * sine)


def _stored(pairs: Callable[..., Array], keys: Array, steps: Array, *slots: int) -> Array:
    """Return pairs of numbers as complex ones, (parts, pairs, steps of a part, streams).

    The compiler melts whatever it can into all of its uses, and would draw a number anew for each.
    A complex number has both of a pair drawn at once, and a loop stores what it computes.
    """
    parts = _PARTS if len(steps) % _PARTS == 0 else 1
    split = steps.reshape(parts, -1)
    if parts == 1:
        return pairs(keys, split[0], *slots)[None]
    return jax.lax.map(lambda part: pairs(keys, part, *slots), split)


def _listed(stored: Array, count: int) -> list[Array]:
    """Return numbers as a list of arrays (steps, streams)."""
    # Slices of one array each: joined into one, every number would be copied.
    parts, _, steps, streams = stored.shape
    numbers = (
        (jnp.imag if place % 2 else jnp.real)(stored[:, place // 2]) for place in range(count)
    )
    return [number.reshape(parts * steps, streams) for number in numbers]


def _joined(stored: Array, count: int) -> Array:
    """Return numbers as one array, (streams, steps, count)."""
    parts, pairs, steps, streams = stored.shape
    whole = stored.transpose(3, 0, 2, 1)
    both = jnp.stack([jnp.real(whole), jnp.imag(whole)], axis=-1)
    return both.reshape(streams, parts * steps, 2 * pairs)[..., :count]


def uniforms(keys: Array, steps: ArrayLike, first: int, count: int) -> list[Array]:
    """Return numbers uniform in the open interval 0..1, a list of arrays (steps, streams).

    They have the slots from ``first``, an even number, on.
    """
    return _listed(_stored(_uniform_pairs, keys, jnp.asarray(steps), first, count), count)


def normals(keys: Array, steps: ArrayLike, first: int, count: int) -> list[Array]:
    """Return standard normal numbers, a list of arrays (steps, streams), after Box and Muller."""
    return _listed(_stored(_normal_pairs, keys, jnp.asarray(steps), first, count), count)


def normal_array(keys: Array, steps: ArrayLike, first: int, count: int) -> Array:
    """Return the numbers of `normals` as one array, (streams, steps, count)."""
    return _joined(_stored(_normal_pairs, keys, jnp.asarray(steps), first, count), count)


def uniform_array(keys: Array, steps: ArrayLike, first: int, count: int) -> Array:
    """Return the numbers of `uniforms` as one array, (streams, steps, count)."""
    return _joined(_stored(_uniform_pairs, keys, jnp.asarray(steps), first, count), count)


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
