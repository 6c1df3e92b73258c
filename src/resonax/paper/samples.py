"""Fig. 3 and the maps of one sample: what fewer samples in a step do to the resonance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from resonax.paper.inference import LEVEL, argmax_interval, count_bands, mean_interval, sides
from resonax.paper.responses import DIVERGES, period_rates, run_areas
from resonax.paper.sweep import paper_sweep
from resonax.sweeps.experiment import Datasets, Experiment, Judge
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import select_panel

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["single_sample", "square_samples"]


def _band_share(panel: xr.Dataset, batch: float, error: float) -> tuple[float, float, float]:
    """Return the share of periods that diverge, and the least and most that it may be."""
    rates = period_rates(panel.sel(batch=batch))[1]
    found = sides(rates, DIVERGES, error)
    share = float(np.mean(rates.mean(axis=1) > DIVERGES))
    return share, float(np.mean(found > 0)), float(np.mean(found >= 0))


def _exponent_cases(dataset: xr.Dataset) -> list[Case]:
    """Return by how much the almost-sure rate rises from many samples to one, at some places."""
    few, many = dataset.sel(batch=dataset.batch.min()), dataset.sel(batch=dataset.batch.max())
    cases = []
    for lr in dataset.lr.values[:1]:
        for place in dataset.place.values:
            at = {"lr": lr, "place": place}
            one, twenty = few.sel(at), many.sel(at)
            ends = (
                float(one.exponent_low - twenty.exponent_high),
                float(one.exponent_high - twenty.exponent_low),
            )
            value = float(one.exponent - twenty.exponent)
            words = (
                f"sinusoid, lr {lr:g}, {place}: almost-sure growth with {int(one.batch)} sample "
                f"({float(one.exponent):+.4f}) less that with {int(twenty.batch)} "
                f"({float(twenty.exponent):+.4f})"
            )
            cases.append(Case(words, value, "<", 0.0, False, ends))
    return cases


def _note(cases: list[Case], exponents: list[Case]) -> str:
    """Return what the figures say, each sentence only where they do."""
    figure, *maps = [case for case in cases if case.decides]
    text = ""
    if figure.holds:
        text += (
            "In Fig. 3 fewer samples do damp under the summed loss: the sum scales the step size "
            "with the number of samples. "
        )
    if all(case.holds is False for case in maps):
        text += (
            "In the maps one sample makes the divergent region larger, and not because rare runs "
            "rule a mean: the share of cells at which single runs grow rises. "
        )
    rising = [case for case in exponents if case.holds is False]
    if rising:
        text += (
            "The almost-sure rate, computed without any simulated map, rises from twenty samples "
            f"to one at {len(rising)} of {len(exponents)} places (the largest: "
            f"{max(rising, key=lambda case: case.measured).case}): noise in the curvature excites "
            "a weakly damped oscillator by itself, the more the fewer samples are averaged. "
        )
    return text + (
        "The paper calls the response damped with one sample, and in the next paragraph the bands "
        "of instability wider than with twenty."
    )


def judge_samples(data: Datasets) -> Claim:
    """Judge whether fewer samples damp the resonance."""
    dataset = data["square-samples"]
    dataset = dataset[["run_rate"]]  # to select a part of all variables would take twice as long
    few, many = float(dataset.batch.min()), float(dataset.batch.max())
    maps = list(data["single-sample"].panel.values)
    error = LEVEL / (1 + len(maps))
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = select_panel(dataset, name)
        one, other = (_band_share(panel, batch, error / 2) for batch in (few, many))
        cases.append(
            Case(
                f"Fig. 3, {name}: share of periods that diverge, {few:g} less {many:g} samples",
                one[0] - other[0],
                "<",
                0.0,
                place == 0,
                (one[1] - other[2], one[2] - other[1]),
            )
        )
    for name in maps:
        few_areas, many_areas = (
            run_areas(data[key][["run_rate"]].sel(panel=name))
            for key in ("single-sample", "smaller-step")
        )
        change = mean_interval(few_areas - many_areas, error)
        words = f"{name}: share of cells at which runs grow, one sample less twenty"
        cases.append(Case(words, change.value, "<", 0.0, interval=change.interval))
    for name in maps:
        few_area, many_area = (
            float((data[key].log_response.sel(panel=name) > 0).mean())
            for key in ("single-sample", "smaller-step")
        )
        words = f"{name}: cells whose mean distance is above 1, one sample less twenty"
        cases.append(Case(words, few_area - many_area, "<", 0.0, decides=False))
    exponents = _exponent_cases(data["theory-maps"]) if "theory-maps" in data else []
    return Claim(
        id="samples-damp",
        claim="Fewer samples a step damp the resonance: the regions of instability get smaller.",
        quantity="change of the divergent share when the samples of a step become few",
        reason="Damping means a negative change. For Fig. 3 a period diverges when its growth is "
        f"above {DIVERGES:g} a step, a tenth of the paper's 10^19 after 10^4 steps; the interval "
        "counts the periods whose side is known, all at once. For the maps it is Student's over "
        "the runs, each of which has a map of its own.",
        cases=(*cases, *exponents),
        level=LEVEL,
        note=_note(cases, exponents),
    )


def judge_peaks(data: Datasets) -> Claim:
    """Judge whether each curve of Fig. 3 has three resonant bands."""
    dataset = data["square-samples"]
    error = LEVEL / dataset.sizes["batch"]
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = select_panel(dataset, name)
        for batch in dataset.batch.values[::-1]:
            rates = period_rates(panel.sel(batch=batch))[1]
            least, most = count_bands(sides(rates, DIVERGES, error))
            seen = count_bands(np.where(rates.mean(axis=1) > DIVERGES, 1, -1))[0]
            words = f"{name}: bands of periods that diverge, samples {batch:g}"
            cases.append(Case(words, float(seen), "==", 3.0, place == 0, (least, most)))
    return Claim(
        id="three-peaks",
        claim="Each curve of Fig. 3 has three peaks, whatever the number of samples.",
        quantity="bands of neighbouring periods at which the error grows exponentially",
        reason=f"A period belongs to a band when its growth is above {DIVERGES:g} a step, a "
        "tenth of the paper's 10^19 after 10^4 steps. The interval is what the periods whose side "
        "is known (Student's over the runs, all at once) leave open; where it is not known, a band "
        "or a gap is at least two periods wide.",
        cases=tuple(cases),
        level=LEVEL,
        note="A peak that stays bounded is not counted: the paper's left peak leaves its scale, "
        "and of the others it says that some are vanishingly small.",
    )


def judge_shift(data: Datasets) -> Claim:
    """Judge whether fewer samples move the resonance to longer periods."""
    dataset = data["square-samples"]
    batches = dataset.batch.values[::-1]  # from many to few
    pairs = len(batches) - 1
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = select_panel(dataset, name)
        peaks = [
            argmax_interval(*period_rates(panel.sel(batch=n)), LEVEL / (2 * pairs)) for n in batches
        ]
        for more, fewer, left, right in zip(
            batches[:-1], batches[1:], peaks[:-1], peaks[1:], strict=True
        ):
            words = f"{name}: period of the strongest growth, {fewer:g} less {more:g} samples"
            ends = (right.low - left.high, right.high - left.low)
            cases.append(Case(words, right.value - left.value, ">", 0.0, place == 0, ends))
    return Claim(
        id="right-shift",
        claim="Fewer samples move the resonance to longer periods.",
        quantity="change of the period of the strongest growth, from one number to the next",
        reason="A move to the right is a change above 0. The peak may be wherever the interval of "
        "the growth reaches the largest lower end of all (Student's over the runs, all periods at "
        "once).",
        cases=tuple(cases),
        level=LEVEL,
        note="Under the summed loss fewer samples are a smaller step size too; under the mean loss "
        "they are not.",
    )


def square_samples(scale: str) -> Experiment:
    """Return the record of Fig. 3."""
    return paper_sweep(
        "square-samples",
        scale,
        Judge(judge_samples, also=("single-sample", "smaller-step")),
        Judge(judge_peaks),
        Judge(judge_shift),
    )


def single_sample(scale: str) -> Experiment:
    """Return the record of the maps of one sample; its claim is judged with that of Fig. 3."""
    return paper_sweep("single-sample", scale)
