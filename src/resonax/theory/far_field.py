r"""How an adaptive optimizer drifts where the error is far larger than its steps.

Adam divides the mean :math:`m` of its gradients by the root of the mean :math:`v` of their squares.
Both scale with the error :math:`e`, so that the length of a step does not. Rows that repeat give,
where :math:`\|e\|` is so large that it hardly changes during a period, the mean step

.. math:: \Delta e = -\eta\,F(e), \qquad F(u) = \overline{m_k(u) / \sqrt{v_k(u)}} ,

where :math:`m_k(u)` and :math:`v_k(u)` are the running means of the gradients at a constant error
:math:`u`, averaged over the period. Along a direction with :math:`F(u) = -c\,u,\ c > 0,\ \|u\|=1`
the error grows by :math:`\eta c` in each step, without bound. If :math:`v` is constant there is no
such direction: :math:`F` is then the gradient of the mean loss, scaled weight by weight. If
:math:`v` follows the rows, each of them moves each weight by a sign alone, and there may be one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import double_precision
from resonax.dynamics import Problem
from resonax.learners.adaptive import Adaptive, adaptive_form
from resonax.streams import Recorded

__all__ = ["Escape", "drift", "find_escape"]

_RANDOM_STARTS = 16  # random directions, besides the axes of the mean curvature
# Steps by which a direction turns, times each scale: finer ones find what few directions lead to.
_TURN_STEPS = np.append(np.geomspace(1.0, 0.02, 40), np.full(80, 0.02))
_STEP_SCALES = 0.5, 0.05
_MIN_GROWTH = 1e-5  # growth in units of the step size, above what rounding leaves
_MAX_DEVIATION = 0.02  # of the growth: how far F may point aside of a direction that is at rest
_MIN_CURVATURE = 1e-9  # of the largest curvature: a direction in which the rows say nothing
_MAX_PERIOD = 20_000  # steps of a period that is searched


class Escape(NamedTuple):
    """A direction in which a large error grows without bound, and by how much in each step."""

    growth: float
    direction: np.ndarray


def _drift(form: Adaptive, curvature: Array, towards: Array) -> Array:
    """Return F of each direction, (directions, size)."""
    beta1, beta2 = form.momentum, form.beta2

    def follow(carry: tuple, curvature: Array) -> tuple:
        mean, square, total = carry
        gradient = towards @ curvature
        mean = beta1 * mean + (1 - beta1) * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        ahead = beta1 * mean + (1 - beta1) * gradient if form.lookahead else mean
        # Undampened, it is the divided gradient that enters a velocity, which adds up to 1/(1-mu).
        above = ahead if form.dampened else gradient / (1 - beta1)
        return (mean, square, total + above / jnp.maximum(jnp.sqrt(square), 1e-150)), None

    none, steps = jnp.zeros_like(towards), len(curvature)
    (mean, square, _), _ = jax.lax.scan(follow, (none, none, none), curvature)
    start = mean / (1 - beta1**steps), square / (1 - beta2**steps), none  # what repeats
    return jax.lax.scan(follow, start, curvature)[0][2] / steps


@jax.jit
def _turn(form: Adaptive, curvature: Array, towards: Array, scale: Array) -> tuple[Array, Array]:
    """Return where each direction comes to rest as the error moves by -F, and F there."""

    def turn(towards: Array, step: Array) -> tuple[Array, None]:
        after = towards - step * _drift(form, curvature, towards)
        return after / jnp.linalg.norm(after, axis=1, keepdims=True), None

    towards = jax.lax.scan(turn, towards, scale * _TURN_STEPS)[0]
    return towards, _drift(form, curvature, towards)


def _curvature(problem: Problem) -> np.ndarray:
    """Return the curvature of each step of a recording, (steps, size, size)."""
    process: Any = problem.process
    data = np.asarray(process.data, dtype=float)
    rows = np.asarray(problem.model.apply(data), dtype=float)  # pyrefly: ignore[missing-attribute]
    scale = 2 * float(problem.gradient_scale) / rows.shape[1]
    return scale * np.einsum("tni,tnj->tij", rows, rows)


@double_precision
def drift(problem: Problem, towards: Any) -> np.ndarray:
    """Return F of directions of the error for a recording that repeats, (directions, size).

    Examples
    --------
    >>> from resonax import Linear, Problem, Recorded, adam
    >>> rows = np.repeat([[3.0, -1, -1], [-1, 3, -1], [-1, -1, 3]], 100, axis=0)
    >>> law = Recorded.of(rows, repeat=True)
    >>> for beta2 in (0.9, 0.9999):  # outwards, then inwards
    ...     problem = Problem(law, adam(lr=0.01, beta2=beta2), Linear(bias=False))
    ...     print(drift(problem, [[1.0, 1.0, 1.0]]).round(2).tolist())
    [[-0.26, -0.26, -0.26]]
    [[0.17, 0.17, 0.17]]
    """
    form, given = adaptive_form(problem.optimizer), jnp.asarray(towards, dtype=float)
    return np.asarray(jax.jit(_drift)(form, jnp.asarray(_curvature(problem)), given))


@double_precision
def find_escape(problem: Problem) -> Escape | None:
    """Return the direction in which a large error grows fastest; None where none is found.

    For rows that repeat, without anything drawn. The search follows the direction of the error
    from many starts to where it comes to rest: what it finds is there, and it may miss one.
    AMSGrad has none, as its mean square does not fall.

    Examples
    --------
    >>> from resonax import Linear, Problem, Recorded, adam
    >>> rows = np.repeat([[3.0, -1, -1], [-1, 3, -1], [-1, -1, 3]], 30, axis=0)
    >>> law = Recorded.of(rows, repeat=True)
    >>> found = find_escape(Problem(law, adam(lr=0.01, beta2=0.9), Linear(bias=False)))
    >>> print(f"{found.growth:.4f} {np.abs(found.direction).round(2).tolist()}")
    0.0019 [0.58, 0.58, 0.58]
    """
    form, process = adaptive_form(problem.optimizer), problem.process
    if form.keeps_largest or not isinstance(process, Recorded) or process.steps > _MAX_PERIOD:
        return None
    curvature = _curvature(problem)
    values, vectors = np.linalg.eigh(curvature.mean(axis=0))
    if not values[0] > _MIN_CURVATURE * values[-1]:
        return None
    drawn = np.random.default_rng(0).normal(size=(_RANDOM_STARTS, len(values)))
    towards = np.concatenate([vectors.T, drawn / np.linalg.norm(drawn, axis=1, keepdims=True)])
    plain = replace(form, lr=1.0, weight_decay=0.0)  # neither matters to the direction
    towards = np.concatenate([vectors.T, _turn(plain, curvature, towards, _STEP_SCALES[0])[0]])
    towards, moved = map(np.asarray, _turn(plain, curvature, towards, _STEP_SCALES[1]))
    growth = -np.sum(towards * moved, axis=1)
    aside = np.linalg.norm(moved + growth[:, None] * towards, axis=1)
    growth[(growth < _MIN_GROWTH) | (aside > _MAX_DEVIATION * growth)] = 0.0
    fastest = int(np.argmax(growth))
    if not growth[fastest]:
        return None
    return Escape(float(form.lr) * float(growth[fastest]), towards[fastest])
