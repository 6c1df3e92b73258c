r"""The rhythm of a series: its strongest line, if it is stronger than noise would make one.

Fisher's test: of :math:`m` ordinates of the periodogram of white noise, the share :math:`g` of the
largest exceeds :math:`x` with a probability of at most :math:`m (1 - x)^{m - 1}`.
"""

from __future__ import annotations

import numpy as np

__all__ = ["dominant_period"]

_LEVEL = 1e-3


def dominant_period(series: np.ndarray) -> float | None:
    """Return the period of the strongest line of a series, in steps, or None if there is none.

    Parameters
    ----------
    series
        One row for each step. Columns are looked at together, each with its mean taken out and in
        units of its deviation; the level is shared among them.

    Examples
    --------
    >>> steps = np.arange(300)
    >>> noise = np.random.default_rng(0).standard_normal((300, 1))
    >>> print(f"{dominant_period(np.sin(2 * np.pi * steps / 40)[:, None] + noise / 4):.0f}")
    40
    >>> dominant_period(noise) is None
    True
    """
    series = np.asarray(series, float)
    steps = len(series)
    if steps < 16:
        return None
    centred = series - series.mean(axis=0)
    spread = centred.std(axis=0)
    centred = centred[:, spread > 1e-12] / spread[spread > 1e-12]
    if not centred.shape[1]:
        return None
    power = np.abs(np.fft.rfft(centred, axis=0))[1 : (steps + 1) // 2] ** 2
    share = power / power.sum(axis=0)
    column = int(np.argmax(share.max(axis=0)))
    line = int(np.argmax(share[:, column]))
    count = len(power)
    p = count * (1 - share[line, column]) ** (count - 1) * centred.shape[1]
    return _refined(centred[:, column], line + 1) if p < _LEVEL else None


def _refined(signal: np.ndarray, line: int) -> float:
    """Return the period of the largest power within a bin of a line."""
    steps = len(signal)
    frequencies = (line + np.linspace(-1, 1, 81)) / steps
    waves = np.exp(-2j * np.pi * np.outer(frequencies, np.arange(steps)))
    return float(1 / frequencies[np.argmax(np.abs(waves @ signal))])
