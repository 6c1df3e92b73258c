"""Rates of the criteria of theory for the cells of a task."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from resonax.core.algebra import on_the_cpu
from resonax.spec.sweeps import COSTLY, Sweep
from resonax.sweeps.build import build_setting
from resonax.sweeps.panels import applies
from resonax.theory.maps import map_arrays
from resonax.theory.period import REASONS

__all__ = ["theory_rates"]

_LOG = logging.getLogger("resonax")


def theory_rates(
    sweep: Sweep, number: int, criterion: str, columns: range
) -> dict[str, np.ndarray]:
    """Return the rate of a criterion at some columns of a panel; nan where it does not apply.

    The Lyapunov criterion is applied to the process of the panel. The others need a periodic
    process: if that of the panel is not, they are applied to the process in the table ``theory``.

    A costly criterion is computed at some cells and interpolated between them. It has ``low`` and
    ``high`` as well: the range of the confidence intervals at the computed cells around a cell. If
    both have the same sign, the sign of the interpolated rate is reliable.

    The Lyapunov criterion is computed on the chosen device, the others on the CPU.

    Parameters
    ----------
    sweep, number, criterion
        Sweep, number of the panel, and criterion.
    columns
        Consecutive indices along the second axis.
    """
    assert sweep.theory is not None
    (first, rows), (second, across) = sweep.points().items()
    shape = len(rows), len(columns)
    names = ("rate", "low", "high") if criterion in COSTLY else ("rate",)
    process = sweep.merged(sweep.panels[number], "process")
    if not applies(criterion, process, sweep.theory.process):
        return {name: np.full(shape, np.nan) for name in names}
    is_other = criterion == "flow" and not build_setting(sweep, number).process.periodic
    setting = build_setting(sweep, number, theory=is_other)

    compute = map_arrays if criterion == "lyapunov" else on_the_cpu(map_arrays)

    def judge(points: dict[str, Any]) -> dict[str, np.ndarray]:
        found = compute(setting, criterion, points)
        _warn(f"{sweep.id}, {sweep.panels[number].name}", criterion, found["missing"])
        return found

    if criterion not in COSTLY:
        return {"rate": judge({first: rows, second: across[columns]})["rate"]}
    cells = range(len(rows)), columns
    computed = [
        _coarse_indices(len(array), count, indices)
        for array, count, indices in zip((rows, across), sweep.theory.points, cells, strict=True)
    ]
    coarse = {first: rows[computed[0]], second: across[computed[1]]}
    found = judge(coarse)
    low, high = (found.get(end, found["rate"]) for end in ("low", "high"))
    return {
        "rate": _interpolate(found["rate"], coarse, {first: rows, second: across[columns]}),
        "low": _reduce_corners(np.min, low, computed, cells),
        "high": _reduce_corners(np.max, high, computed, cells),
    }


def _coarse_indices(size: int, count: int, cells: range) -> np.ndarray:
    """Return the indices of the computed points of an axis that surround some cells.

    The whole axis has about ``count`` computed points, evenly spaced.

    Examples
    --------
    >>> _coarse_indices(100, 12, range(100))
    array([ 0,  9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99])
    >>> _coarse_indices(100, 12, range(30, 40)), _coarse_indices(100, 12, range(99, 100))
    (array([27, 36, 45]), array([90, 99]))
    """
    computed = np.unique(np.linspace(0, size - 1, count).round().astype(int))
    first = np.searchsorted(computed, cells[0], side="right") - 1
    last = np.searchsorted(computed, cells[-1], side="left")
    first = min(first, max(len(computed) - 2, 0))  # interpolation needs at least two points
    return computed[first : max(last, first + 1) + 1]


def _interpolate(
    values: np.ndarray, coarse: dict[str, np.ndarray], points: dict[str, np.ndarray]
) -> np.ndarray:
    """Return values interpolated linearly from a coarse grid, along 1/period instead of period.

    As functions of the frequency the unstable regions have about the same width everywhere.
    """
    from scipy.interpolate import RegularGridInterpolator  # takes long to load

    scales = [1 / array if name == "period" else array for name, array in coarse.items()]
    targets = [1 / array if name == "period" else array for name, array in points.items()]
    # Scales must ascend, and 1/period descends.
    order = tuple(slice(None, None, -1) if name == "period" else slice(None) for name in coarse)
    interpolator = RegularGridInterpolator(
        tuple(np.sort(scale) for scale in scales), values[order], method="linear"
    )
    return interpolator(np.stack(np.meshgrid(*targets, indexing="ij"), axis=-1))


def _warn(name: str, criterion: str, flags: np.ndarray) -> None:
    """Log how many cells of a map could not be computed, by reason."""
    for flag, reason in enumerate(REASONS.values()):
        if flag and (count := int((flags == flag).sum())):
            share = f"{count} of {flags.size} cells"
            _LOG.warning("%s: %s have no %s rate, as %s", name, share, criterion, reason)


def _reduce_corners(
    reduce: Callable[..., np.ndarray],
    values: np.ndarray,
    computed: Sequence[np.ndarray],
    cells: Sequence[range],
) -> np.ndarray:
    """Return the minimum or maximum of the values at the computed points around each cell.

    ``computed`` are the indices of the computed points of each axis. A cell that was computed has
    its own value.
    """
    below = [
        np.searchsorted(points, cell, side="right") - 1
        for points, cell in zip(computed, cells, strict=True)
    ]
    above = [
        np.searchsorted(points, cell, side="left")
        for points, cell in zip(computed, cells, strict=True)
    ]
    corners = [
        values[np.ix_(row, column)]
        for row in (below[0], above[0])
        for column in (below[1], above[1])
    ]
    return reduce(corners, axis=0)
