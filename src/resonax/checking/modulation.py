"""Rhythms of the curvature: how deep the data modulate it, and at which periods."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from resonax.checking.peaks import find_peaks

__all__ = ["Modulation", "find_modulations", "modulation_depth"]

_SHORTEST = 4.0  # steps
_LEAST_PERIODS = 6  # that the rows must hold
_SEGMENT = 12  # periods over which a rhythm is taken to be in step with itself
_MOST = 5
_SHALLOWEST = 0.01


@dataclass(frozen=True)
class Modulation:
    """A rhythm of the curvature, held against what a learner needs to resonate with it."""

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
    peaks = find_peaks(curvature[:, *upper], _SHORTEST, steps / _LEAST_PERIODS)
    periods = [float(peak.period) for peak in peaks[: 4 * _MOST]]
    found = [(period, modulation_depth(curvature, period)) for period in periods]
    found = [pair for pair in found if pair[1] > _SHALLOWEST]
    return sorted(found, key=lambda pair: -pair[1])[:_MOST]
