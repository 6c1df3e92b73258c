"""What an optimizer makes of phases that alternate, by products with curvatures in jax."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

from resonax.core.errors import ArgumentError, check_whole, suggest
from resonax.theory.phases import Alternation, alternation
from resonax.theory.subspace import Phase, check_batches

__all__ = ["make_phases", "phases"]

CURVATURES = ("gauss-newton", "hessian")


def phases(
    apply: Callable[[Any, Any], Array],
    loss_fn: Callable[[Array, Any], Array],
    params: Any,
    optimizer: Any,
    batches_by_phase: Mapping[str, Sequence[tuple[Any, Any]]],
    *,
    steps: int | Sequence[int],
    square: Any = None,
    curvature: str = "gauss-newton",
    curvature_batches: int = 8,
    **options: Any,
) -> Alternation:
    """Judge phases that alternate in the training of a model, at its weights as they are.

    Parameters
    ----------
    apply, loss_fn, params
        The loss of a batch is ``loss_fn(apply(params, x), y)``; params is any pytree.
    optimizer
        ``rx.adamw(lr=1e-3)``, ``rx.heavy_ball(0.1, 0.9)`` and the like.
    batches_by_phase
        Some batches ``(x, y)`` of each phase, all of one shape and of the size that is trained on,
        by its name. With 4 of each or more, their spread gives an interval.
    steps
        How many steps a phase lasts, or how many each.
    square
        The second moment that an adaptive optimizer holds, a pytree as params:
        ``optax.tree.get(state, "nu")`` over ``1 - beta2**count``.
    curvature
        ``gauss-newton`` or ``hessian``.
    curvature_batches
        Batches of each phase, the first ones, from which curvatures are taken; gradients, which
        cost less, are taken from all: 64 batches and more separate their means from their noise.
    **options
        Of `resonax.theory.phases.alternation`: ``periods``, ``momenta``, ``lrs``,
        ``directions``, ``follow_square``, ``length``, ``confidence``, ``memory``, ``advance``.

    Examples
    --------
    >>> import resonax as rx
    >>> apply = lambda params, x: params * x
    >>> loss_fn = lambda outputs, y: ((outputs - y) ** 2).mean()
    >>> x = jnp.ones(4)
    >>> batches = {"still": [(0.7 * x, x)], "loud": [(1.2 * x, x)]}
    >>> sgd = rx.heavy_ball(0.01, 0.99)
    >>> print(phases(apply, loss_fn, jnp.ones(1), sgd, batches, steps=11, momenta=[0.5]))
    diverges: ...
    """
    lengths = check_batches(batches_by_phase, steps)
    made = make_phases(
        apply, loss_fn, params, batches_by_phase, lengths, curvature, curvature_batches
    )
    if square is not None:
        if jax.tree.structure(square) != jax.tree.structure(params):
            raise ArgumentError("square must be a pytree of the same structure as params")
        square = np.asarray(ravel_pytree(square)[0])
    return alternation(made, optimizer, square=square, **options)


def make_phases(
    apply: Callable[[Any, Any], Array],
    loss_fn: Callable[[Array, Any], Array],
    params: Any,
    batches_by_phase: Mapping[str, Sequence[tuple[Any, Any]]],
    steps: Sequence[int],
    curvature: str = "gauss-newton",
    curvature_batches: int = 8,
) -> list[Phase]:
    """Return phases with compiled products, on flat vectors in the order of `ravel_pytree`."""
    if curvature not in CURVATURES:
        raise suggest("curvature", curvature, CURVATURES)
    check_whole("curvature_batches", curvature_batches, low=1)
    weights = ravel_pytree(params)[0]
    if weights.size == 0:
        raise ArgumentError("params hold no number")
    made = []
    for (name, batches), length in zip(batches_by_phase.items(), steps, strict=True):
        shapes = {str(jax.tree.map(jnp.shape, batch)) for batch in batches}
        if len(shapes) > 1:
            raise ArgumentError(f"all batches of {name} must have the same shape")
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)

        few = jax.tree.map(lambda leaf: leaf[:curvature_batches], stacked)

        def product(vector: np.ndarray, few: Any = few) -> np.ndarray:
            given = jnp.asarray(vector, weights.dtype)
            return np.asarray(_products(apply, loss_fn, curvature, params, given, few))

        gradients = np.asarray(_gradients(apply, loss_fn, params, stacked))
        made.append(Phase(product, gradients, length, name))
    return made


Apply = Callable[[Any, Any], Array]
Loss = Callable[[Array, Any], Array]


def _loss(apply: Apply, loss_fn: Loss, params: Any, batch: Any) -> Array:
    found = loss_fn(apply(params, batch[0]), batch[1])
    if jnp.shape(found) != ():
        raise ArgumentError("loss_fn must return one number, the mean loss of a batch")
    return found


# Curvatures do not forgive the 10 bits of fast products of matrices.


@functools.partial(jax.jit, static_argnums=(0, 1))
def _gradients(apply: Apply, loss_fn: Loss, params: Any, batches: Any) -> Array:
    slope = jax.grad(functools.partial(_loss, apply, loss_fn))
    with jax.default_matmul_precision("highest"):
        return jax.lax.map(lambda batch: ravel_pytree(slope(params, batch))[0], batches)


@functools.partial(jax.jit, static_argnums=(0, 1, 2))
def _products(
    apply: Apply, loss_fn: Loss, curvature: str, params: Any, vector: Array, batches: Any
) -> Array:
    direction = ravel_pytree(params)[1](vector)

    def one(batch: Any) -> Array:
        x, y = batch
        if curvature == "hessian":
            slope = jax.grad(functools.partial(_loss, apply, loss_fn))
            found = jax.jvp(lambda params: slope(params, batch), (params,), (direction,))[1]
        else:
            outputs, back = jax.vjp(lambda params: apply(params, x), params)
            move = jax.jvp(lambda params: apply(params, x), (params,), (direction,))[1]
            bent = jax.jvp(jax.grad(lambda z: loss_fn(z, y)), (outputs,), (move,))[1]
            (found,) = back(bent)
        return ravel_pytree(found)[0]

    with jax.default_matmul_precision("highest"):
        return jax.lax.map(one, batches)
