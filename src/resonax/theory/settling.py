r"""Where SGD with momentum settles: second moment, mean and loss at rest, exact.

With :math:`\xi = (\theta-\theta^*, v)` a step is affine, :math:`\xi_{k+1} = \hat M_k\xi_k + \hat
q_k`, and the second moment of :math:`(\xi, 1)`, in which the mean is a column, obeys a linear
recursion. Over a period that is one matrix, and at rest is its fixed point. Where the mean of the
inputs is random the recursion is conditional on it:

- switching: the means of blocks are independent, and the matrix of a block is averaged over them;
- AR(2): :math:`E[\,\cdot \mid z_k, z_{k-1}]` is a series of Hermite polynomials, on which a step of
  the autoregression acts exactly. The series is cut off where two more degrees change nothing.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import double_precision, hermite_nodes
from resonax.core.errors import ArgumentError
from resonax.core.moments import Moments
from resonax.dynamics import Map, Setting
from resonax.streams import AR2, Process, Switching
from resonax.theory.period import (
    Advance,
    Values,
    over_cells,
    padded,
    product,
    rational_period,
    rational_periods,
)
from resonax.theory.second_moment import Frame, Symmetry, law_of, step_of

__all__ = ["MAX_WEIGHTS", "Settled", "in_random_order", "settle"]

MAX_WEIGHTS = 12
_NODES_BY_DIM = {1: 48, 2: 14, 3: 8}  # of a normal vector, along each coordinate
_SWING_NODES = 7
_DEGREES = (4, 6, 8, 10, 12, 14)  # of the polynomials for AR(2)
_TOLERANCE = 1e-2  # relative change of squares and losses from degree to degree
_MAX_UNKNOWNS = 2500
_MAX_VALUES = 500  # unknowns of which all eigenvalues are computed
_SCALAR_SUMS = 3  # loss, squared distance and squared error, besides the sum of the error


class Settled(NamedTuple):
    """Means over a cycle at rest, of each cell; nan where the second moment grows."""

    square: np.ndarray  # squared distance from the best weights of each step
    excess: np.ndarray  # loss above that of the best fixed weights: below 0 where weights follow
    lag: np.ndarray  # loss above that of the best weights of each step
    orbit: np.ndarray  # mean square of the motion of the weights, without any noise
    target: np.ndarray  # mean square of the motion of the best weights
    rate: np.ndarray  # growth of the root mean square error per step
    is_settled: np.ndarray  # whether a series has come to its end: always where there is none


def _frame(setting: Setting) -> Frame:
    return Frame.of(Symmetry(tuple(range(setting.size))), is_driven=True)


def _step_with_sums(setting: Setting, moments: Moments, spread: float) -> Array:
    """Return a step on (coordinates, mean, 1, sums): what it does, and what it adds to the sums."""
    frame, discrete, size = _frame(setting), Map(setting), setting.size
    law = law_of(setting, frame, moments)
    law = law._replace(spread=spread * law.spread)
    step, errors = step_of(setting, frame, law), jnp.asarray(frame.errors)
    apart, _ = discrete.optimum(moments)
    sums = [jnp.tensordot(errors, form, 2) for form in (discrete.loss(moments), apart)]
    sums += [jnp.trace(errors[:, :size, :size], axis1=1, axis2=2), *errors[:, :size, -1].T]
    adds = jnp.stack(sums)
    none = jnp.zeros((len(step), len(adds)))
    return jnp.block([[step, none], [adds, jnp.eye(len(adds))]])


@jax.jit
def _steps_with_sums(
    setting: Setting, values: dict[str, Array], steps: Array, *, spread: float
) -> Array:
    """Return the matrices of some steps of all cells, (cells, steps, n, n)."""

    def one(values: dict[str, Array], step: Array) -> Array:
        cell = setting.at(values)
        return _step_with_sums(cell, cell.process.moments(step), spread)

    return jax.vmap(jax.vmap(one, (None, 0)))(values, steps)


@jax.jit
def _steps_given_states(
    setting: Setting, values: dict[str, Array], states: Array, *, spread: float
) -> Array:
    """Return the matrices of a step at each state of a random process, (cells, states, n, n)."""

    def one(values: dict[str, Array], state: Array) -> Array:
        cell = setting.at(values)
        return _step_with_sums(cell, cell.process.given(state), spread)  # pyrefly: ignore[missing-attribute]

    return jax.vmap(jax.vmap(one, (None, 0)), (0, None))(values, states)


def _forms(setting: Setting, moments: Moments) -> Array:
    """Return J and G of a law (`Map.loss`, `Map.optimum`) and the least loss, as one array."""
    discrete = Map(setting)
    apart, least = discrete.optimum(moments)
    last = jnp.full((1, setting.size + 1, setting.size + 1), least)
    return jnp.concatenate([discrete.loss(moments)[None], apart[None], last])


@jax.jit
def _forms_over(setting: Setting, values: dict[str, Array], counts: Array) -> Array:
    """Return the mean of `_forms` over the steps of a period of each cell."""
    limit = jnp.max(counts)

    def one(values: dict[str, Array], count: Array) -> Array:
        cell = setting.at(values)

        def add(step: Array, total: Array) -> Array:
            return total + jnp.where(step < count, _forms(cell, cell.process.moments(step)), 0.0)

        zeros = jnp.zeros((3, setting.size + 1, setting.size + 1))
        return jax.lax.fori_loop(0, limit, add, zeros) / count

    return jax.vmap(one)(values, counts)


@jax.jit
def _forms_given(
    setting: Setting, values: dict[str, Array], states: Array, weights: Array
) -> Array:
    """Return the mean of `_forms` over the states of a random process, for each cell."""

    def one(values: dict[str, Array], state: Array) -> Array:
        cell = setting.at(values)
        return _forms(cell, cell.process.given(state))  # pyrefly: ignore[missing-attribute]

    found = jax.vmap(jax.vmap(one, (None, 0)), (0, None))(values, states)
    return jnp.einsum("s,csfij->cfij", weights, found)


class _Sums(NamedTuple):
    """Means over a cycle at rest of each cell, and the rate."""

    loss: np.ndarray
    square: np.ndarray
    length: np.ndarray  # mean square of the error
    mean: np.ndarray  # (cells, size)
    rate: np.ndarray


def _fixed_point(cycle: np.ndarray, steps: np.ndarray, size: int) -> _Sums:
    """Return the fixed point of the matrices of a cycle on (coordinates, mean, 1, sums)."""
    count = cycle.shape[1] - _SCALAR_SUMS - size
    inner = cycle[:, : count - 1, : count - 1]
    finite = np.asarray(np.isfinite(cycle).all(axis=(1, 2)))
    inner = np.where(finite[:, None, None], inner, 0.0)
    radius = np.abs(np.linalg.eigvals(inner)).max(axis=1)
    settles = finite & (radius < 1 - 1e-12)
    safe = np.where(settles[:, None, None], inner, 0.0)
    with np.errstate(invalid="ignore"):
        state = np.linalg.solve(np.eye(count - 1) - safe, cycle[:, : count - 1, count - 1, None])
        state = np.concatenate([state[..., 0], np.ones((len(state), 1))], axis=1)
        sums = np.einsum("cij,cj->ci", cycle[:, count:, :count], state) / steps[:, None]
    sums = np.where(settles[:, None], sums, np.nan)
    logs = np.where(finite, np.log(np.maximum(radius, np.finfo(float).tiny)), np.inf)
    return _Sums(sums[:, 0], sums[:, 1], sums[:, 2], sums[:, 3:], logs / steps / 2)


def _to_settled(noisy: _Sums, still: _Sums, forms: np.ndarray, is_settled: np.ndarray) -> Settled:
    """Return what is reported, from sums with and without noise."""
    loss, apart, least = forms[:, 0], forms[:, 1], forms[:, 2, 0, 0]
    inner, side = loss[:, :-1, :-1], loss[:, :-1, -1]
    best = np.einsum("cij,cj->ci", np.linalg.pinv(inner, hermitian=True), side)
    fixed = loss[:, -1, -1] - np.einsum("ci,ci->c", best, side)
    target = apart[:, -1, -1] - (apart[:, :-1, -1] ** 2).sum(axis=1)
    orbit = still.length - (still.mean**2).sum(axis=1)
    return Settled(
        np.maximum(noisy.square, 0.0),
        noisy.loss - fixed,
        np.maximum(noisy.loss - least, 0.0),
        np.maximum(orbit, 0.0),
        np.maximum(target, 0.0),
        noisy.rate,
        is_settled,
    )


def _matrix_size(setting: Setting) -> int:
    """Return the rows of a matrix on (coordinates, mean, 1, sums)."""
    return len(_frame(setting).basis) + _SCALAR_SUMS + setting.size


def _periodic(setting: Setting, values: Values, advance: Advance | None) -> Settled:
    values, counts = rational_periods(setting, values)
    size = _matrix_size(setting)

    def matrices(
        setting: Setting,
        values: dict[str, np.ndarray],
        steps: np.ndarray,
        _: np.ndarray,
        *,
        spread: float,
    ) -> np.ndarray:
        found = _steps_with_sums(setting, values, padded(steps), spread=spread)
        return np.asarray(found)[:, : steps.shape[1]]

    def cycle(values: dict[str, np.ndarray], counts: np.ndarray) -> np.ndarray:
        both = []
        for spread in (1.0, 0.0):
            steps = functools.partial(matrices, spread=spread)
            found = product(steps, setting, values, counts, size)
            with np.errstate(over="ignore", invalid="ignore"):
                both.append(np.ldexp(found.matrix, found.exponent[:, None, None]))
        return np.stack(both, axis=1)

    cycles = over_cells(cycle, values, counts, size, advance)
    forms = np.asarray(_forms_over(setting, values, counts))
    noisy, still = (_fixed_point(cycles[:, i], counts, setting.size) for i in (0, 1))
    return _to_settled(noisy, still, forms, np.ones(len(counts), dtype=bool))


def _switching_states(process: Switching, share: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    """Return states of a switching process and their weights, fewer of them by a share."""
    if process.dim not in _NODES_BY_DIM:
        raise ArgumentError(
            f"the level of switching takes at most {max(_NODES_BY_DIM)} inputs, got {process.dim}"
        )
    along = [hermite_nodes(round(share * _NODES_BY_DIM[process.dim]))] * process.dim
    along.append(hermite_nodes(_SWING_NODES if float(process.swing) else 1))
    states = np.array(list(itertools.product(*(nodes for nodes, _ in along))))
    weights = np.array([math.prod(some) for some in itertools.product(*(w for _, w in along))])
    return states, weights


def _block_lengths(period: float, turns: int) -> np.ndarray:
    """Return how many steps each of some blocks of a period has."""
    return np.diff(np.ceil(np.arange(turns + 1) * period - 1e-9).astype(int))


def _switching(setting: Setting, values: Values, advance: Advance | None) -> Settled:
    values, counts = _rational_switching(setting, values)
    rest = {name: array for name, array in values.items() if name != "period"}
    rest.setdefault("noise", np.full(len(counts), float(setting.noise)))
    first, which = np.unique(np.stack(list(rest.values())), axis=1, return_inverse=True)
    laws = dict(zip(rest, first, strict=True))  # cells that differ in the period share them
    found = []
    for share in (1.0, 0.75):
        states, weights = _switching_states(setting.process, share)  # pyrefly: ignore[bad-argument-type]
        sums = []
        for spread in (1.0, 0.0):
            steps = np.asarray(_steps_given_states(setting, laws, states, spread=spread))
            cycles = np.stack(
                [
                    _cycle_of_blocks(steps[law], weights, period, count)
                    for law, period, count in zip(
                        which.ravel(), values["period"], counts, strict=True
                    )
                ]
            )
            sums.append(_fixed_point(cycles, counts, setting.size))
        forms = np.asarray(_forms_given(setting, laws, states, weights))[which.ravel()]
        found.append(_to_settled(sums[0], sums[1], forms, np.ones(len(counts), dtype=bool)))
    if advance:
        advance(len(counts))
    return found[0]._replace(is_settled=_is_close(*found))


def _is_close(one: Settled, other: Settled) -> np.ndarray:
    """Return whether two answers are the same, to within what is called settled."""
    same = [
        np.isclose(getattr(one, name), getattr(other, name), rtol=_TOLERANCE, atol=1e-300)
        for name in ("square", "lag", "orbit")
    ]
    return np.all(same, axis=0)


def _rational_switching(
    setting: Setting, values: Values
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return values with rational periods of a switching process, and their steps."""
    values = {name: np.asarray(array, dtype=float) for name, array in values.items()}
    count = len(next(iter(values.values())))
    own = float(setting.process.period)  # pyrefly: ignore[missing-attribute]
    pairs = [rational_period(period) for period in values.get("period", np.full(count, own))]
    values["period"] = np.array([steps / turns for steps, turns in pairs])
    return values, np.array([steps for steps, _ in pairs])


def _cycle_of_blocks(
    steps: np.ndarray, weights: np.ndarray, period: float, count: int
) -> np.ndarray:
    """Return the matrix of blocks until their lengths repeat, averaged over the states."""
    lengths = _block_lengths(period, round(count / period))
    with np.errstate(over="ignore", invalid="ignore"):
        of = {
            length: np.tensordot(weights, np.linalg.matrix_power(steps, int(length)), 1)
            for length in np.unique(lengths)
        }
        return functools.reduce(
            lambda before, length: of[length] @ before, lengths, np.eye(steps.shape[-1])
        )


class _Chain(NamedTuple):
    """An autoregression on Hermite polynomials of (z, the rest of the value before it)."""

    degrees: np.ndarray  # (polynomials, 2)
    advance: np.ndarray  # [g, b]: share of polynomial g in the expectation of b a step later


def _polynomials(values: np.ndarray, most: int) -> np.ndarray:
    """Return the Hermite polynomials of unit norm up to a degree, (..., most + 1)."""
    found = [np.ones_like(values), values]
    for degree in range(1, most):
        root = math.sqrt(degree + 1)
        found.append((values * found[-1] - math.sqrt(degree) * found[-2]) / root)
    return np.stack(found[: most + 1], axis=-1)


def _chain(process: AR2, most: int) -> _Chain:
    """Return what a step of the autoregression does to polynomials up to a total degree."""
    phi1, phi2 = (float(phi) for phi in process.coefficients())
    share = float(process.innovation)
    lag = phi1 / (1 - phi2)
    rest = math.sqrt(1 - lag**2)
    nodes, weights = hermite_nodes(most + 1)
    now, other, drawn = np.meshgrid(nodes, nodes, nodes, indexing="ij")
    mass = np.einsum("i,j,k->ijk", weights, weights, weights)
    later = phi1 * now + phi2 * (lag * now + rest * other) + math.sqrt(share) * drawn
    behind = (now - lag * later) / rest
    degrees = np.array([(i, j) for i in range(most + 1) for j in range(most + 1 - i)])
    first, second = degrees.T
    before = _polynomials(now, most)[..., first] * _polynomials(other, most)[..., second]
    after = _polynomials(later, most)[..., first] * _polynomials(behind, most)[..., second]
    return _Chain(degrees, np.einsum("ijk,ijkg,ijkb->gb", mass, before, after))


def _sums_by_degree(setting: Setting, most: int, spread: float) -> tuple[_Sums, np.ndarray]:
    """Return the sums of one cell by polynomials up to a degree, and the forms of its laws."""
    process: Any = setting.process
    nodes, weights = hermite_nodes(_DEGREES[-1] + 12)
    own = {"noise": np.array([float(setting.noise)])}
    matrices = np.asarray(_steps_given_states(setting, own, nodes, spread=spread))[0]
    count = matrices.shape[-1] - _SCALAR_SUMS - setting.size
    steps, adds = matrices[:, :count, :count], matrices[:, count:, :count]
    chain, along = _chain(process, most), _polynomials(nodes, most)
    first, second = chain.degrees.T
    # What a step does, between the polynomials of z alone; those of the rest stay as they are.
    between = np.einsum("q,qa,qc,qij->acij", weights, along, along, steps)
    mixed = between[first[:, None], first] * (second[:, None] == second)[..., None, None]
    whole = np.einsum("gb,gaij->biaj", chain.advance, mixed)
    many = len(first) * count
    whole = whole.reshape(many, many)
    ones = count * np.arange(len(first)) + count - 1  # E[h] of each polynomial: 1 for the first
    free = np.setdiff1d(np.arange(many), ones)
    state = np.zeros(many)
    state[ones[0]] = 1.0
    inner = whole[np.ix_(free, free)]
    rate = np.full(1, np.nan)
    if len(free) <= _MAX_VALUES:
        rate[0] = math.log(np.abs(np.linalg.eigvals(inner)).max()) / 2
    state[free] = np.linalg.solve(np.eye(len(free)) - inner, whole[free, ones[0]])
    state = state.reshape(len(first), count)
    alone = second == 0
    at = along[:, first[alone]] @ state[alone]  # E[. | z] at the nodes
    sums = np.einsum("q,qij,qj->i", weights, adds, at)
    forms = np.asarray(_forms_given(setting, own, nodes, weights))[0]
    parts = sums[None]
    return _Sums(parts[:, 0], parts[:, 1], parts[:, 2], parts[:, 3:], rate), forms


def _autoregressive(setting: Setting, values: Values, advance: Advance | None) -> Settled:
    count = len(next(iter(values.values())))
    found = []
    for number in range(count):
        cell = setting.at({name: float(array[number]) for name, array in values.items()})
        found.append(_settle_autoregression(cell))
        if advance:
            advance(1)
    return Settled(*(np.concatenate(column) for column in zip(*found, strict=True)))


def _settle_autoregression(setting: Setting) -> Settled:
    """Return the answer for one setting, by polynomials of as high a degree as it takes."""
    rows = len(_frame(setting).basis)
    last = None
    for most in _DEGREES:
        if (most + 1) * (most + 2) // 2 * rows > _MAX_UNKNOWNS and last is not None:
            break
        (noisy, forms), (still, _) = (
            _sums_by_degree(setting, most, spread) for spread in (1.0, 0.0)
        )
        now = _to_settled(noisy, still, forms[None], np.ones(1, dtype=bool))
        if last is not None:
            now = now._replace(rate=np.where(np.isnan(now.rate), last.rate, now.rate))
        if now.rate[0] >= 0:  # what is at rest would be no second moment
            nothing = np.full(1, np.nan)
            return Settled(*[nothing] * 5, rate=now.rate, is_settled=np.ones(1, dtype=bool))
        if last is not None and _is_close(now, last)[0]:
            return now
        last = now
    return last._replace(is_settled=np.zeros(1, dtype=bool))  # pyrefly: ignore[missing-attribute]


@double_precision
def settle(setting: Setting, values: Values, advance: Advance | None = None) -> Settled:
    """Return where many cells settle.

    Parameters
    ----------
    setting
        A linear model trained by SGD with momentum on a process that repeats, switches or is an
        autoregression.
    values
        Numbers of each cell.
    advance
        Called with the number of cells just finished.
    """
    if setting.size > MAX_WEIGHTS:
        raise ArgumentError(
            f"a level takes at most {MAX_WEIGHTS} weights, got {setting.size}: simulate it"
        )
    values = {name: np.asarray(array, dtype=float) for name, array in values.items()}
    if isinstance(setting.process, Switching):
        return _switching(setting, values, advance)
    if isinstance(setting.process, AR2):
        return _autoregressive(setting, values, advance)
    return _periodic(setting, values, advance)


@double_precision
def in_random_order(setting: Setting) -> Moments:
    """Return the law of the same rows in random order, with the signal of each component."""
    return _mixture(setting.process)


@jax.jit
def _mixture(process: Process) -> Moments:
    return process.mixture()
