"""Optimizers as the compiled loops run them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import jax

from resonax.learners import Momentum

if TYPE_CHECKING:
    import optax  # which takes long to load: functions do it

__all__ = ["has_positions", "init_state", "position_form", "update_weights"]


def has_positions(optimizer: Any) -> bool:
    """Return whether an optimizer is heavy ball, which `position_form` writes by positions."""
    is_momentum = isinstance(optimizer, Momentum)
    return is_momentum and not optimizer.lookahead and not optimizer.full_start


def position_form(optimizer: Any) -> optax.GradientTransformation:
    r"""Return the transform of an optimizer; for heavy ball, by positions in place of a velocity.

    :math:`\theta_{k+1} = \theta_k + \mu(\theta_k-\theta_{k-1}) - \alpha h_k` is heavy ball without
    a velocity: two arrays are written in a step where the other form writes four.
    """
    import optax

    if not has_positions(optimizer):
        return optimizer.transform()

    def init(params: Any) -> Any:
        return params

    def update(gradients: Any, before: Any, params: Any) -> tuple[Any, Any]:
        moves = jax.tree.map(
            lambda g, now, then: optimizer.momentum * (now - then) - optimizer.alpha * g,
            gradients,
            params,
            before,
        )
        return moves, params

    return optax.GradientTransformation(init, update)  # pyrefly: ignore[bad-argument-type]


def init_state(optimizer: Any, weights: Any) -> Any:
    """Return the state of an optimizer before its first step."""
    return position_form(optimizer).init(weights)


def update_weights(
    optimizer: Any, slope: Any, weights: Any, state: Any, *, decays: bool
) -> tuple[Any, Any]:
    """Return weights and state of an optimizer after a step; ``decays``: whether any cell does."""
    import optax

    if isinstance(optimizer, Momentum):
        if decays:
            decay = optimizer.weight_decay
            slope = jax.tree.map(lambda g, weight: g + decay * weight, slope, weights)
        optimizer = replace(optimizer, weight_decay=0.0)
    moves, state = position_form(optimizer).update(slope, state, weights)
    return optax.apply_updates(weights, moves), state
