"""The paper's theory maps: the flow's growth over momentum and period for three step sizes.

Beside them, what the flow does not know: how almost every run grows at a few places, by the number
of samples in a step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from resonax.core.algebra import double_precision, on_the_cpu
from resonax.core.labels import LABELS
from resonax.dynamics import Setting
from resonax.learners import heavy_ball
from resonax.store import Layout, Variable
from resonax.streams import Sinusoid, shuffled
from resonax.sweeps.experiment import Arrays, Datasets, Experiment, Judge, drawn_by
from resonax.sweeps.judgement import Case, Claim
from resonax.theory import stability_map
from resonax.theory.lyapunov import lyapunov_rates

__all__ = ["BEST_STEP", "LR", "RESONANT", "theory_layout", "theory_maps"]

LR = (0.01, 0.005, 0.001)
# The zoomed column is what the paper sweeps; the wide one has all momenta. The text gives no
# period range for either: up to 160 shows both tongues of the smallest step size (at 70 and 140).
_ZOOM = {"momentum": (0.95, 0.999), "period": (15.0, 160.0)}
_WIDE = {"momentum": (0.0, 0.999), "period": (2.0, 500.0)}
BEST_STEP = 0.001  # of the search for the momentum that converges fastest
# Almost-sure growth by batch: in the principal tongue, beside it, and at a long period. Periods are
# those at lr 0.01; at another lr they are as long in terms of the weights' swing, 2 pi / sqrt(2 lr)
# steps. Each stands beside that of the same inputs shuffled.
_BATCHES = (1, 4, 20)
_RESONANT = ((0.97, 22.0), (0.99, 22.0))
_PLACES = (*_RESONANT, (0.98, 30.0), (0.99, 30.0), (0.99, 100.0))
_CONFIDENCE = 0.9995  # of their intervals, several of which decide one claim
_EXPONENT_SECONDS = 3.5  # for a step size


def _place(momentum: float, period: float) -> str:
    return f"momentum {momentum:g}, T {period:g}"


RESONANT = tuple(_place(*place) for place in _RESONANT)
_PERIODS_PER_MOMENTUM = 4  # points of the zoomed axes: the tongues are narrow


def _axes(points: int) -> dict[str, np.ndarray]:
    return {
        "momentum": np.linspace(*_ZOOM["momentum"], points),
        "period": np.linspace(*_ZOOM["period"], points * _PERIODS_PER_MOMENTUM),
        "wide_momentum": np.linspace(*_WIDE["momentum"], points),
        "wide_period": np.linspace(*_WIDE["period"], points),
    }


def _specification(points: int) -> dict[str, Any]:
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
        "confidence": _CONFIDENCE,
    }


def theory_layout(points: int) -> Layout:
    """Return how the maps are stored: a task is one step size."""
    words = "rate per step of the flow"
    growth = {
        f"{order}exponent{end}": f"{text}almost-sure rate per step of the sinusoid{shuffled}"
        for order, shuffled in (("", ""), ("shuffled_", ", its inputs shuffled"))
        for end, text in (
            ("", ""),
            ("_low", f"lower end of the {_CONFIDENCE:.2%} interval of the "),
            ("_high", f"upper end of the {_CONFIDENCE:.2%} interval of the "),
        )
    }
    places = np.array([_place(*place) for place in _PLACES])
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
    """Return the almost-sure rate and its interval, (batch, place), in order and shuffled."""
    momentum, period = np.array(_PLACES).T
    values = {"momentum": momentum, "period": period * np.sqrt(LR[0] / float(setting.optimizer.lr))}
    iid = replace(setting, process=double_precision(shuffled)(setting.process))
    found = {}
    for order, one, axes in (("", setting, tuple(values)), ("shuffled_", iid, ("momentum",))):
        rows = [
            lyapunov_rates(
                one,
                {name: values[name] for name in axes} | {"batch": np.full(len(period), batch)},
                paths=64,
                steps=4096,
                confidence=_CONFIDENCE,
            )
            for batch in _BATCHES
        ]
        names = (f"{order}exponent{end}" for end in ("", "_low", "_high"))
        found |= dict(zip(names, np.moveaxis(np.array(rows), 2, 0), strict=True))
    return found


def _setting(region: Mapping[str, slice]) -> Setting:
    return Setting(Sinusoid(period=22.0), heavy_ball(LR[region["lr"].start], 0.95), batch=20)


@on_the_cpu
def _compute_zoomed(points: int, region: Mapping[str, slice], *_: object) -> Arrays:
    """Return the map of high momenta of one step size."""
    axes, setting = _axes(points), _setting(region)
    momentum, period = axes["momentum"], axes["period"]
    found = stability_map(setting, "flow", momentum=momentum, period=period)
    return {"rate": found.rate.values[None]}


@on_the_cpu
def _compute_wide(points: int, region: Mapping[str, slice], *_: object) -> Arrays:
    """Return the map of all momenta of one step size, and which of them is fastest."""
    axes, setting = _axes(points), _setting(region)
    momentum, period = axes["wide_momentum"], axes["wide_period"]
    rate = stability_map(setting, "flow", momentum=momentum, period=period).rate.values
    best = _best_momentum(setting, momentum, period, rate)
    return {"wide_rate": rate[None], "best_momentum": best[None]}


@on_the_cpu
def _compute_exponents(region: Mapping[str, slice], *_: object) -> Arrays:
    """Return the exponents of one step size."""
    return {name: array[None] for name, array in _exponents(_setting(region)).items()}


def judge_best_momentum(data: Datasets) -> Claim:
    """Judge whether one momentum is fastest for nearly all periods."""
    dataset = data["theory-maps"]
    cases, places = [], []
    for lr in dataset.lr.values:
        best = dataset.best_momentum.sel(lr=lr)
        swing = 2 * np.pi / np.sqrt(2 * lr)  # of the slowest direction: B is 2 there
        slow = best.where(best.wide_period >= swing, drop=True)
        for words, values in (
            (f"the periods above {swing:.0f} steps", slow),
            ("all periods", best),
        ):
            spread = float(values.quantile(0.9) - values.quantile(0.1))
            cases.append(
                Case(
                    f"lr {lr:g}: spread of the fastest momentum over {words}",
                    spread,
                    "<=",
                    0.05,
                    decides=values is slow,
                    interval=(spread - BEST_STEP, spread + BEST_STEP),
                )
            )
        places.append(float(slow.median()))
        cases.append(Case(f"lr {lr:g}: where it lies (median)", places[-1], ">", 0.0, False))
    rise = float(np.min(np.diff(places)))
    cases.append(Case("it rises as lr falls: least difference", rise, ">", 0.0))
    return Claim(
        id="best-momentum",
        claim="A nearly horizontal band of least radius: one momentum is fastest for nearly all "
        "periods, with minor deviations where the data approach iid, and where it lies depends on "
        "the step size.",
        quantity="width (10% to 90%) over the periods of the momentum that converges fastest",
        reason="0.05 is a twentieth of the axis: nearly horizontal to the eye. The paper excepts "
        "the shortest periods, where the data approach iid. To weights that swing once in "
        "2π/sqrt(2η) steps inputs are as good as iid when they change faster than that: these "
        "periods are left out. The figure with them stands beside. The interval is the step of "
        "the search.",
        cases=tuple(cases),
        significance=0.0,
    )


def theory_maps(scale: str) -> Experiment:
    """Return the record of this experiment."""
    points = 100 if scale == "paper" else 30
    return Experiment(
        id="theory-maps",
        title="Where the flow diverges",
        caption="Growth of the flow over momentum and period for step sizes 0.01, 0.005 and 0.001: "
        "high momenta on the left, all momenta on the right, where the dotted frame is the left "
        "panel. The black line is a spectral radius of 1: outside the tongues all converges. "
        "The dashed line on the right is, for each period, the momentum that converges fastest.",
        specification={"id": "theory-maps", **_specification(points)},
        layout=theory_layout(points),
        compute=partial(_compute_zoomed, points),
        also=(
            partial(_compute_wide, points),
            _compute_exponents,
        ),
        draw=drawn_by("resonax.figures.theory_maps:plot_theory_maps"),
        judges=(Judge(judge_best_momentum),),
        paper="Appendix, numerical stability",
        cells=len(LR) * points**2 * (1 + _PERIODS_PER_MOMENTUM),
        seconds=points**2 * 1.5e-3 + _EXPONENT_SECONDS,
    )
