"""Maps of where training diverges: Fig. 2, and the appendix on smaller step sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.paper.inference import LEVEL, agreement, mean_interval
from resonax.paper.responses import run_areas
from resonax.paper.sweep import paper_sweep
from resonax.sweeps.experiment import Datasets, Experiment, Judge
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import read_panels

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["ar2_map", "sinusoid_map", "smaller_step"]

_AGREE, _SIDE = 0.99, 0.95

Map = tuple[str, "xr.Dataset", str]  # its words, its cells, and the criterion of its own boundary


def _map(words: str, dataset: xr.Dataset, name: str) -> Map:
    criteria = read_panels(dataset)[name].criteria
    return words, dataset.sel(panel=name), "lyapunov" if "lyapunov" in criteria else "map"


def _paper_maps(data: Datasets) -> list[Map]:
    """Return the maps of the sinusoid and of AR(2)."""
    pairs = ((name, data[f"{name}-map"]) for name in ("sinusoid", "ar2"))
    return [_map(name, dataset, str(dataset.panel.values[0])) for name, dataset in pairs]


def _other_steps(data: Datasets) -> list[Map]:
    """Return the maps of other step sizes; the first panel is `sinusoid-map` again, to the bit."""
    if "smaller-step" not in data:
        return []
    dataset = data["smaller-step"]
    return [_map(str(name), dataset, str(name)) for name in dataset.panel.values[1:]]


def _signs(panel: xr.Dataset, criterion: str) -> np.ndarray:
    """Return the sign of a criterion at each cell, 0 where it is interpolated across a change."""
    if f"{criterion}_low" in panel:
        low, high = panel[f"{criterion}_low"].values, panel[f"{criterion}_high"].values
        return np.where(low > 0, 1, np.where(high < 0, -1, 0))
    return np.sign(panel[f"{criterion}_rate"].values)


def _line_cases(
    words: str, panel: xr.Dataset, criterion: str, error: float, decide: tuple[str, ...]
) -> Iterator[Case]:
    """Give the cases of one line in one map; ``decide`` names those that count.

    Cells next to the line are those whose eight neighbours do not all have their sign.
    """
    signs = _signs(panel, criterion)
    filters = scipy.ndimage
    away = (filters.minimum_filter(signs, 3) == filters.maximum_filter(signs, 3)) & (signs != 0)
    rates = panel.run_rate.values
    for name, kept, least in (("not next to the line", away, _AGREE), ("all", signs != 0, _SIDE)):
        share, decided, cells = agreement(rates[kept], signs[kept], error)
        yield Case(
            f"{words}: decided cells that agree, {name} ({decided:,} of {cells:,} decided)",
            share.value,
            ">=",
            least,
            decides="cells" in decide and least == _AGREE,
            interval=share.interval,
        )
    for name, sign, verb in (("inside", 1, "grow"), ("outside", -1, "fall")):
        cells = away & (signs == sign)
        if cells.any():
            found = mean_interval((rates[cells] * sign > 0).mean(axis=0), error)
            yield Case(
                f"{words}: runs that {verb} {name} the line, not next to it",
                found.value,
                ">=",
                _SIDE,
                decides="runs" in decide,
                interval=(max(found.low, 0.0), min(found.high, 1.0)),
            )


def judge_contour(data: Datasets) -> Claim:
    """Judge whether the flow's line of radius 1 separates what converges from what diverges."""
    maps = _paper_maps(data)
    error = LEVEL / 6
    cases = [
        case
        for place, (words, panel, _) in enumerate([*maps, *_other_steps(data)])
        for case in _line_cases(
            words, panel, "flow", error, ("cells", "runs") if place < len(maps) else ()
        )
    ]
    return Claim(
        id="contour-separates",
        claim="The flow's line of spectral radius 1 separates what converges from what diverges, "
        "for the sinusoid and for AR(2).",
        quantity="agreement of simulated growth with the flow's line",
        reason="Two figures for each map. Of the cells whose growth is known, by Student's "
        f"interval over the runs, {_AGREE:.0%} are to agree. A map of few runs leaves many cells "
        "unknown, most of them on the smaller side, and so on each side of the line "
        f"{_SIDE:.0%} of all runs are to do what it says; their interval is Student's over the "
        "runs, each of which has a map of its own.",
        cases=tuple(cases),
        level=LEVEL,
        note=_contour_note(maps[1][1], cases),
    )


def _contour_note(panel: xr.Dataset, cases: list[Case]) -> str:
    """Return what the map of AR(2) shows, where it fails."""
    text = (
        "The paper draws the sinusoid's line in the map of AR(2) and says that it aligns; the "
        "boundary of AR(2) itself is judged by own-boundary."
    )
    inside = [case for case in cases if case.decides and "ar2: runs that grow inside" in case.case]
    if inside and inside[0].holds is False:
        line, own = (float((panel[f"{name}_rate"] > 0).mean()) for name in ("flow", "lyapunov"))
        text += (
            f" Inside the sinusoid's line, away from it, {inside[0].measured:.0%} of the AR(2) "
            f"runs grow: the line encloses {line:.1%} of the map, the boundary of AR(2) {own:.1%}."
        )
    return text


def judge_own_boundary(data: Datasets) -> Claim:
    """Judge whether each process's own exact boundary separates what converges and diverges."""
    maps = [*_paper_maps(data), *_other_steps(data)]
    cases = []
    for words, panel, criterion in maps:
        cases += _line_cases(
            f"{words}, {criterion}", panel, criterion, LEVEL / len(maps), ("cells",)
        )
    return Claim(
        id="own-boundary",
        claim="The boundary of each process itself separates what converges from what diverges: "
        "that of the expected update for the sinusoid, that of almost every run for AR(2). "
        "(This claim is ours, not the paper's.)",
        quantity="cells where simulation and the process's own boundary agree, both known",
        reason=f"{_AGREE:.0%}, as for the flow's line. A cell is known when Student's interval of "
        "its growth excludes 0 and its theory is not interpolated across a change of sign.",
        cases=tuple(cases),
        level=LEVEL,
    )


def sinusoid_map(scale: str) -> Experiment:
    """Return the record of Fig. 2a."""
    return paper_sweep(
        "sinusoid-map",
        scale,
        Judge(judge_contour, also=("ar2-map",)),
        Judge(judge_own_boundary, also=("ar2-map",)),
    )


def ar2_map(scale: str) -> Experiment:
    """Return the record of Fig. 2b; its claims are judged with those of Fig. 2a."""
    return paper_sweep("ar2-map", scale)


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
    """Return the record of the maps of smaller step sizes."""
    return paper_sweep("smaller-step", scale, Judge(judge_step_size))
