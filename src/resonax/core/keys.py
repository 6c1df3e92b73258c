"""Keys of random numbers as arrays of words, which compiled functions take as they take numbers."""

from __future__ import annotations

import functools

import jax
import numpy as np

from resonax.core.algebra import double_precision

__all__ = ["seed_key", "split_keys"]


@double_precision  # a seed has up to 64 bits
def seed_key(seed: int) -> np.ndarray:
    """Return the two words of the key of a seed."""
    return np.asarray(jax.random.key_data(jax.random.key(int(seed))))


def split_keys(keys: np.ndarray, count: int) -> np.ndarray:
    """Return so many keys for each key, (..., count, 2).

    Examples
    --------
    >>> split_keys(seed_key(7), 3).shape
    (3, 2)
    """
    return np.asarray(_split(keys, count=count))


def _split_one(key: jax.Array, count: int) -> jax.Array:
    return jax.random.key_data(jax.random.split(jax.random.wrap_key_data(key), count))


@functools.partial(jax.jit, static_argnames="count")
def _split(keys: jax.Array, *, count: int) -> jax.Array:
    flat = jax.vmap(lambda key: _split_one(key, count))(keys.reshape(-1, 2))
    return flat.reshape(*keys.shape[:-1], count, 2)
