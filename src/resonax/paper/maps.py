"""Maps of where training diverges: Fig. 2, and the appendix on smaller step sizes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.paper.inference import SIGNIFICANCE, agreement, jackknife, mean_interval
from resonax.paper.responses import log_mean_response, run_areas, run_maps
from resonax.paper.sweep import paper_sweep
from resonax.sweeps.experiment import Datasets, Experiment, Judge
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import read_panels

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["ar2_map", "sinusoid_map", "smaller_step"]

_MIN_AGREEMENT, _MIN_SIDE_SHARE = 0.99, 0.95
_MIN_RATE = 1e-6  # rate per step from which a sign is not the rounding of an exact computation

Map = tuple[str, "xr.Dataset", str]  # its words, its cells, and the criterion of its own boundary


def _map(words: str, dataset: xr.Dataset, name: str) -> Map:
    criteria = read_panels(dataset)[name].criteria
    return words, dataset.sel(panel=name), "lyapunov" if "lyapunov" in criteria else "map"


def _paper_maps(data: Datasets) -> list[Map]:
    """Return the maps of the sinusoid and of AR(2)."""
    names = [name for name in ("sinusoid", "ar2") if f"{name}-map" in data]
    pairs = ((name, data[f"{name}-map"]) for name in names)
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


def _inner_cells(signs: np.ndarray) -> np.ndarray:
    """Return which cells are not next to the line: their eight neighbours all have their sign."""
    filters = scipy.ndimage
    return (filters.minimum_filter(signs, 3) == filters.maximum_filter(signs, 3)) & (signs != 0)


def _bright_share(runs: np.ndarray) -> float:
    """Return the logarithm of the share of cells whose mean distance is above 1.

    On this scale the error of a small share is symmetric. Half a cell keeps it finite.
    """
    bright = log_mean_response(runs) > 0
    return float(np.log((bright.sum() + 0.5) / (bright.size + 1)))


def _plotted_cases(words: str, panel: xr.Dataset, error: float, decides: bool) -> Iterator[Case]:
    """Give what the paper's map shows on both sides of the flow's line."""
    signs, logs = _signs(panel, "flow"), run_maps(panel)
    for where, kept in (("not next to it", _inner_cells(signs)), ("all cells", signs != 0)):
        for side, sign, comparison, limit in (
            ("inside", 1, ">=", _MIN_SIDE_SHARE),
            ("outside", -1, "<=", 1 - _MIN_SIDE_SHARE),
        ):
            cells = kept & (signs == sign)
            if not cells.any():
                continue
            found = jackknife(_bright_share, logs[cells], error).exp()
            yield Case(
                f"{words}: cells {side} the line whose mean distance is above 1, {where}",
                found.value,
                comparison,
                round(limit, 2),
                decides=decides and where == "not next to it",
                interval=(found.low, min(found.high, 1.0)),
            )


def _run_cases(
    words: str, panel: xr.Dataset, criterion: str, error: float, decides: bool = False
) -> Iterator[Case]:
    """Give how single runs agree with the line of a criterion."""
    signs = _signs(panel, criterion)
    away = _inner_cells(signs)
    rates = panel.run_rate.transpose("momentum", "period", "run").values
    for name, kept, least in (
        ("not next to the line", away, _MIN_AGREEMENT),
        ("all", signs != 0, _MIN_SIDE_SHARE),
    ):
        share, decided, cells = agreement(rates[kept], signs[kept], error)
        yield Case(
            f"{words}: decided cells that agree, {name} ({decided:,} of {cells:,} decided)",
            share.value,
            ">=",
            least,
            decides=decides and least == _MIN_AGREEMENT,
            interval=share.interval,
        )
    for name, sign, verb in (("inside", 1, "grow"), ("outside", -1, "fall")):
        cells = away & (signs == sign)
        if cells.any():
            found = mean_interval((rates[cells] * sign > 0).mean(axis=0), error)
            yield Case(
                f"{words}: single runs that {verb} {name} the line, not next to it",
                found.value,
                ">=",
                _MIN_SIDE_SHARE,
                decides=False,
                interval=(max(found.low, 0.0), min(found.high, 1.0)),
            )


def judge_contour(data: Datasets) -> Claim:
    """Judge whether the flow's line of radius 1 separates what converges from what diverges."""
    maps = _paper_maps(data)
    error = SIGNIFICANCE / 4
    plain = [(words, panel) for words, panel, _ in (*maps, *_other_steps(data))]
    runs = [case for words, panel in plain for case in _run_cases(words, panel, "flow", error)]
    return Claim(
        id="contour-separates",
        claim="The flow's line of spectral radius 1 separates what converges from what diverges, "
        "for the sinusoid and for AR(2).",
        quantity="share of the cells on each side of the flow's line that do what it says",
        reason="What the paper plots is judged: the distance averaged over the last steps and the "
        "runs. Runs begin at a distance of about 1, so that above 1 is divergence and below it "
        f"convergence. {_MIN_SIDE_SHARE:.0%} of the cells on each side are to do what the line "
        "says, without those next to it, through which the line itself passes; the share of all "
        "cells stands beside. The interval is Student's, of the logarithm of the share, with the "
        "variance of leaving out one run after another, each of which has a map of its own.",
        cases=(
            *(
                case
                for place, (words, panel) in enumerate(plain)
                for case in _plotted_cases(words, panel, error, place < len(maps))
            ),
            *runs,
        ),
        significance=SIGNIFICANCE,
        note=_contour_note(maps[1][1], runs),
    )


def _contour_note(panel: xr.Dataset, runs: list[Case]) -> str:
    """Return what single runs of AR(2) do, where they differ from what the paper plots."""
    text = (
        "The paper draws the sinusoid's line in the map of AR(2); the boundary of AR(2) itself is "
        "judged by own-boundary."
    )
    inside = [case for case in runs if case.case.startswith("ar2: single runs that grow inside")]
    if inside and inside[0].holds is False:
        line, own = (float((panel[f"{name}_rate"] > 0).mean()) for name in ("flow", "lyapunov"))
        text += (
            " A mean over runs of what grows exponentially is that of its luckiest run. Of single "
            f"AR(2) runs {inside[0].measured:.0%} grow inside the line, away from it: the line "
            f"encloses {line:.1%} of the map, the boundary of almost every run {own:.1%}."
        )
    return text


def judge_flow_implies(data: Datasets) -> Claim:
    """Judge whether SGDm diverges wherever the flow does, by the exact update."""
    _, panel, _ = _paper_maps(data)[0]
    panel = panel.transpose("momentum", "period", ...)
    flow, exact = panel.flow_rate.values, panel.map_rate.values
    grows = flow > _MIN_RATE
    wrong = grows & (exact < -_MIN_RATE)
    other = (flow < -_MIN_RATE) & (exact > _MIN_RATE)
    near = int((grows & ~_inner_cells(np.sign(flow))).sum())
    words = f"sinusoid: cells at which the flow diverges, but not SGDm (of {grows.sum():,}"
    cases = [
        Case(f"{words}; {near:,} next to the line)", float(wrong.sum()), "==", 0.0),
        Case(
            "sinusoid: the converse, which the paper leaves open",
            float(other.sum()),
            "==",
            0.0,
            False,
        ),
    ]
    note = ""
    if wrong.any():
        falls = float((panel.run_rate.values[wrong] < 0).mean())
        words = "sinusoid: share of simulated runs that fall at the cells of the first case"
        cases.append(Case(words, falls, "==", 0.0, False))
        logs = flow * panel.period.values
        row, column = np.unravel_index(np.where(wrong, logs, -np.inf).argmax(), wrong.shape)
        period = float(panel.period[column])
        radii = (float(np.exp(rate[row, column] * period)) for rate in (flow, exact))
        note = (
            "Largest radius of the flow among them: {:.4f} per period, where that of the exact "
            "update is {:.4f}, at momentum {:.4f} and period {:.2f}. The argument takes the "
            "error of the integration to grow linearly in time; along an unstable flow it grows "
            "exponentially.".format(*radii, float(panel.momentum[row]), period)
        )
    return Claim(
        id="flow-implies-sgdm",
        claim="Where the flow diverges, SGDm is guaranteed to diverge (Sec. 3).",
        quantity="cells of the map of Fig. 2a at which the flow diverges and SGDm does not",
        reason="A guarantee has no exceptions. SGDm is its exact update of the expected weights, "
        f"and a rate counts from {_MIN_RATE:g} a step on, far above the error of both "
        "computations. Both are deterministic: there is no chance in the figures.",
        cases=tuple(cases),
        significance=0.0,
        note=note,
    )


def judge_own_boundary(data: Datasets) -> Claim:
    """Judge whether each process's own exact boundary separates what converges and diverges."""
    maps = [*_paper_maps(data), *_other_steps(data)]
    cases = []
    for words, panel, criterion in maps:
        error = SIGNIFICANCE / len(maps)
        cases += _run_cases(f"{words}, {criterion}", panel, criterion, error, decides=True)
    return Claim(
        id="own-boundary",
        claim="The boundary of each process itself separates what converges from what diverges: "
        "that of the expected update for the sinusoid, that of almost every run for AR(2). "
        "(This claim is ours, not the paper's.)",
        quantity="cells where simulation and the process's own boundary agree, both known",
        reason=f"{_MIN_AGREEMENT:.0%}, as for the flow's line. A cell is known when Student's "
        "interval of its growth excludes 0 and its theory is not interpolated across a change of "
        "sign.",
        cases=tuple(cases),
        significance=SIGNIFICANCE,
    )


def sinusoid_map(scale: str) -> Experiment:
    """Return the record of Fig. 2a."""
    return paper_sweep(
        "sinusoid-map",
        scale,
        Judge(judge_contour, also=("ar2-map",)),
        Judge(judge_flow_implies),
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
            found = mean_interval(areas[number + 1] - areas[number], SIGNIFICANCE / 4)
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
        significance=SIGNIFICANCE,
    )


def smaller_step(scale: str) -> Experiment:
    """Return the record of the maps of smaller step sizes."""
    return paper_sweep("smaller-step", scale, Judge(judge_step_size))
