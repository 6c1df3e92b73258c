"""Weights of the steps of a path, by which the average of its growth converges fast."""

from __future__ import annotations

import itertools

import numpy as np

__all__ = ["windows"]


def _window(steps: int, cycle: int) -> np.ndarray:
    r"""Return weights for the steps of a path, which sum to 1.

    They are :math:`\propto e^{-1/(t(1-t))}`: with them averages of a quasi-periodic signal
    converge faster than any power of the length (Das et al., Nonlinearity 30, 2017), where the
    plain mean leaves an error of order 1/steps. Smeared over one cycle, they see every part of it
    equally often, however few cycles there are.
    """
    time = (np.arange(steps - cycle + 1) + 0.5) / (steps - cycle + 1)
    weight = np.exp(-1.0 / (time * (1.0 - time)))
    smeared = _smear(weight, cycle).clip(0.0)
    return smeared / smeared.sum()


def _smear(weight: np.ndarray, cycle: int) -> np.ndarray:
    """Return the weights added up over one cycle from each on, as `scipy.signal` convolves.

    Examples
    --------
    >>> _smear(np.array([1.0, 2.0, 4.0]), 2).round(9).tolist()
    [1.0, 3.0, 6.0, 4.0]
    """
    if cycle == 1:
        return weight
    length = len(weight) + cycle - 1
    padded = _fast_length(length)
    both = np.fft.rfft(weight, padded) * np.fft.rfft(np.ones(cycle), padded)
    return np.fft.irfft(both, padded)[:length]


def _fast_length(least: int) -> int:
    """Return the least number without prime factors above 5 that is not below another.

    Examples
    --------
    >>> _fast_length(2), _fast_length(7), _fast_length(4097)
    (2, 8, 4320)
    """
    powers = itertools.product(range(12), range(8))
    odd = (3**i * 5**j for i, j in powers if 3**i * 5**j < 2 * least)
    return min(part * 2 ** max(0, (-(-least // part) - 1).bit_length()) for part in odd)


def windows(steps: int, cycle: int) -> np.ndarray:
    """Return weights over all measured steps and over the later half, after an unmeasured start."""
    half, burn = steps // 2, steps // 2
    weights = np.zeros((2, burn + steps))
    weights[0, burn:], weights[1, -half:] = _window(steps, cycle), _window(half, cycle)
    return weights
