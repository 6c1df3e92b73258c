r"""Models: feature maps, the moments of a feature vector under a Gaussian input, and networks.

A linear model predicts :math:`\langle\theta, \phi(x)\rangle`. The theory needs two moments:

.. math:: R = E[\phi\phi^\top], \qquad F(S) = E[\phi\phi^\top S\, \phi\phi^\top] .
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import hermite_nodes, small_product
from resonax.core.errors import ArgumentError, check_whole
from resonax.core.moments import Moments
from resonax.core.values import static, value

__all__ = ["Features", "Linear", "Network"]

QUADRATURE = 4096  # nodes of the product rule, at most
_SMALL_BATCH = 64  # up to here inputs are drawn one by one; beyond, by their mean and scatter


def _outer(vectors: Array) -> Array:
    return vectors[..., :, None] * vectors[..., None, :]


class Features(ABC):
    """A feature map. Its moments are by Gauss-Hermite quadrature, or closed forms in subclasses."""

    @abstractmethod
    def size(self, dim: int) -> int:
        """Return the number of features, and so of weights."""

    @abstractmethod
    def apply(self, inputs: Array) -> Array:
        """Return the features of inputs, ``(..., dim) -> (..., size)``."""

    @property
    def largest_square(self) -> float | None:
        """A bound of the squared length of the features of any input; None where there is none."""
        return None

    def _order(self, dim: int) -> int:
        """Return the number of quadrature nodes for each coordinate."""
        order = min(64, int(round(QUADRATURE ** (1 / dim), 6)))
        if order < 8:
            raise ArgumentError(f"dim must be at most 4 for quadrature, got {dim}")
        return order

    def _nodes(self, moments: Moments) -> tuple[Array, Array]:
        """Return features at the quadrature nodes, (components, nodes, size), and their weights."""
        dim = moments.mean.shape[-1]
        order = self._order(dim)
        nodes, weights = hermite_nodes(order)
        grid = jnp.asarray(np.array(list(itertools.product(nodes, repeat=dim))))
        weight = jnp.asarray(np.array([np.prod(w) for w in itertools.product(weights, repeat=dim)]))
        inputs = moments.mean[:, None] + jnp.einsum("cij,qj->cqi", moments.root, grid)
        return self.apply(inputs), moments.weight[:, None] * weight

    def second(self, moments: Moments) -> Array:
        r"""Return :math:`R = E[\phi\phi^\top]`."""
        if not moments.is_sampled:  # the rows themselves
            return jnp.einsum("c,cij->ij", moments.weight, _outer(self.apply(moments.mean)))
        features, weight = self._nodes(moments)
        return jnp.einsum("cq,cqi,cqj->ij", weight, features, features)

    def fourth(self, moments: Moments) -> Callable[[Array], Array]:
        r"""Return the map :math:`S \mapsto E[\phi\phi^\top S\,\phi\phi^\top]`."""
        features, weight = self._nodes(moments)

        def contract(matrix: Array) -> Array:
            inner = jnp.einsum("cqi,ij,cqj->cq", features, matrix, features)
            return jnp.einsum("cq,cqi,cqj->ij", weight * inner, features, features)

        return contract

    def sample(self, key: Array, moments: Moments, batch: int) -> Array:
        r"""Draw a batch and return :math:`\frac1n\sum_i \phi(x_i)\phi(x_i)^\top`."""
        if not moments.is_sampled:
            return self.second(moments)
        features = self.apply(moments.sample(key, (batch,)))
        if batch > _SMALL_BATCH:
            return features.T @ features / batch
        return jnp.mean(_outer(features), axis=0)


@value
class Linear(Features):
    r"""The inputs themselves, and 1 for the bias: :math:`\phi(x) = (x, 1)`. Moments are exact.

    Examples
    --------
    >>> Linear().apply(jnp.array([2.0, 3.0])).tolist()
    [2.0, 3.0, 1.0]
    """

    bias: bool = static(default=True)

    def size(self, dim: int) -> int:
        return dim + self.bias

    def apply(self, inputs: Array) -> Array:
        if not self.bias:
            return inputs
        # Rows of data stay with numpy: jax would compile this once for each number of rows.
        xp = np if isinstance(inputs, np.ndarray) else jnp
        return xp.concatenate([inputs, xp.ones_like(inputs[..., :1])], axis=-1)  # pyrefly: ignore[bad-return]

    def _parts(self, moments: Moments) -> tuple[Array, Array]:
        """Return mean and second moment of the features for each component."""
        mean = self.apply(moments.mean)
        pad = int(self.bias)
        covariance = jnp.pad(moments.covariance, ((0, 0), (0, pad), (0, pad)))
        return mean, covariance + _outer(mean)

    def second(self, moments: Moments) -> Array:
        return jnp.einsum("c,cij->ij", moments.weight, self._parts(moments)[1])

    def fourth(self, moments: Moments) -> Callable[[Array], Array]:
        r"""For a Gaussian, :math:`F(S) = 2RSR + R\,\mathrm{tr}(SR) - 2mm^\top(m^\top Sm)`."""
        mean, second = self._parts(moments)

        def contract(matrix: Array) -> Array:
            trace = jnp.einsum("ij,cji->c", matrix, second)
            along = jnp.einsum("ci,ij,cj->c", mean, matrix, mean)
            each = 2 * second @ matrix @ second + trace[:, None, None] * second
            each = each - 2 * along[:, None, None] * _outer(mean)
            return jnp.einsum("c,cij->ij", moments.weight, each)

        return contract

    def sample(self, key: Array, moments: Moments, batch: int) -> Array:
        if not moments.is_sampled or len(moments.mean) > 1 or batch <= moments.mean.shape[1]:
            return super().sample(key, moments, batch)
        # x = m + R z, so mean and second moment of the standard normal z are all that is needed;
        # they do not depend on the law, and settings that share a key share them.
        center, spread = _standard_batch(key, batch, moments.mean.shape[1], moments.mean.dtype)
        mean, root = moments.mean[0], moments.root[0]
        middle = mean + jnp.sum(root * center, axis=1)
        around = small_product(root, spread - _outer(center))
        second = small_product(around, root.T) + _outer(middle)
        if not self.bias:
            return second
        one = jnp.ones((1, 1), second.dtype)
        return jnp.block([[second, middle[:, None]], [middle[None, :], one]])


def _standard_batch(key: Array, batch: int, dim: int, dtype: Any) -> tuple[Array, Array]:
    """Draw the mean and the second moment of a batch of standard normal vectors.

    In a large batch they come from their own laws, which are independent: a normal mean and a
    Wishart scatter (Bartlett, 1933). That is exact, at a cost that does not depend on the batch.
    """
    if batch <= max(_SMALL_BATCH, 2 * dim):
        draws = jax.random.normal(key, (batch, dim), dtype)
        return draws.mean(0), draws.T @ draws / batch
    mean_key, chi_key, normal_key = jax.random.split(key, 3)
    center = jax.random.normal(mean_key, (dim,), dtype) / jnp.sqrt(batch)
    chi = jnp.sqrt(jax.random.chisquare(chi_key, batch - 1.0 - jnp.arange(dim), dtype=dtype))
    lower = jnp.tril(jax.random.normal(normal_key, (dim, dim), dtype), -1) + jnp.diag(chi)
    return center, lower @ lower.T / batch + _outer(center)


@value
class Network:
    r"""A fully connected ReLU network, initialised after He et al. (2015).

    It learns :math:`y = \cos(\pi\lVert x\rVert)`, the paper's target; its response is the squared
    error on fresh inputs from the stationary law, against the target without noise.
    """

    hidden: tuple[int, ...] = static(default=(20, 20))

    def __post_init__(self) -> None:
        for width in self.hidden:
            check_whole("hidden", width, low=1, high=4096)
