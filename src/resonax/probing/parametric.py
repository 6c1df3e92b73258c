r"""Parametric resonance of a damped oscillator: which rhythms of its curvature make it grow.

A curvature :math:`\lambda(1 + d\cos(2\pi t/T))` turns a learner with natural frequency
:math:`\omega` and damping :math:`\zeta` into Mathieu's equation with damping,

.. math:: \ddot u + 2\zeta\omega\dot u + \omega^2(1 + d\cos(2\pi t/T))\,u = 0 .

It is unstable in tongues around :math:`2\pi/T = 2\omega/n`, which is :math:`T = nT_0/2` with the
natural period :math:`T_0 = 2\pi/\omega` and :math:`n = 1, 2, \dots`
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["critical_depth", "dangerous_periods"]

_DEEPEST = 2.0  # the first harmonic of a curvature that is never negative is at most twice its mean
_PIECES = 128  # of constant curvature in one period, a power of 2
_DEPTHS = 401


def dangerous_periods(natural_period: float, count: int = 3) -> list[float]:
    """Return the periods of the data that feed the oscillation: half the natural one times 1, 2, ..

    Examples
    --------
    >>> dangerous_periods(44.0)
    [22.0, 44.0, 66.0]
    """
    return [natural_period * n / 2 for n in range(1, count + 1)]


def critical_depth(period: float, natural_period: float, damping: float) -> float | None:
    r"""Return the least relative depth of a rhythm of the curvature at which an error grows.

    It is that of the matrix over one period of Mathieu's equation, whose spectral radius crosses 1
    (Floquet). Averaging gives its leading terms in the first tongue, and the bottom of the second:

    .. math:: d \approx 4\sqrt{\zeta^2 + \Bigl(\frac{T_0}{2T} - 1\Bigr)^2}, \qquad
              d \approx \sqrt{8\zeta} \quad\text{for } T = T_0 .

    None is returned where not even a depth of 2 makes it grow, the most that a curvature can have
    which is never negative.

    Parameters
    ----------
    period
        Of the rhythm, in steps.
    natural_period, damping
        Of the learner, in steps and as a ratio.

    Examples
    --------
    >>> round(critical_depth(22.0, 44.0, 0.05), 3)
    0.2
    >>> critical_depth(22.0, 44.0, 0.9) is None
    True
    """
    depths = np.linspace(0.0, _DEEPEST, _DEPTHS)
    grows = _radius(depths, period / natural_period, damping) > 1
    if not grows.any():
        return None
    high = float(depths[grows.argmax()])
    low = max(0.0, high - float(depths[1]))
    for _ in range(24):
        middle = (low + high) / 2
        if _radius(np.array([middle]), period / natural_period, damping)[0] > 1:
            high = middle
        else:
            low = middle
    return high


def _radius(depth: np.ndarray, ratio: float, damping: float) -> np.ndarray:
    """Return the spectral radius over one period, which lasts ``ratio`` natural periods.

    Time is in units of the natural frequency. On a piece of constant stiffness k the state moves by
    the exponential of (0, 1; -k, -2 zeta), in closed form.
    """
    step = 2 * np.pi * ratio / _PIECES
    phase = 2 * np.pi * (np.arange(_PIECES) + 0.5) / _PIECES
    stiffness = 1 + np.cos(phase)[:, None] * depth
    root = np.sqrt((damping**2 - stiffness).astype(complex))
    root = np.where(np.abs(root) * step < 1e-8, 1e-8 / step, root)  # sinh(x)/x is 1 to all digits
    even = np.exp(-damping * step) * np.real(np.cosh(root * step))
    slope: Any = np.sinh(root * step) / root
    odd = np.exp(-damping * step) * slope.real
    rows = [[even + damping * odd, odd], [-stiffness * odd, even - damping * odd]]
    product = np.moveaxis(np.array(rows), (0, 1), (2, 3))
    while len(product) > 1:  # neighbours, the later one on the left
        product = product[1::2] @ product[::2]
    return np.abs(np.linalg.eigvals(product[0])).max(axis=1)
