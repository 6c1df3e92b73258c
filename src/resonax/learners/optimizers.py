r"""Linear optimizers: SGD, heavy ball, Nesterov, with dampening and weight decay.

All are one canonical recursion. With the decayed gradient :math:`h_k = g_k + \lambda\theta_k`,

.. math::
    v_{k+1} = \mu v_k - \alpha h_k, \qquad \theta_{k+1} = \theta_k + \kappa v_{k+1} - \beta h_k .

===============  ====================  ==============  ===============
method           :math:`\alpha`        :math:`\kappa`  :math:`\beta`
===============  ====================  ==============  ===============
heavy ball       :math:`\eta`          1               0
with dampening   :math:`\eta(1-\tau)`  1               0
Nesterov         :math:`\eta`          :math:`\mu`     :math:`\eta`
===============  ====================  ==============  ===============

Heavy ball is the paper's form; SGD has :math:`\mu = 0`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from resonax.core.errors import ArgumentError, check_range
from resonax.core.values import Varied, static, value

if TYPE_CHECKING:
    import optax

__all__ = ["Momentum", "from_optax", "from_river", "from_torch", "heavy_ball", "nesterov", "sgd"]


class MomentumState(NamedTuple):
    """Velocity, and the number of updates made."""

    velocity: optax.Updates
    steps: Array


@value
class Momentum(Varied):
    """SGD with momentum in canonical form. Use the constructors, which follow known conventions.

    ``full_start`` undoes the dampening in the very first step, as torch does; it changes the
    iterates but never their growth.
    """

    lr: float
    momentum: float = 0.0
    dampening: float = 0.0
    weight_decay: float = 0.0
    lookahead: bool = static(default=False)
    full_start: bool = static(default=False)

    def __post_init__(self) -> None:
        for name in ("lr", "momentum", "dampening", "weight_decay"):
            check_range(name, getattr(self, name))

    @property
    def alpha(self) -> float:
        """Share of the gradient that enters the velocity."""
        return self.lr * (1 - self.dampening)

    @property
    def kappa(self) -> float:
        """Share of the velocity that moves the weights."""
        return self.momentum if self.lookahead else 1.0

    @property
    def beta(self) -> float:
        """Share of the gradient that moves the weights at once."""
        return self.lr if self.lookahead else 0.0

    def transform(self) -> optax.GradientTransformation:
        """Return the same optimizer as an optax transformation.

        Examples
        --------
        >>> import optax
        >>> optimizer = heavy_ball(lr=0.1, momentum=0.5).transform()
        >>> weights = jnp.array([1.0])
        >>> state = optimizer.init(weights)
        >>> for _ in range(2):  # the loss is weights**2, so v is -0.2, then -0.1 - 0.16
        ...     updates, state = optimizer.update(2 * weights, state, weights)
        ...     weights = optax.apply_updates(weights, updates)
        >>> print(f"{weights[0]:.3f}")
        0.540
        """
        import optax  # takes long to load, and the theory does without

        def init(params: optax.Params) -> MomentumState:
            return MomentumState(optax.tree.zeros_like(params), jnp.zeros((), jnp.int32))

        def update(
            updates: optax.Updates, state: MomentumState, params: optax.Params | None = None
        ) -> tuple[optax.Updates, MomentumState]:
            if params is None:
                raise ArgumentError("update needs the params, for the weight decay")
            alpha = jnp.where(self.full_start & (state.steps == 0), self.lr, self.alpha)
            decayed = jax.tree.map(lambda g, p: g + self.weight_decay * p, updates, params)
            velocity = jax.tree.map(
                lambda v, h: self.momentum * v - alpha * h, state.velocity, decayed
            )
            moves = jax.tree.map(lambda v, h: self.kappa * v - self.beta * h, velocity, decayed)
            return moves, MomentumState(velocity, state.steps + 1)

        return optax.GradientTransformation(init, update)  # pyrefly: ignore[bad-argument-type]


def sgd(lr: float, *, weight_decay: float = 0.0) -> Momentum:
    r"""Plain SGD, :math:`\theta_{k+1} = \theta_k - \eta h_k`."""
    return Momentum(lr, weight_decay=weight_decay)


def heavy_ball(
    lr: float, momentum: float, *, dampening: float = 0.0, weight_decay: float = 0.0
) -> Momentum:
    r"""Heavy ball in the paper's form, :math:`v \gets \mu v - \eta h,\ \theta \gets \theta + v`."""
    return Momentum(lr, momentum, dampening, weight_decay)


def nesterov(lr: float, momentum: float, *, weight_decay: float = 0.0) -> Momentum:
    r"""Nesterov's method, in the coordinates in which torch and optax keep the weights.

    The weights here are :math:`\theta + \mu v` of the textbook form, which takes the gradient at
    that point; the growth is the same.
    """
    return Momentum(lr, momentum, weight_decay=weight_decay, lookahead=True)


def from_torch(
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Momentum:
    """Return what ``torch.optim.SGD`` does with these arguments."""
    if momentum == 0:
        dampening = 0.0  # torch keeps no velocity then, and so dampens nothing
    if nesterov and (momentum <= 0 or dampening != 0):
        raise ArgumentError("nesterov needs a momentum above 0 and a dampening of 0")
    return Momentum(lr, momentum, dampening, weight_decay, lookahead=nesterov, full_start=True)


def from_optax(
    learning_rate: float, momentum: float | None = None, nesterov: bool = False
) -> Momentum:
    """Return what ``optax.sgd`` does with these arguments."""
    lookahead = nesterov and momentum is not None
    return Momentum(learning_rate, momentum or 0.0, lookahead=lookahead)


def from_river(lr: float = 0.1, rho: float = 0.9) -> Momentum:
    """Return what ``river.optim.Momentum`` does with these arguments."""
    return Momentum(lr, rho)
