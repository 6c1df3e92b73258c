"""Optimizers as the compiled loops run them."""

from __future__ import annotations

from typing import Any

import jax
import optax

from resonax.learners import Momentum

__all__ = ["position_form"]


def position_form(optimizer: Any) -> optax.GradientTransformation:
    r"""Return the transform of an optimizer; for heavy ball, by positions in place of a velocity.

    :math:`\theta_{k+1} = \theta_k + \mu(\theta_k-\theta_{k-1}) - \alpha h_k` is heavy ball without
    a velocity: two arrays are written in a step where the other form writes four.
    """
    if not isinstance(optimizer, Momentum) or optimizer.lookahead or optimizer.full_start:
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

    return optax.GradientTransformation(init, update)  # pyright: ignore[reportArgumentType]
