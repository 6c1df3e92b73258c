"""The map: what the optimizer does to the error of the weights in one step."""

from __future__ import annotations

from collections.abc import Callable

import jax.numpy as jnp
from jax import Array

from resonax.core.moments import Moments
from resonax.core.values import value
from resonax.dynamics.setting import Setting

__all__ = ["Map"]


@value
class Map:
    r"""The map :math:`\xi_{k+1} = M_k\,\xi_k` of :math:`\xi = (\theta-\theta^*, v)` in a setting.

    In the symbols of `Momentum`, with :math:`H = B + \lambda I`,

    .. math:: M = \begin{pmatrix} I - (\kappa\alpha+\beta) H & \kappa\mu I \\
              -\alpha H & \mu I \end{pmatrix} = M_0 + G H L,
              \qquad G = -\begin{pmatrix} (\kappa\alpha+\beta) I \\ \alpha I \end{pmatrix},
              \quad L = (I\ \ 0) .

    The gradient of a drawn batch has the random matrix :math:`\hat B = \frac2n\sum_i
    \phi_i\phi_i^\top` in place of :math:`B`. Step size and weight decay may differ from weight to
    weight (arrays of ``size`` numbers): they scale the rows of :math:`G`, and the diagonal of
    :math:`H`.
    """

    setting: Setting

    def gain(self) -> Array:
        """Return the diagonals of the two parts of -G, (2, size)."""
        opt = self.setting.optimizer
        both = (opt.kappa * opt.alpha + opt.beta, opt.alpha)
        return jnp.stack([jnp.broadcast_to(gain, self.setting.size) for gain in both])

    def matrix(self, curvature: Array) -> Array:
        """Return M for the curvature of one step, expected or drawn."""
        setting, opt = self.setting, self.setting.optimizer
        eye = jnp.eye(setting.size)
        hessian = curvature + opt.weight_decay * eye
        weight_gain, velocity_gain = self.gain()[..., None]
        return jnp.block(
            [
                [eye - weight_gain * hessian, opt.kappa * opt.momentum * eye],
                [-velocity_gain * hessian, opt.momentum * eye],
            ]
        )

    def expected(self, moments: Moments) -> Array:
        """Return M for the expected gradient."""
        return self.matrix(self.setting.curvature(moments))

    def draw(self, key: Array, moments: Moments, batch: int) -> Array:
        """Return the matrix H of the gradient of a drawn batch, weight decay included."""
        setting = self.setting
        second = setting.model.sample(key, moments, batch)
        decay = setting.optimizer.weight_decay * jnp.eye(setting.size)
        return 2 * setting.gradient_scale * second + decay

    def step(self, hessian: Array, weights: Array, velocity: Array) -> tuple[Array, Array]:
        """Return the error of the weights and the velocity after one step."""
        opt = self.setting.optimizer
        gradient = jnp.sum(hessian * weights, axis=-1)
        velocity = opt.momentum * velocity - opt.alpha * gradient
        return weights + opt.kappa * velocity - opt.beta * gradient, velocity

    def covariance(self, moments: Moments) -> tuple[Callable[[Array], Array], Array]:
        r"""Return the covariance of a drawn gradient around the expected one, in two parts.

        What the error :math:`S = E[(\theta-\theta^*)(\theta-\theta^*)^\top]` adds, as a map, and
        what the observation noise does:

        .. math:: \tfrac1n\bigl(4F(S) - \bar BS\bar B\bigr) \quad\text{and}\quad
                  \tfrac4n\sigma^2 R .
        """
        setting = self.setting
        second = setting.model.second(moments)
        scale = 4 * setting.gradient_scale**2 / setting.batch
        noise = scale * setting.noise * second
        if not moments.is_sampled:
            return jnp.zeros_like, noise
        fourth = setting.model.fourth(moments)
        return lambda error: scale * (fourth(error) - second @ error @ second), noise
