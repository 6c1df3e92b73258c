"""Fig. 4c: Adam on a mean that switches, and the level at which theory says that it settles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from resonax.core.algebra import on_the_cpu
from resonax.dynamics import Problem
from resonax.paper.closeness import close_share
from resonax.paper.inference import SIGNIFICANCE, largest_mean, largest_shift, ordered_share
from resonax.paper.responses import DIVERGES, ORDERED, largest_over_periods, split_curve
from resonax.paper.sweep import read_paper_sweep
from resonax.store import Variable
from resonax.sweeps.build import build_training
from resonax.sweeps.experiment import Datasets, Experiment, Judge, from_sweep
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import select_panel
from resonax.theory.level import levels

__all__ = ["switching_adam"]

_TOLERANCE = 0.3  # how far off a predicted distance may be, relative to the true one
_MIN_SHARE = 0.95  # of the cells, in which it is not farther off
_LEVEL_SECONDS = 0.01  # that the prediction of a cell takes


def judge_adam(data: Datasets) -> Claim:
    """Judge whether Adam responds in a band, without divergence."""
    dataset = data["switching-adam"]
    error = SIGNIFICANCE / 4
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel, decides = select_panel(dataset, name), place == 0
        for beta1 in panel.beta1.values[[0, -1]]:
            baseline, others = split_curve(panel.sel(beta1=beta1), "run_log_response")
            ratio = largest_shift(others, baseline, error).exp()
            words = f"{name}: distance at the worst period over iid, beta1 {beta1:g}"
            cases.append(Case(words, ratio.value, ">", 1.0, decides, ratio.interval))
        order = ordered_share(largest_over_periods(panel, "beta1", "run_log_response"), error)
        words = f"{name}: pairs of beta1 in which the larger has the larger worst distance"
        cases.append(Case(words, order.value, ">=", ORDERED, decides, order.interval))
        rates = panel.run_rate.transpose("beta1", "period", "run").values
        growth = largest_mean(rates.reshape(-1, rates.shape[-1]), error)
        words = f"{name}: largest growth per step, from the middle of the runs to their end"
        cases.append(Case(words, growth.value, "<", DIVERGES, decides, growth.interval))
    return Claim(
        id="adam-bounded",
        claim="Adam converges worse in a band of periods, more so for larger beta1, but does not "
        "diverge: in the setting of Fig. 4c, a mean that switches at random and beta2 = 0.999.",
        quantity="distance at the worst period against iid; its order in beta1; growth",
        reason="Above 1 is worse than iid: the interval is that of the exact rank-sum test, for "
        "the largest of all periods. Order: nine pairs in ten, as for the variance. Bounded is a "
        f"growth below {DIVERGES:g} a step, a tenth of the paper's 10^19 after 10^4 steps, at "
        "every period and beta1 (Student's interval over the runs, for the largest of all).",
        cases=tuple(cases),
        significance=SIGNIFICANCE,
        note="This says nothing of other data: inputs can be ordered so that Adam diverges, where "
        "its mean of squares forgets within a period.",
    )


def judge_level(data: Datasets) -> Claim:
    """Judge whether theory predicts how far from the solution Adam stays."""
    dataset = data["switching-adam"]
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = select_panel(dataset, name)
        panel = panel.sel(period=panel.period > 0)  # 0 is as 1: each step has a mean of its own
        runs = np.exp(panel.run_log_response.transpose("beta1", "period", "run").values)
        predicted = panel.predicted_distance.transpose("beta1", "period").values
        share = close_share(runs, predicted, _TOLERANCE, SIGNIFICANCE)
        words = f"{name}: cells whose predicted distance is within 30% of the simulated mean"
        cases.append(Case(words, share.value, ">=", _MIN_SHARE, place == 0, share.interval))
    return Claim(
        id="adam-level",
        claim="Theory predicts how far from the solution Adam stays on a mean that switches: "
        "within 30%, in 95% of the cells.",
        quantity="share of the periods and beta1 whose predicted mean distance is within 30%",
        reason="Not a claim of the paper: 30% in 95% of the cells is what is asked of the theory "
        "(docs/adam.md). The interval counts a cell as close or as far by how sure its runs make "
        "it: Student's p-values, combined over the periods of each beta1 by closed testing.",
        cases=tuple(cases),
        significance=SIGNIFICANCE,
    )


def _predict(
    problems: tuple[Problem, ...],
    points: Mapping[str, np.ndarray],
    region: Mapping[str, slice],
    *_: object,
) -> dict[str, np.ndarray]:
    """Return the predicted mean distance in the cells of one task."""
    problem = problems[region["panel"].start if "panel" in region else 0]
    part = [array[region.get(name, slice(None))] for name, array in points.items()]
    beta1, period = np.meshgrid(*part, indexing="ij")
    values = {"beta1": beta1.ravel(), "period": np.maximum(period, 1.0).ravel()}
    found = on_the_cpu(levels)(problem, values)
    return {"predicted_distance": found.reshape(1, *beta1.shape)}


def switching_adam(scale: str) -> Experiment:
    """Return the record of this experiment."""
    sweep = read_paper_sweep("switching-adam", scale)
    base = from_sweep(sweep, (Judge(judge_adam), Judge(judge_level)))
    problems = tuple(Problem.of(build_training(sweep, n)) for n in range(len(sweep.panels)))
    words = {"long_name": "predicted mean distance from the solution"}
    predicted = Variable(("panel", *sweep.points()), "float64", words)
    variables = {**base.layout.variables, "predicted_distance": predicted}
    return replace(
        base,
        layout=replace(base.layout, variables=variables),
        also=(*base.also, partial(_predict, problems, sweep.points())),
        seconds=base.seconds + _LEVEL_SECONDS * base.cells / base.layout.count(),
    )
