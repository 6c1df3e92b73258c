r"""Growth rates of several candidates from a stream of steps, with forgetting and an interval.

The growth of one step is noisy, so that steps are gathered in blocks. With the mean growth
:math:`x_i` of block :math:`i` and a forgetting factor :math:`\omega` for each block,

.. math::
    \hat\rho = \frac{\sum_i \omega^{n-i} x_i}{\sum_i \omega^{n-i}}, \qquad
    n_\mathrm{eff} = \frac{(\sum_i \omega^{n-i})^2}{\sum_i \omega^{2(n-i)}} .

The interval is Student's, widened by the correlation of neighbouring blocks, and by what the swing
of the energy within an oscillation can pretend, `SWING` over the number of steps.

All functions are pure and of fixed shape: ``xp`` is `numpy`, or `jax.numpy` in compiled code.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from resonax.guards.shadows import Energy

__all__ = ["BLOCK", "LEAST", "Estimates", "Growth", "estimates", "init", "start_burst", "update"]

BLOCK = 16  # steps
LEAST = 4.0  # blocks before anything is said of a candidate
SWING = math.log(1.5)  # with it each side of an interval holds in about 98% of runs
_FORGETTING = math.exp(-1 / 48)  # for each block
_CURVATURE = 1 / 64  # forgetting of the mean curvature, for each step
_QUANTILE = 1.645  # one-sided, 95%


class Growth(NamedTuple):
    """What is known of the growth: sums over blocks, one entry for each candidate."""

    weight: Any
    weight_squared: Any
    total: Any
    square: Any
    neighbours: Any
    last: Any  # mean growth of the block before
    open: Any  # growth in the block that is not full yet
    steps: Any  # in it; negative while the first steps of a burst are left out
    curvature: Any
    met: Any  # steps that the curvature has seen


class Estimates(NamedTuple):
    """Rates per step with their intervals, and the number of blocks behind them."""

    rate: Any
    low: Any
    high: Any
    blocks: Any

    @property
    def known(self) -> Any:
        """Which candidates have been followed long enough."""
        return self.blocks >= LEAST

    @property
    def weighty(self) -> Any:
        """Which candidates have been followed so long that their mean alone tells something."""
        return self.blocks >= 2 * LEAST

    @property
    def grows(self) -> Any:
        """Which candidates surely grow."""
        return self.known & (self.low > 0)

    @property
    def falls(self) -> Any:
        """Which candidates surely fall."""
        return self.known & (self.high < 0)


def init(count: int, xp: Any = np) -> Growth:
    """Return the state in which nothing is known."""
    return Growth(*(xp.zeros(count) for _ in Growth._fields))


def start_burst(growth: Growth, share: float, skip: int = BLOCK, xp: Any = np) -> Growth:
    """Return the growth at the start of a burst: older bursts count less, the first steps not.

    The correlation of neighbours is not followed across the gap.
    """
    zero = xp.zeros_like(growth.open)
    return growth._replace(
        weight=share * growth.weight,
        weight_squared=share**2 * growth.weight_squared,
        total=share * growth.total,
        square=share * growth.square,
        neighbours=share * growth.neighbours,
        last=zero + xp.nan,
        open=zero,
        steps=zero - skip,
        curvature=zero,
        met=zero,
    )


def update(
    growth: Growth, before: Energy, after: Energy, met: Any, active: Any, xp: Any = np
) -> Growth:
    """Return the growth with one step more, of the candidates that are active.

    Parameters
    ----------
    growth
        What was known.
    before
        The shadows before the step.
    after
        The shadows after it, by the same scale.
    met
        The curvature that each shadow met, u h / u u.
    active
        Which candidates were followed.
    xp
        `numpy` or `jax.numpy`.

    Examples
    --------
    >>> growth = init(1)
    >>> for _ in range(10 * BLOCK):  # lengths grow by 1% in each step, energies by 2%
    ...     one, more = Energy(np.ones(1), np.zeros(1)), Energy(np.full(1, 1.01**2), np.zeros(1))
    ...     growth = update(growth, one, more, np.ones(1), np.ones(1, bool))
    >>> print(f"{estimates(growth).rate[0]:.5f}")
    0.00995
    """
    seen = growth.met + 1
    share = xp.maximum(1 / seen, _CURVATURE)
    curvature = growth.curvature + share * (xp.maximum(met, 0.0) - growth.curvature)
    scale = xp.maximum(curvature, 1e-12)
    step = 0.5 * xp.log(after.total(scale) / before.total(scale))
    steps = growth.steps + 1
    block = growth.open + xp.where(steps > 0, step, 0.0)
    full = active & (steps >= BLOCK)
    mean = block / BLOCK
    omega = _FORGETTING
    linked = ~xp.isnan(growth.last)
    product = xp.where(linked, mean * xp.where(linked, growth.last, 0.0), mean**2)

    def when_full(new: Any, old: Any) -> Any:
        return xp.where(full, new, old)

    def when_active(new: Any, old: Any) -> Any:
        return xp.where(active, new, old)

    return Growth(
        weight=when_full(omega * growth.weight + 1, growth.weight),
        weight_squared=when_full(omega**2 * growth.weight_squared + 1, growth.weight_squared),
        total=when_full(omega * growth.total + mean, growth.total),
        square=when_full(omega * growth.square + mean**2, growth.square),
        neighbours=when_full(omega * growth.neighbours + product, growth.neighbours),
        last=when_full(mean, growth.last),
        open=when_active(when_full(0.0 * block, block), growth.open),
        steps=when_active(when_full(0.0 * steps, steps), growth.steps),
        curvature=when_active(curvature, growth.curvature),
        met=when_active(seen, growth.met),
    )


def estimates(growth: Growth, xp: Any = np) -> Estimates:
    """Return the rates with their intervals."""
    weight = xp.maximum(growth.weight, 1e-9)
    rate = growth.total / weight
    blocks = growth.weight**2 / xp.maximum(growth.weight_squared, 1e-9)
    freedom = xp.maximum(blocks - 1, 1.0)
    variance = xp.maximum(growth.square / weight - rate**2, 0.0) * blocks / freedom
    lag = xp.maximum(growth.neighbours / weight - rate**2, 0.0)
    error = xp.sqrt((variance + xp.minimum(2 * lag, 2 * variance)) / xp.maximum(blocks, 1.0))
    # Student's quantile from the normal one (Fisher and Cornish).
    second = (5 * _QUANTILE**5 + 16 * _QUANTILE**3 + 3 * _QUANTILE) / 96
    quantile = _QUANTILE + (_QUANTILE**3 + _QUANTILE) / 4 / freedom + second / freedom**2
    half = quantile * error + SWING / (BLOCK * xp.maximum(blocks, 1.0))
    return Estimates(rate, rate - half, rate + half, blocks)
