"""The paper's processes in time and frequency: a sample path, its density, and where that peaks."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy
import xarray as xr

from resonax.algebra import double_precision
from resonax.checks import ArgumentError
from resonax.paper.inference import Estimate, mean_interval
from resonax.paper.judgement import Case, Claim
from resonax.processes import AR2, Process, Sinusoid, Spectrum, Square, Switching

__all__ = ["PANELS", "Panel", "compute_spectra", "judge_spectral_peaks"]

# A segment holds a whole number of every period that the paper shows, so that each line, and each
# trough of the switching mean, falls on a frequency of the estimate and does not leak.
_SEGMENT = 1200
_LEVEL = 0.01  # chance of a wrong outcome, shared out among all peaks, troughs and ratios
_PARTS = 10  # of a path, each with its own estimate, for the intervals
_SHOWN = 300  # steps of the path that are kept for the picture
_GRID = 2**16  # frequencies that resolve the narrowest peak, that of AR(2) at 0.05, by far


class Panel(NamedTuple):
    """One process at one frequency: its label, and the process."""

    label: str
    process: Process
    period: float


_FAMILIES: tuple[tuple[Process, str, tuple[float, ...]], ...] = (
    (Sinusoid(period=20), "f", (0.01, 0.03, 0.05)),
    (AR2(period=20), "f", (0.01, 0.03, 0.05)),
    (Square(period=50, variance=0.25), "T", (50, 100, 150)),
    (Switching(period=50, variance=0.25), "T", (10, 30, 50)),
)


def _panel(family: Process, symbol: str, number: float) -> Panel:
    period = 1 / number if symbol == "f" else float(number)
    process = replace(family, period=period)  # pyright: ignore[reportArgumentType]
    return Panel(f"{family.name} {symbol}={number:g}", process, period)


PANELS = tuple(
    _panel(family, symbol, number) for family, symbol, numbers in _FAMILIES for number in numbers
)


@functools.partial(jax.jit, static_argnames=("steps",))
def _draw(family: Process, periods: jax.Array, keys: jax.Array, steps: int) -> jax.Array:
    """Return paths of the input and of the mean behind it, (periods, 2, steps)."""

    def each(period: jax.Array, key: jax.Array) -> jax.Array:
        process = replace(family, period=period)  # pyright: ignore[reportArgumentType]
        inputs, mean = process.sample(key, steps, 1), process.path(key, steps)
        return jnp.stack([inputs[:, 0, 0], mean[:, 0]])

    return jax.vmap(each)(periods, keys)


def _through_window(spectrum: Spectrum, density: np.ndarray, window: np.ndarray) -> np.ndarray:
    r"""Return what Welch's estimate is on average, given the density and the lines.

    With the autocovariance :math:`r_j = \int S(\nu)\cos(2\pi\nu j)\,d\nu + \sum_l 2p_l
    \cos(2\pi\nu_l j)` and the autocorrelation :math:`c_j` of the window :math:`w`,

    .. math:: E[\hat S(\nu)] = \frac{1}{\sum w^2} \sum_j c_j r_j e^{-2\pi i\nu j} .

    Lines get a height this way, and peaks narrower than the window the width that is seen.
    """
    count = len(window)
    lag = np.arange(count)
    covariance = np.fft.irfft(density)[:count]
    once = np.isin(spectrum.line_frequency, [0.0, 0.5])
    power = np.where(once, 1.0, 2.0) * spectrum.line_power
    covariance += np.cos(2 * np.pi * np.outer(lag, spectrum.line_frequency)) @ power
    taper = np.fft.irfft(np.abs(np.fft.rfft(window, 2 * count)) ** 2)[:count] / np.sum(window**2)
    # Lags j and -j give twice the real part; lag 0 counts once.
    seen = 2 * np.fft.fft(taper * covariance).real - taper[0] * covariance[0]
    return np.maximum(seen[: count // 2 + 1], 0.0)  # rounding may leave a zero just below


@double_precision
def compute_spectra(seed: int, steps: int) -> xr.Dataset:
    """Return paths, estimated densities and closed forms of the paper's twelve panels.

    Densities are two-sided, as in `Spectrum`: of the input (one sample a step), and of its mean.

    Parameters
    ----------
    seed
        Of all draws.
    steps
        Length of the paths from which the densities are estimated, by Welch's method with a Hann
        window: at least ten of its segments of 1200 steps.

    Returns
    -------
    xarray.Dataset
        ``path(panel, series, step)``, the beginning; ``density`` and ``closed_form``, the average
        of the estimate by theory, over ``(panel, series, frequency)``; ``part_density``, the
        estimates from ten parts of each path. Beside each panel stand its
        ``process``, ``period`` and the frequency of its ``peak``, 0 for switching.
    """
    if steps < 10 * _SEGMENT:
        raise ArgumentError(f"steps must be at least {10 * _SEGMENT}, got {steps}")
    keys = jax.random.split(jax.random.key(seed), len(PANELS))
    count = len(PANELS) // len(_FAMILIES)
    paths = np.concatenate(
        [
            _draw(family, jnp.array([p.period for p in PANELS[part]]), keys[part], steps)
            for number, (family, *_) in enumerate(_FAMILIES)
            for part in [slice(number * count, (number + 1) * count)]
        ]
    )
    window = np.asarray(scipy.signal.get_window("hann", _SEGMENT))
    half = _SEGMENT // 2 + 1
    options: Any = {"window": window, "noverlap": _SEGMENT // 2, "detrend": False}
    _, density = scipy.signal.welch(paths, return_onesided=False, **options)
    pieces = np.split(paths[..., : steps // _PARTS * _PARTS], _PARTS, axis=-1)
    parts = [scipy.signal.welch(piece, return_onesided=False, **options)[1] for piece in pieces]
    fine = [panel.process.spectrum(np.arange(_GRID // 2 + 1) / _GRID) for panel in PANELS]
    closed = [
        [_through_window(found, one, window) for one in (found.input_density, found.mean_density)]
        for found in fine
    ]
    over = ("panel", "series")
    names = np.array([panel.process.name for panel in PANELS])
    periods = np.array([panel.period for panel in PANELS])
    return xr.Dataset(
        {
            "path": ((*over, "step"), paths[..., :_SHOWN]),
            "density": ((*over, "frequency"), density[..., :half]),
            "part_density": (("part", *over, "frequency"), np.array(parts)[..., :half]),
            "closed_form": ((*over, "frequency"), np.array(closed)),
        },
        coords={
            "panel": np.array([panel.label for panel in PANELS]),
            "part": np.arange(_PARTS),
            "series": np.array(["input", "mean"]),
            "step": np.arange(_SHOWN),
            "frequency": np.arange(half) / _SEGMENT,
            "process": ("panel", names),
            "period": ("panel", periods),
            "peak": ("panel", np.where(names == "switching", 0.0, 1 / periods)),
        },
        attrs={
            "steps": str(steps),
            "segment": str(_SEGMENT),
            "window": "hann",
            "seed": str(seed),
        },
    )


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


def _place_case(label: str, offsets: list[Estimate]) -> Case:
    """Return the largest offset of a panel, to either side, in bins."""
    low = max(max(0.0, one.low, -one.high) for one in offsets)
    high = max(max(-one.low, one.high) for one in offsets)
    worst = max(abs(one.value) for one in offsets)
    return Case(label, worst, "<=", 1.0, interval=(low, high))


def judge_spectral_peaks(dataset: xr.Dataset) -> Claim:
    """Judge from `compute_spectra` whether each density peaks where its process says."""
    resolution = float(dataset.frequency[1] - dataset.frequency[0])
    places, lobes = [], []
    # A square wave has five features, switching three and two ratios, the others two, three times.
    error = _LEVEL / (3 * (2 + 2 + 5 + 5))
    for label in dataset.panel.values:
        panel = dataset.sel(panel=label)
        process, bins = str(panel.process.values), 1 / (float(panel.period) * resolution)
        offsets = _jackknife(panel, lambda d, p=process, b=bins: _offsets(d, p, b), error)
        places.append(_place_case(str(label), offsets))
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
        level=_LEVEL,
        note="AR(2) at f = 0.01 is itself wider than the resolution (half width 0.001), at 0.03 "
        "and 0.05 narrower: what is seen there is the width of the window.",
    )
