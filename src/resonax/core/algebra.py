"""Linear algebra: precision and device of a function, products and roots of matrices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = [
    "double_precision",
    "hermite_nodes",
    "matrix_sqrt",
    "on_the_cpu",
    "small_product",
]

P = ParamSpec("P")
R = TypeVar("R")


def double_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with 64-bit jax, and leave the caller's setting as it was."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return wrapped


def on_the_cpu(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function on the CPU whatever the device: 64 bits are slow to compile and run on others.

    Examples
    --------
    >>> on_the_cpu(jnp.zeros)(2).device.platform
    'cpu'
    """

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.default_device(jax.local_devices(backend="cpu")[0]):
            return function(*args, **kwargs)

    return wrapped


_SMALL = 64


def small_product(left: Array, right: Array) -> Array:
    """Return ``left @ right`` for small matrices in large numbers.

    Written as a sum of products it is fused with the operations around it and vectorised over the
    batch; a batched ``@`` calls a matrix routine for each pair. For larger matrices the products
    before the sum would take too much memory.
    """
    if right.shape[-2] > _SMALL:
        return left @ right
    return jnp.sum(left[..., :, :, None] * right[..., None, :, :], axis=-2)


def matrix_sqrt(matrix: Array) -> Array:
    """Return a root ``R`` of a covariance, ``R @ R.T == matrix``, which may be singular."""
    values, vectors = jnp.linalg.eigh(matrix)
    return vectors * jnp.sqrt(jnp.maximum(values, 0.0))[..., None, :]


def hermite_nodes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return nodes and weights that average a function over the standard normal law.

    Exact for polynomials of degree ``2 count - 1``.

    Examples
    --------
    >>> nodes, weights = hermite_nodes(3)
    >>> float(np.round(weights @ nodes**4, 12))
    3.0
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()
