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

import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.core.algebra import double_precision
from resonax.learners import Momentum
from resonax.rows.feed import Feed
from resonax.rows.intervals import SEGMENTS, Pass
from resonax.rows.recursion import Numbers, Run, Weights, energy, follow, linear_step, numbers_of

__all__ = ["PASSES", "STILL", "Exact", "follow_rows"]

PASSES = 20  # over which an error must not grow where something is called safe
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


def _follow(
    run: Run, scale: np.ndarray, rest: int, feed: Feed, numbers: Numbers
) -> tuple[Run, np.ndarray, np.ndarray]:
    """Follow runs over one pass; return them, their scale, and the log energy of the first ones."""
    energies = []
    for state, grown in follow(linear_step, run, feed, numbers):
        path = scale + np.cumsum(grown, axis=0)
        energies.append(scipy.special.logsumexp(2 * path[:, :rest], axis=-1))
        run, scale = state, path[-1]
    return Run(*(np.asarray(part) for part in run)), scale, np.concatenate(energies)


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
    run, scale = Run(here, velocity, here), np.zeros(columns)
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
