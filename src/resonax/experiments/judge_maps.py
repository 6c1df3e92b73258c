"""Claims on maps: where training diverges. Thresholds stand here, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from scipy.ndimage import maximum_filter, minimum_filter

from resonax.experiments.judgement import Case, Claim

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["judge_best_momentum", "judge_contours", "judge_samples", "judge_step_size"]

Datasets = Mapping[str, "xr.Dataset"]


def _agreement(panel: xr.Dataset, criterion: str) -> tuple[float, float]:
    """Return the share of cells where simulation and theory agree: all, and those not next to.

    A cell is next to the contour when its neighbours, the eight around it, do not all have its
    verdict. A cell diverged when its error grew, in the mean of the logarithm over the runs.
    """
    theory = panel[criterion].values > 0
    same = (panel.rate.values > 0) == theory
    away = minimum_filter(theory, 3) == maximum_filter(theory, 3)
    return float(same.mean()), float(same[away].mean())


def judge_contours(data: Datasets) -> Claim:
    """Judge whether the line of radius 1 separates what converges from what diverges."""
    maps = [("", data["sinusoid-map"]), ("", data["ar2-map"])]
    if "smaller-step" in data:
        maps.append(("smaller-step: ", data["smaller-step"]))
    cases = []
    for prefix, dataset in maps:
        for name in dataset.panel.values:
            panel = dataset.sel(panel=name)
            random = (
                bool(np.isfinite(panel["lyapunov_rate"]).all())
                if ("lyapunov_rate" in panel)
                else False
            )
            words = f"{prefix}{name}" if prefix else ("ar2" if random else "sinusoid")
            flow_all, flow_away = _agreement(panel, "flow_rate")
            cases.append(
                Case(f"{words}: flow, away from the contour", flow_away, ">=", 0.99, not random)
            )
            cases.append(Case(f"{words}: flow, all cells", flow_all, ">=", 0.95, False))
            if random:
                own_all, own_away = _agreement(panel, "lyapunov_rate")
                cases.append(Case(f"{words}: its own boundary, away from it", own_away, ">=", 0.99))
                cases.append(
                    Case(f"{words}: its own boundary, all cells", own_all, ">=", 0.95, False)
                )
    return Claim(
        id="contour-separates",
        claim="The line of spectral radius 1 separates the cells that converge from those that "
        "diverge, for the sinusoid and for AR(2).",
        quantity="share of map cells where divergence and the theory agree",
        reason="99% leaves room for cells whose growth is within the error of a finite run; next "
        "to the contour the sign is not decided by theory at the resolution of the map.",
        cases=tuple(cases),
        note="For AR(2) the paper draws the sinusoid's contour, which is near but not the "
        "boundary of that process; its own (Lyapunov) decides here, the sinusoid's stands beside.",
    )


def judge_step_size(data: Datasets) -> Claim:
    """Judge whether the divergent region shrinks with the step size."""
    dataset = data["smaller-step"]
    cases = []
    for process in ("sinusoid", "ar2"):
        names = [f"{process}, lr {lr}" for lr in ("0.01", "0.005", "0.001")]
        for words, variable in (("simulation", "rate"), ("flow", "flow_rate")):
            if process == "ar2" and variable == "flow_rate":
                continue
            areas = [float((dataset[variable].sel(panel=name) > 0).mean()) for name in names]
            for before, after, larger, smaller in zip(
                ("0.01", "0.005"), ("0.005", "0.001"), areas[:-1], areas[1:], strict=True
            ):
                cases.append(
                    Case(
                        f"{process}, {words}: area at {after} over area at {before}",
                        smaller / larger if larger else np.nan,
                        "<",
                        1.0,
                    )
                )
    return Claim(
        id="step-size-shrinks",
        claim="The divergent region shrinks with the step size, in theory and in simulation.",
        quantity="area of the divergent region against that of the next larger step",
        reason="It falls if the ratio is below 1.",
        cases=tuple(cases),
    )


def _bands(panel: xr.Dataset, batch: float) -> float:
    """Return the share of periods at which runs diverge, for one number of samples."""
    curve = panel.sel(batch=batch)
    return float((curve.rate_low.where(curve.period > 0, drop=True) > 0).mean())


def judge_samples(data: Datasets) -> Claim:
    """Judge whether fewer samples damp the resonance."""
    cases = []
    if "square-samples" in data:
        dataset = data["square-samples"]
        few, many = float(dataset.batch.min()), float(dataset.batch.max())
        for place, name in enumerate(dataset.panel.values):
            panel = dataset.sel(panel=name)
            width = _bands(panel, few) - _bands(panel, many)
            cases.append(
                Case(
                    f"Fig. 3, {name}: divergent periods at {few:g} less those at {many:g} samples",
                    width,
                    "<",
                    0.0,
                    place == 0,
                )
            )
    if "single-sample" in data and "smaller-step" in data:
        for name in data["single-sample"].panel.values:
            areas = []
            for key in ("single-sample", "smaller-step"):
                panel = data[key].sel(panel=name)
                areas.append(float((panel.log_response > 0).mean()))
            cases.append(
                Case(
                    f"{name}: cells above distance 1, one sample less twenty",
                    areas[0] - areas[1],
                    "<",
                    0.0,
                )
            )
        panel = data["single-sample"].isel(panel=0)
        predicted = float((panel.mean_square_rate > 0).mean() - (panel.flow_rate > 0).mean())
        cases.append(
            Case(
                "sinusoid, lr 0.01: mean-square theory, divergent area, one sample less the flow",
                predicted,
                "<",
                0.0,
                False,
            )
        )
    return Claim(
        id="samples-damp",
        claim="Fewer samples a step damp the resonance: the regions of instability get smaller.",
        quantity="change of the divergent share when the samples of a step become few",
        reason="Damping means a negative change.",
        cases=tuple(cases),
        note="Sampling noise feeds the mean square of the error, it does not damp it: with one "
        "sample a step, E[M S M'] has the extra term G (4 F(S) - B S B) G'/n, which is never "
        "negative, so that the mean-square boundary lies below the flow's at every period. The "
        "mean distance over ten runs lies between the two: it sees only part of the rare runs that "
        "carry the mean square. In Fig. 3 fewer samples do damp under the summed "
        "loss, because the sum scales the step size with the number of samples.",
    )


def judge_best_momentum(data: Datasets) -> Claim:
    """Judge whether one momentum is fastest for nearly all periods."""
    dataset = data["theory-maps"]
    cases = []
    places = []
    for lr in dataset.lr.values:
        best = dataset.wide_rate.sel(lr=lr).idxmin("wide_momentum")
        far = best.where(best.wide_period >= 50, drop=True)
        spread = float(far.quantile(0.9) - far.quantile(0.1))
        places.append(float(far.median()))
        cases.append(
            Case(f"lr {lr:g}: spread of the fastest momentum over T >= 50", spread, "<=", 0.05)
        )
        cases.append(Case(f"lr {lr:g}: where it lies (median)", places[-1], ">", 0.0, False))
    cases.append(
        Case("it rises as lr falls: least difference", float(np.min(np.diff(places))), ">", 0.0)
    )
    return Claim(
        id="best-momentum",
        claim="A nearly horizontal band of least radius: one momentum is fastest for nearly all "
        "periods, and where it lies depends on the step size.",
        quantity="width (10% to 90%) over the periods of the momentum that converges fastest",
        reason="0.05 is a twentieth of the axis: nearly horizontal to the eye.",
        cases=tuple(cases),
    )
