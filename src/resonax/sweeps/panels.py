"""Panels of a stored sweep, read from the specification in its attributes."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from resonax.spec.sweeps import PERIODIC, merge

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["StoredPanel", "applies", "read_panels", "select_panel"]


class StoredPanel(NamedTuple):
    """Tables of a panel, limits of its axes, and criteria that were computed for it."""

    process: Mapping[str, Any]
    model: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    limits: Mapping[str, tuple[float, float]]
    criteria: tuple[str, ...]


def applies(criterion: str, process: Mapping[str, Any], other: Collection[str] = ()) -> bool:
    """Return whether a criterion is computed for a panel with a process.

    The Lyapunov criterion is computed for processes with a random mean, the others for periodic
    ones. If the table theory names another process, ``other``, the flow is computed for that.
    """
    is_periodic = process["kind"] in PERIODIC
    if criterion == "lyapunov":
        return not is_periodic
    return is_periodic or (criterion == "flow" and bool(other))


def read_panels(dataset: xr.Dataset) -> dict[str, StoredPanel]:
    """Return the panels of a stored sweep by name."""
    sweep = json.loads(dataset.attrs["specification"])
    theory = sweep.get("theory") or {"criteria": (), "process": {}}
    panels = {}
    for panel in sweep["panels"]:
        process, model, optimizer = (
            merge(sweep[part], panel[part]) for part in ("process", "model", "optimizer")
        )
        criteria = tuple(
            name for name in theory["criteria"] if applies(name, process, theory["process"])
        )
        limits = {name: (low, high) for name, (low, high) in panel["limits"].items()}
        panels[panel["name"]] = StoredPanel(process, model, optimizer, limits, criteria)
    return panels


def select_panel(dataset: xr.Dataset, name: str) -> xr.Dataset:
    """Return the cells of one panel that lie inside its limits."""
    panel = dataset.sel(panel=name)
    for axis, (low, high) in read_panels(dataset)[name].limits.items():
        panel = panel.sel({axis: (panel[axis] >= low) & (panel[axis] <= high)})
    return panel
