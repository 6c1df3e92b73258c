"""The flow: the differential equation that SGD with momentum integrates."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from resonax.core.values import value
from resonax.dynamics.setting import Setting

__all__ = ["Flow"]


@value
class Flow:
    r"""The flow :math:`\dot\xi = A(t)\,\xi` of :math:`\xi = (\theta-\theta^*, \dot\theta)`.

    In the symbols of `Momentum`, with :math:`H = B + \lambda I` and time :math:`t = \sqrt\eta\,k`,

    .. math:: A(t) = \begin{pmatrix} -\beta\eta^{-1/2} H(t) & \kappa I \\
              -\alpha\eta^{-1} H(t) & -(1-\mu)\eta^{-1/2} I \end{pmatrix}

    For heavy ball (:math:`\kappa=1, \beta=0, \alpha=\eta`) this is the paper's equation. Nesterov's
    method keeps the term of order :math:`\sqrt\eta` by which it differs from heavy ball. The map is
    the split Euler step of length :math:`\sqrt\eta` of this flow (Prop. 2).
    """

    setting: Setting

    @property
    def period(self) -> Array:
        """Period in time, ``sqrt(lr)`` times that in steps."""
        return jnp.sqrt(self.setting.optimizer.lr) * self.setting.process.cycle

    def matrix(self, time: ArrayLike) -> Array:
        """Return A(t)."""
        return self.matrix_at(jnp.asarray(time) / jnp.sqrt(self.setting.optimizer.lr))

    def matrix_at(self, index: ArrayLike) -> Array:
        """Return A at a time given in steps."""
        weights, velocity = self.coefficients()
        hessian, eye = self.hessian_at(index), jnp.eye(self.setting.size)
        return jnp.block(
            [
                [weights[0] * hessian, weights[1] * eye],
                [velocity[0] * hessian, velocity[1] * eye],
            ]
        )

    def hessian_at(self, index: ArrayLike) -> Array:
        """Return H at a time given in steps."""
        setting = self.setting
        decay = setting.optimizer.weight_decay * jnp.eye(setting.size)
        return setting.curvature(setting.process.moments(index)) + decay

    def coefficients(self) -> Array:
        """Return the factors of H and I in the two rows of A."""
        opt = self.setting.optimizer
        root = jnp.sqrt(jnp.asarray(opt.lr, dtype=float))
        weights = jnp.stack([-opt.beta / root, jnp.asarray(opt.kappa, dtype=float)])
        velocity = jnp.stack([-opt.alpha / root**2, -(1 - opt.momentum) / root])
        return jnp.stack([weights, velocity])
