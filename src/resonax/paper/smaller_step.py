"""Appendix, reducing the step size: does the divergent region shrink?"""

from __future__ import annotations

from itertools import pairwise

from resonax.paper.inference import LEVEL, mean_interval
from resonax.paper.responses import run_areas
from resonax.paper.sweep import paper_sweep
from resonax.sweeps.experiment import Datasets, Experiment, Judge
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import read_panels

__all__ = ["smaller_step"]


def judge_step_size(data: Datasets) -> Claim:
    """Judge whether the divergent region shrinks with the step size."""
    dataset = data["smaller-step"]
    tables = read_panels(dataset)
    cases = []
    for process in ("sinusoid", "ar2"):
        lr = {
            table.optimizer["lr"]: name
            for name, table in tables.items()
            if table.process["kind"] == process
        }
        steps = sorted(lr, reverse=True)
        panels = [dataset.sel(panel=lr[step]) for step in steps]
        areas = [run_areas(panel) for panel in panels]
        for number, (before, after) in enumerate(pairwise(steps)):
            found = mean_interval(areas[number + 1] - areas[number], LEVEL / 4)
            words = f"{process}, simulation: area at {after:g} less area at {before:g}"
            cases.append(Case(words, found.value, "<", 0.0, interval=found.interval))
        if process == "sinusoid":
            enclosed = [float((panel.flow_rate > 0).mean()) for panel in panels]
            for number, (before, after) in enumerate(pairwise(steps)):
                words = f"{process}, flow: area at {after:g} less area at {before:g}"
                cases.append(Case(words, enclosed[number + 1] - enclosed[number], "<", 0.0))
    return Claim(
        id="step-size-shrinks",
        claim="The divergent region shrinks with the step size, in theory and in simulation.",
        quantity="change of the divergent share of the map from one step size to the next",
        reason="It shrinks if the change is below 0. In simulation it is that of the share of "
        "cells at which a run grows, with Student's interval over the runs.",
        cases=tuple(cases),
        level=LEVEL,
    )


def smaller_step(scale: str) -> Experiment:
    """Return the record of this experiment."""
    return paper_sweep("smaller-step", scale, Judge(judge_step_size))
