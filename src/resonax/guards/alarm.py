"""The alarm that costs nothing: whether the velocity of a run grows, since when, at what period.

The logarithm of the norm of the velocity is averaged over windows of some steps. The baseline is
the lowest window so far; it rises slowly, so that a run may change, and never lies far below the
highest window. A window far above the baseline is an alarm. An alarm alone changes nothing: it
starts a search in which the candidates are followed.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

__all__ = ["STRIDE", "AlarmState", "init", "period_of", "update"]

STRIDE = 4  # steps between two samples of the norm
_WINDOW = 8  # samples
_BURN_IN = 2  # windows in which the velocity of a new run builds up
_DRIFT = 0.01  # rise of the baseline with each window
_ALARM = math.log(6.0)
_NEAR = math.log(2.0)
_DEPTH = math.log(12.0)  # what is this far below the peak is noise of a run that has converged
_PEAK = 8.0  # of the spectrum over its median, for a period


class AlarmState(NamedTuple):
    """Baseline and current window of the signal, and the step at which the growth began."""

    floor: Any  # the baseline
    began: Any  # step of the last window near the baseline
    total: Any  # sum over the current window
    samples: Any  # in the current window
    windows: Any
    level: Any  # mean of the last full window
    peak: Any  # of the windows so far; it sinks slowly


def init(step: int = 0, xp: Any = np) -> AlarmState:
    """Return the state before the first sample."""
    zero = xp.zeros(())
    return AlarmState(zero + xp.inf, zero + step, zero, zero, zero, zero, zero - xp.inf)


def update(state: AlarmState, size: Any, step: Any, xp: Any = np) -> tuple[AlarmState, Any]:
    """Return the state after one more sample of the norm, and whether it raises an alarm.

    Examples
    --------
    >>> state, alarms = init(), []
    >>> for step in range(0, 4000, STRIDE):
    ...     state, alarm = update(state, math.exp(0.01 * max(step - 2000, 0)), step)
    ...     alarms += [step] if alarm else []
    >>> int(state.began), alarms[0]
    (2076, 2204)
    """
    total, samples = state.total + xp.log(xp.maximum(size, 1e-37)), state.samples + 1
    full = samples >= _WINDOW
    level = total / samples
    windows = state.windows + full
    counts = full & (windows > _BURN_IN)
    floor = state.floor + xp.where(counts, _DRIFT, 0.0)
    peak = xp.maximum(state.peak - xp.where(counts, _DRIFT, 0.0), xp.where(full, level, -xp.inf))
    floor = xp.maximum(floor, peak - _DEPTH)
    lower = counts & (level <= floor)
    floor = xp.where(lower, xp.maximum(level, peak - _DEPTH), floor)
    alarm = counts & ~lower & (level > floor + _ALARM)
    near = full & (level <= floor + _NEAR)
    after = AlarmState(
        floor=floor,
        began=xp.where(near | (windows <= _BURN_IN), step, state.began),
        total=xp.where(full, 0.0, total),
        samples=xp.where(full, 0.0, samples),
        windows=windows,
        level=xp.where(full, level, state.level),
        peak=peak,
    )
    return after, alarm


def period_of(signal: np.ndarray) -> float | None:
    """Return the period of the strongest line in the spectrum of a signal in steps, or None.

    Examples
    --------
    >>> steps = np.arange(256)
    >>> noise = np.random.default_rng(0).normal(size=256)
    >>> print(f"{period_of(np.sin(2 * np.pi * steps / 24) + 0.3 * noise):.1f}")
    24.1
    >>> print(period_of(noise))
    None
    """
    signal = np.asarray(signal, dtype=float)
    if len(signal) < 32 or not np.isfinite(signal).all():
        return None
    centred = signal - np.polyval(np.polyfit(np.arange(len(signal)), signal, 1), range(len(signal)))
    size = 8 * len(signal)
    power = np.abs(np.fft.rfft(centred * np.hanning(len(signal)), size)) ** 2
    frequency = np.arange(len(power)) / size
    inside = frequency >= 3 / len(signal)
    power, frequency = power[inside], frequency[inside]
    best = int(np.argmax(power))
    # The largest of m independent ordinates of noise is about log(m) times their mean.
    chance = _PEAK / 8 * (math.log(len(signal) / 2) + 4.6) / math.log(2)
    return float(1 / frequency[best]) if power[best] > chance * np.median(power) else None
