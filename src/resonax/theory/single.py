r"""The exact criteria of one setting of a few weights: compiled laws, and plain linear algebra.

What the flow, the map and the second moment do at some steps comes from two small compiled
programs. Products, eigenvalues and the integration over a period are NumPy's: to compile programs
for them takes far longer than the numbers do.

The flow over a segment of length h is integrated by Gauss collocation, exact to the order
:math:`2s` with s stages and stable however stiff. Its equation is linear, so that the slopes
:math:`K_i = A_i(I + h\sum_j a_{ij}K_j)` of the stages solve a linear system, for all segments at
once.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import double_precision
from resonax.dynamics import Flow, Map, Setting
from resonax.theory.coordinates import symmetric_basis
from resonax.theory.discrete import rational_period
from resonax.theory.floquet import is_integrable, segment_counts

__all__ = ["RATES", "flow_rate", "is_small", "map_rate", "mean_square_level", "mean_square_rate"]

_FEW = 8  # weights, up to which this is the quicker way: their second moment has 136 coordinates
_BLOCK = 64  # steps at which a program looks
_STAGES = 8
_TOLERANCE = 1e-9  # of the flow's monodromy matrix, from some segments to twice as many
_HALVINGS = 8
_PROBES = 16  # phases at which the stiffness of the flow is looked at


class _Product(NamedTuple):
    """The matrix ``matrix * 2**exponent``."""

    matrix: np.ndarray
    exponent: int

    def log_radius(self) -> float:
        """Return the logarithm of the spectral radius; NaN where there is none."""
        if not np.isfinite(self.matrix).all():
            return math.nan
        radius = float(np.abs(np.linalg.eigvals(self.matrix)).max())
        return math.log(max(radius, np.finfo(float).tiny)) + self.exponent * math.log(2.0)


def _multiply(matrices: np.ndarray, exponent: int = 0) -> _Product:
    """Return the product of matrices, (n, d, d), the first one first, in pairs.

    Examples
    --------
    >>> round(_multiply(np.full((1000, 1, 1), 8.0)).log_radius() / math.log(2), 9)
    3000.0
    """
    while len(matrices) > 1:
        if len(matrices) % 2:
            matrices = np.concatenate([matrices, np.eye(matrices.shape[1])[None]])
        matrices = matrices[1::2] @ matrices[::2]
        shift = np.frexp(np.abs(matrices).max(axis=(1, 2)))[1]
        matrices, exponent = np.ldexp(matrices, -shift[:, None, None]), exponent + int(shift.sum())
    return _Product(matrices[0], exponent)


def _product(blocks: Iterator[np.ndarray]) -> _Product:
    """Return the product of all matrices of all blocks, the first one first."""

    def after(before: _Product, block: np.ndarray) -> _Product:
        found = _multiply(block)
        both = np.stack([before.matrix, found.matrix])
        return _multiply(both, before.exponent + found.exponent)

    return functools.reduce(after, blocks, _multiply(next(blocks)))


@jax.jit
def _matrices(setting: Setting, index: Array) -> tuple[Array, Array]:
    """Return the matrices of the flow, times its period, and of the map at some steps."""
    flow, discrete = Flow(setting), Map(setting)

    def at(step: Array) -> tuple[Array, Array]:
        moments = setting.process.moments(step)
        return flow.period * flow.matrix_at(step), discrete.expected(moments)

    return jax.vmap(at)(index)


@jax.jit
def _moment_maps(setting: Setting, index: Array) -> tuple[Array, Array]:
    """Return what some steps do to the second moment, and what the noise adds in each."""
    discrete = Map(setting)
    basis, row, column = symmetric_basis(2 * setting.size)

    def at(step: Array) -> tuple[Array, Array]:
        moments = setting.process.moments(step)
        after = jax.vmap(discrete.second_moment(moments))(jnp.asarray(basis))
        return after[:, row, column].T, discrete.noise(moments)[row, column]

    return jax.vmap(at)(index)


def _blocks(
    compute: Callable[..., tuple[Array, Array]],
    setting: Setting,
    index: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield what a program returns, block by block: one compiled shape serves all numbers."""
    for start in range(0, len(index), _BLOCK):
        part = index[start : start + _BLOCK]
        filled = np.concatenate([part, np.full(_BLOCK - len(part), part[-1])])
        first, second = compute(setting, filled)
        yield np.asarray(first)[: len(part)], np.asarray(second)[: len(part)]


def _cycle(setting: Setting) -> tuple[Setting, np.ndarray]:
    """Return the setting with a rational period, and the steps after which it repeats."""
    steps, turns = rational_period(float(setting.process.cycle))
    if hasattr(setting.process, "period"):
        setting = setting.at({"period": steps / turns})
    return setting, np.arange(float(steps))


def is_small(setting: Setting) -> bool:
    """Return whether a setting has few enough weights."""
    return setting.size <= _FEW


@double_precision
def map_rate(setting: Setting) -> float:
    """Return the rate per step of the expected weights, by the product of a period's updates."""
    setting, index = _cycle(setting)
    found = _product(maps for _, maps in _blocks(_matrices, setting, index))
    return found.log_radius() / len(index)


@functools.cache
def _collocation() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return nodes, weights and coefficients of Gauss collocation on 0..1."""
    nodes, weights = np.polynomial.legendre.leggauss(_STAGES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    # a_ij is the integral of the j-th Lagrange polynomial up to node i: in Legendre polynomials of
    # degree k the nodes are well conditioned, and their integrals are (P_k+1 - P_k-1) / (2k + 1).
    values = np.polynomial.legendre.legvander(2 * nodes - 1, _STAGES)
    degree = np.arange(1, _STAGES)
    rises = (values[:, 2:] - values[:, :-2]) / (2 * degree + 1) / 2
    integrals = np.concatenate([nodes[:, None], rises], axis=1)
    return nodes, weights, integrals @ np.linalg.inv(values[:, :_STAGES])


def _segments(matrices: np.ndarray, length: float) -> np.ndarray:
    """Return what the flow does in each segment, (n, d, d), from A at its nodes, (n, s, d, d)."""
    _, weights, coefficients = _collocation()
    count, stages, size = matrices.shape[:3]
    system = -length * np.einsum("ij,nikl->nikjl", coefficients, matrices)
    system = system.reshape(count, stages * size, -1) + np.eye(stages * size)
    slopes = np.linalg.solve(system, matrices.reshape(count, stages * size, size))
    slopes = slopes.reshape(count, stages, size, size)
    return np.eye(size) + length * np.einsum("i,nikl->nkl", weights, slopes)


def _monodromy(setting: Setting, count: int) -> _Product:
    """Return what the flow does in one period, cut into equal segments."""
    nodes, process = _collocation()[0], setting.process
    phase = (np.arange(count)[:, None] + nodes).ravel() / count
    index = process.origin + process.cycle * phase
    found = (
        _segments(flows.reshape(-1, _STAGES, *flows.shape[1:]), 1 / count)
        for flows, _ in _blocks(_matrices, setting, index)
    )
    return _product(found)


@double_precision
def flow_rate(setting: Setting) -> float:
    """Return the rate per step of the flow (Theorem 1); NaN where it cannot be integrated."""
    cycle, half = float(setting.process.cycle), setting.size
    flows, _ = next(_blocks(_matrices, setting, np.arange(_PROBES) / _PROBES * cycle))
    direct, force = (
        np.trace(flows[:, rows, :half], axis1=1, axis2=2).min()
        for rows in (slice(half), slice(half, None))
    )
    # The force of a time measured in periods is that in time, multiplied by the period.
    period = math.sqrt(float(setting.optimizer.lr)) * cycle
    need = np.array([math.sqrt(-force * period) - direct - flows[0, -1, -1]])
    if not is_integrable(need, alone=True)[0]:
        return math.nan
    # With half the stiffness in a segment that Runge-Kutta steps take, 8 stages are exact to 1e-10.
    count = int(segment_counts(setting, 2 * need)[0])
    found = _monodromy(setting, count)
    for _ in range(_HALVINGS):
        count *= 2
        last, found = found, _monodromy(setting, count)
        shown = np.ldexp(last.matrix, last.exponent - found.exponent)
        if np.abs(shown - found.matrix).max() <= _TOLERANCE * np.abs(found.matrix).max():
            return found.log_radius() / cycle
    return math.nan


@double_precision
def mean_square_rate(setting: Setting) -> float:
    """Return the rate per step of the root mean square error."""
    setting, index = _cycle(setting)
    found = _product(maps for maps, _ in _blocks(_moment_maps, setting, index))
    return found.log_radius() / len(index) / 2


@double_precision
def mean_square_level(setting: Setting) -> float | None:
    r"""Return the :math:`\sqrt{E\|\theta-\theta^*\|^2}` at which a convergent run settles.

    The second moment obeys :math:`S_{k+1} = T_kS_k + q_k`, and is at rest over a period where
    :math:`S = PS + q`; the level is the average over the period. Weight decay moves the point that
    the run settles around as well; that part, which depends on the unknown target, is not counted.
    None where it exceeds all numbers.
    """
    setting, index = _cycle(setting)
    row, column = symmetric_basis(2 * setting.size)[1:]
    trace = np.where((row == column) & (row < setting.size), 1.0, 0.0)
    with np.errstate(over="ignore", invalid="ignore"):
        square = _level(_blocks(_moment_maps, setting, index), trace) / len(index)
    # A run may grow without bounds inside one period and still converge from period to period.
    return math.sqrt(max(square, 0.0)) if math.isfinite(square) else None


def _level(blocks: Iterator[tuple[np.ndarray, np.ndarray]], trace: np.ndarray) -> float:
    """Return the trace of the second moment at rest, summed over the steps of a period."""
    size = len(trace)
    # On (S, 1, sum of traces so far) a step is linear.
    whole = np.eye(size + 2)
    for maps, noise in blocks:
        steps = np.zeros((len(maps), size + 2, size + 2))
        steps[:, :size, :size], steps[:, :size, size] = maps, noise
        steps[:, size + 1] = trace @ steps[:, :size]
        steps[:, size, size] = 1.0
        steps[:, size + 1, size + 1] = 1.0
        found = _multiply(steps)
        whole = np.ldexp(found.matrix, found.exponent) @ whole
    if not np.isfinite(whole).all():
        return math.inf
    rest = np.linalg.solve(np.eye(size) - whole[:size, :size], whole[:size, size])
    return float(whole[-1, :size] @ rest + whole[-1, size])


RATES = {"flow": flow_rate, "map": map_rate, "mean_square": mean_square_rate}
