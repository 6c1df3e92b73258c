"""What the criteria say of the cells of a task."""

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

    The Lyapunov criterion judges the panel's own process. The others need a periodic law: where
    the panel's is not, they judge the process that the table ``theory`` names.

    A costly criterion is computed at some cells and interpolated to the others. Beside ``rate`` it
    has ``low`` and ``high``: the range of the computed points around a cell, intervals included. A
    sign that is the same at both ends is not interpolated.

    Sampled paths are followed on the device that was chosen, all others on a CPU.

    Parameters
    ----------
    sweep, number, criterion
        The sweep, which of its panels, and the criterion.
    columns
        Places along the second axis, one after the other.
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
    places = [
        _computed(len(array), most, cell)
        for array, most, cell in zip((rows, across), sweep.theory.points, cells, strict=True)
    ]
    coarse = {first: rows[places[0]], second: across[places[1]]}
    found = judge(coarse)
    low, high = (found.get(end, found["rate"]) for end in ("low", "high"))
    return {
        "rate": _between(found["rate"], coarse, {first: rows, second: across[columns]}),
        "low": _over_corners(np.min, low, places, cells),
        "high": _over_corners(np.max, high, places, cells),
    }


def _computed(size: int, most: int, cells: range) -> np.ndarray:
    """Return which points of an axis are computed: of about ``most``, those around some cells.

    Examples
    --------
    >>> _computed(100, 12, range(100))
    array([ 0,  9, 18, 27, 36, 45, 54, 63, 72, 81, 90, 99])
    >>> _computed(100, 12, range(30, 40)), _computed(100, 12, range(99, 100))
    (array([27, 36, 45]), array([90, 99]))
    """
    places = np.unique(np.linspace(0, size - 1, most).round().astype(int))
    first = np.searchsorted(places, cells[0], side="right") - 1
    last = np.searchsorted(places, cells[-1], side="left")
    first = min(first, max(len(places) - 2, 0))  # two at least, to interpolate between
    return places[first : max(last, first + 1) + 1]


def _between(
    values: np.ndarray, coarse: dict[str, np.ndarray], points: dict[str, np.ndarray]
) -> np.ndarray:
    """Return values that are interpolated from those on a coarser grid.

    Frequency is the axis along which the tongues have about the same width.
    """
    from scipy.interpolate import RegularGridInterpolator  # takes a while to load

    scales = [1 / array if name == "period" else array for name, array in coarse.items()]
    targets = [1 / array if name == "period" else array for name, array in points.items()]
    order = tuple(slice(None, None, -1) if name == "period" else slice(None) for name in coarse)
    between = RegularGridInterpolator(
        tuple(np.sort(scale) for scale in scales), values[order], method="linear"
    )
    return between(np.stack(np.meshgrid(*targets, indexing="ij"), axis=-1))


def _warn(name: str, criterion: str, flags: np.ndarray) -> None:
    """Warn of the cells of a map that could not be computed."""
    for flag, reason in enumerate(REASONS.values()):
        if flag and (count := int((flags == flag).sum())):
            share = f"{count} of {flags.size} cells"
            _LOG.warning("%s: %s have no %s rate, as %s", name, share, criterion, reason)


def _over_corners(
    reduce: Callable[..., np.ndarray],
    values: np.ndarray,
    places: Sequence[np.ndarray],
    cells: Sequence[range],
) -> np.ndarray:
    """Return the least or largest of the computed values around each of some cells.

    ``places`` says of each axis which of its points were computed; one of them has its own value.
    """
    sides = [
        (
            np.searchsorted(place, cell, side="right") - 1,
            np.searchsorted(place, cell, side="left"),
        )
        for place, cell in zip(places, cells, strict=True)
    ]
    corners = [values[np.ix_(row, column)] for row in sides[0] for column in sides[1]]
    return reduce(corners, axis=0)
