"""Surrogates of the rows: shuffled, stretched in time, phase-randomised, without a rhythm.

A rhythm is a band of periods. Orders are returned as indices of rows, changed rows as arrays.
"""

from __future__ import annotations

import math

import numpy as np

__all__ = [
    "buffered",
    "phase_randomised",
    "shuffled",
    "stretched",
    "without_rhythm",
    "without_size_rhythm",
]


def shuffled(rows: int, epochs: int, rng: np.random.Generator) -> np.ndarray:
    """Return indices in random order, a different one in each epoch."""
    return np.concatenate([rng.permutation(rows) for _ in range(epochs)])


def buffered(rows: int, buffer: int, epochs: int, rng: np.random.Generator) -> np.ndarray:
    """Return the order of a stream that passes through a shuffle buffer, as in data loaders.

    Each step takes the row in a random slot of the buffer, and puts the next row of the stream
    there; at the end the remaining rows are taken in random order. The row taken from a slot is
    thus the one put there when the slot was chosen last, or at the start.

    Examples
    --------
    >>> order = buffered(10, 3, 1, np.random.default_rng(0))
    >>> sorted(order.tolist()) == list(range(10))
    True
    >>> int(order[0]) < 3
    True
    """
    total = rows * epochs
    buffer = min(buffer, total)
    slots = rng.integers(buffer, size=total - buffer)  # chosen in each step
    by_slot = np.argsort(slots, kind="stable")  # steps, sorted by their slot and then by time
    is_repeated = np.concatenate([[False], np.diff(slots[by_slot]) == 0])
    put_before = np.concatenate([[0], by_slot[:-1]]) + buffer  # by the step before in this list
    order = np.empty(total, dtype=int)
    order[by_slot] = np.where(is_repeated, put_before, slots[by_slot]) if total > buffer else 0
    remaining = np.arange(buffer)
    remaining[slots] = np.arange(buffer, total)  # the last assignment to a slot counts
    order[total - buffer :] = rng.permutation(remaining)
    return order % rows


def stretched(rows: int, factor: float) -> np.ndarray:
    """Return an order in which every period is ``factor`` times as long.

    Rows are repeated or left out, not interpolated.
    """
    return (np.arange(rows) / factor).astype(int) % rows


def phase_randomised(inputs: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return rows with the same spectra and cross spectra, and with random phases.

    The same random phase is added to all columns at a frequency (Prichard and Theiler, 1994).
    """
    spectrum = np.fft.rfft(inputs, axis=0)
    phases = rng.uniform(0, 2 * np.pi, size=(len(spectrum), 1))
    phases[0] = 0.0
    if len(inputs) % 2 == 0:
        phases[-1] = 0.0  # the Nyquist frequency is real
    return np.fft.irfft(spectrum * np.exp(1j * phases), n=len(inputs), axis=0).astype(np.float32)


def _band(signal: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the part of a signal with periods from ``low`` to ``high``."""
    spectrum = np.fft.rfft(signal, axis=0)
    frequency = np.fft.rfftfreq(len(signal))
    spectrum[(frequency < 1 / high) | (frequency > 1 / low)] = 0.0
    return np.fft.irfft(spectrum, n=len(signal), axis=0)


def _rhythm(signal: np.ndarray, low: float, high: float, period: float | None) -> np.ndarray:
    """Return the part of a signal with periods from ``low`` to ``high``, with a spectral line.

    A recording that does not hold a whole number of periods has a line at ``period`` that leaks out
    of the band. It is fitted by least squares first, at the best frequency near that given.
    """
    if period is None:
        return _band(signal, low, high)
    columns = signal.reshape(len(signal), -1) - signal.mean(axis=0)
    best, line = -1.0, np.zeros_like(columns)
    for shift in np.linspace(-0.6, 0.6, 13):  # in bins of the spectrum
        phase = 2 * np.pi * (1 / period + shift / len(signal)) * np.arange(len(signal))
        waves = np.stack([np.cos(phase), np.sin(phase)], axis=1)
        fit = waves @ np.linalg.lstsq(waves, columns, rcond=None)[0]
        power = float(np.sum(fit**2))
        if power > best:
            best, line = power, fit
    line = line.reshape(signal.shape)
    return line + _band(signal - line, low, high)


def without_rhythm(
    inputs: np.ndarray,
    low: float,
    high: float,
    rng: np.random.Generator,
    period: float | None = None,
) -> np.ndarray:
    """Return rows without the rhythm of periods from ``low`` to ``high``, in rows.

    The rhythm is replaced by its own values in random order. So every column keeps its variance,
    and the curvature its mean, which sets the natural period of the weights.
    """
    part = _rhythm(inputs, low, high, period)
    return (inputs - part + part[rng.permutation(len(part))]).astype(np.float32)


def without_size_rhythm(
    inputs: np.ndarray,
    low: float,
    high: float,
    rng: np.random.Generator,
    period: float | None = None,
) -> np.ndarray:
    """Return rows whose squared norms have no such rhythm; their directions are unchanged."""
    square = np.sum(inputs.astype(float) ** 2, axis=1)
    part = _rhythm(square, low, high, period)
    target = np.maximum(square - part + part[rng.permutation(len(part))], 0.0)
    scale = np.sqrt(target / np.maximum(square, math.ulp(1.0)))
    # The mean of the squared norms is kept.
    scale *= math.sqrt(square.sum() / max(float((square * scale**2).sum()), math.ulp(1.0)))
    return (inputs * scale[:, None]).astype(np.float32)
