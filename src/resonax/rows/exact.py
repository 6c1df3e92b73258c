r"""Growth of the error on given rows, computed from all initial weights in 64 bits.

An update is linear in the weights and the velocity of a difference between two runs, so that a pass
is a product :math:`P = M_{n-1}\cdots M_0` of matrices that the rows determine. One difference is
followed for each weight, which starts with this weight alone and at rest. The growth is the square
root of their mean energy over that at the start: the root-mean-square growth of the difference of
two models with random initial weights. Nothing is random in it.
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
from resonax.rows.recursion import (
    Coefficients,
    Differences,
    WeightRules,
    coefficients_of,
    difference_step,
    energy,
    iterate_chunks,
)

__all__ = ["PASSES", "STILL", "Exact", "follow_rows"]

PASSES = 20  # over which an error must not grow for a setting to be called safe
# A log radius up to this counts as 0: weights that are never updated have radius 1, up to rounding.
STILL = 1e-6
_MAX_WORK = 1e10  # steps x weights^2 up to which differences start from every weight
_FEW_STARTS = 8  # number of random starts otherwise


@dataclass(frozen=True)
class Exact:
    """Growth of an error on given rows: logarithms of its size over that at the start."""

    path: np.ndarray  # after each step
    passes: np.ndarray  # after 1, 2, ... passes, at least ``epochs``
    epochs: int
    log_radius: float | None  # of the matrix of one pass; None if it was not computed

    @property
    def log_growth(self) -> float:
        """Growth over all epochs."""
        return float(self.passes[self.epochs - 1])

    @property
    def log_rise(self) -> float:
        """Largest growth between any two steps."""
        return self.largest_rise[0]

    @property
    def largest_rise(self) -> tuple[float, int, int]:
        """Largest growth between any two steps, and the numbers of these steps."""
        path = np.concatenate([[0.0], self.path])
        grown = path - np.minimum.accumulate(path)
        last = int(np.argmax(grown))
        return float(grown[last]), int(np.argmin(path[: last + 1])), last

    @property
    def never_grows(self) -> bool:
        """Whether the error is no larger than at the start, after all epochs and further passes."""
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


def _follow_pass(
    state: Differences, log_scale: np.ndarray, at_rest: int, feed: Feed, coefficients: Coefficients
) -> tuple[Differences, np.ndarray, np.ndarray]:
    """Follow differences over one pass.

    Return them, the logarithms of their scales, and after each step the logarithm of the energy of
    the first ``at_rest`` of them together.
    """
    log_energies = []
    for new_state, log_growth in iterate_chunks(difference_step, state, feed, coefficients):
        path = log_scale + np.cumsum(log_growth, axis=0)
        log_energies.append(scipy.special.logsumexp(2 * path[:, :at_rest], axis=-1))
        state, log_scale = new_state, path[-1]
    state = Differences(*(np.asarray(part) for part in state))
    return state, log_scale, np.concatenate(log_energies)


@double_precision
def follow_rows(
    feed: Feed, optimizer: Momentum, rules: WeightRules, *, epochs: int = 1, seed: int = 0
) -> Exact:
    """Follow an error over passes of one sequence of rows, from all starts at rest.

    If there are too many weights for that, a few starts are drawn at random, and the radius of a
    pass is not computed.
    """
    size, coefficients = feed.size, coefficients_of(optimizer, rules)
    is_complete = feed.steps * epochs * size**2 <= _MAX_WORK
    if is_complete:
        starts = np.eye(size)
        # Differences with a velocity alone complete the matrix of a pass.
        initial_velocity = np.eye(size)
    else:
        starts = np.random.default_rng(seed).normal(size=(size, _FEW_STARTS))
        initial_velocity = np.zeros((size, 0))
    at_rest = starts.shape[1]
    weights = np.hstack([starts, np.zeros_like(initial_velocity)])
    velocity = np.hstack([np.zeros_like(starts), initial_velocity])
    state = Differences(weights, velocity, weights)
    log_scale = np.zeros(weights.shape[1])
    log_start = math.log(float(np.sum(coefficients["curvature"] * starts**2)))

    paths, first_pass = [], None
    for _ in range(epochs):
        state, log_scale, log_energies = _follow_pass(state, log_scale, at_rest, feed, coefficients)
        paths.append((log_energies - log_start) / 2)
        if is_complete and first_pass is None:
            first_pass = np.concatenate(state), log_scale
    passes = np.array([path[-1] for path in paths])
    log_radius = None
    if first_pass is not None:
        repeated, log_radius = _repeat_pass(*first_pass, coefficients, log_start)
        passes = np.concatenate([passes, repeated[epochs:]])
    return Exact(np.concatenate(paths), passes, epochs, log_radius)


def _repeat_pass(
    columns: np.ndarray, log_scale: np.ndarray, coefficients: Coefficients, log_start: float
) -> tuple[np.ndarray, float]:
    """Return the growth after 1, 2, ... passes over the same rows, and the log radius of one.

    ``columns`` are weights, velocity and the weights one step before at the end of a pass, divided
    by ``exp(log_scale)`` of each column; ``log_start`` is the logarithm of the energy at the start.
    """
    size = columns.shape[1] // 2
    log_factor = float(log_scale.max())
    columns = columns * np.exp(log_scale - log_factor)
    tiny = np.finfo(float).tiny
    radius = float(np.max(np.abs(np.linalg.eigvals(columns[: 2 * size]))))
    state = np.eye(2 * size)[:, :size]  # all starts at rest
    growth, state_log_scale = [], 0.0
    for _ in range(PASSES):
        end = columns @ state
        weights, previous = end[:size], end[2 * size :]
        end_energy = energy(
            weights, previous, coefficients["curvature"], coefficients["gain"], np
        ).sum()
        state_log_scale += log_factor
        growth.append((math.log(max(end_energy, tiny)) - log_start) / 2 + state_log_scale)
        largest = max(float(np.abs(end).max()), tiny)
        state = end[: 2 * size] / largest
        state_log_scale += math.log(largest)
    return np.array(growth), math.log(max(radius, tiny)) + log_factor
