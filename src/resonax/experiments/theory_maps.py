"""The paper's theory maps: the flow's growth over momentum and period for three step sizes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from resonax.algebra import on_the_cpu
from resonax.dynamics import Setting
from resonax.labels import LABELS
from resonax.learners import heavy_ball
from resonax.processes import Sinusoid
from resonax.results import Layout, Variable
from resonax.stability import stability_map

__all__ = ["LR", "compute_theory_maps", "theory_layout", "theory_specification"]

LR = (0.01, 0.005, 0.001)
# The zoomed column is what the paper sweeps; the wide one has all momenta. The text gives no
# period range for either: up to 160 shows both tongues of the smallest step size (at 70 and 140).
_ZOOM = {"momentum": (0.95, 0.999), "period": (15.0, 160.0)}
_WIDE = {"momentum": (0.0, 0.999), "period": (2.0, 500.0)}
_FINER = 4  # points of the zoomed period for each point of the momentum: the tongues are narrow


def _axes(points: int) -> dict[str, np.ndarray]:
    return {
        "momentum": np.linspace(*_ZOOM["momentum"], points),
        "period": np.linspace(*_ZOOM["period"], points * _FINER),
        "wide_momentum": np.linspace(*_WIDE["momentum"], points),
        "wide_period": np.linspace(*_WIDE["period"], points),
    }


def theory_specification(points: int) -> dict[str, Any]:
    """Return what decides the numbers, as plain values."""
    process = {"kind": "sinusoid", "amplitude": 0.5, "variance": 1.0}
    return {"process": process, "lr": list(LR), "zoom": _ZOOM, "wide": _WIDE, "points": points}


def theory_layout(points: int) -> Layout:
    """Return how the maps are stored: a task is one step size."""
    words = "rate per step of the flow"
    return Layout(
        coords={"lr": np.array(LR), **_axes(points)},
        chunks={"lr": 1},
        variables={
            "rate": Variable(("lr", "momentum", "period"), "float64", {"long_name": words}),
            "wide_rate": Variable(
                ("lr", "wide_momentum", "wide_period"), "float64", {"long_name": words}
            ),
        },
        coord_attributes={
            name: {"long_name": LABELS[name.removeprefix("wide_")][0]} for name in _axes(points)
        },
    )


@on_the_cpu
def compute_theory_maps(points: int, region: Mapping[str, slice]) -> dict[str, np.ndarray]:
    """Return both maps of one step size."""
    axes = _axes(points)
    setting = Setting(Sinusoid(period=22.0), heavy_ball(LR[region["lr"].start], 0.95), batch=20)
    found = {}
    for prefix, name in (("", "rate"), ("wide_", "wide_rate")):
        momentum, period = axes[f"{prefix}momentum"], axes[f"{prefix}period"]
        dataset = stability_map(setting, "flow", momentum=momentum, period=period)
        found[name] = dataset.rate.values[None]
    return found
