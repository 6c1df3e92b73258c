"""Surrogates of the rows: shuffled, stretched in time, phase-randomised, without a rhythm.

An order is returned as indices of rows; changed rows are returned themselves.
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
    """Return a random order, another one for each epoch."""
    return np.concatenate([rng.permutation(rows) for _ in range(epochs)])


def buffered(rows: int, buffer: int, epochs: int, rng: np.random.Generator) -> np.ndarray:
    """Return the order that a shuffle buffer makes of a stream, as data loaders do.

    Each step takes a random place of the buffer and fills it with the next row of the stream; at
    the end what remains is taken in random order. The row that leaves place j is the one that
    was put there when j was taken last, or row j itself.

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
    places = rng.integers(buffer, size=total - buffer)
    by_place = np.argsort(places, kind="stable")
    same = np.concatenate([[False], np.diff(places[by_place]) == 0])
    order = np.empty(total, dtype=int)
    filled = np.concatenate([[0], by_place[:-1]]) + buffer
    order[by_place] = np.where(same, filled, places[by_place]) if total > buffer else 0
    held = np.arange(buffer)
    held[places] = np.arange(buffer, total)  # the last that was put into a place stays
    order[total - buffer :] = rng.permutation(held)
    return order % rows


def stretched(rows: int, factor: float) -> np.ndarray:
    """Return an order in which every rhythm takes ``factor`` times as long.

    Rows are repeated or left out, never mixed: each keeps its own numbers.
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
        phases[-1] = 0.0  # this one is real
    return np.fft.irfft(spectrum * np.exp(1j * phases), n=len(inputs), axis=0).astype(np.float32)


def _band(signal: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return the part of a signal with periods from ``low`` to ``high``."""
    spectrum = np.fft.rfft(signal, axis=0)
    frequency = np.fft.rfftfreq(len(signal))
    spectrum[(frequency < 1 / high) | (frequency > 1 / low)] = 0.0
    return np.fft.irfft(spectrum, n=len(signal), axis=0)


def _rhythm(signal: np.ndarray, low: float, high: float, period: float | None) -> np.ndarray:
    """Return what has periods from ``low`` to ``high``, and all of a line of ``period``.

    A short recording does not hold a whole number of periods, so that a line leaks out of every
    band: it is fitted by least squares first, at the best of the periods next to the one given.
    """
    if period is None:
        return _band(signal, low, high)
    columns = signal.reshape(len(signal), -1) - signal.mean(axis=0)
    best, line = -1.0, np.zeros_like(columns)
    for shift in np.linspace(-0.6, 0.6, 13):  # of a bin
        phase = 2 * np.pi * (1 / period + shift / len(signal)) * np.arange(len(signal))
        waves = np.stack([np.cos(phase), np.sin(phase)], axis=1)
        fit = waves @ np.linalg.lstsq(waves, columns, rcond=None)[0]
        if (size := float(np.sum(fit**2))) > best:
            best, line = size, fit
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

    What is taken out is put back in random order: every column keeps its variance, and so the
    weights their own frequency; only the rhythm is gone.
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
    """Return rows whose squared length has lost such a rhythm; their directions stay."""
    energy = np.sum(inputs.astype(float) ** 2, axis=1)
    part = _rhythm(energy, low, high, period)
    wanted = np.maximum(energy - part + part[rng.permutation(len(part))], 0.0)
    scale = np.sqrt(wanted / np.maximum(energy, math.ulp(1.0)))
    scale *= math.sqrt(energy.sum() / max(float((energy * scale**2).sum()), math.ulp(1.0)))
    return (inputs * scale[:, None]).astype(np.float32)
