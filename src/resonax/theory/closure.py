r"""The mean square of the gradient at which an adaptive optimizer is self-consistent.

The gap :math:`\log G(v) - \log v` is scanned along :math:`\log v` from above, where nothing grows,
with the ratios of the weights solved for on the way; every change of its sign is refined by
bisection.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # its parts are loaded where they are used
from jax import Array

from resonax.core.algebra import double_precision, hermite_nodes
from resonax.core.errors import ArgumentError
from resonax.dynamics import Problem, Setting
from resonax.learners import Linear
from resonax.learners.adaptive import Adaptive, adaptive_form
from resonax.streams import Recorded, Switching
from resonax.streams.waves import Iid, Wave
from resonax.theory.period import Advance, Values, chunks, rational_periods, take
from resonax.theory.second_moment import (
    Coordinates,
    Plan,
    Rest,
    Symmetry,
    at_rest,
    distances,
)

__all__ = ["Solutions", "plan", "solve"]

_MAX_SINGLE = 8  # weights without any symmetry: their second moment has 136 coordinates
_RADIAL_NODES = 10  # quadrature nodes for the length of a normal vector
_NODES_BY_DIM = {1: 16, 2: 10, 3: 6}  # nodes along each coordinate where no symmetry helps
_SWING_NODES = 5
_BISECTIONS = 18
_CHUNK = 128
_SCAN_FACTOR = 16.0  # how far above the order-proof steps the search begins
_MIN_NOISE = 1e-6  # of lr^2: what stands for no noise at all


def plan(problem: Problem) -> Plan:
    """Return how the cycle of a problem is computed."""
    process, size = problem.process, problem.size
    inputs = tuple(range(process.dim))
    bias = tuple(range(process.dim, size))
    variance = getattr(process, "variance", None)  # a recording has none
    is_round = isinstance(problem.model, Linear) and variance is not None and not np.ndim(variance)
    if isinstance(process, Switching):
        if is_round:
            symmetry = Symmetry((0, *bias), inputs[1:], turned_over_cycle=inputs)
            return Plan(symmetry, *_radial_nodes(process))
        return Plan(_without_symmetry(size), *_product_nodes(process))
    if not process.periodic:
        text = f"a level needs a law that repeats or switches, not {process.name}"
        if isinstance(process, Recorded):
            text += " once: replay the rows with repeat=True, on the command line --repeat"
        raise ArgumentError(text)
    along = _moving_axis(process)
    if is_round and along is not None:
        return Plan(Symmetry((along, *bias), tuple(i for i in inputs if i != along)))
    return Plan(_without_symmetry(size))


def _without_symmetry(size: int) -> Symmetry:
    if size > _MAX_SINGLE:
        raise ArgumentError(
            f"the level takes at most {_MAX_SINGLE} weights, unless the inputs have one variance "
            f"and move along one axis, got {size}"
        )
    return Symmetry(tuple(range(size)))


def _moving_axis(process: object) -> int | None:
    """Return the one input along which the mean moves; None where it moves in several."""
    if not isinstance(process, Wave | Iid) or (isinstance(process, Iid) and process.law):
        return None
    if process.direction is None:
        return 0
    moving = np.flatnonzero(np.asarray(process.direction))
    return int(moving[0]) if len(moving) == 1 else None


def _with_swing(process: Switching, states: np.ndarray, weights: np.ndarray) -> tuple:
    """Return the nodes with those of the variance, where it moves."""
    count = _SWING_NODES if float(process.swing) else 1
    nodes, shares = hermite_nodes(count)
    every = [(*state, node) for state in states.tolist() for node in nodes.tolist()]
    return tuple(every), tuple(np.outer(weights, shares).ravel().tolist())


def _radial_nodes(process: Switching) -> tuple:
    """Return the nodes of a law that may be turned: lengths along the first axis."""
    half = process.dim / 2
    nodes, weights = scipy.special.roots_genlaguerre(_RADIAL_NODES, half - 1)
    states = np.zeros((_RADIAL_NODES, process.dim))
    states[:, 0] = np.sqrt(2 * nodes)  # a squared length has the law of chi square
    return _with_swing(process, states, weights / weights.sum())


def _product_nodes(process: Switching) -> tuple:
    if process.dim not in _NODES_BY_DIM:
        raise ArgumentError(
            "the level of switching with a variance for each input takes at most "
            f"{max(_NODES_BY_DIM)} inputs, got {process.dim}: give one variance for all"
        )
    nodes, weights = hermite_nodes(_NODES_BY_DIM[process.dim])
    grid = np.stack(np.meshgrid(*[nodes] * process.dim, indexing="ij"), -1)
    share = np.prod(np.stack(np.meshgrid(*[weights] * process.dim, indexing="ij"), -1), -1)
    return _with_swing(process, grid.reshape(-1, process.dim), share.ravel())


class _Scan(NamedTuple):
    """The mismatch of v along its logarithm, from above."""

    place: Array
    gap: Array  # log G - log v; infinite where the error grows
    shape: Array  # logarithms of the ratios between the groups


class _Root(NamedTuple):
    rms: Array
    distance: Array
    square: Array


def _cell_problem(problem: Problem, values: Values) -> Problem:
    """Return the problem of a cell; without any noise, with too little of it to matter."""
    one = problem.at(values)
    least = _MIN_NOISE * jnp.asarray(adaptive_form(one.optimizer).lr) ** 2
    noise: Any = jnp.maximum(one.noise, least)
    return replace(one, noise=noise)


def _freeze(problem: Problem, form: Adaptive, square: Array) -> Setting:
    """Return the linear problem that is left when the mean square of each weight is at rest."""
    return Setting.of(problem, optimizer=form.freeze(square))


def _evaluate(
    problem: Problem, given: Plan, steps: Array, limit: Array, place: Array, shape: Array
) -> tuple[Array, Array, Any]:
    """Return the gap at a place, the new ratios, and the second moment there."""
    form = adaptive_form(problem.optimizer)
    groups = given.symmetry.groups

    frozen = _freeze(problem, form, jnp.exp(place + shape)[groups])
    rest = at_rest(frozen, given, steps, limit)
    logs = jnp.log(rest.square)
    valid = rest.exists & jnp.isfinite(logs).all()
    gap = jnp.where(valid, logs.mean() - place, jnp.inf)
    return jnp.where(valid, logs - logs.mean(), shape), gap, rest


def _mean_squares(problem: Problem, given: Plan, steps: Array, limit: Array) -> Array:
    """Return the mean square of each input of the model over a cycle of the law, (size,)."""

    def at(law: Any) -> Array:
        return jnp.diag(problem.model.second(law))  # pyrefly: ignore[missing-attribute]

    if given.states:
        return at(problem.process.stationary())

    # The steps of a short cycle need not stand for all phases: a sine of period 2 is always 0.
    def body(index: Array, total: Array) -> Array:
        return total + jnp.where(index < steps, at(problem.process.moments(index)), 0.0)

    return jax.lax.fori_loop(0, limit, body, jnp.zeros(problem.size)) / steps


def _scan_places(problem: Problem, given: Plan, points: int, second: Array) -> Array:
    """Return places along log v from where nothing grows to below what the noise alone gives."""
    form: Adaptive = adaptive_form(problem.optimizer)
    least = 4 * problem.noise * problem.gradient_scale**2 / problem.batch * second
    means = jnp.zeros(given.symmetry.groups.max() + 1).at[given.symmetry.groups].add(least)
    low = jnp.log(means / np.bincount(given.symmetry.groups)).mean() - 0.2
    safe = (
        _SCAN_FACTOR
        * 2
        * problem.gradient_scale
        * second.sum()
        * form.gain
        / (1 - form.momentum) ** 2
    )
    return jnp.linspace(jnp.maximum(2 * jnp.log(safe), low + 3.0), low, points)


@functools.partial(jax.jit, static_argnames=("given", "points"))
def _scan(
    problem: Problem, values: dict[str, Array], steps: Array, *, given: Plan, points: int
) -> _Scan:
    limit = jnp.max(steps)

    def cell(values: dict[str, Array], steps: Array) -> _Scan:
        one = _cell_problem(problem, values)

        def body(shape: Array, place: Array) -> tuple[Array, _Scan]:
            shape, gap, _ = _evaluate(one, given, steps, limit, place, shape)
            return shape, _Scan(place, gap, shape)

        start = jnp.zeros(given.symmetry.groups.max() + 1)
        second = _mean_squares(one, given, steps, limit)
        return jax.lax.scan(body, start, _scan_places(one, given, points, second))[1]

    return jax.vmap(cell)(values, steps)


@functools.partial(jax.jit, static_argnames=("given",))
def _refine(
    problem: Problem,
    values: dict[str, Array],
    steps: Array,
    ends: tuple[Array, Array],
    shape: Array,
    is_stable: Array,
    *,
    given: Plan,
) -> _Root:
    """Return the solutions between two places each, by bisection."""
    limit = jnp.max(steps)
    groups = given.symmetry.groups

    def cell(
        values: dict[str, Array], steps: Array, ends: Any, shape: Array, is_stable: Array
    ) -> _Root:
        one = _cell_problem(problem, values)
        find = functools.partial(_evaluate, one, given, steps, limit)

        def halve(_: int, carry: tuple) -> tuple:
            high, low, best = carry
            middle = 0.5 * (high + low)
            # Twice, so that the ratios settle as the place does.
            here = jax.lax.fori_loop(0, 2, lambda _, last: find(middle, last[0]), best)
            stays = (here[1] < 0) == is_stable
            best = jax.tree.map(lambda new, old: jnp.where(here[1] < jnp.inf, new, old), here, best)
            return jnp.where(stays, middle, high), jnp.where(stays, low, middle), best

        moment = jnp.zeros(len(Coordinates.of(given.symmetry).cycle_basis))
        none = Rest(moment, jnp.zeros_like(shape), jnp.zeros((), bool))
        start = (*ends, (shape, jnp.asarray(jnp.inf), none))
        high, low, (shape, gap, rest) = jax.lax.fori_loop(0, _BISECTIONS, halve, start)
        place = 0.5 * (high + low)
        square = jnp.exp(place + shape)[groups]
        frozen = _freeze(one, adaptive_form(one.optimizer), square)
        found = distances(frozen, given, rest, steps, limit)
        # Close to where the error begins to grow, S changes far faster than v: it is scaled so
        # that the gradient has the mean square found, which the bisection knows well.
        scale = jnp.exp(0.5 * (place - jnp.log(rest.square).mean()))
        scale = jnp.where(gap < jnp.inf, scale, jnp.nan)
        return _Root(scale * found.rms, scale * found.mean, square)

    return jax.vmap(cell)(values, steps, ends, shape, is_stable)


def _steps(problem: Problem, values: Values) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the values with periods that close, and the whole steps of each cycle."""
    process = problem.process
    if not isinstance(process, Switching):
        return rational_periods(problem, values)
    values = {name: np.asarray(array, dtype=float) for name, array in values.items()}
    count = len(next(iter(values.values())))
    periods = values.get("period", np.full(count, float(process.period)))
    return values, np.ceil(periods).astype(int)


class Solutions(NamedTuple):
    """Solutions of many cells, those of a cell from the uppermost down."""

    cell: np.ndarray
    is_stable: np.ndarray
    rms: np.ndarray
    distance: np.ndarray
    square: np.ndarray  # mean square of the gradient of each weight, (solutions, size)


@double_precision
def solve(
    problem: Problem,
    values: Values,
    *,
    points: int,
    is_all: bool = False,
    given: Plan | None = None,
    advance: Advance | None = None,
) -> Solutions:
    """Return the uppermost solution of every cell, or all of them.

    Parameters
    ----------
    problem
        With an adaptive optimizer.
    values
        Numbers of each cell.
    points
        Places of the scan: two solutions closer than one of its steps are not seen.
    is_all
        Whether all solutions are wanted.
    given
        The plan of the problem, where it is known to be that of another.
    advance
        Called with the number of cells just finished.
    """
    given = given or plan(problem)
    values, steps = _steps(problem, values)
    size = min(_CHUNK, len(steps))
    none = np.zeros(0)
    parts = [Solutions(none, none, none, none, np.zeros((0, problem.size)))]
    for index, count in chunks(steps, size):
        scan = _scan(problem, take(values, index), steps[index], given=given, points=points)
        is_above = np.asarray(scan.gap)[:count] >= 0
        crossing = is_above[:, 1:] != is_above[:, :-1]
        if not is_all:
            crossing &= np.cumsum(crossing, axis=1) == 1
        cell, place = np.nonzero(crossing)
        # Filled up with repetitions, so that one compiled shape serves all chunks.
        fill = np.resize(np.arange(len(cell)), -(-len(cell) // size) * size)
        if len(cell):
            high, shape = np.asarray(scan.place), np.asarray(scan.shape)
            at = cell[fill], place[fill]
            root = _refine(
                problem,
                take(values, index[at[0]]),
                steps[index[at[0]]],
                (high[at], high[at[0], at[1] + 1]),
                shape[at],
                ~is_above[at],
                given=given,
            )
            found = (np.asarray(part)[: len(cell)] for part in root)
            parts.append(Solutions(index[cell], ~is_above[cell, place], *found))
        if advance:
            advance(count)
    every = Solutions(*(np.concatenate(column) for column in zip(*parts, strict=True)))
    return every._replace(cell=every.cell.astype(int), is_stable=every.is_stable.astype(bool))
