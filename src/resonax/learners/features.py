r"""Feature maps of linear models, and the moments of a feature vector under a Gaussian input.

A linear model predicts :math:`\langle\theta, \phi(x)\rangle`. The theory needs two moments:

.. math:: R = E[\phi\phi^\top], \qquad F(S) = E[\phi\phi^\top S\, \phi\phi^\top] .
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.algebra import hermite_nodes
from resonax.checks import ArgumentError, check_number, check_numbers
from resonax.moments import Moments
from resonax.values import static, value

__all__ = ["Features", "Fourier", "Linear", "Polynomial", "Radial"]

_QUADRATURE = 4096  # nodes of the product rule, at most
_SMALL_BATCH = 64  # up to here inputs are drawn one by one; beyond, by their mean and scatter


def _outer(vectors: Array) -> Array:
    return vectors[..., :, None] * vectors[..., None, :]


class Features:
    """A feature map. The moments here are by Gauss-Hermite quadrature; subclasses know better."""

    def size(self, dim: int) -> int:
        """Return the number of features, and so of weights."""
        raise NotImplementedError

    def apply(self, inputs: Array) -> Array:
        """Return the features of inputs, ``(..., dim) -> (..., size)``."""
        raise NotImplementedError

    def _order(self, dim: int) -> int:
        """Return the number of quadrature nodes for each coordinate."""
        return min(64, int(round(_QUADRATURE ** (1 / dim), 6)))

    def _nodes(self, moments: Moments) -> tuple[Array, Array]:
        """Return features at the quadrature nodes, (components, nodes, size), and their weights."""
        dim = moments.mean.shape[-1]
        order = self._order(dim)
        if order < 3:
            raise ArgumentError(
                f"dim must be at most 7 for features that need quadrature, got {dim}"
            )
        nodes, weights = hermite_nodes(order)
        grid = jnp.asarray(np.array(list(itertools.product(nodes, repeat=dim))))
        weight = jnp.asarray(np.array([np.prod(w) for w in itertools.product(weights, repeat=dim)]))
        inputs = moments.mean[:, None] + jnp.einsum("cij,qj->cqi", moments.root, grid)
        return self.apply(inputs), moments.weight[:, None] * weight

    def second(self, moments: Moments) -> Array:
        r"""Return :math:`R = E[\phi\phi^\top]`."""
        if not moments.drawn:  # the rows themselves
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
        if not moments.drawn:
            return self.second(moments)
        features = self.apply(moments.sample(key, (batch,)))
        return features.T @ features / batch


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
        return jnp.concatenate([inputs, jnp.ones_like(inputs[..., :1])], axis=-1)

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
        # The mean and the scatter of a Gaussian batch are independent, normal and Wishart: exact
        # in distribution, at a cost that does not depend on the batch (Bartlett, 1933).
        components, dim = moments.mean.shape
        if not moments.drawn or components > 1 or batch <= max(_SMALL_BATCH, 2 * dim):
            return super().sample(key, moments, batch)
        mean_key, chi_key, normal_key = jax.random.split(key, 3)
        dtype, root = moments.mean.dtype, moments.root[0]
        normal = jax.random.normal(mean_key, (dim,), dtype)
        mean = moments.mean[0] + root @ normal / jnp.sqrt(batch)
        chi = jnp.sqrt(jax.random.chisquare(chi_key, batch - 1.0 - jnp.arange(dim), dtype=dtype))
        lower = jnp.tril(jax.random.normal(normal_key, (dim, dim), dtype), -1) + jnp.diag(chi)
        spread = root @ lower
        second = spread @ spread.T / batch + _outer(mean)
        if not self.bias:
            return second
        return jnp.block([[second, mean[:, None]], [mean[None, :], jnp.ones((1, 1), dtype)]])


@value
class Polynomial(Features):
    """All monomials of the inputs up to a degree, the constant included. Quadrature is exact.

    Examples
    --------
    >>> Polynomial(2).apply(jnp.array([2.0, 3.0])).tolist()  # 1, x, y, x^2, xy, y^2
    [1.0, 2.0, 3.0, 4.0, 6.0, 9.0]
    """

    degree: int = static(default=2)

    def __post_init__(self) -> None:
        check_number("degree", self.degree, low=1, high=8)

    def _powers(self, dim: int) -> list[tuple[int, ...]]:
        picks = itertools.chain.from_iterable(
            itertools.combinations_with_replacement(range(dim), degree)
            for degree in range(self.degree + 1)
        )
        return [tuple(pick) for pick in picks]

    def size(self, dim: int) -> int:
        return len(self._powers(dim))

    def apply(self, inputs: Array) -> Array:
        columns = [
            jnp.prod(inputs[..., list(pick)], axis=-1) if pick else jnp.ones_like(inputs[..., 0])
            for pick in self._powers(inputs.shape[-1])
        ]
        return jnp.stack(columns, axis=-1)

    def _order(self, dim: int) -> int:
        order = 2 * self.degree + 1  # exact for the fourth moment, of degree 4 * self.degree
        if order**dim > 16 * _QUADRATURE:
            raise ArgumentError(
                f"degree must be lower for {dim} inputs: {order**dim} quadrature nodes are too many"
            )
        return order


@value
class Fourier(Features):
    r"""A constant, and cosine and sine of projections: :math:`(1, \cos\omega_j x, \sin\omega_j x)`.

    Examples
    --------
    >>> print(Fourier.of([[3.14159265]]).apply(jnp.array([0.5])).round(3))
    [ 1. -0.  1.]
    """

    frequencies: ArrayLike  # (count, dim)

    @classmethod
    def of(cls, frequencies: ArrayLike) -> Fourier:
        """Check the frequencies, (count, dim)."""
        array = np.asarray(frequencies, dtype=float)
        check_numbers("frequencies", array, (None, None))
        return cls(array)

    def size(self, dim: int) -> int:
        del dim
        return 1 + 2 * jnp.shape(self.frequencies)[0]

    def apply(self, inputs: Array) -> Array:
        angle = inputs @ jnp.asarray(self.frequencies).T
        return jnp.concatenate(
            [jnp.ones_like(angle[..., :1]), jnp.cos(angle), jnp.sin(angle)], axis=-1
        )

    def second(self, moments: Moments) -> Array:
        # phi = T e with waves e = (1, exp(i w x), exp(-i w x)), and the characteristic function
        # E exp(i k x) = exp(i k m - k C k / 2) gives E[e e^H] exactly.
        frequencies = jnp.asarray(self.frequencies)
        count, dim = frequencies.shape
        waves = jnp.concatenate([jnp.zeros((1, dim)), frequencies, -frequencies])
        gap = waves[:, None] - waves[None, :]
        phase = jnp.einsum("abi,ci->cab", gap, moments.mean)
        decay = jnp.einsum("abi,cij,abj->cab", gap, moments.covariance, gap)
        law = jnp.einsum("c,cab->ab", moments.weight, jnp.exp(1j * phase - 0.5 * decay))
        eye, none = np.eye(count), np.zeros((count, 1))
        mix = jnp.asarray(
            np.block(
                [
                    [np.ones((1, 1)), none.T, none.T],
                    [none, eye / 2, eye / 2],
                    [none, eye / 2j, -eye / 2j],
                ]
            )
        )
        return jnp.real(mix @ law @ mix.conj().T)


@value
class Radial(Features):
    r"""A constant, and Gaussian bumps :math:`\exp(-|x-c_j|^2/2s^2)` around centers.

    Examples
    --------
    >>> features = Radial.of([[0.0], [1.0]], width=1.0).apply(jnp.array([0.0]))
    >>> [f"{feature:.3f}" for feature in features.tolist()]
    ['1.000', '1.000', '0.607']
    """

    centers: ArrayLike  # (count, dim)
    width: ArrayLike = 1.0

    @classmethod
    def of(cls, centers: ArrayLike, width: float = 1.0) -> Radial:
        """Check the centers, (count, dim), and the width."""
        array = np.asarray(centers, dtype=float)
        check_numbers("centers", array, (None, None))
        check_number("width", width, low=0, open_low=True)
        return cls(array, width)

    def size(self, dim: int) -> int:
        del dim
        return 1 + jnp.shape(self.centers)[0]

    def apply(self, inputs: Array) -> Array:
        off = inputs[..., None, :] - jnp.asarray(self.centers)
        bumps = jnp.exp(-0.5 * jnp.sum(off**2, axis=-1) / jnp.asarray(self.width) ** 2)
        return jnp.concatenate([jnp.ones_like(bumps[..., :1]), bumps], axis=-1)

    def second(self, moments: Moments) -> Array:
        # A product of j bumps is one bump of precision j/s^2 around their mean center, times
        # exp(-|c_i - c_j|^2 / 4s^2) for a pair; its mean over N(m, C) is
        # det(I + j C/s^2)^(-1/2) exp(-(m-c)^T (s^2/j I + C)^(-1) (m-c) / 2).
        centers = jnp.asarray(self.centers)
        square = jnp.asarray(self.width) ** 2
        eye = jnp.eye(centers.shape[1])

        def bump(center: Array, number: int) -> Array:
            spread = square / number * eye + moments.covariance
            off = moments.mean - center
            near = jnp.einsum("ci,ci->c", off, jnp.linalg.solve(spread, off[..., None])[..., 0])
            scale = jnp.linalg.det(eye + number / square * moments.covariance)
            return moments.weight @ (jnp.exp(-0.5 * near) / jnp.sqrt(scale))

        one = jax.vmap(lambda c: bump(c, 1))(centers)
        middle = 0.5 * (centers[:, None] + centers[None, :])
        apart = jnp.sum((centers[:, None] - centers[None, :]) ** 2, axis=-1)
        pair = jax.vmap(jax.vmap(lambda c: bump(c, 2)))(middle)
        pair = pair * jnp.exp(-0.25 * apart / square)
        return jnp.block([[jnp.ones((1, 1)), one[None]], [one[:, None], pair]])
