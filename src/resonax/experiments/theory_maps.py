"""The paper's theory maps: the flow's growth over momentum and period for three step sizes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import xarray as xr

from resonax.dynamics import Setting
from resonax.learners import heavy_ball
from resonax.processes import Sinusoid
from resonax.results import make_folder, open_dataset, save_dataset
from resonax.stability.cells import Advance
from resonax.stability.maps import describe_map, stability_map

__all__ = ["PANELS", "Panel", "compute_theory_maps"]


class Panel(NamedTuple):
    """One map: step size, and the ranges of momentum and period."""

    name: str
    lr: float
    momentum: tuple[float, float]
    period: tuple[float, float]
    finer: int  # points of the period for each point of the momentum: the tongues are narrow


# The zoomed column is what the paper sweeps; the wide one has all momenta. The text gives no
# period range for either: up to 160 shows both tongues of the smallest step size (at 70 and 140).
_ZOOM = ((0.95, 0.999), (15.0, 160.0), 4)
_WIDE = ((0.0, 0.999), (2.0, 500.0), 1)
PANELS = tuple(
    Panel(f"theory-map-{column}-{lr}", lr, *ranges)
    for lr in (0.01, 0.005, 0.001)
    for column, ranges in (("zoom", _ZOOM), ("wide", _WIDE))
)


def compute_theory_maps(out: Path, points: int, advance: Advance) -> dict[str, xr.Dataset]:
    """Compute the six maps, or read those that are stored already; return them by name."""
    folder = make_folder(out / "results")
    return {
        panel.name: _panel(panel, points, folder / f"{panel.name}.nc", advance) for panel in PANELS
    }


def _panel(panel: Panel, points: int, path: Path, advance: Advance) -> xr.Dataset:
    setting = Setting(Sinusoid(period=22.0), heavy_ball(panel.lr, 0.95), batch=20)
    axes = {
        "momentum": np.linspace(*panel.momentum, points),
        "period": np.linspace(*panel.period, points * panel.finer),
    }
    if path.exists():
        stored = open_dataset(path)
        same = set(axes) <= set(stored.coords) and all(
            np.array_equal(stored[name], values) for name, values in axes.items()
        )
        if same and stored.attrs.get("setting") == describe_map(setting, axes):
            advance(stored.rate.size)
            return stored
    dataset = stability_map(
        setting, "flow", advance=advance, momentum=axes["momentum"], period=axes["period"]
    )
    save_dataset(dataset, path)
    return dataset
