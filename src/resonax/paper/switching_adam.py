"""Fig. 5: Adam on a mean that switches."""

from __future__ import annotations

from resonax.paper.inference import LEVEL, largest_mean, largest_shift, ordered_share
from resonax.paper.responses import DIVERGES, ORDERED, peaks, split_curve
from resonax.paper.sweep import paper_sweep
from resonax.sweeps.experiment import Datasets, Experiment, Judge
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import select_panel

__all__ = ["switching_adam"]


def judge_adam(data: Datasets) -> Claim:
    """Judge whether Adam responds in a band, without divergence."""
    dataset = data["switching-adam"]
    error = LEVEL / 4
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel, decides = select_panel(dataset, name), place == 0
        for beta1 in panel.beta1.values[[0, -1]]:
            baseline, others = split_curve(panel.sel(beta1=beta1), "run_log_response")
            ratio = largest_shift(others, baseline, error).exp()
            words = f"{name}: distance at the worst period over iid, beta1 {beta1:g}"
            cases.append(Case(words, ratio.value, ">", 1.0, decides, ratio.interval))
        order = ordered_share(peaks(panel, "beta1", "run_log_response"), error)
        words = f"{name}: pairs of beta1 in which the larger has the larger worst distance"
        cases.append(Case(words, order.value, ">=", ORDERED, decides, order.interval))
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


def switching_adam(scale: str) -> Experiment:
    """Return the record of this experiment."""
    return paper_sweep("switching-adam", scale, Judge(judge_adam))
