r"""The growth on these rows, exactly: no chance, no direction chosen at random, 64-bit numbers.

One update is linear in the weights and the velocity of a difference between two runs, so that a
pass over the rows is the product :math:`P = M_{n-1}\cdots M_0` of matrices that the rows alone
determine. All runs that start at rest, one for each weight, are followed together. The growth of an
error is the root of their mean energy, over that at the start: what becomes of two models with
random initial weights, in the root mean square.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from resonax.core.algebra import double_precision
from resonax.learners import Momentum
from resonax.rows.blocks import Numbers, follow_blocks, numbers_of, update
from resonax.rows.feed import Feed
from resonax.rows.growth import SEGMENTS, Pass, log_sum_exp
from resonax.rows.update import Weights, energy, pull, residuals, sizes_along

__all__ = ["PASSES", "STILL", "Exact", "follow_rows"]

PASSES = 20  # over which an error must not grow where something is called safe
_PLAIN_STEPS = 2**10  # up to here compiling takes longer than a plain loop
_MOST_WORK = 1e10  # steps x weights^2 up to which runs from all starts are followed
_SOME = 8  # runs that are followed otherwise
STILL = 1e-6  # of a pass: weights that nothing moves have a radius of 1, up to rounding


@dataclass(frozen=True)
class Exact:
    """What becomes of an error on given rows, as logarithms of its size over that at the start."""

    path: np.ndarray  # after each step
    passes: np.ndarray  # after 1, 2, ... passes; at least those that were asked for
    epochs: int
    log_radius: float | None  # of the product of one pass; None where there are too many weights

    @property
    def log_growth(self) -> float:
        """After the passes that were asked for."""
        return float(self.passes[self.epochs - 1])

    @property
    def log_rise(self) -> float:
        """The largest growth between any two moments."""
        return self.largest_rise[0]

    @property
    def largest_rise(self) -> tuple[float, int, int]:
        """The largest growth between any two moments, and after how many steps these are."""
        path = np.concatenate([[0.0], self.path])
        grown = path - np.minimum.accumulate(path)
        last = int(np.argmax(grown))
        return float(grown[last]), int(np.argmin(path[: last + 1])), last

    @property
    def never_grows(self) -> bool:
        """Whether the error ends no larger, after the passes asked for and after more."""
        later = self.passes[self.epochs - 1 :]
        return bool(later.max() <= 0) and (self.log_radius is None or self.log_radius < STILL)

    def one_pass(self) -> Pass:
        """Return the growth along the first pass, in segments."""
        count = len(self.path) // self.epochs
        path = self.path[:count]
        edges = np.unique(np.linspace(0, count, min(count, SEGMENTS) + 1).astype(int))
        growth = np.diff(np.concatenate([[0.0], path])[edges])
        rise = Exact(path, self.passes, 1, None).log_rise
        return Pass(growth[:, None], np.array([rise]), np.diff(edges).astype(float))


class _Run(NamedTuple):
    """Runs side by side, (size, runs): weights, velocity, and the weights one step before."""

    here: Any
    velocity: Any
    before: Any


def _steps(run: _Run, rows: Any, numbers: Numbers, xp: Any) -> tuple[_Run, tuple[Any, ...]]:
    """Make a few updates and rescale.

    Returned with the runs is the logarithm of their size after each update, (steps, runs), over
    that before the first; the last is what the runs were divided by.
    """
    here, velocity, _ = run
    trail = [here]
    for factor in rows:
        gradient = pull(factor, residuals(factor, here))
        here, velocity = update(here, velocity, gradient, numbers)
        trail.append(here)
    sizes = sizes_along(trail, velocity, numbers["curvature"], numbers["gain"], xp)
    size = sizes[-1]
    return _Run(here / size, velocity / size, trail[-2] / size), (xp.log(sizes),)


def _follow(
    run: _Run, scale: np.ndarray, rest: int, feed: Feed, numbers: Numbers
) -> tuple[_Run, np.ndarray, np.ndarray]:
    """Follow runs over one pass; return them, their scale, and the log energy of the first ones."""
    energies = []
    for state, grown in follow_blocks(_steps, run, feed, numbers, _PLAIN_STEPS):
        path = scale + np.cumsum(grown, axis=0)
        energies.append(log_sum_exp(2 * path[:, :rest]))
        run, scale = state, path[-1]
    return _Run(*(np.asarray(part) for part in run)), scale, np.concatenate(energies)


@double_precision
def follow_rows(
    feed: Feed, optimizer: Momentum, weights: Weights, *, epochs: int = 1, seed: int = 0
) -> Exact:
    """Follow an error over passes of one sequence of rows, from all starts at rest together.

    Where there are too many weights for that, a few starts are drawn from ``seed``, and the product
    of a pass stays unknown.
    """
    size, numbers = feed.size, numbers_of(optimizer, weights)
    whole = feed.steps * epochs * size**2 <= _MOST_WORK
    # First runs that start at rest; the others, with a velocity only, complete the product.
    if whole:
        rest, columns = size, 2 * size
        starts = np.eye(size)
    else:
        rest = columns = _SOME
        starts = np.random.default_rng(seed).normal(size=(size, rest))
    here = np.zeros((size, columns))
    here[:, :rest] = starts
    velocity = np.zeros((size, columns))
    velocity[:, rest:] = np.eye(size)[:, : columns - rest]
    run, scale = _Run(here, velocity, here), np.zeros(columns)
    begun = math.log(float(np.sum(numbers["curvature"] * starts**2)))

    paths, matrix = [], None
    for _ in range(epochs):
        run, scale, energies = _follow(run, scale, rest, feed, numbers)
        paths.append((energies - begun) / 2)
        if whole and matrix is None:
            matrix = np.concatenate(run), scale
    grown = np.array([path[-1] for path in paths])
    log_radius = None
    if matrix is not None:
        more, log_radius = _repeated(*matrix, numbers, begun)
        grown = np.concatenate([grown, more[epochs:]])
    return Exact(np.concatenate(paths), grown, epochs, log_radius)


def _repeated(
    columns: np.ndarray, scale: np.ndarray, numbers: Numbers, begun: float
) -> tuple[np.ndarray, float]:
    """Return the growth after 1, 2, ... passes over the same rows, and the log radius of one.

    ``columns`` holds weights, velocity and the weights one step before at the end of a pass, each
    column with the logarithm of its scale.
    """
    size = columns.shape[1] // 2
    shift = float(scale.max())
    columns = columns * np.exp(scale - shift)
    product = columns[: 2 * size]
    radius = float(np.max(np.abs(np.linalg.eigvals(product))))
    state, grown, log_scale = np.eye(2 * size)[:, :size], [], 0.0
    for _ in range(PASSES):
        reached = columns @ state
        here, before = reached[:size], reached[2 * size :]
        ends = energy(here, before, numbers["curvature"], numbers["gain"], np).sum()
        log_scale += shift
        grown.append((math.log(max(ends, np.finfo(float).tiny)) - begun) / 2 + log_scale)
        largest = max(float(np.abs(reached).max()), np.finfo(float).tiny)
        state, log_scale = reached[: 2 * size] / largest, log_scale + math.log(largest)
    return np.array(grown), math.log(max(radius, np.finfo(float).tiny)) + shift
