"""Maps: the growth rate over two axes, as a labelled dataset."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from resonax.core.errors import RANGES, ArgumentError, suggest
from resonax.core.labels import LABELS, versions
from resonax.dynamics import Setting
from resonax.theory.flow import flow_grid_rates, missing_flags
from resonax.theory.level import check_level, levels
from resonax.theory.lyapunov import MAP_PATHS, MAP_STEPS, lyapunov_rates
from resonax.theory.order_proof import order_proof
from resonax.theory.period import REASONS, Advance, check_values
from resonax.theory.verdict import check_criterion, rates

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["map_arrays", "proof_line", "stability_map"]


_MAX_CELLS = 4_000_000
_FLAG_ATTRIBUTES = {  # by the conventions of CF; each meaning has its sentence
    "long_name": "why a rate is missing",
    "flag_values": np.arange(len(REASONS), dtype=np.int8),
    "flag_meanings": " ".join(REASONS),
    **{name: reason for name, reason in REASONS.items() if reason},
}


def _attributes(name: str) -> dict[str, str]:
    meaning, symbol, unit = LABELS[name]
    return {"long_name": meaning, "symbol": symbol, "units": unit}


def _checked(setting: Setting, axes: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return the two axes as increasing arrays within their bounds."""
    for name in axes:
        if name not in RANGES:
            raise suggest("axis", name, setting.axes)
    if len(axes) != 2:
        raise ArgumentError(f"a map needs two axes of {', '.join(setting.axes)}, got {len(axes)}")
    arrays = {}
    for name, given in axes.items():
        array = np.asarray(given, dtype=float)
        if array.ndim != 1 or array.size == 0:
            raise ArgumentError(f"{name} must be a list of at least one number")
        if not np.isfinite(array).all() or (np.diff(array) <= 0).any():
            raise ArgumentError(f"{name} must be finite and increase from value to value")
        if name == "batch":
            whole = np.round(array)
            if (np.abs(array - whole) > 1e-9 * whole).any():
                bad = array[np.abs(array - whole) > 1e-9 * whole][0]
                raise ArgumentError(f"batch must be a whole number, got {bad:.6g}")
            array = whole
        arrays[name] = array
    if setting.process.name == "recorded" and "batch" in arrays:
        raise ArgumentError("batch cannot vary in a map of a recording: make a map for each")
    cells = math.prod(len(array) for array in arrays.values())
    if cells > _MAX_CELLS:
        raise ArgumentError(f"a map has at most {_MAX_CELLS} cells, got {cells}: use fewer points")
    check_values(setting, arrays)
    return arrays


class ProofLine(NamedTuple):
    """The largest ``of``, momentum or lr, that every order allows, along the other axis."""

    of: str
    along: str
    values: np.ndarray


def proof_line(setting: Setting, arrays: Mapping[str, np.ndarray]) -> ProofLine | None:
    """Return the line over the axes of a map below which no order of the inputs does harm.

    There is none without an axis of momentum or step size, and where the inputs are unbounded.
    """
    height = next((name for name in ("momentum", "lr") if name in arrays), None)
    if height is None or order_proof(setting).curvature is None:
        return None
    along = next(name for name in arrays if name != height)
    proofs = [order_proof(setting.at({along: float(number)})) for number in arrays[along]]
    values = [getattr(proof, height) for proof in proofs]
    line = np.array([np.nan if number is None else number for number in values])
    return ProofLine(height, along, line)


def describe_map(setting: Setting, axes: Iterable[str]) -> str:
    """Return the setting of a map as JSON, with the word "axis" for the numbers that vary."""
    described = setting.describe()
    for home in (described, described["process"], described["optimizer"]):
        home.update({name: "axis" for name in axes if name in home})
    return json.dumps(described)


def map_arrays(
    setting: Setting, criterion: str, axes: Mapping[str, ArrayLike], advance: Advance | None = None
) -> dict[str, np.ndarray]:
    """Return what `stability_map` computes over its axes as plain arrays, without xarray.

    ``missing`` has the place of a cell's reason in `REASONS`, 0 where there is a rate.
    """
    if criterion == "level":
        check_level(setting)
    else:
        check_criterion(setting, criterion)
    arrays = _checked(setting, axes)
    first, second = np.meshgrid(*arrays.values(), indexing="ij")
    values = dict(zip(arrays, (first.ravel(), second.ravel()), strict=True))
    if criterion == "level":
        return {"distance": levels(setting, values, advance).reshape(first.shape)}
    found: dict[str, np.ndarray] = {}
    if criterion == "lyapunov":
        columns = zip(*lyapunov_rates(setting, values, advance), strict=True)
        for name, column in zip(("rate", "low", "high"), columns, strict=True):
            found[name] = np.array(column).reshape(first.shape)
    elif criterion == "flow":
        found["rate"] = flow_grid_rates(setting.grouped, arrays, advance)
    else:
        found["rate"] = rates(setting, values, criterion, advance).reshape(first.shape)
    flags = missing_flags(setting, values, criterion, found["rate"].ravel())
    return {**found, "missing": flags.reshape(first.shape)}


def stability_map(
    setting: Setting,
    criterion: str = "map",
    *,
    advance: Advance | None = None,
    **axes: ArrayLike,
) -> xr.Dataset:
    """Return the growth rate over two numbers of a setting, such as momentum and period.

    Parameters
    ----------
    setting
        What is trained on what; the axes replace its numbers.
    criterion
        ``flow``, ``map``, ``mean_square`` or ``lyapunov``; ``level``, also for a `Problem` with an
        adaptive optimizer.
    advance
        Called with the number of cells just finished.
    **axes
        Two increasing lists of values by the names of `Setting.axes`; the first one is the
        vertical axis.

    Returns
    -------
    xarray.Dataset
        ``rate`` per step (and ``low``, ``high`` for lyapunov; for level ``distance``, the mean
        distance from the best weights, or its root mean square for SGD with momentum) with
        labelled axes; the setting and the versions are in the attributes. Where inputs or features
        are bounded and an axis is momentum or lr, ``order_proof`` is the largest value of it that
        is safe in every order. A cell that cannot be computed has the rate NaN, and ``missing``
        flags the reason; ``dataset.resonax.reasons()`` says it.

    Examples
    --------
    >>> from resonax import Setting, Sinusoid, heavy_ball
    >>> setting = Setting(Sinusoid(period=22), heavy_ball(lr=0.01, momentum=0.97))
    >>> rate = stability_map(setting, momentum=[0.9, 0.99], period=[22.0, 30.0]).rate
    >>> (rate > 0).values.tolist()
    [[False, False], [True, False]]
    """
    import xarray as xr  # takes long to load, and a verdict does without

    import resonax.core.accessor  # noqa: F401  gives the maps their methods

    found, arrays = map_arrays(setting, criterion, axes, advance), _checked(setting, axes)
    sampling: dict[str, Any] = {}
    if criterion == "lyapunov":
        sampling = {"paths": MAP_PATHS, "steps": MAP_STEPS, "seed": 0, "confidence": 0.95}
    labelled: dict[str, Any] = {
        name: (tuple(arrays), of, _FLAG_ATTRIBUTES if name == "missing" else _attributes(name))
        for name, of in found.items()
    }
    if criterion != "level" and (line := proof_line(setting, arrays)):
        meaning = f"largest {LABELS[line.of][0]} that is safe in every order"
        about = {"long_name": meaning, "of": line.of}
        labelled["order_proof"] = (line.along, line.values, about)
    return xr.Dataset(
        labelled,
        coords={name: (name, array, _attributes(name)) for name, array in arrays.items()},
        attrs={
            "title": "distance from the best weights at rest"
            if criterion == "level"
            else f"growth rate by the {criterion} criterion",
            "criterion": criterion,
            "process": setting.process.name,
            "setting": describe_map(setting, arrays),
            **sampling,
            **{f"version_{package}": number for package, number in versions().items()},
        },
    )
