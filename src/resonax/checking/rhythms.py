"""Rhythms in a recording: peaks of a spectrum, and how deep the data modulate the curvature.

A peak is a line or a narrow band that stands out of a smooth background. Without a rhythm, a
periodogram ordinate over the smooth spectrum around it is exponential with mean 1, and the mean of
L neighbours has a gamma law. The background is a straight line, fitted to the logarithms of the
ordinates on both sides over the logarithm of the frequency: it follows red and curved spectra, and
hardly follows a peak. A peak is tested at `SIGNIFICANCE`, divided by the number of all
frequencies, columns and widths that were searched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy  # its parts are loaded where they are used

__all__ = [
    "SIGNIFICANCE",
    "Modulation",
    "Peak",
    "find_modulations",
    "find_peaks",
    "modulation_depth",
]


SIGNIFICANCE = 1e-3
_WIDTHS = (1, 5, 17)  # bins that are averaged
_MIN_RATIO = 4.0  # of a peak over its surroundings
_CANDIDATES = 24  # of the highest places of each column and width
_SURROUNDINGS = 1.5  # the background reaches from the peak over this factor of frequency
_MIN_BINS = 40  # of the background
_SAME_PEAK = 1.04  # in frequency: what is nearer belongs to the same peak
_LEAKAGE = (1.5, 0.01)  # so far, and so much, a line leaks through the taper
_STANDARD_ERRORS = 3.0  # of the background are allowed for
_EULER = 0.5772156649015329  # minus the mean logarithm of an exponential variable


@dataclass(frozen=True)
class Peak:
    """A peak that no smooth spectrum has."""

    period: float  # in rows
    ratio: float  # over the background
    power: float  # of its highest bin


def find_peaks(signal: np.ndarray, shortest: float, longest: float) -> list[Peak]:
    """Return the peaks of columns, (rows, columns), with periods in a range, strongest first."""
    rows, columns = signal.shape
    steps = np.arange(rows) - (rows - 1) / 2
    detrended = signal - signal.mean(axis=0)
    detrended -= np.outer(steps, steps @ detrended / max(steps @ steps, 1.0))
    power = np.abs(np.fft.rfft(detrended * np.hanning(rows)[:, None], axis=0))[1:] ** 2
    frequency = np.arange(1, len(power) + 1) / rows
    searched = np.flatnonzero((frequency >= 1 / longest) & (frequency <= 1 / shortest))
    if len(searched) < 3 or len(power) < 2 * _MIN_BINS:
        return []
    tests = len(searched) * columns * len(_WIDTHS)
    found: list[Peak] = []
    for column in power.T:
        if column.max() <= 0:
            continue
        logs = np.log(np.maximum(column, column.max() * 1e-30))
        # Divided by a rough background, so that the highest places are those that stand out.
        rough = np.convolve(np.pad(logs, 32, mode="reflect"), np.ones(65) / 65, "valid")
        for width in _WIDTHS:
            mean = np.convolve(column, np.ones(width) / width, "same")
            excess = (np.log(np.maximum(mean, 1e-300)) - rough)[searched]
            for place in searched[np.argsort(-excess)[:_CANDIDATES]]:
                if width > 1 and place < 4 * width:  # no narrow peak any more
                    continue
                peak = _tested(frequency, column, mean, logs, int(place), width, tests)
                if peak is not None:
                    found.append(peak)
    kept: list[Peak] = []
    for peak in sorted(found, key=lambda peak: -peak.power):
        if not any(_same(peak, other) for other in kept):
            kept.append(peak)
    return kept


def _same(weak: Peak, strong: Peak) -> bool:
    """Whether a peak is part of a stronger one, or only its leakage."""
    apart = abs(math.log(weak.period / strong.period))
    return apart < math.log(_SAME_PEAK) or (
        apart < math.log(_LEAKAGE[0]) and weak.power < _LEAKAGE[1] * strong.power
    )


def _tested(
    frequency: np.ndarray,
    column: np.ndarray,
    mean: np.ndarray,
    logs: np.ndarray,
    place: int,
    width: int,
    tests: int,
) -> Peak | None:
    center = frequency[place]
    reach = max(_MIN_BINS, int(place * (_SURROUNDINGS - 1)))
    first, last = max(0, place - reach), min(len(logs), place + reach + 1)
    below, above = slice(first, max(first, place - 3 - width)), slice(place + 4 + width, last)
    side = np.log(np.concatenate([frequency[below], frequency[above]]) / center)
    around = np.concatenate([logs[below], logs[above]])
    line = _background(side, around)
    # The taper makes neighbours depend on each other: two of them count as one.
    freedom = 1.0 if width == 1 else width / 2

    def is_chance(ratio: float) -> bool:
        chance = float(scipy.special.gammaincc(freedom, freedom * ratio))
        return ratio < _MIN_RATIO or chance * tests > SIGNIFICANCE

    if is_chance(mean[place] / math.exp(line[0] + _EULER)):
        return None
    # The background is known up to an error, which must not make a peak.
    ratio = mean[place] / math.exp(
        line[0] + _EULER + _STANDARD_ERRORS * _error(side, around, *line)
    )
    if is_chance(ratio):
        return None
    start = max(place - width // 2, 1)  # where the peak itself is highest
    top = start + int(np.argmax(column[start : place + width // 2 + 1]))
    center, sides = frequency[top], column[[top - 1, top, min(top + 1, len(column) - 1)]]
    left, middle, right = np.log(np.maximum(sides, 1e-300))
    curve = left - 2 * middle + right
    shift = float(np.clip(0.5 * (left - right) / curve, -0.5, 0.5)) if curve < 0 else 0.0
    return Peak(1 / (center + shift * frequency[0]), ratio, float(column[top]))


def _background(place: np.ndarray, logs: np.ndarray) -> tuple[float, float]:
    """Return a straight line through the logarithms: its value at 0, and the slope."""
    middle = float(np.mean(place))
    away = place - middle
    slope = float(away @ logs) / float(np.sum(away**2))
    return float(np.mean(logs)) - slope * middle, slope


def _error(place: np.ndarray, logs: np.ndarray, height: float, slope: float) -> float:
    """Return the standard error of the value at 0 of `_background`."""
    middle = float(np.mean(place))
    spread = float(np.sum((place - middle) ** 2))
    rest = logs - height - slope * place
    freedom = 2 / 3 * len(place)  # the taper makes neighbours depend on each other
    return math.sqrt(float(rest @ rest) / freedom * (1 / freedom + middle**2 / spread))


_MIN_PERIOD = 4.0  # steps
_MIN_PERIODS = 6  # that the rows must hold
_SEGMENT = 12  # periods over which a rhythm is taken to be in step with itself
_MAX_RHYTHMS = 5
_MIN_DEPTH = 0.01


@dataclass(frozen=True)
class Modulation:
    """A rhythm of the curvature, and the depth from which on a learner resonates with it."""

    period: float  # in steps
    depth: float  # amplitude of its first harmonic, relative to the mean curvature
    critical_depth: float | None  # from which on an error grows; None: from none

    @property
    def is_dangerous(self) -> bool:
        """Whether it is deep enough to make an error grow."""
        return self.critical_depth is not None and self.depth > self.critical_depth


def modulation_depth(
    curvature: np.ndarray, period: float, rng: np.random.Generator | None = None
) -> float:
    r"""Return the relative depth at which a sequence of curvature matrices swings with a period.

    With :math:`C_k` of mean :math:`I`, over stretches of 12 periods,

    .. math:: d = \Bigl\lVert \frac2K\sum_k (C_k - I)\, e^{-2\pi i k/T} \Bigr\rVert_2 ,

    the amplitude of the deepest direction; it is what the first tongue of coupled modes with equal
    periods depends on. Squares are averaged over the stretches, and what the same matrices give in
    random order is taken off.

    Examples
    --------
    >>> wave = 1 + 0.5 * np.cos(2 * np.pi * np.arange(2400) / 24)
    >>> round(modulation_depth(wave[:, None, None], 24.0), 2)
    0.5
    """
    rng = np.random.default_rng(0) if rng is None else rng
    steps = len(curvature)
    length = min(steps, round(_SEGMENT * period))
    count = steps // length
    rest = curvature - curvature.mean(axis=0)
    turn = np.exp(-2j * np.pi * np.arange(count * length) / period).reshape(count, length)

    def power(series: np.ndarray) -> float:
        kept = series[: count * length].reshape(count, length, *series.shape[1:])
        lines = 2 / length * np.einsum("sk,skij->sij", turn, kept)
        return float((np.linalg.norm(lines, ord=2, axis=(1, 2)) ** 2).mean())

    noise = np.mean([power(rest[rng.permutation(steps)]) for _ in range(4)])
    return float(np.sqrt(max(0.0, power(rest) - noise)))


def find_modulations(curvature: np.ndarray) -> list[tuple[float, float]]:
    """Return period and depth of the rhythms that stand out, deepest first, at most 5."""
    steps, modes = curvature.shape[:2]
    upper = np.triu_indices(modes)
    peaks = find_peaks(curvature[:, *upper], _MIN_PERIOD, steps / _MIN_PERIODS)
    periods = [float(peak.period) for peak in peaks[: 4 * _MAX_RHYTHMS]]
    found = [(period, modulation_depth(curvature, period)) for period in periods]
    found = [pair for pair in found if pair[1] > _MIN_DEPTH]
    return sorted(found, key=lambda pair: -pair[1])[:_MAX_RHYTHMS]
