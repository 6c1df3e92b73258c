r"""The circle criterion of an optimizer: by how much it holds, and how far each number can go.

With the terms of `resonax.theory.order_proof`, the criterion at the rate :math:`\rho` is

.. math:: |q + \lambda n|^2 + L\,\mathrm{Re}\bigl(n\,\overline{(q + \lambda n)}\bigr)
          = a x^2 + b x + c \ge 0, \qquad x = \cos\theta, \quad z = \rho e^{i\theta} .

Numbers may be arrays: all points of a search, and all step sizes of a line, are one evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from resonax.learners import Momentum

__all__ = ["holds", "largest_curvature", "largest_lr", "largest_momentum", "worst_rate"]

_PARTS = np.linspace(0.0, 1.0, 65)  # into which each round of a search splits what is left
_ROUNDS = 11  # to the last digit
_MOMENTA = 1 - np.geomspace(1.0, 1e-7, 400)
_LRS = np.geomspace(1e-12, 1.0, 400)
_CURVATURES = np.append(0.0, 2.0 ** np.arange(-40.0, 41.0))


def _quadratic(optimizer: Momentum, curvature: Any, rho: Any) -> tuple[Any, Any, Any]:
    """Return a, b, c: q + decay n is A z + B + C/z with A = 1, and n is g + N/z."""
    gain = optimizer.kappa * optimizer.alpha + optimizer.beta
    last = -optimizer.momentum * optimizer.beta
    decay = optimizer.weight_decay
    middle = -(1 + optimizer.momentum) + decay * gain
    low = optimizer.momentum + decay * last
    square = 4 * low + 2 * curvature * last
    linear = 2 * middle * (rho + low / rho) + curvature * (
        gain * (rho + low / rho) + last * middle / rho
    )
    constant = (rho - low / rho) ** 2 + middle**2
    constant = constant + curvature * (gain * middle - last + last * low / rho**2)
    return square, linear, constant


def _lowest(square: Any, slope: Any, low: float, high: float) -> Any:
    """Return where a x^2 + b x is least in low..high."""
    curved = square > 0
    inner = np.clip(-slope / (2 * np.where(curved, square, 1.0)), low, high)
    ends = np.where(slope + square * (low + high) < 0, high, low)
    return np.where(curved, inner, ends)


def _poles(optimizer: Momentum) -> Any:
    """Return the largest modulus of the roots of z q: the growth where no row is met."""
    gain = optimizer.kappa * optimizer.alpha + optimizer.beta
    decay, momentum = optimizer.weight_decay, optimizer.momentum
    half = (1 + momentum - decay * gain) / 2
    low = momentum - decay * momentum * optimizer.beta
    root = np.sqrt(np.asarray(half**2 - low, dtype=complex))
    return np.maximum(abs(half + root), abs(half - root))


def _margin(optimizer: Momentum, curvature: Any) -> Any:
    """Return the least value of the criterion at rho = 1, without the error of its large terms.

    In s = 1 - x the quadratic is p(1) + d s + a s^2. Without weight decay p(1) is 0: an error along
    which no row lies stays as it is, and the criterion asks for d + a s >= 0 on 0..2.
    """
    square, _, constant = _quadratic(optimizer, curvature, 1.0)
    gain = optimizer.alpha * optimizer.kappa + optimizer.beta * (1 - optimizer.momentum)
    still = optimizer.weight_decay * (optimizer.weight_decay + curvature) * gain**2
    slope = constant - still - square
    if not optimizer.weight_decay:
        return np.minimum(slope, slope + 2 * square)
    place = _lowest(square, slope, 0.0, 2.0)
    least = np.minimum(still, still + place * (slope + square * place))
    return np.minimum(least, 1.0 - _poles(optimizer))


def holds(optimizer: Momentum, curvature: Any) -> Any:
    """Whether the criterion holds at the rate 1: no order of rows lets an error grow."""
    return _margin(optimizer, curvature) >= 0


def _last_held(held: Callable[[np.ndarray], np.ndarray], grid: np.ndarray) -> np.ndarray:
    """Return the last point of a grid, (points, ...), up to which something holds without a gap.

    The interval to the next point is split again and again, to the last digit. NaN where it does
    not hold at the first.
    """
    none = np.False_
    for turn in range(_ROUNDS):
        count = np.logical_and.accumulate(held(grid), axis=0).sum(axis=0)
        if turn == 0:
            none = count == 0
        places = np.clip([count - 1, count], 0, len(grid) - 1)
        low, high = np.take_along_axis(grid, places, axis=0)
        grid = low + np.multiply.outer(_PARTS, high - low)
    return np.where(none, np.nan, grid[0])


def largest_curvature(optimizer: Momentum) -> float:
    """Return the largest curvature with which the criterion holds: a larger one asks for more."""
    return float(_last_held(lambda curvature: holds(optimizer, curvature), _CURVATURES))


def largest_lr(optimizer: Momentum, curvature: float) -> float:
    """Return the largest step size below which the criterion holds without a gap."""
    # Below 2 / (L + decay) times 1 + momentum even a constant curvature is stable; not above.
    top = 4.0 * (1 + float(optimizer.momentum)) / (curvature + optimizer.weight_decay)
    top /= 1 - float(optimizer.dampening)
    found = _last_held(lambda lrs: holds(optimizer.at({"lr": lrs}), curvature), top * _LRS)
    return float(np.nan_to_num(found))


def largest_momentum(optimizer: Momentum, curvature: float) -> np.ndarray:
    """Return the largest momentum up to which the criterion holds, for each of its step sizes.

    NaN where it does not hold without momentum.
    """
    grid = np.multiply.outer(_MOMENTA, np.ones(np.shape(optimizer.lr)))
    return _last_held(lambda momenta: holds(optimizer.at({"momentum": momenta}), curvature), grid)


def worst_rate(optimizer: Momentum, curvature: float) -> tuple[float, float]:
    """Return the least rho for which the criterion holds, and the cosine at which it is tight."""
    if not optimizer.weight_decay and holds(optimizer, curvature):
        return 1.0, 1.0

    def least(rho: Any) -> tuple[Any, Any]:
        square, linear, constant = _quadratic(optimizer, curvature, rho)
        place = _lowest(square, linear, -1.0, 1.0)
        return square * place * place + linear * place + constant, place

    # Where a norm contracts by rho it does so by any larger one: the condition turns once.
    high = 2.0 * (2.0 + (curvature + optimizer.weight_decay) * 3 * float(optimizer.lr))
    low = float(_poles(optimizer))
    rho = float(_last_held(lambda rates: least(rates)[0] >= 0, high + (low - high) * _PARTS))
    return rho, float(least(rho)[1])
