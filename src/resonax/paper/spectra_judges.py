"""Where the densities of the processes peak: the claim, and the jackknife behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from resonax.paper.inference import SIGNIFICANCE, Estimate, mean_interval
from resonax.sweeps.experiment import Datasets
from resonax.sweeps.judgement import Case, Claim

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["judge_spectral_peaks"]


def _vertex(values: np.ndarray, place: int) -> float:
    """Return where a parabola through an extreme value and its neighbours has its vertex."""
    if not 0 < place < len(values) - 1:
        return float(place)
    before, here, after = np.log(np.maximum(values[place - 1 : place + 2], 1e-300))
    bend = before - 2 * here + after
    return place + 0.5 * (before - after) / bend if bend else float(place)


def _within(values: np.ndarray, low: float, high: float) -> tuple[np.ndarray, int]:
    """Return the values between two places (open ends), and where the first one stood."""
    start = int(np.floor(low)) + 1
    return values[start : int(np.ceil(high))], start


def _offsets(density: Mapping[str, np.ndarray], process: str, bins: float) -> np.ndarray:
    """Return by how many bins each feature of a panel is off its place.

    The features are the largest value of both densities, for a square wave also the harmonics 3,
    5 and 7 of its mean, each searched between its even neighbours, and for switching the first
    three troughs of its mean, each searched half a spacing to both sides. ``bins`` is the number
    of them from 0 to 1/period.
    """
    offsets = []
    if process == "switching":
        for number in (1, 2, 3):
            values, start = _within(density["mean"], (number - 0.5) * bins, (number + 0.5) * bins)
            offsets.append(start + _vertex(values, int(values.argmin())) - number * bins)
        return np.array(offsets)
    offsets = [_vertex(values, int(values.argmax())) - bins for values in density.values()]
    if process == "square":
        for number in (3, 5, 7):
            values, start = _within(density["mean"], (number - 1) * bins, (number + 1) * bins)
            offsets.append(start + _vertex(values, int(values.argmax())) - number * bins)
    return np.array(offsets)


def _lobes(density: Mapping[str, np.ndarray], bins: float) -> np.ndarray:
    """Return the largest mean of each density in a later quarter of 1/period over the first."""
    ratios = []
    for values in density.values():
        quarter = np.floor(np.arange(len(values)) / (bins / 4)).astype(int)
        each = np.bincount(quarter, values) / np.bincount(quarter)
        ratios.append(each[1:].max() / each[0])
    return np.array(ratios)


def _jackknife(
    panel: xr.Dataset, feature: Callable[[Mapping[str, np.ndarray]], np.ndarray], error: float
) -> list[Estimate]:
    """Return features of the density with intervals, from leaving out one part of the path.

    The pseudo-values of the jackknife are treated as independent (Tukey): the parts are long
    against the memory of every process.
    """
    parts = panel.part_density.transpose("part", "series", "frequency").values
    names = [str(name) for name in panel.series.values]

    def found(chosen: np.ndarray) -> np.ndarray:
        return feature(dict(zip(names, chosen.mean(axis=0), strict=True)))

    count, whole = len(parts), found(parts)
    without = np.array([found(np.delete(parts, part, axis=0)) for part in range(count)])
    pseudo = count * whole - (count - 1) * without
    estimates = []
    for value, row in zip(whole, pseudo.T, strict=True):
        around = mean_interval(row, error)
        half = (around.high - around.low) / 2
        estimates.append(Estimate(float(value), float(value - half), float(value + half)))
    return estimates


def _offset_case(label: str, offsets: list[Estimate]) -> Case:
    """Return the largest offset of a panel, to either side, in bins."""
    low = max(max(0.0, one.low, -one.high) for one in offsets)
    high = max(max(-one.low, one.high) for one in offsets)
    worst = max(abs(one.value) for one in offsets)
    return Case(label, worst, "<=", 1.0, interval=(low, high))


def judge_spectral_peaks(data: Datasets) -> Claim:
    """Judge whether each density peaks where its process says."""
    dataset = data["spectra"]
    resolution = float(dataset.frequency[1] - dataset.frequency[0])
    places, lobes = [], []
    # A square wave has five features, switching three and two ratios, the others two, three times.
    error = SIGNIFICANCE / (3 * (2 + 2 + 5 + 5))
    for label in dataset.panel.values:
        panel = dataset.sel(panel=label)
        process, bins = str(panel.process.values), 1 / (float(panel.period) * resolution)
        offsets = _jackknife(panel, lambda d, p=process, b=bins: _offsets(d, p, b), error)
        places.append(_offset_case(str(label), offsets))
        if process == "switching":
            ratios = _jackknife(panel, lambda d, b=bins: _lobes(d, b), error)
            worst = max(ratios, key=lambda one: one.value)
            ends = max(one.low for one in ratios), max(one.high for one in ratios)
            words = f"{label}, off zero over at zero"
            lobes.append(Case(words, worst.value, "<", 1.0, interval=ends))
    places.sort(key=lambda case: -case.measured)  # the worst first, as it stands for the claim
    return Claim(
        id="spectral-peaks",
        claim="The density peaks at f for the sinusoid and AR(2) and at the odd multiples of 1/T "
        "for the square wave, most at 1/T; switching has troughs at the multiples of 1/T and no "
        "peak but at zero.",
        quantity=f"peaks off their place, in bins of {resolution:.2g} cycles a step",
        reason="For switching the troughs of the mean are placed. An estimate cannot place a peak "
        "better than its resolution. The top of the switching density is flat and its estimate "
        "rough, so that averages over quarters are compared; by theory their ratio is 0.7. "
        "Intervals are those of the jackknife over ten parts of each path, all at once.",
        cases=(*places, *lobes),
        significance=SIGNIFICANCE,
        note="AR(2) at f = 0.01 is itself wider than the resolution (half width 0.001), at 0.03 "
        "and 0.05 narrower: what is seen there is the width of the window.",
    )
