"""Maps of the flow by interpolation, from a few hundred integrations.

The monodromy matrix of the flow is an entire function of the numbers of a setting: they enter A(t)
as polynomials or, as phase and swing, as entire functions. Its polynomial interpolant at Chebyshev
points therefore converges faster than geometrically, and a map of any resolution needs the
integration at a few points only. The error is measured at the points that a refinement adds.

Where the second axis would need more points than the map has, as for long periods, only the first
is interpolated. That is done segment by segment: over a segment the matrix is of moderate size at
every point of the map, however much it grows or falls over the period.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from resonax.core.algebra import Scaled, double_precision, log_radii
from resonax.dynamics import Setting
from resonax.theory.cells import Advance, Values
from resonax.theory.floquet import (
    flow_monodromy,
    flow_rates,
    integrate_segments,
    is_integrable,
    multiply_segments,
    segment_counts,
    stiffness,
)

__all__ = ["flow_grid_rates"]

_TOLERANCE = 1e-7  # of the coarser of two resolutions; the finer one, which is used, has its square
_BLOCK = 8192  # cells whose eigenvalues are taken at once
_SEGMENTS = 4096  # in columns that are integrated together
_SPLIT = 256  # cells of a part that is too stiff in places
_FEW = 32  # points of the first axis from which on interpolation along it alone pays
_MARGIN = 20  # nodes beyond the two for each turn of the phase
_RANGE = 60.0  # beyond this logarithm of a matrix no interpolant is accurate for the small ones


def _nodes(values: np.ndarray, degree: int) -> np.ndarray:
    """Return Chebyshev points of the second kind over the range of an axis."""
    low, high = values.min(), values.max()
    return low + (high - low) * (1 - np.cos(np.pi * np.arange(degree + 1) / degree)) / 2


def _matrix(nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
    r"""Return the matrix that takes values at the nodes of `_nodes` to values anywhere.

    It is the barycentric formula :math:`\ell_j(x) = \frac{w_j}{x-x_j} / \sum_k\frac{w_k}{x-x_k}`
    with the weights of these nodes, which are known in closed form. That of `scipy.interpolate`
    gives the same numbers, but its import takes longer than the maps.
    """
    weights = (-1.0) ** np.arange(len(nodes))
    weights[[0, -1]] /= 2
    distance = values[:, None] - nodes
    place, node = np.nonzero(distance == 0)
    distance[place, node] = 1.0
    terms = weights / distance
    matrix = terms / terms.sum(axis=1, keepdims=True)
    matrix[place] = np.eye(len(nodes))[node]
    return matrix


def _friction(setting: Setting, values: Values) -> np.ndarray:
    """Return (1 - momentum) T / 2, by which friction alone shrinks the logarithm in a period."""
    momentum = values.get("momentum", np.asarray(setting.optimizer.momentum, dtype=float))
    period = values.get("period", np.asarray(setting.process.cycle, dtype=float))
    cells = np.shape(next(iter(values.values())))
    return np.broadcast_to((1 - momentum) * period / 2, cells)


class _Grid(NamedTuple):
    """Monodromy matrices, the friction taken out, at the product of two sets of nodes."""

    nodes: tuple[np.ndarray, np.ndarray]
    matrices: np.ndarray  # (first, second, n, n)


def _integrated(setting: Setting, names: Iterable[str], nodes: tuple[np.ndarray, ...]) -> _Grid:
    first, second = np.meshgrid(*nodes, indexing="ij")
    values = dict(zip(names, (first.ravel(), second.ravel()), strict=True))
    product = flow_monodromy(setting, values)
    log_scale = np.asarray(product.exponent) * np.log(2.0) + _friction(setting, values)
    scale = np.exp(np.clip(log_scale, -_RANGE, _RANGE))
    matrices = np.asarray(product.matrix) * scale[:, None, None]
    return _Grid((nodes[0], nodes[1]), matrices.reshape(*first.shape, *matrices.shape[1:]))


def _finer(setting: Setting, names: Iterable[str], grid: _Grid, axis: int) -> tuple[_Grid, float]:
    """Double the nodes along an axis; return also the error of the old interpolant at new ones."""
    old = grid.nodes[axis]
    nodes = _nodes(old, 2 * (len(old) - 1))
    added = list(grid.nodes)
    added[axis] = nodes[1::2]
    new = _integrated(setting, names, tuple(added)).matrices
    guess = np.tensordot(_matrix(old, nodes[1::2]), grid.matrices, (1, axis))
    miss = np.abs(np.moveaxis(guess, 0, axis) - new).max(axis=(2, 3))
    error = float(np.max(miss / np.abs(new).max(axis=(2, 3))))
    matrices = np.insert(grid.matrices, np.arange(1, len(old)), new, axis=axis)
    added[axis] = nodes
    return _Grid((added[0], added[1]), matrices), error


def _resolved(setting: Setting, axes: Mapping[str, np.ndarray], budget: int) -> _Grid | None:
    """Return nodes that resolve the map, or None where direct integration is cheaper."""
    first, second = axes.values()
    grid = _integrated(setting, axes, (_nodes(first, 8), _nodes(second, 16)))
    if not np.abs(grid.matrices).max() <= np.exp(_RANGE) / 10:  # nor NaN
        return None
    for axis in (0, 1):
        error = np.inf
        while not error <= _TOLERANCE:
            if 2 * grid.matrices.shape[0] * grid.matrices.shape[1] > budget:
                return None
            grid, error = _finer(setting, axes, grid, axis)
    return grid


def _corners(setting: Setting, axes: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return a bound of the logarithm by which the flow grows or turns, at the map's corners."""
    ends = [array[[0, -1]] for array in axes.values()]
    corners = np.array(list(itertools.product(*ends))).T
    return stiffness(setting, dict(zip(axes, corners, strict=True)))


def _cells(axes: Mapping[str, np.ndarray]) -> int:
    return math.prod(len(array) for array in axes.values())


def _segments_at(
    setting: Setting, axes: Mapping[str, np.ndarray], nodes: np.ndarray, counts: np.ndarray
) -> list[np.ndarray]:
    """Return the ends of all segments of each column, (nodes, segments, n, n), at some nodes."""
    first, second = axes
    where = np.meshgrid(nodes, axes[second], indexing="ij")
    values = {first: where[0].T.ravel(), second: where[1].T.ravel()}
    each = np.repeat(counts, len(nodes))
    ends = integrate_segments(setting, values, np.arange(len(each)), each)
    parts = np.split(ends, np.cumsum(counts * len(nodes))[:-1])
    return [part.reshape(len(nodes), -1, *ends.shape[1:]) for part in parts]


def _resolved_segments(
    setting: Setting, axes: Mapping[str, np.ndarray], counts: np.ndarray
) -> tuple[np.ndarray, list[np.ndarray]] | None:
    """Return nodes of the first axis that resolve every segment, and the segments at them."""
    points = next(iter(axes.values()))
    nodes = _nodes(points, 8)
    segments, error = _segments_at(setting, axes, nodes, counts), np.inf
    while not error <= _TOLERANCE:
        finer = _nodes(points, 2 * (len(nodes) - 1))
        if len(finer) >= len(points):
            return None
        added = _segments_at(setting, axes, finer[1::2], counts)
        guess, error = _matrix(nodes, finer[1::2]), 0.0
        for column, new in enumerate(added):
            old = segments[column]
            miss = np.abs(np.tensordot(guess, old, 1) - new).max() / np.abs(new).max()
            error = np.maximum(error, miss)  # NaN stays
            segments[column] = np.insert(old, np.arange(1, len(nodes)), new, axis=0)
        nodes = finer
    return nodes, segments


def _column_logs(
    setting: Setting, axes: Mapping[str, np.ndarray], advance: Advance | None
) -> np.ndarray | None:
    """Return the logarithm of the radius of each cell, or None where the nodes do not suffice."""
    (first, points), (second, across) = axes.items()
    ends = np.meshgrid(points[[0, -1]], across, indexing="ij")
    need = stiffness(setting, {first: ends[0].ravel(), second: ends[1].ravel()})
    counts = segment_counts(setting, need.reshape(2, -1).max(axis=0))
    logs = np.empty((len(points), len(across)))
    # Blocks of about equal work keep the memory flat, however large the map.
    block = np.cumsum(counts) // _SEGMENTS
    for columns in np.split(np.arange(len(across)), np.flatnonzero(np.diff(block)) + 1):
        part = {first: points, second: across[columns]}
        found = _resolved_segments(setting, part, counts[columns])
        if found is None:
            return None
        spread = _matrix(found[0], points)
        for column, segments in zip(columns, found[1], strict=True):
            product = multiply_segments(np.tensordot(spread, segments, 1))
            logs[:, column] = log_radii(Scaled(*product))  # pyrefly: ignore[bad-argument-type]
        if advance:
            advance(len(points) * len(columns))
    return logs


@double_precision
def flow_grid_rates(
    setting: Setting, axes: Mapping[str, np.ndarray], advance: Advance | None = None
) -> np.ndarray:
    """Return the rate per step over the product of two axes; NaN where it cannot be integrated.

    A map that is too stiff in places is halved, along its longer side, down to parts that are not,
    or so small that their cells are integrated one by one.
    """
    corners = _corners(setting, axes)
    if not is_integrable(corners).all() and _cells(axes) > _SPLIT:
        place = int(np.argmax([len(array) for array in axes.values()]))
        name = list(axes)[place]
        halves = np.array_split(axes[name], 2)
        parts = [flow_grid_rates(setting, {**axes, name: half}, advance) for half in halves]
        return np.concatenate(parts, axis=place)
    shape = tuple(len(array) for array in axes.values())
    first, second = np.meshgrid(*axes.values(), indexing="ij")
    values = dict(zip(axes, (first.ravel(), second.ravel()), strict=True))
    period = values.get("period", np.full(first.size, setting.process.cycle, dtype=float))
    periods = period.reshape(shape)
    if shape[0] < _FEW or not is_integrable(corners).all():
        return flow_rates(setting, values, advance).reshape(shape)
    # A phase needs two points a turn, and so half as many Chebyshev points as its logarithm.
    need = corners.max() / 2 + _MARGIN
    grid = _resolved(setting, axes, budget=first.size // 4) if need < shape[1] else None
    if grid is not None:
        logs = _grid_logs(grid, axes, advance) - _friction(setting, values).reshape(shape)
        return logs / periods
    logs = _column_logs(setting, axes, advance)
    if logs is None:
        return flow_rates(setting, values, advance).reshape(shape)
    return logs / periods


def _grid_logs(grid: _Grid, axes: Mapping[str, np.ndarray], advance: Advance | None) -> np.ndarray:
    """Return the logarithm of the radius of each cell, the friction taken out."""
    shape = tuple(len(array) for array in axes.values())
    left, right = (
        _matrix(nodes, array) for nodes, array in zip(grid.nodes, axes.values(), strict=True)
    )
    logs = np.empty(shape)
    rows = max(1, _BLOCK // shape[1])
    for start in range(0, shape[0], rows):
        # The last block overlaps the one before it, so that one compiled shape serves all.
        begin = max(0, min(start, shape[0] - rows))
        block = slice(begin, begin + rows)
        # Rows times the nodes of the first axis, then columns times those of the second.
        partly = np.tensordot(left[block], grid.matrices, 1)
        matrices = np.einsum("xnij,yn->xyij", partly, right, optimize=True)
        logs[block] = log_radii(Scaled(matrices, np.zeros(matrices.shape[:2], int)))  # pyrefly: ignore[bad-argument-type]
        if advance:
            advance(min(rows, shape[0] - start) * shape[1])
    return logs
