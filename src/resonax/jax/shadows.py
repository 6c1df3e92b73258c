"""Shadows of the parameters as stacked pytrees, and the curvature products that move them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from resonax.guards.guard import ShadowStep
from resonax.guards.shadows import Energy, Gains, step_shadow

__all__ = ["gauss_newton", "hessian", "step_shadows"]


def _spread(number: Any, like: Array) -> Any:
    return jnp.reshape(number, (-1,) + (1,) * (like.ndim - 1)) if jnp.ndim(number) else number


def _sums(tree: Any) -> Array:
    rows = [jnp.sum(leaf.reshape(len(leaf), -1), axis=1) for leaf in jax.tree.leaves(tree)]
    return functools.reduce(jnp.add, rows)


def _energy(places: Any, velocities: Any, by: Gains) -> Energy:
    squares = [jax.tree.map(jnp.square, tree) for tree in (places, velocities)]
    return Energy(by.alpha * _sums(squares[0]), by.momentum * by.kappa * _sums(squares[1]))


def hessian(value_fn: Callable[[Any], Array], params: Any) -> Callable[[Any], Any]:
    """Return the product of a direction with the Hessian of the loss."""
    return lambda along: jax.jvp(jax.grad(value_fn), (params,), (along,))[1]


def gauss_newton(output_fn: Any, loss_fn: Any, params: Any) -> Callable[[Any], Any]:
    """Return the product of a direction with the Gauss-Newton matrix of the loss."""
    outputs, pull = jax.vjp(output_fn, params)

    def product(along: Any) -> Any:
        pushed = jax.jvp(output_fn, (params,), (along,))[1]
        return pull(jax.jvp(jax.grad(loss_fn), (outputs,), (pushed,))[1])[0]

    return product


def step_shadows(
    product: Callable[[Any], Any],
    places: Any,
    velocities: Any,
    by: Gains,
    *,
    direction: Any,
    begins: Array,
) -> tuple[Any, Any, ShadowStep]:
    """Make one step of all shadows; return them rescaled, with energies and curvature.

    Parameters
    ----------
    product
        Multiplies one direction by the curvature of the batch.
    places, velocities
        The shadows, (candidates, *shape) for each parameter.
    by
        Coefficients of the recursion, one entry for each candidate.
    direction
        Where shadows start, at velocity 0.
    begins
        Whether they start in this step.
    """
    count = len(by.momentum)
    size = jnp.maximum(optax.tree.norm(direction), 1e-30)
    places = jax.tree.map(
        lambda new, old: jnp.where(begins, jnp.broadcast_to(new / size, (count, *new.shape)), old),
        direction,
        places,
    )
    velocities = jax.tree.map(lambda old: jnp.where(begins, 0.0, old), velocities)
    before, lengths = _energy(places, velocities, by), _sums(jax.tree.map(jnp.square, places))
    products = jax.vmap(product)(places)
    leaves, tree = jax.tree.flatten(places)
    others = (jax.tree.leaves(part) for part in (velocities, products))
    moved = [
        step_shadow(place, velocity, pulled, Gains(*(_spread(number, place) for number in by)))
        for place, velocity, pulled in zip(leaves, *others, strict=True)
    ]
    new, faster, pulls = zip(*moved, strict=True)
    met = _sums([place * pull for place, pull in zip(leaves, pulls, strict=True)])
    met = met / jnp.maximum(lengths, 1e-30)
    places, velocities = jax.tree.unflatten(tree, new), jax.tree.unflatten(tree, faster)
    after = _energy(places, velocities, by)
    scale = 1 / jnp.sqrt(jnp.maximum(after.places + after.velocities, 1e-30))
    places, velocities = (
        jax.tree.map(lambda part: part * _spread(scale, part), tree)
        for tree in (places, velocities)
    )
    return places, velocities, ShadowStep(before, after, met)
