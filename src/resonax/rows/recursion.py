r"""The update of the weights along rows, for many settings or several orders of rows at once.

Let :math:`u` be the difference of the weights of two runs with the same setting and rows. With its
gradient :math:`g_k = F_k^\top F_k\,u_k` and the decayed gradient :math:`h_k = g_k + \lambda u_k`,
an update is that of `resonax.learners.optimizers`,

.. math:: v_{k+1} = \mu v_k - \alpha h_k, \qquad u_{k+1} = u_k + \kappa v_{k+1} - \beta h_k ,

in 64 bits. After each update a difference is divided by its size, and the logarithm of the size is
kept, so that nothing overflows. The size is the square root of the `energy`.

*Runs* are computed side by side, in the last axis of all arrays: several settings on one sequence
of rows, or one setting on several sequences.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import double_precision
from resonax.core.errors import ArgumentError
from resonax.learners import Momentum
from resonax.rows.feed import Feed
from resonax.rows.intervals import Pass, collect_pass

__all__ = [
    "Coefficients",
    "Differences",
    "WeightRules",
    "coefficients_of",
    "difference_step",
    "energy",
    "is_small",
    "iterate_chunks",
    "multiply",
    "multiply_transposed",
    "run_pass",
    "size_of",
    "update",
]

_CHUNK = 1024  # steps handed to the compiled loop at once
_MAX_FACTOR = 1e120  # growth in one step whose energy still is a floating-point number
# A compiled loop serves one number of runs. For small models runs are repeated up to these numbers,
# which costs less than to compile again.
_MIN_RUNS, _MIN_TRAINED_RUNS = 96, 16
_SMALL = 64  # entries of the factor of a step up to which a model counts as small

Coefficients = dict[str, Any]
# state, factor of a step, coefficients -> state, (logarithm of the growth, other results...)
Step = Callable[[Any, Array, Coefficients], tuple[Any, tuple[Array, ...]]]


@dataclass(frozen=True)
class WeightRules:
    """How each weight is updated: with momentum, by a step size of its own, or not at all."""

    has_momentum: np.ndarray  # (size,) 1 or 0
    plain_lr: np.ndarray  # (size,) step size of weights without momentum, 0 for the others
    curvature: np.ndarray  # (size,) of the loss along each weight, for the `energy`

    @classmethod
    def of(
        cls, curvature: np.ndarray, intercept_lr: float | None = None, *, target: bool = False
    ) -> WeightRules:
        """Return the rules of a model.

        With ``target`` there is one more weight, which is never updated. With ``intercept_lr`` the
        last weight of the model has this step size, and no momentum.
        """
        size = len(curvature) + target
        has_momentum, plain_lr = np.ones(size), np.zeros(size)
        if target:
            has_momentum[-1] = 0.0
        if intercept_lr is not None:
            intercept = size - 1 - target
            has_momentum[intercept], plain_lr[intercept] = 0.0, intercept_lr
        return cls(has_momentum, plain_lr, np.append(curvature, np.ones(int(target))))


def coefficients_of(optimizer: Momentum, rules: WeightRules) -> Coefficients:
    """Return the coefficients of the update: scalars or (runs,), and (size, 1) or (size, runs)."""
    has_momentum, plain_lr, curvature = (
        np.asarray(part, dtype=float).reshape(-1, 1)
        for part in (rules.has_momentum, rules.plain_lr, rules.curvature)
    )
    names = ("momentum", "alpha", "kappa", "beta", "weight_decay")
    coefficients = {name: np.asarray(getattr(optimizer, name), dtype=float) for name in names}
    gain = coefficients["kappa"] * coefficients["alpha"] + coefficients["beta"]
    return coefficients | {
        "has_momentum": has_momentum,
        "plain_lr": plain_lr,
        "curvature": curvature + has_momentum * coefficients["weight_decay"],
        "gain": has_momentum * gain + plain_lr,
    }


def multiply(factor: Array, weights: Array) -> Array:
    """Return F u: (rank, size, 1 or runs) and (size, runs) give (rank, runs).

    One row is a sum of products, which vectorises over the runs; a batch that all runs share
    is a matrix product.
    """
    if len(factor) == 1:
        return (factor[0] * weights).sum(axis=0)[None]
    if factor.shape[2] == 1:
        return factor[:, :, 0] @ weights
    return (factor * weights).sum(axis=1)


def multiply_transposed(factor: Array, residuals: Array) -> Array:
    """Return F^T e, (size, runs)."""
    if len(factor) == 1:
        return factor[0] * residuals[0]
    if factor.shape[2] == 1:
        return factor[:, :, 0].T @ residuals
    return (factor * residuals[:, None]).sum(axis=0)


def energy(weights: Any, previous: Any, curvature: Any, gain: Any, xp: Any = jnp) -> Any:
    r"""Return the energy of each run, the square of the size of a difference :math:`u`.

    With the curvature :math:`c_i` of the loss with weight decay along each axis, and the factor
    :math:`g` of the gradient in an update,

    .. math:: E_k = \sum_i \tfrac12 c_i\,(u_{k,i}^2 + u_{k-1,i}^2)
        + \max(\tfrac1g - \tfrac{c_i}2, 0)\,(u_{k,i} - u_{k-1,i})^2 .

    It is the sum of a potential and a kinetic energy. With momentum 1 and a constant curvature
    :math:`g c_i \le 2` it is conserved by SGD with momentum: an undamped oscillation has a constant
    size, although its weights pass through zero. At rest it is :math:`\sum_i c_i u_i^2`. Weights
    that are never updated have no kinetic energy.

    Parameters
    ----------
    weights, previous
        Weights and those one step before, (..., size, runs).
    curvature
        Curvature of the loss with weight decay along each axis.
    gain
        Factor of the gradient in an update.
    xp
        Module of the arrays, ``jax.numpy`` or ``numpy``.
    """
    speed = weights - previous
    mass = xp.where(gain > 0, 1 / xp.where(gain > 0, gain, 1.0), 0.0)
    mass = xp.maximum(mass - curvature / 2, 0.0)
    potential = curvature * (weights * weights + previous * previous) / 2
    return (potential + mass * speed * speed).sum(axis=-2)


def size_of(weights: Array, previous: Array, velocity: Array, coefficients: Coefficients) -> Array:
    """Return the size of each run after an update."""
    size = jnp.sqrt(energy(weights, previous, coefficients["curvature"], coefficients["gain"]))
    # Weights at zero with a velocity that has not moved them yet have no energy, but a size.
    size = jnp.where(size > 0, size, jnp.abs(velocity).max(axis=0))
    return jnp.maximum(size, jnp.finfo(size.dtype).tiny)


def update(
    weights: Array, velocity: Array, gradient: Array, coefficients: Coefficients
) -> tuple[Array, Array]:
    """Return weights and velocity after one update."""
    has_momentum = coefficients["has_momentum"]
    decayed = has_momentum * (gradient + coefficients["weight_decay"] * weights)
    velocity = has_momentum * coefficients["momentum"] * velocity - coefficients["alpha"] * decayed
    change = (
        coefficients["kappa"] * velocity
        - coefficients["beta"] * decayed
        - coefficients["plain_lr"] * gradient
    )
    return weights + change, velocity


class Differences(NamedTuple):
    """Differences between two runs, each array (size, runs)."""

    weights: Any
    velocity: Any
    previous: Any  # weights one step before


def difference_step(
    state: Differences, factor: Array, coefficients: Coefficients
) -> tuple[Differences, tuple[Array, ...]]:
    """Update differences and divide them by their size; the result is the log of the growth."""
    gradient = multiply_transposed(factor, multiply(factor, state.weights))
    weights, velocity = update(state.weights, state.velocity, gradient, coefficients)
    size = size_of(weights, state.weights, velocity, coefficients)
    return Differences(weights / size, velocity / size, state.weights / size), (jnp.log(size),)


class _Learners(NamedTuple):
    """Learners in training, each array (size, runs), divided by ``exp(log_scale)``, (runs,).

    The last weight stands for the constant 1 that multiplies the target.
    """

    weights: Any
    velocity: Any
    log_scale: Any


def _learner_step(
    state: _Learners, factor: Array, coefficients: Coefficients
) -> tuple[_Learners, tuple[Array, ...]]:
    """Update learners.

    The results are the logarithms of the growth, of the squared residual before the update, and of
    the norm of the weights after it.
    """
    residuals = multiply(factor, state.weights)
    log_square = jnp.log(jnp.sum(residuals * residuals, axis=0) / 2) + 2 * state.log_scale
    gradient = multiply_transposed(factor, residuals)
    weights, velocity = update(state.weights, state.velocity, gradient, coefficients)
    size = jnp.sqrt(jnp.sum(weights * weights + state.weights * state.weights, axis=0))
    size = jnp.maximum(size, jnp.finfo(size.dtype).tiny)
    is_trained = (coefficients["has_momentum"] > 0) | (coefficients["plain_lr"] > 0)
    norm = jnp.sqrt(jnp.sum(jnp.where(is_trained, weights * weights, 0.0), axis=0))
    results = jnp.log(size), log_square, jnp.log(norm) + state.log_scale
    log_scale = state.log_scale + jnp.log(size)
    return _Learners(weights / size, velocity / size, log_scale), results


@functools.partial(jax.jit, static_argnames=("step",))
def _run_chunk(
    state: Any, factors: Array, count: Array, coefficients: Coefficients, *, step: Step
) -> tuple[Any, tuple[Array, ...]]:
    """Make the first ``count`` updates of a chunk; return the state, and the results of each."""
    shapes = jax.eval_shape(lambda: step(state, factors[0], coefficients)[1])

    def body(index: Array, carry: tuple) -> tuple:
        state, results = carry
        state, new = step(state, factors[index], coefficients)
        pairs = zip(results, new, strict=True)
        return state, tuple(every.at[index].set(one) for every, one in pairs)

    results = tuple(jnp.zeros((len(factors), *one.shape), one.dtype) for one in shapes)
    return jax.lax.fori_loop(0, count, body, (state, results))


def iterate_chunks(
    step: Step, state: Any, feed: Feed, coefficients: Coefficients
) -> Iterator[tuple[Any, ...]]:
    """Make one pass over the rows; yield the state after each chunk, and results of its steps."""
    for first in range(0, feed.steps, _CHUNK):
        factors = feed.factors(first, min(first + _CHUNK, feed.steps), float)
        count = len(factors)
        # The last chunk is filled up with zeros, so that one compiled loop serves all chunks.
        factors = np.concatenate([factors, np.zeros((_CHUNK - count, *factors.shape[1:]))])
        state, results = _run_chunk(state, factors, count, coefficients, step=step)
        yield state, *(np.asarray(part)[:count] for part in results)


def _check_step_size(optimizer: Momentum, feed: Feed, plain_lr: np.ndarray) -> None:
    r"""Raise `ArgumentError` if an update could grow beyond floating-point numbers.

    It multiplies weights and velocity by at most
    :math:`3 + (\kappa\alpha + 2\beta + \pi)(2 L^2 + \lambda)`, where L is the length of the longest
    row and :math:`\pi` the largest step size of a weight without momentum.
    """
    gain = np.max(optimizer.kappa * optimizer.alpha + 2 * optimizer.beta) + np.max(plain_lr)
    curvature = 2 * feed.largest**2 + np.max(optimizer.weight_decay)
    factor = 3.0 + float(gain) * float(curvature)
    if not factor < _MAX_FACTOR:
        raise ArgumentError(
            f"one step can multiply an error by {factor:.0e}, which exceeds what can be counted: "
            "use a smaller step size or weight decay, or rows brought to variance 1"
        )


def is_small(feed: Feed) -> bool:
    """Return whether to repeat runs costs less than to compile for another number of runs."""
    return feed.size * feed.rank <= _SMALL


def _repeat_last(optimizer: Momentum, cells: int, count: int) -> Momentum:
    """Return the optimizer of ``count`` cells: those given, and the last of them repeated."""
    changed: dict[str, Any] = {}
    for name in ("momentum", "lr", "weight_decay"):
        each = np.broadcast_to(getattr(optimizer, name), (cells,))
        if name != "weight_decay" or np.size(optimizer.weight_decay) > 1:
            changed[name] = np.pad(each, (0, count - cells), mode="edge")
    return replace(optimizer, **changed)


def _count_cells(optimizer: Momentum) -> int:
    """Return how many settings an optimizer holds."""
    names = ("momentum", "alpha", "kappa", "beta", "weight_decay")
    return max(np.size(getattr(optimizer, name)) for name in names)


@double_precision
def run_pass(
    feed: Feed,
    optimizer: Momentum,
    rules: WeightRules,
    *,
    start: np.ndarray | None = None,
    is_training: bool = False,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Pass:
    """Follow differences, or train learners, over all steps of a feed.

    A run is a cell of a grid on the one sequence of the feed, or one setting on each sequence.

    Parameters
    ----------
    feed
        The rows.
    optimizer
        Its hyperparameters may be arrays, one entry for each cell.
    rules
        How each weight is updated.
    start
        (size,) weights at the start of all runs; a random direction by default.
    is_training
        Whether learners are trained; their losses and norms are recorded as well.
    seed
        Seed of the random direction.
    advance
        Called with the number of steps made.
    """
    _check_step_size(optimizer, feed, rules.plain_lr)
    cells = _count_cells(optimizer)
    assert 1 in (cells, feed.sequences)
    wanted = max(cells, feed.sequences)
    min_runs = _MIN_TRAINED_RUNS if is_training else _MIN_RUNS
    if feed.sequences == 1 and cells < min_runs and is_small(feed):
        optimizer = _repeat_last(optimizer, cells, min_runs)
    if start is None:
        start = np.random.default_rng(seed).normal(size=feed.size)
    runs = max(_count_cells(optimizer), feed.sequences)
    weights = np.repeat(np.asarray(start, float)[:, None], runs, axis=1)
    coefficients = coefficients_of(optimizer, rules)
    if is_training:
        learners = _Learners(weights, np.zeros_like(weights), np.zeros(runs))
        chunks = iterate_chunks(_learner_step, learners, feed, coefficients)
    else:
        size = np.sqrt(
            energy(weights, weights, coefficients["curvature"], coefficients["gain"], np)
        )
        weights = weights / size
        differences = Differences(weights, np.zeros_like(weights), weights)
        chunks = iterate_chunks(difference_step, differences, feed, coefficients)
    return collect_pass((results for _, *results in chunks), feed.steps, wanted, advance)
