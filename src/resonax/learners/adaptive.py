r"""Adaptive optimizers with their second moment frozen: heavy ball with one step for each weight.

Adam divides by the root of a running mean :math:`v` of squared gradients, whose memory of
:math:`1/(1-\beta_2)` steps is long. With :math:`v` at rest, :math:`w = -\eta m/(\sqrt v+\epsilon)`
obeys

.. math:: w_{k+1} = \beta_1 w_k - a\,g_k, \qquad \theta_{k+1} = (1-s)\,\theta_k + w_{k+1}, \qquad
          a = \frac{\eta\,(1-\beta_1)}{\sqrt v + \epsilon},

which is heavy ball. The decoupled decay :math:`s = \eta\lambda` of AdamW is removed by writing the
same positions as

.. math:: \theta_{k+1} = \theta_k + \mu\,(\theta_k - \theta_{k-1}) - a\,(g_k + \lambda'\theta_k),
          \qquad \mu = \beta_1(1-s), \quad \lambda' = \lambda\,(\sqrt v + \epsilon) :

to decay the weights themselves is to decay by the gradient with a strength of its own for each
weight, and a slightly lower momentum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax.typing import ArrayLike

from resonax.core.errors import ArgumentError
from resonax.core.values import static, value
from resonax.learners.optimizers import Momentum

__all__ = ["Adaptive", "adaptive_form"]


@value
class Adaptive:
    """An optimizer that divides by the root of a running mean of squared gradients."""

    lr: float
    momentum: float
    beta2: float  # share of the running mean that a step keeps
    eps: float = 1e-8  # beside the root
    eps_root: float = 0.0  # under the root
    weight_decay: float = 0.0  # decoupled
    dampened: bool = static(default=True)  # the gradient enters the velocity by 1 - momentum
    lookahead: bool = static(default=False)
    keeps_largest: bool = static(default=False)  # AMSGrad: the largest mean ever, not the last

    @property
    def memory(self) -> float:
        """Steps over which squared gradients are averaged."""
        return 1.0 / (1.0 - self.beta2)

    @property
    def gain(self) -> float:
        """Step of a weight, times the root that it is divided by."""
        return self.lr * (1 - self.momentum) if self.dampened else self.lr

    def freeze(self, square: ArrayLike) -> Momentum:
        """Return heavy ball with the steps that a resting mean square gives each weight.

        Examples
        --------
        >>> frozen = Adaptive(lr=0.1, momentum=0.5, beta2=0.999, eps=0.0).freeze([4.0, 1.0])
        >>> frozen.lr.tolist(), frozen.momentum
        ([0.02..., 0.05...], 0.5)
        """
        root = jnp.sqrt(jnp.asarray(square) + self.eps_root) + self.eps
        step = self.gain / root
        shrink = self.lr * self.weight_decay
        decay = shrink * (1 - self.momentum) / step
        momentum = self.momentum * (1 - shrink)
        return Momentum(step, momentum, 0.0, decay, lookahead=self.lookahead)  # pyrefly: ignore[bad-argument-type]


def _adam(
    learning_rate: float,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    eps_root: float = 0.0,
    **rest: Any,
) -> Adaptive:
    return Adaptive(learning_rate, b1, b2, eps, eps_root, **rest)


def _adamw(learning_rate: float, weight_decay: float = 1e-4, **rest: Any) -> Adaptive:
    return _adam(learning_rate, weight_decay=weight_decay, **rest)


def _amsgrad(learning_rate: float, **rest: Any) -> Adaptive:
    return _adam(learning_rate, keeps_largest=True, **rest)


def _nadam(learning_rate: float, **rest: Any) -> Adaptive:
    return _adam(learning_rate, lookahead=True, **rest)


def _rmsprop(
    learning_rate: float,
    decay: float = 0.9,
    eps: float = 1e-8,
    initial_scale: float = 0.0,
    momentum: float | None = None,
) -> Adaptive:
    del initial_scale  # of the running mean, forgotten at rest
    momentum = 0.0 if momentum is None else momentum
    return Adaptive(learning_rate, momentum, decay, 0.0, eps, dampened=False)


_FORMS: dict[str, Callable[..., Adaptive]] = {  # by their names in optax
    "adam": _adam,
    "adamw": _adamw,
    "amsgrad": _amsgrad,
    "nadam": _nadam,
    "rmsprop": _rmsprop,
}


def adaptive_form(optimizer: Any) -> Adaptive:
    """Return what an optax optimizer of this family does once its mean square is at rest.

    Examples
    --------
    >>> from resonax import adam
    >>> adaptive_form(adam(lr=0.01, beta1=0.95)).momentum
    0.95
    """
    import optax  # takes long to load, and SGD with momentum does without

    for name, form in _FORMS.items():
        if getattr(optimizer, "make", None) is getattr(optax, name):
            return form(**optimizer.hyperparameters)
    raise ArgumentError(f"a level is predicted for {', '.join(_FORMS)}: use the other criteria")
