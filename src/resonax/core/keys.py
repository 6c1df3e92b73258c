"""Keys of random numbers in plain NumPy, with the bits of ``jax.random``.

A program that derives its keys from a seed has the generator in it once for every derivation, which
is most of what there is to compile. Keys are few: made here, they are numbers like any other.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

__all__ = ["Words", "seed_key", "split_keys", "threefry"]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
A = TypeVar("A", bound=Any)
Words = tuple[A, A]  # arrays of 32 bits, of NumPy or of jax


def threefry(key: Words[A], counter: Words[A]) -> Words[A]:
    """Return two words of 32 random bits for a key of two words and a counter of two words."""
    one, two = key
    words = (one, two, one ^ two ^ np.uint32(0x1BD11BDA))
    left, right = counter[0] + words[0], counter[1] + words[1]
    for turn in range(5):
        for shift in _ROTATIONS[turn % 2]:
            left = left + right
            right = (right << np.uint32(shift)) | (right >> np.uint32(32 - shift))
            right = right ^ left
        left = left + words[(turn + 1) % 3]
        right = right + words[(turn + 2) % 3] + np.uint32(turn + 1)
    return left, right


def seed_key(seed: int) -> np.ndarray:
    """Return the key of a seed of up to 64 bits, of any type: its upper and its lower word."""
    return np.array(divmod(int(seed) % 2**64, 2**32), np.uint32)


def split_keys(keys: np.ndarray, count: int) -> np.ndarray:
    """Return so many keys for each key, (..., count, 2), as `jax.random.split` does.

    Examples
    --------
    >>> import jax
    >>> keys = jax.random.split(jax.random.key(7), 3)
    >>> np.array_equal(split_keys(seed_key(7), 3), jax.random.key_data(keys))
    True
    """
    number = np.arange(count, dtype=np.uint32)
    words = threefry((keys[..., :1], keys[..., 1:]), (np.zeros_like(number), number))
    return np.stack(words, axis=-1)
