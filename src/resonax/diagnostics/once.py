"""One pass over all rows as a matrix: what training for many epochs multiplies an error by."""

from __future__ import annotations

import itertools
import math

import jax.numpy as jnp
import numpy as np

from resonax.algebra import double_precision
from resonax.diagnostics.feed import Feed
from resonax.diagnostics.passes import Weights, advance_pair
from resonax.learners import Momentum

__all__ = ["log_pass_radius"]

_CHUNK = 1024
_BLOCK = 4


@double_precision
def log_pass_radius(feed: Feed, optimizer: Momentum, weights: Weights) -> float:
    r"""Return the logarithm of the spectral radius of :math:`M_{n-1}\cdots M_0`, in 64 bits.

    The columns of the product are runs from the unit vectors of :math:`(u_k, u_{k-1})`. Each is
    rescaled as it goes, and their sizes are put back together at the end.
    """
    size = feed.size
    start = np.eye(2 * size).reshape(2, size, 2 * size)
    pair, scale = (start[0], start[1]), np.zeros(2 * size)
    # Steps without rows, which fill the last chunk elsewhere, are no part of the product.
    edges = [0, *range(feed.steps % _CHUNK or _CHUNK, feed.steps + 1, _CHUNK)]
    # Where the gradient before counts, it is that of the last rows of the pass before.
    last = feed.factors(feed.steps - 1, feed.steps, float)[0]
    residual = last[:, :, 0] @ start[1]
    state = tuple(jnp.asarray(part) for part in (*pair, residual, last))
    for first, stop in itertools.pairwise(edges):
        rows = feed.factors(first, stop, float)
        block = _BLOCK if len(rows) % _BLOCK == 0 else 1
        state, logs = advance_pair(state, rows, optimizer, weights, block=block)
        scale = scale + np.asarray(logs).sum(axis=0)
    shift = float(scale.max())
    pair_at_end = np.stack([np.asarray(state[0]), np.asarray(state[1])])
    product = pair_at_end.reshape(2 * size, 2 * size) * np.exp(scale - shift)
    radius = float(np.max(np.abs(np.linalg.eigvals(product))))
    return math.log(max(radius, np.finfo(float).tiny)) + shift
