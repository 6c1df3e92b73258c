"""Distribution of the inputs at one step, which processes return and learners use."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from resonax.core.algebra import small_product
from resonax.core.values import static, value

__all__ = ["Moments"]


@value
class Moments:
    r"""Distribution of the inputs at one step: a Gaussian mixture.

    :math:`x \sim \sum_i w_i\, \mathcal N(m_i, R_i R_i^\top)`. Most processes have one component.
    With ``is_sampled=False`` nothing is random: the means :math:`m_i` are the rows of the batch.
    ``signal`` is what moves each component, about 0: the wave of a sinusoid, say. A target that
    drifts follows it.
    """

    mean: Array  # m, (components, dim)
    root: Array  # R, a square root of each covariance, (components, dim, dim)
    weight: Array  # w, (components,)
    is_sampled: bool = static(default=True)
    signal: Array | None = None  # (components,); None where nothing moves

    @property
    def covariance(self) -> Array:
        """Covariance of each component, (components, dim, dim)."""
        return small_product(self.root, jnp.swapaxes(self.root, -1, -2))

    @property
    def signals(self) -> Array:
        """Signal of each component, 0 where nothing moves."""
        return jnp.zeros_like(self.weight) if self.signal is None else self.signal

    def sample(self, key: Array, shape: tuple[int, ...]) -> Array:
        """Draw inputs, an array of shape ``shape + (dim,)``."""
        return self.draw(key, shape)[0]

    def draw(self, key: Array, shape: tuple[int, ...]) -> tuple[Array, Array]:
        """Draw inputs, ``shape + (dim,)``, and return with each the signal of its component."""
        components, dim = self.mean.shape
        if components == 1:
            noise = jax.random.normal(key, (*shape, dim), self.mean.dtype)
            inputs = self.mean[0] + jnp.sum(noise[..., None, :] * self.root[0], axis=-1)
            return inputs, jnp.broadcast_to(self.signals, shape)
        key, choice_key = jax.random.split(key)
        index = jax.random.choice(choice_key, components, shape, p=self.weight)
        noise = jax.random.normal(key, (*shape, dim), self.mean.dtype)
        inputs = self.mean[index] + jnp.sum(noise[..., None, :] * self.root[index], axis=-1)
        return inputs, self.signals[index]

    def merged(self) -> tuple[Array, Array]:
        """Return mean and covariance of the whole mixture."""
        mean = self.weight @ self.mean
        offset = self.mean - mean
        around_mean = self.covariance + offset[:, :, None] * offset[:, None, :]
        return mean, jnp.einsum("c,cij->ij", self.weight, around_mean)
