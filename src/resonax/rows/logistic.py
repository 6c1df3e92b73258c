r"""The logistic loss: a difference between two runs, along the run that is trained.

With :math:`z = \langle\theta, \phi\rangle` and a target :math:`y` of 0 or 1 the gradient of the
loss :math:`\log(1 + e^z) - yz` is :math:`(\sigma(z) - y)\,\phi`, and its curvature
:math:`\sigma'(z)\,\phi\phi^\top`, that of a generalised linear model. It depends on the weights, so
that the model itself is trained, from zero, beside each difference :math:`u`: to first order two
runs that start close to each other differ by what obeys

.. math:: h_k = \tfrac1n \sum_i \sigma'(z_i)\,\phi_i\phi_i^\top u_k + \lambda u_k

in place of the decayed gradient. As :math:`\sigma' \le 1/4`, with equality at zero weights, the
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
from resonax.rows.intervals import Pass, gather
from resonax.rows.recursion import (
    Numbers,
    Weights,
    energy,
    follow,
    numbers_of,
    pull,
    residuals,
    size_of,
    update,
)

__all__ = ["BOUND", "follow_rows_logistic", "walk_logistic"]

BOUND = 0.25  # the largest value of the derivative of the logistic function


class _Run(NamedTuple):
    """A model and a difference in each lane, (size, lanes), each with its velocity."""

    model: Any
    speed: Any
    here: Any
    velocity: Any
    before: Any


def _step(run: _Run, rows: Any, numbers: Numbers) -> tuple[_Run, tuple[Any, ...]]:
    """Make one update of the model and of the difference, and divide the latter by its size."""
    phi, target = rows[:, :-1], -rows[:, -1]
    z, count = residuals(phi, run.model), len(rows)
    chance = jax.nn.sigmoid(z)
    loss = (jnp.logaddexp(0.0, z) - target * z).mean(axis=0)
    bend = chance * (1.0 - chance) * residuals(phi, run.here)
    here, velocity = update(run.here, run.velocity, pull(phi, bend / count), numbers)
    model, speed = update(run.model, run.speed, pull(phi, (chance - target) / count), numbers)
    size = size_of(here, run.here, velocity, numbers)
    norm = jnp.sqrt((model * model).sum(axis=0))
    tiny = jnp.finfo(size.dtype).tiny
    found = jnp.log(size), *(jnp.log(jnp.maximum(part, tiny)) for part in (loss, norm))
    return _Run(model, speed, here / size, velocity / size, run.here / size), found


def _start(differences: np.ndarray) -> _Run:
    """Return models of zero weights, and differences at rest."""
    zeros = np.zeros_like(differences)
    return _Run(zeros, zeros, differences, zeros, differences)


@double_precision
def walk_logistic(
    feed: Feed,
    optimizer: Momentum,
    weights: Weights,
    *,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Pass:
    """Train the model in each lane, and follow a difference along its run.

    A lane is a cell of a grid or a sequence of rows, and the feed has the target as its last
    column. The ``squares`` of the pass are the logarithms of the mean loss, the ``sizes`` those of
    the norm of the trained weights.
    """
    numbers = numbers_of(optimizer, weights)
    lanes = max(
        feed.sequences, *(np.size(numbers[name]) for name in ("momentum", "alpha", "weight_decay"))
    )
    size = feed.size - 1
    start = np.random.default_rng(seed).normal(size=size)
    here = np.repeat(start[:, None], lanes, axis=1)
    here = here / np.sqrt(energy(here, here, numbers["curvature"], numbers["gain"], np))
    found = follow(_step, _start(here), feed, numbers)
    return gather((parts for _, *parts in found), feed.steps, lanes, advance)


@double_precision
def follow_rows_logistic(
    feed: Feed, optimizer: Momentum, weights: Weights, *, epochs: int = 1
) -> Exact:
    """Follow an error along the trained run, from all starts together, over several passes.

    The product of one pass depends on where the run is, so that there is none to give.
    """
    numbers = numbers_of(optimizer, weights)
    size = feed.size - 1
    run = _start(np.eye(size))
    begun = math.log(float(np.sum(numbers["curvature"] * np.eye(size))))
    scale, paths, ends = np.zeros(size), [], []
    for _ in range(epochs):
        for reached, grown, *_ in follow(_step, run, feed, numbers):
            path = scale + np.cumsum(grown, axis=0)
            run, scale = reached, path[-1]
            paths.append((scipy.special.logsumexp(2 * path, axis=-1) - begun) / 2)
        ends.append(paths[-1][-1])
    return Exact(np.concatenate(paths), np.array(ends), epochs, None)
