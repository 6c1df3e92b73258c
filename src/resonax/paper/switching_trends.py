"""Fig. 4: what excites a switching mean more, its variance and the number of inputs."""

from __future__ import annotations

from functools import partial

from resonax.paper.inference import SIGNIFICANCE, known_sides, mean_interval, ordered_share
from resonax.paper.responses import DIVERGES, ORDERED, largest_over_periods
from resonax.paper.sweep import paper_sweep
from resonax.sweeps.experiment import Datasets, Experiment, Judge
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import select_panel

__all__ = ["switching_dimension", "switching_variance"]


_TREND_REASON = (
    "Nine pairs in ten leave room for neighbours; pairs of which neither resonates have nothing to "
    "compare. Growth is the largest over the periods of each run; runs at different values of the "
    "axis met the same random numbers and are paired. The interval counts the pairs whose order is "
    "known, by Student's interval, all at once."
)


def _judge_trend(data: Datasets, name: str, axis: str, symbol: str, **words: str) -> Claim:
    """Judge how the largest rate over the periods orders along an axis, panel by panel."""
    dataset, error, cases = data[name], SIGNIFICANCE / 2, []
    for place, panel in enumerate(dataset.panel.values):
        largest = largest_over_periods(select_panel(dataset, panel), axis, "run_rate")
        resonant = known_sides(largest, DIVERGES, SIGNIFICANCE) > 0
        order = ordered_share(largest, error, resonant)
        rise = mean_interval(largest[-1] - largest[0], error)
        text = f"{panel}: pairs of {symbol}, one at least resonant, in which the larger grows more"
        cases.append(Case(text, order.value, ">=", ORDERED, place == 0, order.interval))
        text = f"{panel}: growth per step at the largest {symbol} less that at the smallest"
        cases.append(Case(text, rise.value, ">", 0.0, place == 0, rise.interval))
    return Claim(**words, reason=_TREND_REASON, cases=tuple(cases), significance=SIGNIFICANCE)


def switching_variance(scale: str) -> Experiment:
    """Return the record of the sweep over the variance of the mean."""
    judge = partial(
        _judge_trend,
        name="switching-variance",
        axis="amplitude",
        symbol="v",
        id="variance-excites",
        claim="The larger the variance of the mean, the stronger the resonance.",
        quantity="growth per step at the worst period, against the variance v",
    )
    return paper_sweep("switching-variance", scale, Judge(judge))


def switching_dimension(scale: str) -> Experiment:
    """Return the record of the sweep over the number of inputs."""
    judge = partial(
        _judge_trend,
        name="switching-dimension",
        axis="dim",
        symbol="d",
        id="dimension-excites",
        claim="The more inputs, the stronger the resonance.",
        quantity="growth per step at the worst period, against the number of inputs",
    )
    return paper_sweep("switching-dimension", scale, Judge(judge))
