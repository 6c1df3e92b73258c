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

import numpy as np

from resonax.core.algebra import double_precision
from resonax.learners import Momentum
from resonax.rows.blocks import Numbers, follow_blocks, numbers_of, update
from resonax.rows.exact import Exact
from resonax.rows.feed import Feed
from resonax.rows.growth import SEGMENTS, Pass, Tally, log_sum_exp
from resonax.rows.update import Weights, energy, pull, residuals, sizes_along

__all__ = ["BOUND", "follow_rows_logistic", "walk_logistic"]

BOUND = 0.25  # the largest value of the derivative of the logistic function


class _Run(NamedTuple):
    """A model and a difference in each lane, (size, lanes), each with its velocity."""

    model: Any
    speed: Any
    here: Any
    velocity: Any
    before: Any


def _steps(run: _Run, rows: Any, numbers: Numbers, xp: Any) -> tuple[_Run, tuple[Any, ...]]:
    """Make a few updates of the model and of the difference, and rescale the latter."""
    model, speed, here, velocity, _ = run
    loss, trail = 0.0, [here]
    for row in rows:
        phi, target = row[:, :-1], -row[:, -1]
        z = residuals(phi, model)
        chance = 0.5 * (1.0 + xp.tanh(0.5 * z))
        loss = loss + (xp.logaddexp(0.0, z) - target * z).mean(axis=0)
        bend = chance * (1.0 - chance) * residuals(phi, here)
        here, velocity = update(here, velocity, pull(phi, bend / len(row)), numbers)
        model, speed = update(model, speed, pull(phi, (chance - target) / len(row)), numbers)
        trail.append(here)
    sizes = sizes_along(trail, velocity, numbers["curvature"], numbers["gain"], xp)
    size = sizes[-1]
    norm = xp.sqrt((model * model).sum(axis=0))
    found = (xp.log(sizes), loss / len(rows), norm)
    return _Run(model, speed, here / size, velocity / size, trail[-2] / size), found


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
    each = max(1, math.ceil(feed.steps / SEGMENTS))  # steps of a segment
    count = math.ceil(feed.steps / each)
    tally, lengths = Tally(count, lanes), np.zeros(count)
    losses, sizes, done = [], [], 0
    for _, grown, loss, norms in follow_blocks(_steps, _start(here), feed, numbers):
        place = (done + np.arange(len(grown))) // each
        tally.add(place, grown)
        np.add.at(lengths, place, 1.0)
        losses.append(loss)
        sizes.append(norms)
        done += len(grown)
        if advance:
            advance(len(grown))
    kept = lengths > 0
    tiny = np.finfo(float).tiny
    return Pass(
        tally.growth[kept],
        tally.rise,
        lengths[kept],
        np.log(np.maximum(np.concatenate(losses), tiny)),
        np.log(np.maximum(np.concatenate(sizes), tiny)),
    )


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
        for reached, grown, *_ in follow_blocks(_steps, run, feed, numbers):
            path = scale + np.cumsum(grown, axis=0)
            run, scale = reached, path[-1]
            paths.append((log_sum_exp(2 * path) - begun) / 2)
        ends.append(paths[-1][-1])
    return Exact(np.concatenate(paths), np.array(ends), epochs, None)
