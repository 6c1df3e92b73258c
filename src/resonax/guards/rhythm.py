r"""The rhythm of a series: the time after which it repeats, if it surely has one.

Is there a line at all? Fisher's test: of :math:`m` ordinates of the periodogram of white noise, the
share :math:`g` of the largest exceeds :math:`x` with a probability of at most
:math:`m (1 - x)^{m - 1}`. The strongest line may be a harmonic of what repeats, as for classes that
come one after the other: a multiple of its period is taken, the least after which the series is
like itself in all its lines. If that is longer than half of the series, nothing is said.
"""

from __future__ import annotations

import numpy as np

__all__ = ["dominant_period"]

_LEVEL = 1e-3
_NOISE = 0.05  # p of its own, above which a column is noise
_LINE = 6.0  # times the mean of all ordinates, beyond which one counts as a line
_LIKE = 0.6  # share of the power in lines that must come again after a period


def dominant_period(series: np.ndarray) -> float | None:
    """Return the time after which a series repeats, in steps, or None if it surely has none.

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
    >>> pulses = (steps % 40 < 4)[:, None]  # whose harmonics are about as strong
    >>> print(f"{dominant_period(pulses):.0f}", dominant_period(pulses[:64]))
    40 None
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
    if p >= _LEVEL:
        return None
    # Columns without a line of their own are noise, in which nothing comes again.
    told = count * (1 - share.max(axis=0)) ** (count - 1) < _NOISE
    lines = float(share[:, told][share[:, told] > _LINE / count].sum())
    return _repeats(centred[:, told], _refined(centred[:, column], line + 1), lines)


def _repeats(signals: np.ndarray, period: float, lines: float) -> float | None:
    """Return the least multiple of a period after which signals are like themselves."""
    steps = len(signals)
    for multiple in range(1, int(steps / 2 / period + 0.05) + 1):
        lag = round(multiple * period)
        likeness = max(_likeness(signals, one) for one in (lag - 1, lag, lag + 1))
        if likeness >= _LIKE * lines:
            return multiple * period
    return None


def _likeness(signals: np.ndarray, lag: int) -> float:
    """Return how like signals are to themselves some steps later: 1 for each that is the same."""
    return float(np.sum(signals[lag:] * signals[: len(signals) - lag]) / (len(signals) - lag))


def _refined(signal: np.ndarray, line: int) -> float:
    """Return the period of the largest power within a bin of a line."""
    steps = len(signal)
    frequencies = (line + np.linspace(-1, 1, 81)) / steps
    waves = np.exp(-2j * np.pi * np.outer(frequencies, np.arange(steps)))
    return float(1 / frequencies[np.argmax(np.abs(waves @ signal))])
