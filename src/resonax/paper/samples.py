"""Fig. 3 and the maps of one sample: what fewer samples in a step do to the resonance."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from resonax.core.algebra import on_the_cpu
from resonax.dynamics import Setting
from resonax.paper.inference import (
    SIGNIFICANCE,
    Estimate,
    argmax_interval,
    count_bands,
    count_peaks,
    jackknife,
    known_sides,
    mean_interval,
    ordered_share,
)
from resonax.paper.responses import (
    DIVERGES,
    ORDERED,
    largest_over_periods,
    log_mean_response,
    period_rates,
    run_areas,
    run_maps,
)
from resonax.paper.sweep import paper_sweep, read_paper_sweep
from resonax.paper.theory_maps import RESONANT
from resonax.store import Variable
from resonax.sweeps.build import build_setting
from resonax.sweeps.experiment import Datasets, Experiment, Judge, from_sweep
from resonax.sweeps.judgement import Case, Claim
from resonax.sweeps.panels import read_panels, select_panel
from resonax.theory.mean_square import mean_square_rates, noise_floor
from resonax.theory.period import own_values

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["NORMS", "single_sample", "square_samples"]

# The panels of Fig. 3 whose peaks are counted, and what the paper says of the norm of the mean.
NORMS = {
    "summed loss": "norm 1/2, as in the table",
    "summed loss, unit norm": "norm 1, as in the text",
}
_VISIBLE = 1.01  # factor by which a peak is above the valleys beside it
_STAYS, _SAME = 0.05, 0.9  # of the map's width; of the region
_LEVEL_SECONDS = 0.05  # that the exact distance of a cell takes


def _band_share(panel: xr.Dataset, batch: float, error: float) -> tuple[float, float, float]:
    """Return the share of periods that diverge, and the least and most that it may be."""
    rates = period_rates(panel.sel(batch=batch))[1]
    found = known_sides(rates, DIVERGES, error)
    share = float(np.mean(rates.mean(axis=1) > DIVERGES))
    return share, float(np.mean(found > 0)), float(np.mean(found >= 0))


def judge_damp(data: Datasets) -> Claim:
    """Judge whether fewer samples damp the response, in excess of that to shuffled inputs."""
    dataset = data["square-samples"]
    theory = data["theory-maps"]
    error = SIGNIFICANCE / (2 + theory.sizes["lr"] * len(RESONANT))
    cases = []
    for place, name in enumerate(dataset.panel.values):
        panel = select_panel(dataset, name)
        baseline = panel.run_log_response.sel(period=0).transpose("batch", "run").values
        excess = largest_over_periods(panel, "batch", "run_log_response") - baseline
        decides = place == 0
        order = ordered_share(excess, error)
        words = f"Fig. 3, {name}: pairs of numbers of samples in which fewer have the lower excess"
        cases.append(Case(words, order.value, ">=", ORDERED, decides, order.interval))
        few, many = float(panel.batch.min()), float(panel.batch.max())
        change = mean_interval(excess[0] - excess[-1], error)
        words = f"Fig. 3, {name}: logarithm of the excess, {few:g} less {many:g} samples"
        cases.append(Case(words, change.value, "<", 0.0, decides, change.interval))
    for lr, place in itertools.product(theory.lr.values, RESONANT):
        one, twenty = (
            _excess(theory.sel(lr=lr, place=place, batch=batch))
            for batch in (theory.batch.min(), theory.batch.max())
        )
        ends = one.low - twenty.high, one.high - twenty.low
        words = (
            f"sinusoid, lr {lr:g}, {place}: almost-sure growth in excess of shuffled inputs with "
            f"one sample ({one.value:+.4f}) less that with twenty ({twenty.value:+.4f})"
        )
        cases.append(Case(words, one.value - twenty.value, "<", 0.0, interval=ends))
    for name in dataset.panel.values:
        panel = select_panel(dataset, name)
        few, many = float(panel.batch.min()), float(panel.batch.max())
        one, other = (_band_share(panel, batch, error / 2) for batch in (few, many))
        words = f"Fig. 3, {name}: share of periods that diverge, {few:g} less {many:g} samples"
        ends = one[1] - other[2], one[2] - other[1]
        cases.append(Case(words, one[0] - other[0], "<", 0.0, False, ends))
    return Claim(
        id="samples-damp",
        claim="Fewer samples a step damp the resonant response (Fig. 3, App.).",
        quantity="response at resonance in excess of that to shuffled inputs",
        reason="Noise alone raises the response as samples become fewer, with and without a "
        "rhythm, so that of shuffled inputs is subtracted. In Fig. 3 the excess is the logarithm "
        "of how much farther a run is from the solution at its worst period than with shuffled "
        "inputs; nine pairs in ten are to be in order, as for the variance, and the interval is "
        "Student's over the runs. For the maps it is the almost-sure growth per step at the "
        "principal resonance, less that of shuffled inputs.",
        cases=tuple(cases),
        significance=SIGNIFICANCE,
        note="Under the summed loss fewer samples are a smaller step size too; under the mean loss "
        "they are not.",
    )


def _excess(place: xr.Dataset) -> Estimate:
    """Return the almost-sure growth at a place less that of shuffled inputs."""
    value = place.exponent - place.shuffled_exponent
    low = place.exponent_low - place.shuffled_exponent_high
    high = place.exponent_high - place.shuffled_exponent_low
    return Estimate(float(value), float(low), float(high))


def _both_maps(data: Datasets, name: str) -> np.ndarray:
    """Return the runs' maps with one sample and with twenty, (2, momentum, period, runs)."""
    pair = (data[key][["run_log_response"]] for key in ("single-sample", "smaller-step"))
    return np.stack([run_maps(one.sel(panel=name)) for one in pair])


def _area_change(runs: np.ndarray) -> float:
    few, many = log_mean_response(runs) > 0
    return float(few.mean() - many.mean())


def judge_widen(data: Datasets) -> Claim:
    """Judge whether one sample makes the region of instability larger."""
    maps = list(data["single-sample"].panel.values)
    error = SIGNIFICANCE / len(maps)
    cases = []
    for name in maps:
        found = jackknife(_area_change, _both_maps(data, name), error)
        words = f"{name}: share of cells whose mean distance is above 1, one sample less twenty"
        cases.append(Case(words, found.value, ">", 0.0, interval=found.interval))
    for name in maps:
        few, many = (
            run_areas(data[key][["run_rate"]].sel(panel=name))
            for key in ("single-sample", "smaller-step")
        )
        change = mean_interval(few - many, error)
        words = f"{name}: share of cells at which single runs grow, one sample less twenty"
        cases.append(Case(words, change.value, ">", 0.0, False, change.interval))
    return Claim(
        id="samples-widen",
        claim="With one sample a step the regions of instability are wider than with twenty "
        "(App.).",
        quantity="change of the unstable share of the map from twenty samples to one",
        reason="The region is what the paper's map shows as unstable: the cells whose distance, "
        "averaged over the last steps and the runs, is above 1, where runs begin. It is wider if "
        "its share of the map rises, in each of the six maps. The interval is Student's with the "
        "variance of leaving out one run after another.",
        cases=tuple(cases),
        significance=SIGNIFICANCE,
        note="The paper says in the paragraph before that the response is damped: samples-damp.",
    )


def _centre(unstable: np.ndarray) -> float:
    """Return where the unstable cells lie on average along the second axis, from 0 to 1."""
    share = unstable.sum(axis=0)
    if not share.any():
        return np.nan
    return float(np.average(np.arange(len(share)), weights=share) / (len(share) - 1))


def _move(runs: np.ndarray) -> float:
    few, many = log_mean_response(runs) > 0
    return abs(_centre(few) - _centre(many))


def _overlap(runs: np.ndarray) -> float:
    """Return the share of the region of one sample that lies in the other, enlarged to its size.

    The other is enlarged by its next brightest cells.
    """
    few, many = log_mean_response(runs)
    count = int((few > 0).sum())
    if not count:
        return np.nan
    return float(np.mean(many[few > 0] >= np.sort(many, axis=None)[-count]))


def judge_shape(data: Datasets) -> Claim:
    """Judge whether the regions of one sample have the location and shape of those of twenty."""
    maps = list(data["single-sample"].panel.values)
    error = SIGNIFICANCE / (2 * len(maps))
    cases, notes = [], []
    for name in maps:
        runs = _both_maps(data, name)
        few, many = log_mean_response(runs[:, :, _at_long_periods(data, name)]) > 0
        notes.append(
            f"{name}: at periods beyond the resonances {few.mean():.0%} of the cells are unstable "
            f"with one sample and {many.mean():.0%} with twenty."
        )
        move = jackknife(_move, runs, error)
        words = f"{name}: move of the region's centre along the frequency, in widths of the map"
        cases.append(
            Case(words, move.value, "<=", _STAYS, interval=(max(move.low, 0.0), move.high))
        )
        same = jackknife(_overlap, runs, error)
        words = f"{name}: share of the region that lies in that of twenty, enlarged to its size"
        cases.append(Case(words, same.value, ">=", _SAME, interval=(same.low, min(same.high, 1.0))))
    return Claim(
        id="single-sample-shape",
        claim="With one sample a step the regions of instability do not change shape or location: "
        "none is introduced, and only their size is affected (App.).",
        quantity="location and shape of the unstable region, one sample against twenty",
        reason="The region is that of samples-widen. Its location along the frequency is where its "
        f"cells lie on average; {_STAYS:.0%} of the map's width is taken for no move. If only the "
        "size changed, it would be the region of twenty samples, enlarged: by its next brightest "
        f"cells to the same size it is to hold {_SAME:.0%} of the other. The interval is Student's "
        "with the variance of leaving out one run after another.",
        cases=tuple(cases),
        significance=SIGNIFICANCE,
        note=notes[0],
    )


def _at_long_periods(data: Datasets, name: str) -> np.ndarray:
    """Return which columns are longer than twice a swing of the weights, 2π/sqrt(2η) steps."""
    lr = read_panels(data["single-sample"])[name].optimizer["lr"]
    return data["single-sample"].period.values > 2 * 2 * np.pi / np.sqrt(2 * lr)


def _samples(batch: float) -> str:
    return f"{batch:g} sample{'' if batch == 1 else 's'}"


def judge_peaks(data: Datasets) -> Claim:
    """Judge whether each curve of Fig. 3 has three peaks, for both norms that the paper gives."""
    dataset = data["square-samples"]
    cases, others = [], []
    for name, reading in NORMS.items():
        panel = select_panel(dataset, name)
        for batch in dataset.batch.values[::-1]:
            curve = panel.predicted_log_distance.sel(batch=batch)
            heights = curve.sel(period=curve.period > 0).values
            count, others_count = (count_peaks(heights, np.log(rise)) for rise in (_VISIBLE, 2.0))
            words = f"{reading}: peaks of the curve of {_samples(batch)}"
            cases.append(Case(words, float(count), ">=", 3.0, reading=reading))
            words = f"{reading}: those of {_samples(batch)} that rise twofold"
            others.append(Case(words, float(others_count), ">=", 3.0, False, reading=reading))
    error = SIGNIFICANCE / dataset.sizes["batch"]
    for name in dataset.panel.values:
        panel = select_panel(dataset, name)
        for batch in dataset.batch.values[::-1]:
            rates = period_rates(panel.sel(batch=batch))[1]
            least, most = count_bands(known_sides(rates, DIVERGES, error))
            seen = count_bands(np.where(rates.mean(axis=1) > DIVERGES, 1, -1))[0]
            words = f"{name}: bands of periods at which simulated runs diverge, {_samples(batch)}"
            others.append(Case(words, float(seen), ">=", 3.0, False, (least, most)))
    return Claim(
        id="three-peaks",
        claim="Each curve of Fig. 3 has three peaks, whatever the number of samples.",
        quantity="peaks of the root mean square distance over the period, bounded ones too",
        reason="The paper calls some of the peaks vanishingly small; of ten runs these cannot be "
        "distinguished from chance. So the distance is that of theory: the exact root mean square "
        "after the run's steps where it grows, and its level where it does not. A peak rises by at "
        f"least {_VISIBLE - 1:.0%} above the valleys beside it; a fourth does not contradict the "
        "claim. "
        "The mean has norm 1/2 in the paper's table and norm 1 in its text: the claim is judged "
        "for both, under the summed loss.",
        cases=(*cases, *others),
        significance=0.0,
        note="Not every peak diverges: the bands of periods at which simulated runs do stand "
        f"beside, with a significance of {SIGNIFICANCE:g}.",
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
            argmax_interval(*period_rates(panel.sel(batch=n)), SIGNIFICANCE / (2 * pairs))
            for n in batches
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
        significance=SIGNIFICANCE,
        note="Under the summed loss fewer samples are a smaller step size too; under the mean loss "
        "they are not.",
    )


def _predict(
    settings: Sequence[Setting | None],
    steps: int,
    points: Mapping[str, np.ndarray],
    region: Mapping[str, slice],
    *_: object,
) -> dict[str, np.ndarray]:
    """Return the logarithm of the exact distance in the cells of one task, where it is needed."""
    batch, period = (points[name][region.get(name, slice(None))] for name in ("batch", "period"))
    panels = range(len(settings))[region.get("panel", slice(None))]
    found = np.full((len(panels), len(batch), len(period)), np.nan)
    for place in np.ndindex(found.shape):
        setting = settings[panels[place[0]]]
        at = {"batch": int(batch[place[1]]), "period": float(period[place[2]])}
        if setting is not None and at["period"] > 0:
            found[place] = on_the_cpu(_log_distance)(setting.at(at), steps)
    return {"predicted_log_distance": found}


def _log_distance(setting: Setting, steps: int) -> float:
    """Return the logarithm of the root mean square distance: where it settles, or has grown to."""
    rate = float(mean_square_rates(setting, own_values(setting))[0])
    level = noise_floor(setting) if rate < 0 else None
    return steps * max(rate, 0.0) if level is None else float(np.log(level))


def square_samples(scale: str) -> Experiment:
    """Return the record of Fig. 3."""
    sweep = read_paper_sweep("square-samples", scale)
    judges = (
        Judge(judge_damp, also=("theory-maps",)),
        Judge(judge_peaks),
        Judge(judge_shift),
    )
    base = from_sweep(sweep, judges)
    settings = tuple(
        build_setting(sweep, number) if panel.name in NORMS else None
        for number, panel in enumerate(sweep.panels)
    )
    words = {"long_name": "logarithm of the exact root mean square distance"}
    predicted = Variable(("panel", *sweep.points()), "float64", words)
    variables = {**base.layout.variables, "predicted_log_distance": predicted}
    predict = partial(_predict, settings, sweep.run.steps, sweep.points())
    seconds = _LEVEL_SECONDS * base.cells * len(NORMS) / len(sweep.panels)
    return replace(
        base,
        layout=replace(base.layout, variables=variables),
        also=(*base.also, predict),
        seconds=base.seconds + seconds / base.layout.count(),
    )


def single_sample(scale: str) -> Experiment:
    """Return the record of the maps of one sample."""
    also = ("smaller-step",)
    judges = (Judge(judge_widen, also=also), Judge(judge_shape, also=also))
    return paper_sweep("single-sample", scale, *judges)
