"""Fig. 6: a network on a mean that switches."""

from __future__ import annotations

from resonax.paper.inference import SIGNIFICANCE, mean_interval
from resonax.paper.sweep import paper_sweep
from resonax.sweeps.experiment import Datasets, Experiment, Judge
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import select_panel

__all__ = ["switching_network"]


def judge_network(data: Datasets) -> Claim:
    """Judge whether a network responds in the band of 5 to 40 steps."""
    dataset = data["switching-network"]
    amplitude = float(dataset.amplitude.max())
    error = SIGNIFICANCE / 2
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = select_panel(dataset, name).sel(amplitude=amplitude)
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
        significance=SIGNIFICANCE,
    )


def switching_network(scale: str) -> Experiment:
    """Return the record of this experiment."""
    return paper_sweep("switching-network", scale, Judge(judge_network))
