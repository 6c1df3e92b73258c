"""What goes wrong with files: bytes that change, blocks of zeros, ends that are missing."""

from __future__ import annotations

import numpy as np

__all__ = ["damage"]


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """Return a file with a changed byte, a block of zeros, or without its end."""
    place, kind = int(rng.integers(len(data))), rng.integers(3)
    if kind == 0:
        return data[:place] + bytes([data[place] ^ int(rng.integers(1, 256))]) + data[place + 1 :]
    if kind == 1:
        return data[:place] + bytes(len(data[place : place + 64])) + data[place + 64 :]
    return data[:place]
