"""Hyperparameters that `optax.inject_hyperparams` keeps in the state of an optimizer."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.errors import ArgumentError

__all__ = ["Hyperparameters", "largest_momentum", "lowered", "momentum_names", "read", "write"]

Hyperparameters = tuple[dict[str, Any], ...]  # one for each `inject_hyperparams` of an optimizer
_NAMES = ("momentum", "b1")


def _is_injected(part: Any) -> bool:
    return hasattr(part, "hyperparams") and hasattr(part, "inner_state")


def _injected(opt_state: Any) -> list[Any]:
    leaves = jax.tree.leaves(opt_state, is_leaf=_is_injected)
    return [one for one in leaves if _is_injected(one)]


def read(opt_state: Any) -> Hyperparameters:
    """Return the hyperparameters in the state of an optimizer, wherever a wrapper has put them."""
    return tuple(dict(one.hyperparams) for one in _injected(opt_state))


def write(opt_state: Any, hyperparameters: Hyperparameters) -> Any:
    """Return the state of an optimizer with other hyperparameters."""
    given = iter(hyperparameters)

    def changed(part: Any) -> Any:
        return part._replace(hyperparams=next(given)) if _is_injected(part) else part

    return jax.tree.map(changed, opt_state, is_leaf=_is_injected)


def momentum_names(opt_state: Any, name: str | None) -> tuple[str | None, ...]:
    """Return how the momentum is called in each set of hyperparameters; None where there is none.

    Parameters
    ----------
    opt_state
        State of an optimizer.
    name
        The hyperparameter that is the momentum; by default ``momentum`` or ``b1``.
    """
    found = _injected(opt_state)
    if not found:
        raise ArgumentError(
            "the guard changes the momentum in the state of the optimizer: write "
            "optax.inject_hyperparams(optax.sgd)(0.01, momentum=0.95) in place of "
            "optax.sgd(0.01, momentum=0.95)"
        )
    known = _NAMES if name is None else (name,)
    names = tuple(next((key for key in known if key in one.hyperparams), None) for one in found)
    if name is not None and not any(names):
        held = ", ".join(sorted({key for one in found for key in one.hyperparams}))
        raise ArgumentError(
            f"knob must name a hyperparameter of the optimizer, {held}, got {name!r}"
        )
    for key, one in zip(names, found, strict=True):
        if key in getattr(one, "hyperparams_states", {}):
            raise ArgumentError(
                f"{key} follows a schedule, which optax does not let others lower: give a number, "
                f"and change state.opt_state.hyperparams[{key!r}] between updates"
            )
    return names


def largest_momentum(opt_state: Any, names: tuple[str | None, ...]) -> float:
    """Return the largest momentum, in the fewest decimals that its precision needs."""
    pairs = zip(names, read(opt_state), strict=True)
    return max((_decimal(held[name]) for name, held in pairs if name is not None), default=0.0)


def _decimal(number: Any) -> float:
    return float(str(np.asarray(number)[()]))


def lowered(own: Hyperparameters, names: tuple[str | None, ...], momentum: Any) -> Hyperparameters:
    """Return hyperparameters with no momentum above a candidate's."""
    return tuple(
        held if name is None else {**held, name: _least(held[name], momentum)}
        for name, held in zip(names, own, strict=True)
    )


def _least(own: Any, momentum: Any) -> Array:
    own = jnp.asarray(own)
    return jnp.minimum(own, jnp.asarray(momentum, own.dtype))
