"""Cells that cannot be computed: their rate is NaN, and here is why."""

from __future__ import annotations

import numpy as np

from resonax.dynamics import Setting
from resonax.theory.cells import Values, take
from resonax.theory.floquet import is_integrable, stiffness

__all__ = ["REASONS", "missing_flags", "why_missing"]

_LOWER = "lower the period, the lr or the inputs, or use the map criterion"
# The flag of a cell is the place of its reason; names as in CF's ``flag_meanings``.
REASONS = {
    "computed": "",
    "too_stiff": f"the flow is too stiff to be integrated: {_LOWER}",
    "not_integrated": f"the flow could not be integrated: {_LOWER}",
    "overflow": "the growth exceeds all numbers: lower the lr, the inputs or the basis",
}
_FLAGS = {name: flag for flag, name in enumerate(REASONS)}


def missing_flags(setting: Setting, values: Values, criterion: str, rate: np.ndarray) -> np.ndarray:
    """Return the flag of each cell: a place in `REASONS`, 0 where there is a rate."""
    flags = np.zeros(len(rate), np.int8)
    missing = np.flatnonzero(~np.isfinite(rate))
    flags[missing] = _FLAGS["overflow"]
    if criterion == "flow" and len(missing):
        need = stiffness(setting.grouped, take(values, missing))
        fine = is_integrable(need, alone=len(rate) == 1)
        flags[missing] = np.where(fine, _FLAGS["not_integrated"], _FLAGS["too_stiff"])
    return flags


def why_missing(setting: Setting, values: Values, criterion: str, rate: np.ndarray) -> str:
    """Return the reason of the first cell without a rate, as a sentence; empty if all have one."""
    flags = missing_flags(setting, values, criterion, rate)
    first = next(iter(flags[flags > 0]), 0)
    return list(REASONS.values())[first]
