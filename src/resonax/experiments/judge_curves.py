"""Claims on curves: how strongly what responds. Thresholds stand here, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import scipy

from resonax.experiments.judgement import Case, Claim

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["judge_adam", "judge_dimension", "judge_low_momentum", "judge_network", "judge_variance"]

Datasets = Mapping[str, "xr.Dataset"]


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """Return Spearman's rank correlation."""
    return float(np.corrcoef(scipy.stats.rankdata(one), scipy.stats.rankdata(other))[0, 1])


def judge_low_momentum(data: Datasets) -> Claim:
    """Judge whether momentum 0.85 removes the response."""
    dataset = data["lower-momentum"]
    cases = []
    runs = dataset.sizes["run"]
    for name in dataset.panel.values:
        panel = dataset.sel(panel=name, momentum=dataset.momentum.values[0]).dropna("period")
        logs = panel.run_log_response.values
        baseline, others = logs[panel.period.values == 0][0], logs[panel.period.values > 0]
        # The largest of many noisy medians is larger than one: allow for it by a bootstrap of the
        # baseline's own median, at the level of one false alarm in a hundred over all periods.
        rng = np.random.default_rng(0)
        medians = np.median(rng.choice(baseline, (20_000, runs)), axis=1)
        level = 1 - 0.01 / len(others)
        allowance = float(np.quantile(medians, level) - np.median(baseline))
        ratio = float(np.exp(np.median(others, axis=1).max() - np.median(baseline)))
        limit = float(np.exp(max(allowance, np.log(1.25))))
        cases.append(Case(f"{name}: largest response over its iid baseline", ratio, "<=", limit))
        high = dataset.sel(panel=name, momentum=dataset.momentum.values[-1]).dropna("period")
        peak = np.median(high.run_log_response.values[high.period.values > 0], axis=1).max()
        base = np.median(high.run_log_response.values[high.period.values == 0][0])
        powers = float(min((peak - base) / np.log(10), 300.0))
        cases.append(
            Case(f"{name}: the same at momentum 0.95, powers of ten", powers, ">", 0.0, False)
        )
    return Claim(
        id="low-momentum-mitigates",
        claim="Momentum 0.85 removes the resonant response altogether in the most resonant "
        "settings.",
        quantity="largest median response over all periods, divided by that of shuffled inputs",
        reason="The larger of 1.25 and what the baseline's own scatter makes likely for the "
        "largest of that many medians (one false alarm in a hundred).",
        cases=tuple(cases),
        note="Where it does not hold, momentum 0.85 ended the divergence but not the response: "
        "the error at the worst period stays above that of shuffled inputs.",
    )


def _trend(dataset: xr.Dataset, axis: str, words: str) -> list[Case]:
    """Return, for each panel, how the largest rate over the periods ranks along an axis."""
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = dataset.sel(panel=name)
        rates = panel.rate.where(panel.period > 0).max("period").values
        order = _rank_correlation(panel[axis].values, rates)
        cases.append(
            Case(f"{name}: rank correlation of {words} and growth", order, ">=", 0.9, place == 0)
        )
        rise = float(rates[-1] - rates[0])
        cases.append(
            Case(f"{name}: largest less smallest growth per step", rise, ">", 0.0, place == 0)
        )
    return cases


def judge_variance(data: Datasets) -> Claim:
    """Judge whether a larger variance of the mean excites more."""
    return Claim(
        id="variance-excites",
        claim="The larger the variance of the mean, the stronger the resonance.",
        quantity="growth per step at the worst period, against the variance v",
        reason="A rank correlation of 0.9 allows neighbours to swap at the foot, where nothing "
        "grows and only the scatter of the runs is left.",
        cases=tuple(_trend(data["switching-variance"], "amplitude", "v")),
    )


def judge_dimension(data: Datasets) -> Claim:
    """Judge whether more inputs excite more."""
    return Claim(
        id="dimension-excites",
        claim="The more inputs, the stronger the resonance.",
        quantity="growth per step at the worst period, against the number of inputs",
        reason="As for the variance.",
        cases=tuple(_trend(data["switching-dimension"], "dim", "d")),
    )


def judge_adam(data: Datasets) -> Claim:
    """Judge whether Adam responds in a band, without divergence."""
    dataset = data["switching-adam"]
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = dataset.sel(panel=name)
        mean = np.exp(panel.log_response)
        ratio = (mean.where(panel.period > 0).max("period") / mean.sel(period=0)).values
        decides = place == 0
        cases.append(
            Case(f"{name}: worst period over iid, smallest beta1", ratio[0], ">", 1.0, decides)
        )
        cases.append(Case(f"{name}: the same, largest beta1", ratio[-1], ">", 1.0, decides))
        peak = mean.where(panel.period > 0).max("period").values
        order = _rank_correlation(panel.beta1.values, peak)
        cases.append(
            Case(f"{name}: rank correlation of beta1 and worst distance", order, ">=", 0.9, decides)
        )
        far = float(np.exp(panel.run_log_response.max()))
        cases.append(Case(f"{name}: largest distance of any run", far, "<", 100.0, decides))
    return Claim(
        id="adam-bounded",
        claim="Adam converges worse in a band of periods, more so for larger beta1, but never "
        "diverges.",
        quantity="distance at the worst period against iid; its order in beta1; the largest of all",
        reason="Above 1 is worse than iid. SGD with momentum reaches 1e19 where it diverges: 100 "
        "is far from that and far above anything bounded.",
        cases=tuple(cases),
    )


def judge_network(data: Datasets) -> Claim:
    """Judge whether a network responds in the band of 5 to 40 steps."""
    dataset = data["switching-network"]
    amplitude = float(dataset.amplitude.max())
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = dataset.sel(panel=name, amplitude=amplitude)
        median = np.exp(panel.log_median)
        inside = float(median.where((panel.period >= 5) & (panel.period <= 40), drop=True).mean())
        outside = float(median.where((panel.period == 1) | (panel.period >= 80), drop=True).mean())
        shuffled = float(median.sel(period=0))
        decides = place == 0
        cases.append(
            Case(
                f"{name}: loss for T in 5..40 over T = 1 and above 80",
                inside / outside,
                ">",
                1.0,
                decides,
            )
        )
        cases.append(
            Case(f"{name}: loss for T in 5..40 over iid", inside / shuffled, ">", 1.0, decides)
        )
    return Claim(
        id="network-band",
        claim="Training a network responds most in the band of 5 to 40 steps between switches.",
        quantity="median test loss at v = 0.4 inside the band, against outside it",
        reason="A peak in the band means a ratio above 1.",
        cases=tuple(cases),
    )
