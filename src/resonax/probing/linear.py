"""A linear model trained by any optax optimizer, as a pure learner."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from resonax.learners import Features

__all__ = ["is_optimizer", "linear_learner"]


def is_optimizer(thing: Any) -> bool:
    """Tell whether a thing is an optimizer alone: of optax, or one that gives its transform."""
    return isinstance(thing, optax.GradientTransformation) or hasattr(thing, "transform")


def linear_learner(optimizer: Any, features: Features, dim: int) -> tuple[Any, Any, Any]:
    """Return (step, state, predict) of a linear model that begins at zero, in double precision.

    The loss is the mean of the squared errors of a batch, without a factor 1/2.

    Examples
    --------
    >>> from resonax.learners import Linear, heavy_ball
    >>> step, state, predict = linear_learner(heavy_ball(0.1, 0.5), Linear(bias=False), 1)
    >>> with jax.enable_x64(True):
    ...     weights, _ = step(state, jnp.ones((1, 1)), jnp.ones(1))
    >>> weights.tolist()
    [0.2]
    """
    is_transform = isinstance(optimizer, optax.GradientTransformation)
    transform: Any = optimizer if is_transform else optimizer.transform()

    def predict(state: Any, inputs: Any) -> Any:
        return features.apply(inputs) @ state[0]

    def step(state: Any, inputs: Any, target: Any) -> Any:
        weights, memory = state
        slope = jax.grad(lambda w: jnp.mean((features.apply(inputs) @ w - target) ** 2))(weights)
        moves, memory = transform.update(slope, memory, weights)
        return optax.apply_updates(weights, moves), memory

    with jax.enable_x64(True):
        weights = jnp.zeros(features.size(dim))
        return step, (weights, transform.init(weights)), predict
