"""Linear algebra: double precision, spectral radius, products without overflow."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = [
    "Scaled",
    "double_precision",
    "hermite_nodes",
    "log_radii",
    "log_radius",
    "matrix_sqrt",
    "multiply",
    "on_the_cpu",
    "scaled_identity",
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


class Scaled(NamedTuple):
    """The matrix ``matrix * 2**exponent``; the largest entry of ``matrix`` is below 1."""

    matrix: Array
    exponent: Array


def rescaled(matrix: Array, exponent: Array) -> Scaled:
    """Move the size of a matrix into the exponent. Powers of two: nothing is rounded."""
    _, shift = jnp.frexp(jnp.max(jnp.abs(matrix), axis=(-2, -1)))
    return Scaled(jnp.ldexp(matrix, -shift[..., None, None]), exponent + shift)


def scaled_identity(size: int) -> Scaled:
    """Return the identity matrix as the start of a product."""
    return Scaled(jnp.eye(size), jnp.zeros((), jnp.int64))


def multiply(left: Array, right: Scaled) -> Scaled:
    """Return ``left @ right``, rescaled: a product of any length neither overflows nor vanishes."""
    return rescaled(small_product(left, right.matrix), right.exponent)


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


def log_radius(product: Scaled) -> Array:
    r"""Return :math:`\log \max_i |\lambda_i|`.

    A nilpotent product has radius 0; its logarithm is given as that of the least normal number,
    so that no rate is ever infinite.

    Examples
    --------
    >>> with jax.enable_x64(True):
    ...     tiny = Scaled(jnp.diag(jnp.array([0.5, -0.25])), jnp.array(-5000))
    ...     print(f"{float(log_radius(tiny)):.6f}")  # -5001 log 2
    -3466.429050
    """
    radius = jnp.max(jnp.abs(jnp.linalg.eigvals(product.matrix)), axis=-1)
    floor = jnp.finfo(product.matrix.dtype).tiny
    return jnp.log(jnp.maximum(radius, floor)) + product.exponent * jnp.log(2.0)


@on_the_cpu
def log_radii(products: Scaled) -> np.ndarray:
    """Return `log_radius` of many products, on the CPU: a GPU takes eigenvalues one by one."""
    cpu = jax.local_devices(backend="cpu")[0]
    return np.asarray(_log_radius(jax.device_put(products, cpu)))


_log_radius = jax.jit(log_radius)


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
