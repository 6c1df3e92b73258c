r"""The part of a target that the features leave out.

A linear model on features :math:`\phi` that learns :math:`y = \langle\theta^*,\phi(x)\rangle +
g(x) + \epsilon` cannot fit :math:`g`: where the law of the inputs moves, so do the best weights.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from resonax.core.errors import ArgumentError, as_array, check_numbers, shorten
from resonax.core.values import value
from resonax.learners.features import Features

__all__ = ["Joint", "Omitted"]


@value
class Omitted:
    r"""What a model omits of the target, :math:`g(x) = \langle w, h(x)\rangle`, as in a regression.

    Examples
    --------
    >>> from resonax import Polynomial
    >>> Omitted.of(Polynomial(2), [0.0, 0.0, 0.5]).apply(jnp.array([2.0])).item()  # x^2 / 2
    2.0
    """

    features: Features
    weights: ArrayLike

    @classmethod
    def of(cls, features: Features, weights: ArrayLike) -> Omitted:
        """Check features and their weights, one for each."""
        if not isinstance(features, Features):
            raise ArgumentError(
                f"omitted needs features like Polynomial(2), got {shorten(features)}"
            )
        array = as_array("weights", weights)
        if array.ndim != 1:
            raise ArgumentError(f"weights must be a list of numbers, got {shorten(weights)}")
        check_numbers("weights", array, array.shape)
        return cls(features, array)

    def apply(self, inputs: Array) -> Array:
        """Return what is omitted of the targets of inputs, ``(..., dim) -> (...)``."""
        return self.features.apply(inputs) @ jnp.asarray(self.weights)


@value
class Joint(Features):
    """The features of a model and, as the last one, what the model omits of the target."""

    model: Features
    omitted: Omitted

    def size(self, dim: int) -> int:
        return self.model.size(dim) + 1

    def apply(self, inputs: Array) -> Array:
        last = self.omitted.apply(inputs)[..., None]
        return jnp.concatenate([self.model.apply(inputs), last], axis=-1)
