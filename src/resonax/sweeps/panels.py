"""What a stored sweep says of its panels.

All of it follows from the specification that is stored beside the numbers; nothing is guessed from
the name of a panel or from numbers that are missing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from resonax.spec.sweeps import PERIODIC, merge

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["StoredPanel", "applies", "read_panels", "select_panel"]


class StoredPanel(NamedTuple):
    """The tables of a panel, the ends of its axes, and the criteria that were computed for it."""

    process: Mapping[str, Any]
    model: Mapping[str, Any]
    optimizer: Mapping[str, Any]
    limits: Mapping[str, tuple[float, float]]
    criteria: tuple[str, ...]


def applies(criterion: str, process: Mapping[str, Any], other: Collection[str] = ()) -> bool:
    """Return whether a criterion judges a process; ``other`` is the process of the table theory.

    The Lyapunov criterion is for processes of random mean. The others need a law that repeats; the
    flow may judge another process in place of the panel's own.
    """
    is_periodic = process["kind"] in PERIODIC
    if criterion == "lyapunov":
        return not is_periodic
    return is_periodic or (criterion == "flow" and bool(other))


def read_panels(dataset: xr.Dataset) -> dict[str, StoredPanel]:
    """Return the panels of a stored sweep by their names."""
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
    """Return the cells of one panel: those inside its limits."""
    panel = dataset.sel(panel=name)
    for axis, (low, high) in read_panels(dataset)[name].limits.items():
        panel = panel.sel({axis: (panel[axis] >= low) & (panel[axis] <= high)})
    return panel
