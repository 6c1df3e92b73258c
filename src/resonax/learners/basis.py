"""Bases for linear models: polynomial, Fourier and radial, with exact moments."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.errors import ArgumentError, as_array, check_numbers, check_range, check_whole
from resonax.core.moments import Moments
from resonax.core.values import static, value
from resonax.learners.features import QUADRATURE, Features

__all__ = ["Fourier", "Polynomial", "Radial"]


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
        check_whole("degree", self.degree, low=1, high=8)

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
        if order**dim > 16 * QUADRATURE:
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
        array = as_array("frequencies", frequencies)
        check_numbers("frequencies", array, (None, None))
        return cls(array)

    def size(self, dim: int) -> int:
        del dim
        return 1 + 2 * jnp.shape(self.frequencies)[0]

    @property
    def largest_square(self) -> float:
        return 1.0 + jnp.shape(self.frequencies)[0]  # of every input

    def apply(self, inputs: Array) -> Array:
        angle = inputs @ jnp.asarray(self.frequencies).T
        return jnp.concatenate(
            [jnp.ones_like(angle[..., :1]), jnp.cos(angle), jnp.sin(angle)], axis=-1
        )

    def _waves(self) -> tuple[Array, Array]:
        """Return the wave vectors of e = (1, exp(i w x), exp(-i w x)), and T with phi = T e."""
        frequencies = jnp.asarray(self.frequencies)
        count, dim = frequencies.shape
        waves = jnp.concatenate([jnp.zeros((1, dim)), frequencies, -frequencies])
        eye, none = np.eye(count), np.zeros((count, 1))
        first = [np.ones((1, 1)), none.T, none.T]
        mix = [first, [none, eye / 2, eye / 2], [none, eye / 2j, -eye / 2j]]
        return waves, jnp.asarray(np.block(mix))

    def second(self, moments: Moments) -> Array:
        waves, mix = self._waves()
        law = _characteristic(moments, waves[:, None] - waves)
        return jnp.real(mix @ law @ mix.conj().T)

    def fourth(self, moments: Moments) -> Callable[[Array], Array]:
        waves, mix = self._waves()
        pairs = waves[:, None] - waves
        law = _characteristic(moments, pairs[:, :, None, None] + pairs)

        def contract(matrix: Array) -> Array:
            inner = mix.conj().T @ matrix @ mix
            return jnp.real(mix @ jnp.einsum("abcd,bc->ad", law, inner) @ mix.conj().T)

        return contract


def _characteristic(moments: Moments, waves: Array) -> Array:
    """Return E exp(i k x) = sum of w exp(i k m - |k R|^2 / 2) for many wave vectors k."""
    phase = jnp.einsum("...i,ci->...c", waves, moments.mean)
    decay = jnp.sum(jnp.einsum("...i,cij->...cj", waves, moments.root) ** 2, axis=-1)
    return jnp.exp(1j * phase - 0.5 * decay) @ moments.weight.astype(complex)


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
        array = as_array("centers", centers)
        check_numbers("centers", array, (None, None))
        check_range("width", width)
        return cls(array, width)

    def size(self, dim: int) -> int:
        del dim
        return 1 + jnp.shape(self.centers)[0]

    @property
    def largest_square(self) -> float:
        return 1.0 + jnp.shape(self.centers)[0]  # if all bumps were at one place

    def apply(self, inputs: Array) -> Array:
        off = inputs[..., None, :] - jnp.asarray(self.centers)
        bumps = jnp.exp(-0.5 * jnp.sum(off**2, axis=-1) / jnp.asarray(self.width) ** 2)
        return jnp.concatenate([jnp.ones_like(bumps[..., :1]), bumps], axis=-1)

    def second(self, moments: Moments) -> Array:
        return self._products(moments, 2)

    def fourth(self, moments: Moments) -> Callable[[Array], Array]:
        law = self._products(moments, 4)
        return lambda matrix: jnp.einsum("abcd,bc->ad", law, matrix)

    def _products(self, moments: Moments, factors: int) -> Array:
        r"""Return the mean of every product of 2 or 4 features.

        n bumps multiply to :math:`\exp(-\frac{n}{2s^2}|x|^2 + b^\top x - \frac{1}{2s^2}\sum|c|^2)`
        with :math:`b = \sum c/s^2`; with :math:`A = nI/s^2` its mean over :math:`N(m, C)` is
        :math:`\det(I+AC)^{-1/2}\exp(-\frac12 m^\top Am + b^\top m - \frac{1}{2s^2}\sum|c|^2
        + \frac12 g^\top(I+CA)^{-1}Cg)`, :math:`g = b - Am`.
        """
        centers = jnp.asarray(self.centers)
        count, dim = centers.shape
        precision = 1 / jnp.asarray(self.width) ** 2
        # The constant is a product of no bumps.
        places = jnp.concatenate([jnp.zeros((1, dim)), centers])
        picks = np.stack(np.meshgrid(*[np.arange(count + 1)] * factors, indexing="ij"), axis=-1)
        number = (picks > 0).sum(axis=-1)
        total = places[picks].sum(axis=-2)
        squares = (places**2).sum(axis=-1)[picks].sum(axis=-1)
        covariance, eye = moments.covariance, jnp.eye(dim)
        shrunk = eye + jnp.arange(factors + 1)[:, None, None, None] * precision * covariance
        log_det = jnp.linalg.slogdet(shrunk)[1]  # (number, component)
        inner = jnp.linalg.solve(shrunk, jnp.broadcast_to(covariance, shrunk.shape))

        def mean_of(component: int) -> Array:
            mean = moments.mean[component]
            pull = precision * (total - number[..., None] * mean)
            width = jnp.einsum("...i,...ij,...j->...", pull, inner[number, component], pull)
            bump = -0.5 * precision * (number * (mean @ mean) + squares) + precision * total @ mean
            return jnp.exp(bump + 0.5 * width - 0.5 * log_det[number, component])

        each = [moments.weight[c] * mean_of(c) for c in range(len(moments.mean))]
        return sum(each[1:], each[0])
