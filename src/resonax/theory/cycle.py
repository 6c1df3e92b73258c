"""The second moment at rest over one cycle of the law, exact, for steps of any size per weight."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.moments import Moments
from resonax.dynamics import Map, Setting
from resonax.theory.coordinates import Coordinates, Layout
from resonax.theory.plan import Plan

__all__ = ["Distances", "Rest", "at_rest", "distances"]


class Rest(NamedTuple):
    """The second moment to which a cycle leads back."""

    moment: Array  # coordinates at the end of a cycle, (m,)
    square: Array  # mean square of the gradient in each group of weights, over the cycle
    exists: Array  # whether the second moment is at rest anywhere: it does not grow


class Distances(NamedTuple):
    """Root mean square and mean of the length of the error, over a cycle."""

    rms: Array
    mean: Array


class _Frame(NamedTuple):
    """The coordinates of a plan, with a 1 behind them for what does not depend on the error."""

    coordinates: Coordinates
    enter: np.ndarray
    leave: np.ndarray
    averaging: np.ndarray  # (groups, size): mean over the weights of a group

    @classmethod
    def of(cls, layout: Layout) -> _Frame:
        found = Coordinates.of(layout)
        members = np.eye(layout.groups.max() + 1)[layout.groups].T
        enter, leave = (np.pad(part, ((0, 1), (0, 1))) for part in (found.enter, found.leave))
        enter[-1, -1] = leave[-1, -1] = 1.0
        return cls(found, enter, leave, members / members.sum(axis=1, keepdims=True))


class _Law(NamedTuple):
    """What a law does, whatever the steps: in coordinates with a 1 behind them for the noise."""

    curvature: Array  # of the expected gradient
    spread: Array  # (n, n + 1): second moment of the gradient around it, where each is read
    squares: Array  # (groups, n + 1): mean square of the gradient in each group


def _law(setting: Setting, frame: _Frame, moments: Moments) -> _Law:
    discrete, size, found = Map(setting), setting.size, frame.coordinates
    curvature = setting.curvature(moments)
    of_error, of_noise = discrete.gradient(moments)
    errors = jnp.asarray(found.basis[:, :size, :size])
    whole = jnp.concatenate([jax.vmap(of_error)(errors), of_noise[None]])
    steady = jax.vmap(lambda error: curvature @ error @ curvature)(errors)
    around = whole - jnp.pad(steady, ((0, 1), (0, 0), (0, 0)))
    spread = around[:, found.row % size, found.column % size].T
    squares = jnp.asarray(frame.averaging) @ jnp.diagonal(whole, axis1=1, axis2=2).T
    return _Law(curvature, spread, squares)


def _step(setting: Setting, frame: _Frame, law: _Law) -> Array:
    r"""Return one step on (coordinates, 1).

    A coordinate is an entry of the second moment, and :math:`M` does not mix weights that may be
    turned with others: entry rc of :math:`M\Sigma M^\top` takes :math:`M_{ra}M_{cb} +
    M_{rb}M_{ca}` from entry ab.
    """
    discrete, found = Map(setting), frame.coordinates
    matrix, row, column = discrete.matrix(law.curvature), found.row, found.column
    left, right = matrix[row], matrix[column]
    linear = left[:, row] * right[:, column]
    linear += jnp.where(row != column, left[:, column] * right[:, row], 0.0)
    gain = discrete.gain().ravel()
    step = jnp.pad(linear, ((0, 0), (0, 1))) + (gain[row] * gain[column])[:, None] * law.spread
    return jnp.concatenate([step, jnp.zeros((1, len(row) + 1)).at[0, -1].set(1.0)])


def _held(step: Array, squares: Array, start: Array, steps: Array, bits: Array) -> tuple:
    """Return the state after ``steps`` equal steps, and the squares summed over them.

    By doubling: after bit j of the number of steps, the powers of 2^j steps are known.
    """

    def body(bit: Array, carry: tuple) -> tuple:
        power, summed, state, total = carry
        is_set = (steps >> bit) & 1 == 1
        total = jnp.where(is_set, total + summed @ state, total)
        state = jnp.where(is_set, power @ state, state)
        return power @ power, summed + summed @ power, state, total

    start_total = jnp.zeros((len(squares), start.shape[1]))
    return jax.lax.fori_loop(0, bits, body, (step, squares, start, start_total))[2:]


def _switching(setting: Setting, frame: _Frame, given: Plan, limit: Array) -> tuple:
    """Return the mean over drawn means of what a block does, and of its mean squares."""
    period = jnp.asarray(setting.process.period)  # pyrefly: ignore[missing-attribute]
    steps = jnp.floor(period).astype(int)
    rest = period - steps  # blocks of a broken period are now a step longer, now not
    bits = jnp.ceil(jnp.log2(limit + 1.0)).astype(int)
    start = jnp.asarray(frame.enter)

    def block(state: Array) -> tuple[Array, Array]:
        law = _law(setting, frame, setting.process.given(state))  # pyrefly: ignore[missing-attribute]
        step, squares = _step(setting, frame, law), law.squares
        after, total = _held(step, squares, start, steps, bits)
        longer, more = step @ after, total + squares @ after
        return after + rest * (longer - after), total + rest * (more - total)

    after, total = jax.vmap(block)(jnp.asarray(given.states))
    weights = jnp.asarray(given.weights)
    return jnp.tensordot(weights, after, 1), jnp.tensordot(weights, total, 1) / period


def _sequence(setting: Setting, frame: _Frame, steps: Array, limit: Array) -> tuple:
    """Return what one period of a law known in advance does, and its mean squares."""

    def body(index: Array, carry: tuple) -> tuple:
        state, total = carry
        law = _law(setting, frame, setting.process.moments(index))
        after = _step(setting, frame, law) @ state, total + law.squares @ state
        return jax.tree.map(lambda new, old: jnp.where(index < steps, new, old), after, carry)

    start = jnp.asarray(frame.enter)
    total = jnp.zeros((len(frame.averaging), start.shape[1]))
    state, total = jax.lax.fori_loop(0, limit, body, (start, total))
    return state, total / steps


def at_rest(setting: Setting, given: Plan, steps: Array, limit: Array) -> Rest:
    r"""Return the second moment :math:`\Sigma = P\Sigma + q` at rest over a cycle.

    The propagator :math:`P` of a cycle maps covariances to covariances. Where its radius is below
    1 the solution is a covariance; where not, none is (Krein and Rutman), which is how growth is
    told.

    Parameters
    ----------
    setting
        With a frozen optimizer.
    given
        The plan of the setting.
    steps
        Whole steps of a cycle; unused for switching, which has blocks of its own period.
    limit
        Largest number of steps of all cells that are computed together.
    """
    frame = _Frame.of(given.layout)
    if given.states:
        state, square = _switching(setting, frame, given, limit)
    else:
        state, square = _sequence(setting, frame, steps, limit)
    cycle = jnp.asarray(frame.leave) @ state
    moment = jnp.linalg.solve(jnp.eye(len(cycle) - 1) - cycle[:-1, :-1], cycle[:-1, -1])
    matrix = jnp.tensordot(moment, jnp.asarray(frame.coordinates.cycle_basis), 1)
    finite = jnp.isfinite(cycle).all() & jnp.isfinite(moment).all()
    values = jnp.linalg.eigvalsh(jnp.where(finite, matrix, 0.0))
    exists = finite & (values[0] >= -1e-9 * values[-1]) & (values[-1] > 0)
    return Rest(moment, square @ jnp.append(moment, 1.0), exists)


def distances(setting: Setting, given: Plan, rest: Rest, steps: Array, limit: Array) -> Distances:
    r"""Return how far the weights are from their target over a cycle at rest.

    The mean length assumes a normal error of known covariance :math:`S` at each step (given the
    drawn mean, for switching), and takes for its square the gamma law of the same two moments:
    :math:`E\|e\| = \sqrt\vartheta\,\Gamma(\kappa+\frac12)/\Gamma(\kappa)` with
    :math:`\kappa = (\mathrm{tr}\,S)^2/(2\,\mathrm{tr}\,S^2)` and :math:`\vartheta =
    2\,\mathrm{tr}\,S^2/\mathrm{tr}\,S`. That is exact for one weight and for equal variances, and
    within 4% for any.
    """
    frame, size = _Frame.of(given.layout), setting.size
    errors = frame.coordinates.basis[:, :size, :size]
    trace = jnp.asarray(np.append(np.einsum("nii->n", errors), 0.0))
    overlap = jnp.asarray(np.pad(np.einsum("mij,nij->mn", errors, errors), ((0, 1), (0, 1))))
    start = jnp.asarray(frame.enter) @ jnp.append(rest.moment, 1.0)

    def along(advance, cycle: Array) -> Distances:
        def body(index: Array, carry: tuple) -> tuple:
            state, square, length = carry
            state = jnp.where(index < cycle, advance(index, state), state)
            share = jnp.clip(cycle - index, 0.0, 1.0)
            first = trace @ state
            second = jnp.maximum(2 * state @ overlap @ state, jnp.finfo(float).tiny)
            kappa = first**2 / second
            ratio = jnp.exp(jax.lax.lgamma(kappa + 0.5) - jax.lax.lgamma(kappa))
            mean = jnp.sqrt(second / jnp.maximum(first, jnp.finfo(float).tiny)) * ratio
            return state, square + share * first, length + share * mean

        zero = jnp.zeros(())
        _, square, length = jax.lax.fori_loop(0, limit, body, (start, zero, zero))
        return Distances(square / cycle, length / cycle)

    if given.states:
        period = jnp.asarray(setting.process.period)  # pyrefly: ignore[missing-attribute]

        def block(state: Array) -> Distances:
            law = _law(setting, frame, setting.process.given(state))  # pyrefly: ignore[missing-attribute]
            step = _step(setting, frame, law)
            return along(lambda _, moment: step @ moment, period)

        each = jax.vmap(block)(jnp.asarray(given.states))
        weights = jnp.asarray(given.weights)
        square, length = (weights @ part for part in each)
    else:

        def advance(index: Array, moment: Array) -> Array:
            return (
                _step(setting, frame, _law(setting, frame, setting.process.moments(index))) @ moment
            )

        square, length = along(advance, steps.astype(float))
    return Distances(jnp.sqrt(jnp.maximum(square, 0.0)), length)
