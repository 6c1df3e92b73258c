r"""Growth of the error under the logistic loss, linearised along the training of the model.

With :math:`z = \langle\theta, \phi\rangle` and a target :math:`y` of 0 or 1 the gradient of the
loss :math:`\log(1 + e^z) - yz` is :math:`(\sigma(z) - y)\,\phi`, and its curvature
:math:`\sigma'(z)\,\phi\phi^\top`. As this depends on the weights, the model itself is trained, from
zero weights, beside each difference :math:`u` of two runs. To first order :math:`u` is updated as
in `recursion`, with the decayed gradient

.. math:: h_k = \tfrac1n \sum_i \sigma'(z_i)\,\phi_i\phi_i^\top u_k + \lambda u_k .

As :math:`\sigma' \le 1/4`, with equality at zero weights, the
curvature is at most a quarter of that of the rows (the Gauss-Newton bound).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.core.algebra import double_precision
from resonax.learners import Momentum
from resonax.rows.exact import Exact
from resonax.rows.feed import Feed
from resonax.rows.intervals import Pass, collect_pass
from resonax.rows.recursion import (
    Coefficients,
    Differences,
    WeightRules,
    coefficients_of,
    energy,
    iterate_chunks,
    multiply,
    multiply_transposed,
    size_of,
    update,
)

__all__ = ["BOUND", "follow_rows_logistic", "run_pass_logistic"]

BOUND = 0.25  # the largest value of the derivative of the logistic function


class _State(NamedTuple):
    """Models in training and a difference along each, each array (size, runs)."""

    model: Any
    model_velocity: Any
    difference: Differences


def _step(state: _State, rows: Any, coefficients: Coefficients) -> tuple[_State, tuple[Any, ...]]:
    """Update models and differences, and divide the latter by their size.

    The results are the logarithms of the growth, of the loss before the update, and of the norm of
    the weights after it.
    """
    phi, target = rows[:, :-1], -rows[:, -1]
    difference = state.difference
    z, count = multiply(phi, state.model), len(rows)
    probability = jax.nn.sigmoid(z)
    loss = (jnp.logaddexp(0.0, z) - target * z).mean(axis=0)
    slope = probability * (1.0 - probability) * multiply(phi, difference.weights)
    gradient = multiply_transposed(phi, slope / count)
    weights, velocity = update(difference.weights, difference.velocity, gradient, coefficients)
    model_gradient = multiply_transposed(phi, (probability - target) / count)
    model, model_velocity = update(state.model, state.model_velocity, model_gradient, coefficients)
    size = size_of(weights, difference.weights, velocity, coefficients)
    norm = jnp.sqrt((model * model).sum(axis=0))
    tiny = jnp.finfo(size.dtype).tiny
    results = jnp.log(size), *(jnp.log(jnp.maximum(part, tiny)) for part in (loss, norm))
    difference = Differences(weights / size, velocity / size, difference.weights / size)
    return _State(model, model_velocity, difference), results


def _start(weights: np.ndarray) -> _State:
    """Return models with zero weights, and differences at rest."""
    zeros = np.zeros_like(weights)
    return _State(zeros, zeros, Differences(weights, zeros, weights))


@double_precision
def run_pass_logistic(
    feed: Feed,
    optimizer: Momentum,
    rules: WeightRules,
    *,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Pass:
    """Train models and follow a difference along each; see `resonax.rows.recursion.run_pass`.

    The last column of the feed is the target. Losses and norms of the models are recorded.
    """
    coefficients = coefficients_of(optimizer, rules)
    names = ("momentum", "alpha", "weight_decay")
    runs = max(feed.sequences, *(np.size(coefficients[name]) for name in names))
    start = np.random.default_rng(seed).normal(size=feed.size - 1)
    weights = np.repeat(start[:, None], runs, axis=1)
    size = np.sqrt(energy(weights, weights, coefficients["curvature"], coefficients["gain"], np))
    chunks = iterate_chunks(_step, _start(weights / size), feed, coefficients)
    return collect_pass((results for _, *results in chunks), feed.steps, runs, advance)


@double_precision
def follow_rows_logistic(
    feed: Feed, optimizer: Momentum, rules: WeightRules, *, epochs: int = 1
) -> Exact:
    """Follow an error along the training of the model, from all starts, over several passes.

    Passes differ, as the model does, so that there is no radius of a pass.
    """
    coefficients = coefficients_of(optimizer, rules)
    starts = np.eye(feed.size - 1)
    state = _start(starts)
    log_start = math.log(float(np.sum(coefficients["curvature"] * starts)))
    log_scale, paths, ends = np.zeros(len(starts)), [], []
    for _ in range(epochs):
        for new_state, log_growth, *_ in iterate_chunks(_step, state, feed, coefficients):
            path = log_scale + np.cumsum(log_growth, axis=0)
            state, log_scale = new_state, path[-1]
            paths.append((scipy.special.logsumexp(2 * path, axis=-1) - log_start) / 2)
        ends.append(paths[-1][-1])
    return Exact(np.concatenate(paths), np.array(ends), epochs, None)
