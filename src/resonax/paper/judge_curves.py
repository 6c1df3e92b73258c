"""Claims on curves: how strongly what responds. Thresholds stand here, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from resonax.paper.inference import (
    LEVEL,
    largest_mean,
    largest_shift,
    mean_interval,
    ordered_share,
    sides,
)
from resonax.paper.judge_samples import DIVERGES
from resonax.paper.judgement import Case, Claim

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["judge_adam", "judge_dimension", "judge_low_momentum", "judge_network", "judge_variance"]

Datasets = Mapping[str, "xr.Dataset"]
_ORDERED = 0.9  # of the pairs of levels
_MITIGATED = 1.1  # times the response to shuffled inputs


def _curve(panel: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a variable of the runs for shuffled inputs, (runs), and all else, (periods, runs)."""
    curve = panel[name].dropna("period").transpose("period", "run")
    return curve.sel(period=0).values, curve.where(curve.period > 0, drop=True).values


def judge_low_momentum(data: Datasets) -> Claim:
    """Judge whether momentum 0.85 removes the response."""
    dataset = data["lower-momentum"]
    error = LEVEL / dataset.sizes["panel"]
    cases, surely = [], []
    for name in dataset.panel.values:
        least, *_, most = (
            dataset.sel(panel=name, momentum=momentum) for momentum in dataset.momentum.values
        )
        baseline, others = _curve(least, "run_log_response")
        ratio = largest_shift(others, baseline, error).exp()
        surely.append(ratio.low)
        words = f"{name}: largest response over its iid baseline"
        cases.append(Case(words, ratio.value, "<=", _MITIGATED, interval=ratio.interval))
        baseline, others = _curve(most, "run_log_response")
        peak = np.median(others, axis=1).max() - np.median(baseline)
        powers = float(min(peak / np.log(10), 300.0))
        words = f"{name}: the same at momentum {float(most.momentum):g}, powers of ten"
        cases.append(Case(words, powers, ">", 0.0, False))
    note = ""
    if max(surely) > 1:
        note = (
            "Momentum 0.85 ends the divergence but not the response: at its worst period one of "
            f"the settings responds at least {max(surely):.3g} times as strongly as to shuffled "
            "inputs, and the claim fails for every limit below that."
        )
    return Claim(
        id="low-momentum-mitigates",
        claim="Momentum 0.85 removes the resonant response altogether in the most resonant "
        "settings.",
        quantity="response at the worst period, over that of shuffled inputs",
        reason="No finite sample shows that nothing is left: a tenth above the baseline is what "
        "we take for nothing, and the interval says what another limit would give. It is that of "
        "the exact rank-sum test (Hodges and Lehmann), at its lower end for the largest of all "
        "periods.",
        cases=tuple(cases),
        level=LEVEL,
        note=note,
    )


def _peaks(panel: xr.Dataset, axis: str, name: str) -> np.ndarray:
    """Return the largest value over the periods of each run at each level, (levels, runs)."""
    found = panel[name].where(panel.period > 0).max("period")
    return found.dropna(axis, how="all").transpose(axis, "run").values


def _trend(dataset: xr.Dataset, axis: str, words: str) -> list[Case]:
    """Return, for each panel, how the largest rate over the periods orders along an axis."""
    cases = []
    error = LEVEL / 2
    for place, name in enumerate(dataset.panel.values):
        peaks = _peaks(dataset.sel(panel=name), axis, "run_rate")
        resonant = sides(peaks, DIVERGES, LEVEL) > 0
        order = ordered_share(peaks, error, resonant)
        rise = mean_interval(peaks[-1] - peaks[0], error)
        text = f"{name}: pairs of {words}, one at least resonant, in which the larger grows more"
        cases.append(Case(text, order.value, ">=", _ORDERED, place == 0, order.interval))
        text = f"{name}: growth per step at the largest {words} less that at the smallest"
        cases.append(Case(text, rise.value, ">", 0.0, place == 0, rise.interval))
    return cases


_TREND_REASON = (
    "Nine pairs in ten leave room for neighbours; pairs of which neither resonates have nothing to "
    "compare. Growth is the largest over the periods of each run; runs of different levels met the "
    "same random numbers and are paired. The interval counts the pairs whose order is known, by "
    "Student's interval, all at once."
)


def judge_variance(data: Datasets) -> Claim:
    """Judge whether a larger variance of the mean excites more."""
    return Claim(
        id="variance-excites",
        claim="The larger the variance of the mean, the stronger the resonance.",
        quantity="growth per step at the worst period, against the variance v",
        reason=_TREND_REASON,
        cases=tuple(_trend(data["switching-variance"], "amplitude", "v")),
        level=LEVEL,
    )


def judge_dimension(data: Datasets) -> Claim:
    """Judge whether more inputs excite more."""
    return Claim(
        id="dimension-excites",
        claim="The more inputs, the stronger the resonance.",
        quantity="growth per step at the worst period, against the number of inputs",
        reason=_TREND_REASON,
        cases=tuple(_trend(data["switching-dimension"], "dim", "d")),
        level=LEVEL,
    )


def judge_adam(data: Datasets) -> Claim:
    """Judge whether Adam responds in a band, without divergence."""
    dataset = data["switching-adam"]
    error = LEVEL / 4
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel, decides = dataset.sel(panel=name), place == 0
        for beta1 in panel.beta1.values[[0, -1]]:
            baseline, others = _curve(panel.sel(beta1=beta1), "run_log_response")
            ratio = largest_shift(others, baseline, error).exp()
            words = f"{name}: distance at the worst period over iid, beta1 {beta1:g}"
            cases.append(Case(words, ratio.value, ">", 1.0, decides, ratio.interval))
        order = ordered_share(_peaks(panel, "beta1", "run_log_response"), error)
        words = f"{name}: pairs of beta1 in which the larger has the larger worst distance"
        cases.append(Case(words, order.value, ">=", _ORDERED, decides, order.interval))
        rates = panel.run_rate.transpose("beta1", "period", "run").values
        growth = largest_mean(rates.reshape(-1, rates.shape[-1]), error)
        words = f"{name}: largest growth per step, from the middle of the runs to their end"
        cases.append(Case(words, growth.value, "<", DIVERGES, decides, growth.interval))
    return Claim(
        id="adam-bounded",
        claim="Adam converges worse in a band of periods, more so for larger beta1, but never "
        "diverges.",
        quantity="distance at the worst period against iid; its order in beta1; growth",
        reason="Above 1 is worse than iid: the interval is that of the exact rank-sum test, for "
        "the largest of all periods. Order: nine pairs in ten, as for the variance. Bounded is a "
        f"growth below {DIVERGES:g} a step, a tenth of the paper's 10^19 after 10^4 steps, at "
        "every period and beta1 (Student's interval over the runs, for the largest of all).",
        cases=tuple(cases),
        level=LEVEL,
    )


def judge_network(data: Datasets) -> Claim:
    """Judge whether a network responds in the band of 5 to 40 steps."""
    dataset = data["switching-network"]
    amplitude = float(dataset.amplitude.max())
    error = LEVEL / 2
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = dataset.sel(panel=name, amplitude=amplitude)
        loss = panel.run_log_response
        inside = (loss.period >= 5) & (loss.period <= 40)
        outside = ~inside & (loss.period > 0)
        for words, other in (
            ("all other periods", loss.where(outside).median("period")),
            ("iid", loss.sel(period=0)),
        ):
            ratio = mean_interval((loss.where(inside).median("period") - other).values, error).exp()
            text = f"{name}: median loss for T in 5..40 over that of {words}"
            cases.append(Case(text, ratio.value, ">", 1.0, place == 0, ratio.interval))
    return Claim(
        id="network-band",
        claim="Training a network responds most in the band of 5 to 40 steps between switches.",
        quantity="test loss at the largest v inside the band, over that outside it",
        reason="A response in the band means a ratio above 1. All periods count, those of 1 to 4 "
        "and of 41 to 100 steps as outside. Each run has a curve of its own: the ratio of the "
        "median losses, which a single period that diverged does not rule, is taken run by run; "
        "the interval is Student's of its logarithm.",
        cases=tuple(cases),
        level=LEVEL,
    )
