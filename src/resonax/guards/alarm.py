"""What a run tells for free: whether its velocity grows, since when, and with what rhythm.

The logarithm of the size of the velocity is averaged over windows of some steps. The quietest
window of the past is the floor, which rises slowly, so that a run may change, and never lies far
below the loudest one; an alarm is a window far above it. An alarm alone changes nothing: it makes
the guard look closer.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

__all__ = ["STRIDE", "Alarm", "init", "period_of", "update"]

STRIDE = 4  # steps between two looks
_WINDOW = 8  # looks of a window
_SETTLING = 2  # windows until the velocity of a fresh run has built up
_LEAK = 0.01  # rise of the floor with each window
_ALARM = math.log(6.0)
_NEAR = math.log(2.0)
_DEPTH = math.log(12.0)  # what is this far below the peak is noise of a run that has converged
_PEAK = 8.0  # of the spectrum over its median, for a rhythm


class Alarm(NamedTuple):
    """Floor and open window of the signal, and the step at which the growth began."""

    floor: Any
    began: Any  # step of the last window near the floor
    open: Any
    looks: Any
    windows: Any
    level: Any  # of the last full window
    peak: Any  # of the windows so far; it sinks slowly


def init(step: int = 0, xp: Any = np) -> Alarm:
    """Return the state before anything was update."""
    zero = xp.zeros(())
    return Alarm(zero + xp.inf, zero + step, zero, zero, zero, zero, zero - xp.inf)


def update(passive: Alarm, size: Any, step: Any, xp: Any = np) -> tuple[Alarm, Any]:
    """Return the state after one more look, and whether it is an alarm.

    Examples
    --------
    >>> passive, alarms = init(), []
    >>> for step in range(0, 4000, STRIDE):
    ...     passive, alarm = update(passive, math.exp(0.01 * max(step - 2000, 0)), step)
    ...     alarms += [step] if alarm else []
    >>> int(passive.began), alarms[0]
    (2076, 2204)
    """
    loud = xp.log(xp.maximum(size, 1e-37))
    total, looks = passive.open + loud, passive.looks + 1
    full = looks >= _WINDOW
    level = total / looks
    windows = passive.windows + full
    counts = full & (windows > _SETTLING)
    floor = passive.floor + xp.where(counts, _LEAK, 0.0)
    peak = xp.maximum(passive.peak - xp.where(counts, _LEAK, 0.0), xp.where(full, level, -xp.inf))
    floor = xp.maximum(floor, peak - _DEPTH)
    lower = counts & (level <= floor)
    settled = xp.where(lower, xp.maximum(level, peak - _DEPTH), floor)
    alarm = counts & ~lower & (level > settled + _ALARM)
    near = full & (level <= settled + _NEAR)
    began = xp.where(near | (windows <= _SETTLING), step, passive.began)
    return (
        Alarm(
            floor=settled,
            began=began,
            open=xp.where(full, 0.0, total),
            looks=xp.where(full, 0.0, looks),
            windows=windows,
            level=xp.where(full, level, passive.level),
            peak=peak,
        ),
        alarm,
    )


def period_of(signal: np.ndarray) -> float | None:
    """Return the period of the strongest rhythm of a signal in steps, or None.

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
