"""The map: what the optimizer does to the error of the weights in one step."""

from __future__ import annotations

from collections.abc import Callable

import jax
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

    def loss(self, moments: Moments) -> Array:
        r"""Return J of the expected loss without the noise, (size + 1, size + 1).

        The loss is :math:`(e, 1)^\top J\,(e, 1)` with :math:`e = \theta-\theta^*`. Where the target
        is at rest :math:`J` holds :math:`R` alone. Its first rows, doubled, give the gradient.
        """
        _, mixed, seconds = self._components(moments)
        return jnp.einsum("c,cai,cab,cbj->ij", moments.weight, mixed, seconds, mixed)

    def _components(self, moments: Moments) -> tuple[Moments, Array, Array]:
        r"""Return the components of a law one by one, and of each C and R.

        The residual of a target is :math:`\psi(x)^\top C\,(e, 1)`, where :math:`\psi` are the
        features and, as the last one, what is omitted of the target.
        """
        setting = self.setting
        shift = setting.motion(moments.signals)
        eye = jnp.broadcast_to(jnp.eye(setting.size), (*shift.shape, setting.size))
        mixed = jnp.concatenate([eye, -shift[..., None]], axis=-1)
        if setting.omitted is not None:
            last = jnp.zeros((len(shift), 1, setting.size + 1)).at[..., -1].set(-1.0)
            mixed = jnp.concatenate([mixed, last], axis=1)
        each = Moments(moments.mean[:, None], moments.root[:, None], jnp.ones((len(shift), 1)))
        return each, mixed, jax.vmap(setting.joint.second)(each)

    def optimum(self, moments: Moments) -> tuple[Array, Array]:
        r"""Return G of the squared distance from the best weights, and the loss at those.

        The distance is :math:`(e, 1)^\top G\,(e, 1)`; each component of the law has best weights of
        its own.
        """
        setting, size = self.setting, self.setting.size
        if setting.omitted is None:
            best, left = setting.motion(moments.signals), jnp.zeros(())
        else:
            _, mixed, seconds = self._components(moments)
            loss = jnp.einsum("cai,cab,cbj->cij", mixed, seconds, mixed)
            best = -jnp.einsum(
                "cij,cj->ci",
                jnp.linalg.pinv(loss[:, :size, :size], hermitian=True),
                loss[:, :size, -1],
            )
            least = loss[:, -1, -1] + jnp.sum(best * loss[:, :size, -1], axis=-1)
            left = moments.weight @ least
        eye = jnp.broadcast_to(jnp.eye(size), (*best.shape, size))
        apart = jnp.concatenate([eye, -best[..., None]], axis=-1)
        return jnp.einsum("c,cai,caj->ij", moments.weight, apart, apart), left

    def covariance(self, moments: Moments, *, is_driven: bool = False) -> Callable[[Array], Array]:
        r"""Return the covariance of a drawn gradient around the expected one, as a map.

        It takes :math:`S`, the second moment of :math:`(e, 1)`, whose last entry is 1 or, for what
        an error alone adds, 0. Where the target is at rest

        .. math:: S \mapsto \tfrac1n\bigl(4F(S) - \bar BS\bar B\bigr) + \tfrac4n\sigma^2 R .
        """
        setting, size = self.setting, self.setting.size
        second = setting.model.second(moments)
        scale = 4 * setting.gradient_scale**2 / setting.batch
        noise = scale * setting.noise * second
        if not moments.is_sampled:
            return lambda error: error[-1, -1] * noise
        if not is_driven:
            fourth = setting.model.fourth(moments)

            def at_rest(error: Array) -> Array:
                inner = error[:size, :size]
                drawn = fourth(inner) - second @ inner @ second
                return scale * drawn + error[-1, -1] * noise

            return at_rest
        each, mixed, _ = self._components(moments)
        mean = self.loss(moments)[:size]

        def driven(error: Array) -> Array:
            residuals = mixed @ error @ jnp.swapaxes(mixed, -1, -2)
            drawn = jax.vmap(lambda one, given: setting.joint.fourth(one)(given))(each, residuals)
            total = jnp.tensordot(moments.weight, drawn[:, :size, :size], 1)
            return scale * (total - mean @ error @ mean.T) + error[-1, -1] * noise

        return driven
