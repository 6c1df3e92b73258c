r"""Counter-based random numbers: each is a pure function of a path, a step and a slot.

The generator is Threefry-2x32 with 20 rounds (Salmon et al., SC 2011), the one behind
``jax.random``. It is written out, in `core/keys.py`, for two reasons. A number depends on its place
alone, so that neither the chunks in which cells are computed nor the steps that are drawn at once
change a result. And XLA can fuse it with what consumes it, where jax's own kernel on the CPU goes
through memory in every round: that made random numbers the larger half of a sweep.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # its parts are loaded where they are used
from jax import Array
from jax.typing import ArrayLike
from numpy.polynomial import chebyshev

from resonax.core.keys import seed_key, threefry

__all__ = [
    "BEGINNING",
    "PARTS",
    "chi",
    "chi_needs",
    "list_numbers",
    "normal_array",
    "normals",
    "path_keys",
    "uniform_array",
    "uniforms",
]

BEGINNING = np.array(
    [2**32 - 1], np.uint32
)  # the step before the first, whose draws are for the start
_FEW = 8  # degrees of freedom up to which a chi-square is a sum
PARTS = 4  # in which the steps of a block are drawn


_traced_threefry = jax.jit(threefry)  # a program that calls it often has it once


def path_keys(seed: int, columns: np.ndarray, runs: int) -> np.ndarray:
    """Return the keys of paths, (columns x runs, 2), by the labels of the columns.

    The key of a seed is its two words. A label has up to 64 bits: its lower word is folded into the
    key, as `jax.random.fold_in` does, then its upper word where that is not 0, then the number of
    the run.

    Examples
    --------
    >>> key = jax.random.fold_in(jax.random.fold_in(jax.random.key(7), 5), 1)
    >>> (path_keys(7, np.array([5]), 2)[1] == jax.random.key_data(key)).all().item()
    True
    """
    labels = np.repeat(np.asarray(columns, np.uint64), runs)
    lower, upper = (labels % 2**32).astype(np.uint32), (labels >> np.uint64(32)).astype(np.uint32)
    run = np.tile(np.arange(runs, dtype=np.uint32), len(columns))
    zero = np.zeros_like(lower)
    one, two = seed_key(seed)[:, None]
    near = threefry((one, two), (zero, lower))
    far = threefry(near, (zero, upper))
    label = np.where(upper == 0, near[0], far[0]), np.where(upper == 0, near[1], far[1])
    return np.stack(threefry(label, (zero, run)), axis=1)


def _pairs(keys: Array, steps: ArrayLike, first: int, count: int) -> tuple[Array, Array]:
    """Return words for pairs of slots, (pairs, steps, paths) each."""
    step = jnp.asarray(steps, jnp.uint32)[None, :, None]
    pair = jnp.arange(first // 2, (first + count + 1) // 2, dtype=jnp.uint32)[:, None, None]
    return _traced_threefry((keys[:, 0], keys[:, 1]), (step, pair))


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
    """Return pairs of numbers as complex ones, (parts, pairs, steps of a part, paths).

    XLA would fuse the draws with each of their uses and recompute them. A complex number has both
    of a pair drawn at once, and a loop stores what it computes.
    """
    if slots[1] == 0:  # to trace and lower the draws of no number takes as long as those of many
        return jnp.zeros((1, 0, len(steps), len(keys)), complex)
    parts = PARTS if len(steps) % PARTS == 0 else 1
    split = steps.reshape(parts, -1)
    if parts == 1:
        return pairs(keys, split[0], *slots)[None]
    return jax.lax.map(lambda part: pairs(keys, part, *slots), split)


def list_numbers(stored: Array, count: int) -> list[Array]:
    """Return numbers as a list of arrays (steps, paths)."""
    # Slices of one array each: joined into one, every number would be copied.
    parts, _, steps, paths = stored.shape
    numbers = (
        (jnp.imag if place % 2 else jnp.real)(stored[:, place // 2]) for place in range(count)
    )
    return [number.reshape(parts * steps, paths) for number in numbers]


def _joined(stored: Array, count: int) -> Array:
    """Return numbers as one array, (paths, steps, count)."""
    parts, pairs, steps, paths = stored.shape
    whole = stored.transpose(3, 0, 2, 1)
    both = jnp.stack([jnp.real(whole), jnp.imag(whole)], axis=-1)
    return both.reshape(paths, parts * steps, 2 * pairs)[..., :count]


def uniforms(keys: Array, steps: ArrayLike, first: int, count: int) -> list[Array]:
    """Return numbers uniform in the open interval 0..1, a list of arrays (steps, paths).

    They have the slots from ``first``, an even number, on.
    """
    return list_numbers(_stored(_uniform_pairs, keys, jnp.asarray(steps), first, count), count)


def normals(keys: Array, steps: ArrayLike, first: int, count: int) -> list[Array]:
    """Return standard normal numbers, a list of arrays (steps, paths), after Box and Muller."""
    return list_numbers(_stored(_normal_pairs, keys, jnp.asarray(steps), first, count), count)


def normal_array(keys: Array, steps: ArrayLike, first: int, count: int) -> Array:
    """Return the numbers of `normals` as one array, (paths, steps, count)."""
    return _joined(_stored(_normal_pairs, keys, jnp.asarray(steps), first, count), count)


def uniform_array(keys: Array, steps: ArrayLike, first: int, count: int) -> Array:
    """Return the numbers of `uniforms` as one array, (paths, steps, count)."""
    return _joined(_stored(_uniform_pairs, keys, jnp.asarray(steps), first, count), count)


def chi_needs(freedom: int) -> tuple[int, int]:
    """Return how many normal and uniform numbers `chi` takes."""
    return (freedom % 2, freedom // 2) if freedom <= _FEW else (1, 0)


def chi(normal: list[Array], uniform: list[Array], freedom: int) -> Array:
    r"""Return the root of a chi-square number of whole degrees of freedom.

    Few: :math:`-2\log\prod U_i` has two degrees for each uniform :math:`U_i`, and a squared normal
    has one. Many: the quantile function :math:`Q` at :math:`\Phi(z)` of one normal number
    :math:`z`. As a function of :math:`z` the root is nearly straight (Fisher), so that a short
    series gives it to the rounding in 32 bits, and to 1e-12 in 64.
    """
    if freedom <= _FEW:
        total = normal[0] ** 2 if freedom % 2 else jnp.zeros(())
        if uniform:
            total = total - 2 * jnp.log(functools.reduce(operator.mul, uniform))
        return jnp.sqrt(total)
    series, reach = _chi_series(freedom, jnp.zeros(()).dtype == jnp.float64)
    place = normal[0] / reach
    ahead, after = jnp.zeros_like(place), jnp.zeros_like(place)
    for coefficient in series[:0:-1]:  # Clenshaw's recursion
        ahead, after = coefficient + 2 * place * ahead - after, ahead
    return series[0] + place * ahead - after


@functools.cache
def _chi_series(freedom: int, double: bool) -> tuple[tuple[float, ...], float]:
    """Return the Chebyshev series of the root of the quantile, and the largest normal number."""
    reach = math.sqrt(2 * math.log(2) * (33 if double else 24))  # see `_unit` and `_normal_pairs`

    def root(place: np.ndarray) -> np.ndarray:
        normal = reach * place
        special = scipy.special
        lower = special.gammaincinv(freedom / 2, special.ndtr(np.minimum(normal, 0)))
        upper = special.gammainccinv(freedom / 2, special.ndtr(-np.maximum(normal, 0)))
        return np.sqrt(2 * np.where(normal < 0, lower, upper))

    places = chebyshev.chebpts1(33)
    series = chebyshev.chebfit(places, root(places), 32)
    small = (1e-14 if double else 1e-8) * series[0]
    return tuple(chebyshev.chebtrim(series, small).tolist()), reach
