r"""The largest curvature of a batch, and the chance that a batch exceeds a given one.

The curvature of the squared error on a batch is :math:`H = \frac2n\sum_i\phi_i\phi_i^\top`. As a
mean it is at most that of its longest row: :math:`0 \le H \le L = 2\max\lVert\phi\rVert^2`, for
batches of any size and in any order of the rows. Where inputs are unbounded, as Gaussian ones are,
and the features are not, there is no such :math:`L`.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import double_precision
from resonax.core.keys import seed_key, split_keys
from resonax.dynamics import Problem
from resonax.learners import Features
from resonax.streams import Process, Recorded
from resonax.streams.waves import Wave

__all__ = ["curvature_bound", "exceedance", "longest_row"]

_PIECE = 16384  # rows at a time
_WAVE = 1025  # values of a wave between -1 and 1, both included


def curvature_bound(problem: Problem) -> float | None:
    r"""Return the largest curvature of a batch of a problem, None where there is none.

    Examples
    --------
    >>> from resonax import Recorded, Setting, Sinusoid, heavy_ball
    >>> rows = Recorded.of([[0.0], [2.0], [-1.0]])
    >>> curvature_bound(Setting(rows, heavy_ball(0.01, 0.9)))  # 2 (2^2 + 1)
    10.0
    >>> print(curvature_bound(Setting(Sinusoid(period=22), heavy_ball(0.01, 0.9))))
    None
    """
    model, process = problem.model, problem.process
    if not isinstance(model, Features):
        return None
    longest = model.largest_square
    if isinstance(process, Recorded):
        longest = longest_row(model, np.asarray(process.data).reshape(-1, process.dim))
    elif isinstance(process, Wave) and not np.any(np.asarray(process.variance)):
        mean, _ = jax.vmap(process._moments)(jnp.linspace(-1.0, 1.0, _WAVE))
        longest = longest_row(model, np.asarray(mean))
    return None if longest is None else 2 * float(problem.gradient_scale) * longest


def longest_row(model: Features, inputs: np.ndarray) -> float:
    """Return the largest squared length of the features of inputs."""
    largest = 0.0
    for start in range(0, len(inputs), _PIECE):
        rows = np.asarray(model.apply(inputs[start : start + _PIECE]), dtype=float)  # pyrefly: ignore[bad-argument-type]
        largest = max(largest, float(np.max(np.sum(rows * rows, axis=1))))
    return largest


@double_precision
def exceedance(problem: Problem, limit: float, draws: int = 4096, seed: int = 0) -> float:
    """Return the share of drawn batches whose curvature exceeds a limit.

    Each is drawn on its own, at a random step of the process in its stationary law; the standard
    error is sqrt(p (1 - p) / draws).

    Examples
    --------
    >>> from resonax import Iid, Linear, Setting, heavy_ball
    >>> setting = Setting(Iid(), heavy_ball(0.01, 0.5), model=Linear(bias=False))
    >>> print(f"{exceedance(setting, limit=2.0):.2f}")  # P(|x| > 1) = 0.317
    0.32
    """
    process = problem.process
    span = 1 if process.random_mean else int(np.ceil(float(process.cycle)))
    keys = split_keys(split_keys(seed_key(seed), draws), 4)
    # Without the optimizer: each would compile a program of its own.
    law = process, problem.model, problem.gradient_scale
    drawn = _draw(*law, max(span, 1), keys, batch=int(problem.batch))
    return float(np.mean(np.linalg.eigvalsh(drawn)[:, -1] > limit))


@functools.partial(jax.jit, static_argnames=("batch",))
def _draw(
    process: Process, model: Any, scale: Array, span: Array, keys: Array, *, batch: int
) -> Array:
    """Return the curvatures of batches, (draws, size, size)."""
    assert isinstance(model, Features)

    def one(data: Array) -> Array:
        start, index, walk, draw = jax.random.wrap_key_data(data)
        step = jax.random.randint(index, (), 0, span)
        _, moments = process.draw_step(walk, process.draw_init(start), step)
        return 2 * scale * model.sample(draw, moments, batch)

    return jax.vmap(one)(keys)
