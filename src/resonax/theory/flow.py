r"""The flow criterion: the monodromy matrix of the flow over one period (Theorem 1).

A period is cut into segments. Over a segment of length h the flow is integrated by Gauss
collocation, exact to the order :math:`2s` with s stages and stable however stiff. The equation is
linear, and velocities enter it with scalar factors only, so that the forces :math:`G_i = H_i U_i`
on the weights of the stages solve one linear system.

The monodromy matrix is an entire function of the numbers of a setting: they enter A(t) as
polynomials or, as phase and swing, as entire functions. Its polynomial interpolant at Chebyshev
points therefore converges faster than geometrically, and a map needs the integration at a few
points only. The error is measured at the points that a refinement adds.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # its parts are loaded where they are used
from jax import Array

from resonax.core.algebra import double_precision, on_the_cpu
from resonax.dynamics import Flow, Setting
from resonax.theory.period import (
    REASONS,
    Advance,
    Product,
    Values,
    chunks,
    over_cells,
    padded,
    product,
    take,
)

__all__ = [
    "flow_grid_rates",
    "flow_monodromy",
    "flow_rates",
    "missing_flags",
    "stiffness",
    "why_missing",
]

_STAGES = 8
_TOLERANCE = 1e-7  # of some segments; those used, twice as many, are exact to its square
_HALVINGS = 8
_STIFFNESS = 6.0  # logarithm by which a solution may grow or fall in one segment
_MAX_SEGMENTS, _MAX_OF_MANY = 2**17, 2**13  # of a single cell, and of each cell of a map
_PROBES = 16  # phases at which the stiffness is looked at
_STIFFNESS_CHUNK = 256  # cells whose stiffness is looked at together

_EIGENVALUE_CHUNK = 8192  # cells of an interpolated map whose eigenvalues are taken at once
_MIN_ROWS = 32  # of a map that is interpolated
_EXTRA_NODES = 20  # nodes beyond the two for each turn of the phase
_MAX_LOG = 60.0  # beyond this logarithm of a matrix no interpolant is accurate for the small ones


@functools.cache
def collocation() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
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


@jax.jit
def _forces(
    setting: Setting, values: dict[str, Array], phases: Array
) -> tuple[Array, Array, Array]:
    """Return H at some phases of each cell's period, the coefficients of A, and the period."""

    def of_cell(values: dict[str, Array], phases: Array) -> tuple[Array, Array, Array]:
        flow = Flow(setting.at(values))
        process = flow.setting.process
        steps = process.origin + process.cycle * phases.ravel()
        forces = jax.vmap(flow.hessian_at)(steps)
        return (
            forces.reshape(*phases.shape, *forces.shape[1:]),
            jnp.asarray(flow.coefficients(), dtype=float),
            jnp.asarray(flow.period, dtype=float),
        )

    return jax.vmap(of_cell)(values, phases)


def _propagators(
    setting: Setting, values: dict[str, np.ndarray], segments: np.ndarray, counts: np.ndarray
) -> np.ndarray:
    r"""Return what the flow does in some segments of some cells, (cells, segments, n, n).

    With the coefficients :math:`\dot u = w_0 Hu + w_1 v`, :math:`\dot v = v_0 Hu + v_1 v` and the
    stages :math:`U, V` of weights and velocities,

    .. math:: V = R\,(1 v + h v_0 a G), \quad R = (1 - h v_1 a)^{-1}, \qquad
              U = 1 u + h a\,(w_0 G + w_1 V) .
    """
    nodes, weights, a = collocation()
    phases = (padded(segments)[..., None] + nodes) / counts[:, None, None]
    forces, coefficients, period = (np.asarray(part) for part in _forces(setting, values, phases))
    forces = forces[:, : segments.shape[1]]
    length = (period / counts)[:, None, None]
    (w0, w1), (v0, v1) = length * np.moveaxis(coefficients, 0, -1)[..., None, None]
    damped = np.linalg.inv(np.eye(_STAGES) - v1 * a)  # R; the velocities of an initial one
    driven = v0 * damped @ a  # velocities by the forces
    moved = w1 * a @ damped  # weights by an initial velocity
    pulled = w0 * a + w1 * a @ driven  # weights by the forces
    cells, count, _, size, _ = forces.shape
    system = -np.einsum("cij,ctikl->ctikjl", pulled, forces)
    system = system.reshape(cells, count, _STAGES * size, -1) + np.eye(_STAGES * size)
    known = np.concatenate([forces, moved.sum(-1)[:, None, :, None, None] * forces], axis=-1)
    found = np.linalg.solve(system, known.reshape(cells, count, _STAGES * size, 2 * size))
    found = found.reshape(cells, count, _STAGES, size, 2 * size)
    shares = np.stack(
        [
            w0[..., 0] * weights + (w1 * weights @ driven)[:, 0],
            v0[..., 0] * weights + (v1 * weights @ driven)[:, 0],
        ],
        axis=1,
    )
    ends = np.einsum("cxi,ctikl->ctxkl", shares, found).reshape(cells, count, 2 * size, 2 * size)
    drift = (weights @ damped).sum(-1)[:, None, None]
    eye, zero = np.eye(size), np.zeros((size, size))
    still = np.block(
        [
            [np.broadcast_to(eye, (cells, size, size)), w1 * drift * eye],
            [np.broadcast_to(zero, (cells, size, size)), (1 + v1 * drift) * eye],
        ]
    )
    return still[:, None] + ends


@jax.jit
def _stiffness(setting: Setting, values: dict[str, Array]) -> Array:
    """Return `stiffness` of one chunk."""

    def bound(values: dict[str, Array]) -> Array:
        flow = Flow(setting.at(values))
        cycle = flow.setting.process.cycle
        hessian = jax.vmap(flow.hessian_at)(jnp.arange(_PROBES) / _PROBES * cycle)
        trace = jnp.max(jnp.trace(hessian, axis1=1, axis2=2))
        (direct, _), (force, friction) = flow.coefficients()
        return flow.period * (jnp.sqrt(-force * trace) - direct * trace - friction)

    return jax.vmap(bound)(values)


@double_precision
@on_the_cpu
def stiffness(setting: Setting, values: Values) -> np.ndarray:
    """Return a bound of the logarithmic growth of the flow over one period, for each cell."""
    need = np.empty(len(next(iter(values.values()))))
    for index, count in chunks(need, _STIFFNESS_CHUNK if len(need) > 1 else 1):
        need[index[:count]] = np.asarray(_stiffness(setting, take(values, index)))[:count]
    return need


def is_integrable(need: np.ndarray, *, alone: bool = False) -> np.ndarray:
    """Return which cells, by their `stiffness`, take no more segments than can be integrated.

    ``alone`` says that there is one cell only, which may take longer.
    """
    return need / _STIFFNESS <= (_MAX_SEGMENTS if alone else _MAX_OF_MANY)


def segment_counts(setting: Setting, need: np.ndarray) -> np.ndarray:
    """Return into how many segments, a multiple of the smooth pieces, each cell's period is cut."""
    pieces = setting.process.pieces
    shares = np.maximum(need / _STIFFNESS / pieces, 1.0)
    return pieces * 2 ** np.ceil(np.log2(shares)).astype(int)


def flow_monodromy(setting: Setting, values: dict[str, np.ndarray], counts: np.ndarray) -> Product:
    """Return the monodromy matrix of the flow of a few cells, NaN where no segments suffice.

    Parameters
    ----------
    setting, values
        Of the cells.
    counts
        Segments to begin with.
    """
    size = 2 * setting.size
    found = product(_propagators, setting, values, counts, size)
    left = np.ones(len(counts), dtype=bool)
    for _ in range(_HALVINGS):
        counts = np.where(left, 2 * counts, counts)
        finer = product(_propagators, setting, values, counts, size)
        shift = found.exponent - finer.exponent
        miss = np.ldexp(found.matrix, shift[:, None, None]) - finer.matrix
        largest = np.abs(finer.matrix).max(axis=(1, 2))
        found, left = finer, ~(np.abs(miss).max(axis=(1, 2)) <= _TOLERANCE * largest)
        if not left.any():
            break
    matrix = np.where(left[:, None, None], np.nan, found.matrix)
    return Product(matrix, found.exponent)


@double_precision
def flow_rates(setting: Setting, values: Values, advance: Advance | None = None) -> np.ndarray:
    """Return the rate per step of every cell; NaN where it cannot be integrated."""
    need = stiffness(setting, values)
    found = is_integrable(need, alone=len(need) == 1)
    rates = np.full(len(found), np.nan)
    if advance and not found.all():
        advance(int((~found).sum()))
    if found.any():
        some = take(values, np.flatnonzero(found))
        periods = some.get("period", np.full(int(found.sum()), float(setting.process.cycle)))

        def logs(values: dict[str, np.ndarray], counts: np.ndarray) -> np.ndarray:
            return flow_monodromy(setting, values, counts).log_radii()

        counts = segment_counts(setting, need[found])
        rates[found] = over_cells(logs, some, counts, 2 * setting.size, advance) / periods
    return rates


class _Grid(NamedTuple):
    """Monodromy matrices, the friction taken out, at the product of two sets of nodes."""

    nodes: tuple[np.ndarray, np.ndarray]
    matrices: np.ndarray  # (first, second, n, n)


def _chebyshev_nodes(values: np.ndarray, degree: int) -> np.ndarray:
    """Return Chebyshev points of the second kind over the range of an axis."""
    low, high = values.min(), values.max()
    return low + (high - low) * (1 - np.cos(np.pi * np.arange(degree + 1) / degree)) / 2


def _interpolation_matrix(nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the matrix that takes values at the nodes of `_chebyshev_nodes` to values anywhere."""
    weights = (-1.0) ** np.arange(len(nodes))
    weights[[0, -1]] /= 2  # known in closed form
    return scipy.interpolate.BarycentricInterpolator(nodes, np.eye(len(nodes)), wi=weights)(values)


def _friction(setting: Setting, values: Values) -> np.ndarray:
    """Return (1 - momentum) T / 2, by which friction alone shrinks the logarithm in a period."""
    momentum = values.get("momentum", np.asarray(setting.optimizer.momentum, dtype=float))
    period = values.get("period", np.asarray(setting.process.cycle, dtype=float))
    cells = np.shape(next(iter(values.values())))
    return np.broadcast_to((1 - momentum) * period / 2, cells)


def _monodromy_grid(setting: Setting, names: Iterable[str], nodes: tuple[np.ndarray, ...]) -> _Grid:
    """Return the monodromy matrices at the product of two sets of nodes."""
    first, second = np.meshgrid(*nodes, indexing="ij")
    values = dict(zip(names, (first.ravel(), second.ravel()), strict=True))
    size = 2 * setting.size

    def matrices(values: dict[str, np.ndarray], counts: np.ndarray) -> np.ndarray:
        matrix, exponent = flow_monodromy(setting, values, counts)
        log_scale = exponent * math.log(2.0) + _friction(setting, values)
        return matrix * np.exp(np.clip(log_scale, -_MAX_LOG, _MAX_LOG))[:, None, None]

    counts = segment_counts(setting, stiffness(setting, values))
    found = over_cells(matrices, values, counts, size)
    return _Grid((nodes[0], nodes[1]), found.reshape(*first.shape, size, size))


def _refined(setting: Setting, names: Iterable[str], grid: _Grid, axis: int) -> tuple[_Grid, float]:
    """Double the nodes along an axis; return also the error of the old interpolant at new ones."""
    old = grid.nodes[axis]
    nodes = _chebyshev_nodes(old, 2 * (len(old) - 1))
    added = list(grid.nodes)
    added[axis] = nodes[1::2]
    new = _monodromy_grid(setting, names, tuple(added)).matrices
    guess = np.tensordot(_interpolation_matrix(old, nodes[1::2]), grid.matrices, (1, axis))
    miss = np.abs(np.moveaxis(guess, 0, axis) - new).max(axis=(2, 3))
    error = float(np.max(miss / np.abs(new).max(axis=(2, 3))))
    matrices = np.insert(grid.matrices, np.arange(1, len(old)), new, axis=axis)
    added[axis] = nodes
    return _Grid((added[0], added[1]), matrices), error


def _resolved_grid(setting: Setting, axes: Mapping[str, np.ndarray], budget: int) -> _Grid | None:
    """Return nodes that resolve the map, or None where direct integration is cheaper."""
    first, second = axes.values()
    grid = _monodromy_grid(
        setting, axes, (_chebyshev_nodes(first, 8), _chebyshev_nodes(second, 16))
    )
    if not np.abs(grid.matrices).max() <= np.exp(_MAX_LOG) / 10:  # nor NaN
        return None
    for axis in (0, 1):
        error = np.inf
        while not error <= _TOLERANCE:
            if 2 * grid.matrices.shape[0] * grid.matrices.shape[1] > budget:
                return None
            grid, error = _refined(setting, axes, grid, axis)
    return grid


def _corner_stiffness(setting: Setting, axes: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a bound of the logarithm by which the flow grows or turns, at the map's corners."""
    ends = [array[[0, -1]] for array in axes.values()]
    corners = np.array(list(itertools.product(*ends))).T
    return stiffness(setting, dict(zip(axes, corners, strict=True)))


@double_precision
def flow_grid_rates(
    setting: Setting, axes: Mapping[str, np.ndarray], advance: Advance | None = None
) -> np.ndarray:
    """Return the rate per step over the product of two axes; NaN where it cannot be integrated."""
    shape = tuple(len(array) for array in axes.values())
    first, second = np.meshgrid(*axes.values(), indexing="ij")
    values = dict(zip(axes, (first.ravel(), second.ravel()), strict=True))
    corners = _corner_stiffness(setting, axes)
    # A phase needs two points a turn, and so half as many Chebyshev points as its logarithm.
    is_small = shape[0] < _MIN_ROWS or corners.max() / 2 + _EXTRA_NODES >= shape[1]
    is_wild = not is_integrable(corners).all()
    grid = None if is_small or is_wild else _resolved_grid(setting, axes, budget=first.size // 4)
    if grid is None:
        return flow_rates(setting, values, advance).reshape(shape)
    period = values.get("period", np.full(first.size, float(setting.process.cycle)))
    logs = _grid_logs(grid, axes, advance) - _friction(setting, values).reshape(shape)
    return logs / period.reshape(shape)


def _grid_logs(grid: _Grid, axes: Mapping[str, np.ndarray], advance: Advance | None) -> np.ndarray:
    """Return the logarithm of the radius of each cell, the friction taken out."""
    shape = tuple(len(array) for array in axes.values())
    left, right = (
        _interpolation_matrix(nodes, array)
        for nodes, array in zip(grid.nodes, axes.values(), strict=True)
    )
    logs = np.empty(shape)
    rows = max(1, _EIGENVALUE_CHUNK // shape[1])
    for start in range(0, shape[0], rows):
        block = slice(start, start + rows)
        # Rows times the nodes of the first axis, then columns times those of the second.
        partly = np.tensordot(left[block], grid.matrices, 1)
        matrices = np.einsum("xnij,yn->xyij", partly, right, optimize=True)
        cells = matrices.reshape(-1, *matrices.shape[2:])
        radii = Product(cells, np.zeros(len(cells), dtype=int)).log_radii()
        logs[block] = radii.reshape(matrices.shape[:2])
        if advance:
            advance(min(rows, shape[0] - start) * shape[1])
    return logs


def missing_flags(setting: Setting, values: Values, criterion: str, rate: np.ndarray) -> np.ndarray:
    """Return the flag of each cell: a place in `REASONS`, 0 where there is a rate."""
    places = {name: flag for flag, name in enumerate(REASONS)}
    flags = np.zeros(len(rate), np.int8)
    missing = np.flatnonzero(~np.isfinite(rate))
    flags[missing] = places["overflow"]
    if criterion == "flow" and len(missing):
        need = stiffness(setting.grouped, take(values, missing))
        fine = is_integrable(need, alone=len(rate) == 1)
        flags[missing] = np.where(fine, places["not_integrated"], places["too_stiff"])
    return flags


def why_missing(setting: Setting, values: Values, criterion: str, rate: np.ndarray) -> str:
    """Return the reason of the first cell without a rate, as a sentence; empty if all have one."""
    flags = missing_flags(setting, values, criterion, rate)
    first = next(iter(flags[flags > 0]), 0)
    return list(REASONS.values())[first]
