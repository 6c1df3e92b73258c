"""Fig. 4: what excites a switching mean more, its variance and the number of inputs."""

from __future__ import annotations

import xarray as xr

from resonax.paper.inference import LEVEL, mean_interval, ordered_share, sides
from resonax.paper.responses import DIVERGES, ORDERED, peaks
from resonax.paper.sweep import paper_sweep
from resonax.sweeps.experiment import Datasets, Experiment, Judge
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import select_panel

__all__ = ["switching_dimension", "switching_variance"]


def _trend(dataset: xr.Dataset, axis: str, words: str) -> list[Case]:
    """Return, for each panel, how the largest rate over the periods orders along an axis."""
    cases = []
    error = LEVEL / 2
    for place, name in enumerate(dataset.panel.values):
        largest = peaks(select_panel(dataset, name), axis, "run_rate")
        resonant = sides(largest, DIVERGES, LEVEL) > 0
        order = ordered_share(largest, error, resonant)
        rise = mean_interval(largest[-1] - largest[0], error)
        text = f"{name}: pairs of {words}, one at least resonant, in which the larger grows more"
        cases.append(Case(text, order.value, ">=", ORDERED, place == 0, order.interval))
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


def switching_variance(scale: str) -> Experiment:
    """Return the record of the sweep over the variance of the mean."""
    return paper_sweep("switching-variance", scale, Judge(judge_variance))


def switching_dimension(scale: str) -> Experiment:
    """Return the record of the sweep over the number of inputs."""
    return paper_sweep("switching-dimension", scale, Judge(judge_dimension))
