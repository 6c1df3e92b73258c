"""Flow maps at the price of a few hundred integrations.

The monodromy matrix of the flow is an entire function of momentum, step size, period and
amplitude: they enter A(t) as polynomials. Its polynomial interpolant at Chebyshev points therefore
converges faster than geometrically, and a map of any resolution needs the integration at a few
points only. The error is measured at the points that a refinement adds, all over the map.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.interpolate import BarycentricInterpolator

from resonax.algebra import Scaled, double_precision, log_radii
from resonax.dynamics import Setting
from resonax.stability.cells import Advance, Values
from resonax.stability.floquet import flow_monodromy, flow_rates

__all__ = ["flow_grid_rates"]

_TOLERANCE = 1e-7  # of the coarser of two resolutions; the finer one, which is used, has its square
_BLOCK = 8192  # cells whose eigenvalues are taken at once
_RANGE = 60.0  # beyond this logarithm of a matrix no interpolant is accurate for the small ones


def _nodes(values: np.ndarray, degree: int) -> np.ndarray:
    """Return Chebyshev points of the second kind over the range of an axis."""
    low, high = values.min(), values.max()
    return low + (high - low) * (1 - np.cos(np.pi * np.arange(degree + 1) / degree)) / 2


def _matrix(nodes: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the matrix that takes values at the nodes to values anywhere."""
    return BarycentricInterpolator(nodes, np.eye(len(nodes)))(values)


def _friction(setting: Setting, values: Values) -> np.ndarray:
    """Return (1 - momentum) T / 2, by which friction alone shrinks the logarithm in a period."""
    momentum = values.get("momentum", np.asarray(setting.optimizer.momentum, dtype=float))
    period = values.get("period", np.asarray(setting.process.cycle, dtype=float))
    return (1 - momentum) * period / 2


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
    if np.abs(grid.matrices).max() > np.exp(_RANGE) / 10:
        return None
    for axis in (0, 1):
        error = np.inf
        while error > _TOLERANCE:
            if 2 * grid.matrices.shape[0] * grid.matrices.shape[1] > budget:
                return None
            grid, error = _finer(setting, axes, grid, axis)
    return grid


@double_precision
def flow_grid_rates(
    setting: Setting, axes: Mapping[str, np.ndarray], advance: Advance | None = None
) -> np.ndarray:
    """Return the rate per step over the product of two axes."""
    shape = tuple(len(array) for array in axes.values())
    first, second = np.meshgrid(*axes.values(), indexing="ij")
    values = dict(zip(axes, (first.ravel(), second.ravel()), strict=True))
    grid = _resolved(setting, axes, budget=first.size // 4) if min(shape) > 16 else None
    if grid is None:
        return flow_rates(setting, values, advance).reshape(shape)
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
        logs[block] = log_radii(Scaled(matrices, np.zeros(matrices.shape[:2], int)))  # pyright: ignore[reportArgumentType]
        if advance:
            advance(min(rows, shape[0] - start) * shape[1])
    periods = np.asarray(values.get("period", setting.process.cycle), dtype=float)
    rates = (logs.ravel() - _friction(setting, values)) / periods
    return rates.reshape(shape)
