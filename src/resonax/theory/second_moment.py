r"""Second moments of errors and velocities: coordinates, one step, and the moment at rest.

A second moment is a symmetric matrix. Its coordinates are its entries on and above the diagonal,
or fewer where the law treats some weights alike. On these coordinates, with a 1 behind them for
what does not depend on the error, a step of the optimizer is one matrix, exact for steps of any
size per weight.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.moments import Moments
from resonax.dynamics import Map, Setting

__all__ = [
    "Coordinates",
    "Distances",
    "Frame",
    "Law",
    "Plan",
    "Rest",
    "Symmetry",
    "at_rest",
    "distances",
    "law_of",
    "step_of",
    "symmetric_basis",
]


def symmetric_basis(size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a basis of the symmetric matrices, and the rows and columns of its coordinates."""
    row, column = np.triu_indices(size)
    basis = np.zeros((len(row), size, size))
    basis[np.arange(len(row)), row, column] = 1.0
    basis[np.arange(len(row)), column, row] = 1.0
    return basis, row, column


class Symmetry(NamedTuple):
    """Which weights a law treats alike.

    The law may be turned in the weights of ``turned`` without any change: the second moment is
    then a multiple of the identity there, without correlation to the weights of ``single``. Over
    a whole cycle that may hold for more of them, ``turned_over_cycle``.
    """

    single: tuple[int, ...]
    turned: tuple[int, ...] = ()
    turned_over_cycle: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Number of weights."""
        return len(self.single) + len(self.turned)

    @property
    def groups(self) -> np.ndarray:
        """For each weight, the number of those that share its mean square, (size,)."""
        together = self.turned_over_cycle or self.turned
        heads = [min(together) if i in together else i for i in range(self.size)]
        return np.unique(heads, return_inverse=True)[1]


class Coordinates(NamedTuple):
    """A basis of the second moments of errors and velocities that have a symmetry."""

    basis: np.ndarray  # (n, 2 size, 2 size)
    row: np.ndarray  # with `column`: where each coordinate is read
    column: np.ndarray
    cycle_basis: np.ndarray  # (m, 2 size, 2 size), of those at the end of a cycle
    enter: np.ndarray  # (n, m): from the end of a cycle to the coordinates within
    leave: np.ndarray  # (m, n): the average over all that a cycle treats alike

    @classmethod
    def of(cls, symmetry: Symmetry) -> Coordinates:
        """Return the coordinates of a symmetry.

        Examples
        --------
        >>> Coordinates.of(Symmetry(single=(0, 5), turned=(1, 2, 3, 4))).basis.shape
        (13, 12, 12)
        """
        basis, row, column = _basis(symmetry.size, symmetry.single, symmetry.turned)
        ends = basis
        if symmetry.turned_over_cycle:
            left = tuple(i for i in range(symmetry.size) if i not in symmetry.turned_over_cycle)
            ends = _basis(symmetry.size, left, symmetry.turned_over_cycle)[0]
        inner = np.einsum("mij,nij->mn", ends, basis)
        norms = np.einsum("mij,mij->m", ends, ends)
        return cls(basis, row, column, ends, ends[:, row, column].T, inner / norms[:, None])


def _basis(
    size: int, single: tuple[int, ...], turned: tuple[int, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    places = np.array([*single, *(size + i for i in single)], dtype=int)
    small, row, column = symmetric_basis(len(places))
    parts = np.zeros((len(small), 2 * size, 2 * size))
    parts[np.ix_(np.arange(len(small)), places, places)] = small
    if not turned:
        return parts, places[row], places[column]
    alike = np.zeros((3, 2 * size, 2 * size))
    halves = ((0, 0), (0, 1), (1, 1))  # error with error, error with velocity, velocity
    for matrix, (left, right) in zip(alike, halves, strict=True):
        for i in turned:
            matrix[left * size + i, right * size + i] = 1.0
            matrix[right * size + i, left * size + i] = 1.0
    rows = [left * size + turned[0] for left, _ in halves]
    columns = [right * size + turned[0] for _, right in halves]
    basis = np.concatenate([parts, alike])
    return basis, np.append(places[row], rows), np.append(places[column], columns)


class Plan(NamedTuple):
    """How a cycle is computed: symmetry, and the means that a switching process may draw."""

    symmetry: Symmetry
    states: tuple[tuple[float, ...], ...] = ()  # standard normal states of a switching process
    weights: tuple[float, ...] = ()


class Rest(NamedTuple):
    """The second moment to which a cycle leads back."""

    moment: Array  # coordinates at the end of a cycle, (m,)
    square: Array  # mean square of the gradient in each group of weights, over the cycle
    exists: Array  # whether the second moment is at rest anywhere: it does not grow


class Distances(NamedTuple):
    """Root mean square and mean of the length of the error, over a cycle."""

    rms: Array
    mean: Array


class Frame(NamedTuple):
    """The coordinates of a plan, with a 1 behind them for what does not depend on the error.

    With the 1 as a last entry of errors and velocities, all are entries of one second moment. Where
    the target moves the mean is among them, between the coordinates and the 1.
    """

    coordinates: Coordinates
    enter: np.ndarray
    leave: np.ndarray
    averaging: np.ndarray  # (groups, size): mean over the weights of a group
    basis: np.ndarray  # (m, 2 size + 1, 2 size + 1), of the coordinates, the mean and the 1
    row: np.ndarray  # with `column`: where each of them is read
    column: np.ndarray

    @classmethod
    def of(cls, symmetry: Symmetry, *, is_driven: bool = False) -> Frame:
        found = Coordinates.of(symmetry)
        members = np.eye(symmetry.groups.max() + 1)[symmetry.groups].T
        enter, leave = (np.pad(part, ((0, 1), (0, 1))) for part in (found.enter, found.leave))
        enter[-1, -1] = leave[-1, -1] = 1.0
        last = 2 * symmetry.size
        behind = np.arange(last + 1) if is_driven else np.array([last])
        basis = np.pad(found.basis, ((0, len(behind)), (0, 1), (0, 1)))
        places = len(found.basis) + np.arange(len(behind))
        basis[places, behind, last] = basis[places, last, behind] = 1.0
        return cls(
            found,
            enter,
            leave,
            members / members.sum(axis=1, keepdims=True),
            basis,
            np.append(found.row, behind),
            np.append(found.column, np.full(len(behind), last)),
        )

    @property
    def is_driven(self) -> bool:
        """Whether the mean is among the coordinates."""
        return len(self.basis) > len(self.coordinates.basis) + 1

    @property
    def errors(self) -> np.ndarray:
        """The basis without the velocities, (m, size + 1, size + 1)."""
        size = self.basis.shape[1] // 2
        kept = np.append(np.arange(size), 2 * size)
        return self.basis[:, kept[:, None], kept]


class Law(NamedTuple):
    """What a law does, whatever the steps: in coordinates with a 1 behind them for the noise."""

    curvature: Array  # of the expected gradient
    pull: Array  # the expected gradient at an error of 0: none but where the target moves
    spread: Array  # (m, m): second moment of the gradient around it, where each is read
    squares: Array  # (groups, m): mean square of the gradient in each group


def law_of(setting: Setting, frame: Frame, moments: Moments) -> Law:
    """Return what a law does to the second moment of the gradient."""
    size, discrete, errors = setting.size, Map(setting), frame.errors
    curvature, pull = setting.curvature(moments), jnp.zeros(size)
    if frame.is_driven:
        pull = 2 * setting.gradient_scale * discrete.loss(moments)[:size, -1]
    gradient = jnp.concatenate([curvature, pull[:, None]], axis=1)
    own = np.flatnonzero(errors.any(axis=(1, 2)))  # a gradient depends on no velocity
    given, count = jnp.asarray(errors[own]), len(errors)
    around = jax.vmap(discrete.covariance(moments, is_driven=frame.is_driven))(given)
    whole = around + gradient @ given @ gradient.T
    is_moved = np.flatnonzero(frame.row < 2 * size)
    is_moved = is_moved[frame.column[is_moved] < 2 * size]  # a gradient moves neither mean nor 1
    row, column = frame.row[is_moved] % size, frame.column[is_moved] % size
    squares = jnp.asarray(frame.averaging) @ jnp.diagonal(whole, axis1=1, axis2=2).T
    return Law(
        curvature,
        pull,
        jnp.zeros((count, count)).at[np.ix_(is_moved, own)].set(around[:, row, column].T),
        jnp.zeros((len(squares), count)).at[:, own].set(squares),
    )


def step_of(setting: Setting, frame: Frame, law: Law) -> Array:
    r"""Return one step on (coordinates, 1), or on (coordinates, mean, 1) where the target moves.

    A coordinate is an entry of the second moment, and :math:`M` does not mix weights that may be
    turned with others: entry rc of :math:`M\Sigma M^\top` takes :math:`M_{ra}M_{cb} +
    M_{rb}M_{ca}` from entry ab. The affine map of errors and velocities is a matrix on them and 1.
    """
    discrete, row, column = Map(setting), frame.row, frame.column
    gain = discrete.gain()
    matrix = jnp.pad(discrete.matrix(law.curvature), ((0, 1), (0, 1)))
    matrix = matrix.at[:-1, -1].set(-(gain * law.pull).ravel()).at[-1, -1].set(1.0)
    left, right = matrix[row], matrix[column]
    linear = left[:, row] * right[:, column]
    linear += jnp.where(row != column, left[:, column] * right[:, row], 0.0)
    gain = jnp.append(gain.ravel(), 0.0)
    return linear + (gain[row] * gain[column])[:, None] * law.spread


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


def _switching(setting: Setting, frame: Frame, given: Plan, limit: Array) -> tuple:
    """Return the mean over drawn means of what a block does, and of its mean squares."""
    period = jnp.asarray(setting.process.period)  # pyrefly: ignore[missing-attribute]
    steps = jnp.floor(period).astype(int)
    rest = period - steps  # blocks of a broken period are now a step longer, now not
    bits = jnp.ceil(jnp.log2(limit + 1.0)).astype(int)
    start = jnp.asarray(frame.enter)

    def block(state: Array) -> tuple[Array, Array]:
        law = law_of(setting, frame, setting.process.given(state))  # pyrefly: ignore[missing-attribute]
        step, squares = step_of(setting, frame, law), law.squares
        after, total = _held(step, squares, start, steps, bits)
        longer, more = step @ after, total + squares @ after
        return after + rest * (longer - after), total + rest * (more - total)

    after, total = jax.vmap(block)(jnp.asarray(given.states))
    weights = jnp.asarray(given.weights)
    return jnp.tensordot(weights, after, 1), jnp.tensordot(weights, total, 1) / period


def _sequence(setting: Setting, frame: Frame, steps: Array, limit: Array) -> tuple:
    """Return what one period of a law known in advance does, and its mean squares."""

    def body(index: Array, carry: tuple) -> tuple:
        state, total = carry
        law = law_of(setting, frame, setting.process.moments(index))
        after = step_of(setting, frame, law) @ state, total + law.squares @ state
        return jax.tree.map(lambda new, old: jnp.where(index < steps, new, old), after, carry)

    start = jnp.asarray(frame.enter)
    total = jnp.zeros((len(frame.averaging), start.shape[1]))
    state, total = jax.lax.fori_loop(0, limit, body, (start, total))
    return state, total / steps


def at_rest(setting: Setting, given: Plan, steps: Array, limit: Array) -> Rest:
    r"""Return the second moment :math:`\Sigma = P\Sigma + q` at rest over a cycle.

    The propagator :math:`P` of a cycle maps covariances to covariances. Where its radius is below
    1 the solution is a covariance; where not, none is (Krein and Rutman): so growth is detected.

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
    frame = Frame.of(given.symmetry)
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
    frame, size = Frame.of(given.symmetry), setting.size
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
            law = law_of(setting, frame, setting.process.given(state))  # pyrefly: ignore[missing-attribute]
            step = step_of(setting, frame, law)
            return along(lambda _, moment: step @ moment, period)

        each = jax.vmap(block)(jnp.asarray(given.states))
        weights = jnp.asarray(given.weights)
        square, length = (weights @ part for part in each)
    else:

        def advance(index: Array, moment: Array) -> Array:
            return (
                step_of(setting, frame, law_of(setting, frame, setting.process.moments(index)))
                @ moment
            )

        square, length = along(advance, steps.astype(float))
    return Distances(jnp.sqrt(jnp.maximum(square, 0.0)), length)
