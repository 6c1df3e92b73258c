"""How the cycle of a law is computed: by its symmetry, and by the means that it may draw."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.core.algebra import hermite_nodes
from resonax.core.errors import ArgumentError
from resonax.dynamics import Problem
from resonax.learners import Linear
from resonax.streams import Recorded, Switching
from resonax.streams.waves import Iid, Wave
from resonax.theory.coordinates import Layout

__all__ = ["Plan", "plan"]

_MOST_SINGLE = 8  # weights without any symmetry: their second moment has 136 coordinates
_RADII = 10  # quadrature nodes for the length of a normal vector
_PRODUCT = {1: 16, 2: 10, 3: 6}  # nodes along each coordinate where no symmetry helps
_SWINGS = 5


class Plan(NamedTuple):
    """How a cycle is computed: symmetry, and the means that a switching process may draw."""

    layout: Layout
    states: tuple[tuple[float, ...], ...] = ()  # standard normal states of a switching process
    weights: tuple[float, ...] = ()


def plan(problem: Problem) -> Plan:
    """Return how the cycle of a problem is computed."""
    process, size = problem.process, problem.size
    inputs = tuple(range(process.dim))
    bias = tuple(range(process.dim, size))
    variance = getattr(process, "variance", None)  # a recording has none
    is_round = isinstance(problem.model, Linear) and variance is not None and not np.ndim(variance)
    if isinstance(process, Switching):
        if is_round:
            layout = Layout((0, *bias), inputs[1:], turned_over_cycle=inputs)
            return Plan(layout, *_radial_nodes(process))
        return Plan(_plain(size), *_product_nodes(process))
    if not process.periodic:
        text = f"a level needs a law that repeats or switches, not {process.name}"
        if isinstance(process, Recorded):
            text += " once: replay the rows with repeat=True, on the command line --repeat"
        raise ArgumentError(text)
    along = _axis(process)
    if is_round and along is not None:
        return Plan(Layout((along, *bias), tuple(i for i in inputs if i != along)))
    return Plan(_plain(size))


def _plain(size: int) -> Layout:
    if size > _MOST_SINGLE:
        raise ArgumentError(
            f"the level takes at most {_MOST_SINGLE} weights, unless the inputs have one variance "
            f"and move along one axis, got {size}"
        )
    return Layout(tuple(range(size)))


def _axis(process: object) -> int | None:
    """Return the one input along which the mean moves; None where it moves in several."""
    if not isinstance(process, Wave | Iid) or (isinstance(process, Iid) and process.law):
        return None
    if process.direction is None:
        return 0
    moving = np.flatnonzero(np.asarray(process.direction))
    return int(moving[0]) if len(moving) == 1 else None


def _with_swing(process: Switching, states: np.ndarray, weights: np.ndarray) -> tuple:
    """Return the nodes with those of the variance, where it moves."""
    count = _SWINGS if float(process.swing) else 1
    nodes, shares = hermite_nodes(count)
    every = [(*state, node) for state in states.tolist() for node in nodes.tolist()]
    return tuple(every), tuple(np.outer(weights, shares).ravel().tolist())


def _radial_nodes(process: Switching) -> tuple:
    """Return the nodes of a law that may be turned: lengths along the first axis."""
    half = process.dim / 2
    nodes, weights = scipy.special.roots_genlaguerre(_RADII, half - 1)
    states = np.zeros((_RADII, process.dim))
    states[:, 0] = np.sqrt(2 * nodes)  # a squared length has the law of chi square
    return _with_swing(process, states, weights / weights.sum())


def _product_nodes(process: Switching) -> tuple:
    if process.dim not in _PRODUCT:
        raise ArgumentError(
            f"the level of switching with a variance for each input takes at most {max(_PRODUCT)} "
            f"inputs, got {process.dim}: give one variance for all"
        )
    nodes, weights = hermite_nodes(_PRODUCT[process.dim])
    grid = np.stack(np.meshgrid(*[nodes] * process.dim, indexing="ij"), -1)
    share = np.prod(np.stack(np.meshgrid(*[weights] * process.dim, indexing="ij"), -1), -1)
    return _with_swing(process, grid.reshape(-1, process.dim), share.ravel())
