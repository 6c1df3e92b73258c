"""The paper's theory maps: the flow's growth over momentum and period for three step sizes.

Beside them, what the flow does not know: how almost every run grows at a few places, by the number
of samples in a step.
"""

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
from resonax.stability.paths import lyapunov_rates

__all__ = ["BEST_STEP", "LR", "compute_theory_maps", "theory_layout", "theory_specification"]

LR = (0.01, 0.005, 0.001)
# The zoomed column is what the paper sweeps; the wide one has all momenta. The text gives no
# period range for either: up to 160 shows both tongues of the smallest step size (at 70 and 140).
_ZOOM = {"momentum": (0.95, 0.999), "period": (15.0, 160.0)}
_WIDE = {"momentum": (0.0, 0.999), "period": (2.0, 500.0)}
BEST_STEP = 0.001  # of the search for the momentum that converges fastest
# Almost-sure growth by batch: in the tongue, beside it, and at a long period. Periods are those at
# lr 0.01; at another lr they are as long in terms of the weights' swing, 2 pi / sqrt(2 lr) steps.
_BATCHES = (1, 4, 20)
_PLACES = ((0.96, 22.0), (0.98, 30.0), (0.99, 30.0), (0.99, 100.0))
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
    return {
        "process": process,
        "lr": list(LR),
        "zoom": _ZOOM,
        "wide": _WIDE,
        "points": points,
        "best_step": BEST_STEP,
        "batch": list(_BATCHES),
        "places": _PLACES,
    }


def theory_layout(points: int) -> Layout:
    """Return how the maps are stored: a task is one step size."""
    words = "rate per step of the flow"
    growth = {
        "exponent": "almost-sure rate per step of the sinusoid",
        "exponent_low": "lower end of its 95% interval",
        "exponent_high": "upper end of its 95% interval",
    }
    places = np.array([f"momentum {momentum:g}, T {period:g}" for momentum, period in _PLACES])
    return Layout(
        coords={
            "lr": np.array(LR),
            **_axes(points),
            "batch": np.array(_BATCHES),
            "place": places,
        },
        chunks={"lr": 1},
        variables={
            "rate": Variable(("lr", "momentum", "period"), "float64", {"long_name": words}),
            "wide_rate": Variable(
                ("lr", "wide_momentum", "wide_period"), "float64", {"long_name": words}
            ),
            "best_momentum": Variable(
                ("lr", "wide_period"), "float64", {"long_name": "momentum of the least rate"}
            ),
            **{
                name: Variable(("lr", "batch", "place"), "float64", {"long_name": text})
                for name, text in growth.items()
            },
        },
        coord_attributes={
            name: {"long_name": LABELS[name.removeprefix("wide_")][0]} for name in _axes(points)
        },
    )


def _best_momentum(
    setting: Setting, momentum: np.ndarray, period: np.ndarray, rate: np.ndarray
) -> np.ndarray:
    """Return for each period the momentum of the least rate, searched around that of the map."""
    best, step = momentum[rate.argmin(axis=0)], momentum[1] - momentum[0]
    low, high = max(best.min() - step, 0.0), min(best.max() + step, momentum[-1])
    finer = np.arange(low, high, BEST_STEP)
    found = stability_map(setting, "flow", momentum=finer, period=period).rate.values
    return finer[found.argmin(axis=0)]


def _exponents(setting: Setting) -> dict[str, np.ndarray]:
    """Return the almost-sure rate and its interval, (batch, place)."""
    momentum, period = np.array(_PLACES).T
    period = period * np.sqrt(LR[0] / float(setting.optimizer.lr))
    rows = [
        lyapunov_rates(
            setting,
            {
                "momentum": momentum,
                "period": period,
                "batch": np.full(len(period), batch),
            },
            paths=64,
            steps=4096,
        )
        for batch in _BATCHES
    ]
    found = np.array(rows)
    return dict(
        zip(("exponent", "exponent_low", "exponent_high"), np.moveaxis(found, 2, 0), strict=True)
    )


@on_the_cpu
def compute_theory_maps(points: int, region: Mapping[str, slice]) -> dict[str, np.ndarray]:
    """Return the maps and the exponents of one step size."""
    axes = _axes(points)
    setting = Setting(Sinusoid(period=22.0), heavy_ball(LR[region["lr"].start], 0.95), batch=20)
    found = {}
    for prefix, name in (("", "rate"), ("wide_", "wide_rate")):
        momentum, period = axes[f"{prefix}momentum"], axes[f"{prefix}period"]
        found[name] = stability_map(setting, "flow", momentum=momentum, period=period).rate.values
    wide = axes["wide_momentum"], axes["wide_period"]
    found["best_momentum"] = _best_momentum(setting, *wide, found["wide_rate"])
    found |= _exponents(setting)
    return {name: array[None] for name, array in found.items()}
