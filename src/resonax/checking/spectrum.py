"""The power spectrum of a signal, by Welch's method."""

from __future__ import annotations

import numpy as np

__all__ = ["welch"]


def welch(signal: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Return frequencies per row, and the power density of each column (Welch, 1967).

    The mean of :math:`2|\hat x(f)|^2 / \sum_j w_j^2` over segments of ``length`` rows that overlap
    by half, each without its linear trend and under a Hann window :math:`w`. That of frequency 0
    and of 1/2 has no factor of 2. It is what `scipy.signal.welch` gives, whose import takes longer
    than all of it.

    Examples
    --------
    >>> rows = np.sin(2 * np.pi * np.arange(1024) / 8)[:, None]
    >>> frequency, power = welch(rows, 256)
    >>> float(frequency[power[:, 0].argmax()])
    0.125
    """
    if len(signal) < length:
        raise ValueError("a segment is longer than the signal")
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    line = np.linspace(-1.0, 1.0, length)[:, None]
    power = np.zeros((length // 2 + 1, signal.shape[1]))
    starts = range(0, len(signal) - length + 1, max(1, length - length // 2))
    for start in starts:
        part = signal[start : start + length].astype(float)
        part = part - part.mean(axis=0) - line * ((line * part).sum(axis=0) / (line**2).sum())
        power += np.abs(np.fft.rfft(window[:, None] * part, axis=0)) ** 2
    power *= 2 / (window**2).sum() / len(starts)
    power[0] /= 2
    if length % 2 == 0:
        power[-1] /= 2
    return np.fft.rfftfreq(length), power
