"""The terms of one update: how each weight moves, residuals, gradients, energy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

__all__ = ["Weights", "energy", "pull", "residuals", "sizes_along"]


@dataclass(frozen=True)
class Weights:
    """How each weight moves: ``moved`` with the momentum, ``plain`` by a step size of its own."""

    moved: np.ndarray  # (size,) 1 or 0
    plain: np.ndarray  # (size,)
    curvature: np.ndarray  # (size,) of the loss, by which a difference is measured

    @classmethod
    def of(
        cls, curvature: np.ndarray, intercept_lr: float | None = None, *, target: bool = False
    ) -> Weights:
        """Return the weights of a model; the one of a target never moves."""
        size = len(curvature) + target
        moved, plain = np.ones(size), np.zeros(size)
        if target:
            moved[-1] = 0.0
        if intercept_lr is not None:
            place = size - 1 - target
            moved[place], plain[place] = 0.0, intercept_lr
        return cls(moved, plain, np.append(curvature, np.ones(int(target))))

    def columns(self, dtype: type) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return them as columns, (size, 1), beside which the lanes stand."""
        parts = (self.moved, self.plain, self.curvature)
        moved, plain, curvature = (part.astype(dtype).reshape(-1, 1) for part in parts)
        return moved, plain, curvature


def residuals(factor: Array, weights: Array) -> Array:
    """Return F u: (rank, size, 1 or lanes) and (size, lanes) give (rank, lanes).

    One row is a sum of products, which vectorises over the lanes; a batch that all lanes share
    is a matrix product.
    """
    if len(factor) == 1:
        return (factor[0] * weights).sum(axis=0)[None]
    if factor.shape[2] == 1:
        return factor[:, :, 0] @ weights
    return (factor * weights).sum(axis=1)


def pull(factor: Array, errors: Array) -> Array:
    """Return F^T e, (size, lanes)."""
    if len(factor) == 1:
        return factor[0] * errors[0]
    if factor.shape[2] == 1:
        return factor[:, :, 0].T @ errors
    return (factor * errors[:, None]).sum(axis=0)


def energy(here: Any, before: Any, curvature: Any, gain: Any, xp: Any = jnp) -> Any:
    r"""Return the energy of each lane, by which the size of a difference :math:`u` is measured.

    With the curvature :math:`c_i` of the decayed loss along each axis and the gain :math:`g` of the
    gradient,

    .. math:: E_k = \sum_i \tfrac12 c_i\,(u_{k,i}^2 + u_{k-1,i}^2)
        + \max(\tfrac1g - \tfrac{c_i}2, 0)\,(u_{k,i} - u_{k-1,i})^2 .

    For a constant curvature with :math:`g c_i \le 2` and a momentum of 1 this is the invariant of
    heavy ball: a free oscillation leaves it constant, while the weights pass through zero again
    and again. At rest it is :math:`\sum_i c_i u_i^2`. Weights that nothing moves have no speed.

    Parameters
    ----------
    here, before
        Weights and those one step before, (..., size, lanes).
    curvature
        Of the decayed loss along each axis.
    gain
        What multiplies the gradient.
    xp
        The module of the arrays, ``jax.numpy`` or ``numpy``.
    """
    speed = here - before
    inertia = xp.where(gain > 0, 1 / xp.where(gain > 0, gain, 1.0), 0.0)
    inertia = xp.maximum(inertia - curvature / 2, 0.0)
    swing = curvature * (here * here + before * before) / 2
    return (swing + inertia * speed * speed).sum(axis=-2)


def sizes_along(trail: list[Any], velocity: Any, curvature: Any, gain: Any, xp: Any) -> Any:
    """Return the size of each lane after every update of a trail that begins before the first."""
    path = xp.stack(trail)
    sizes = xp.sqrt(energy(path[1:], path[:-1], curvature, gain, xp))
    # A velocity that has not moved its weight yet has no energy, but is not zero.
    sizes = xp.where(sizes > 0, sizes, abs(velocity).max(axis=0))
    return xp.maximum(sizes, np.finfo(float).tiny)
