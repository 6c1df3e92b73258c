r"""Growth rates of several candidates, step by step, with forgetting and a confidence interval.

The growth of one step is noisy, so that steps are averaged in blocks. With the mean growth
:math:`x_i` of block :math:`i` and a forgetting factor :math:`\omega` for each block,

.. math::
    \hat\rho = \frac{\sum_i \omega^{n-i} x_i}{\sum_i \omega^{n-i}}, \qquad
    n_\mathrm{eff} = \frac{(\sum_i \omega^{n-i})^2}{\sum_i \omega^{2(n-i)}} .

The interval is Student's, widened by the correlation of neighbouring blocks, and by `SWING` over
the number of steps: the energy oscillates within a period, which can look like growth.

All functions are pure and of fixed shape: ``xp`` is `numpy`, or `jax.numpy` in compiled code.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from resonax.core.intervals import approximate_quantile
from resonax.guards.shadows import Energy

__all__ = [
    "BLOCK",
    "MIN_BLOCKS",
    "Estimates",
    "GrowthState",
    "estimates",
    "init",
    "start_burst",
    "update",
]

BLOCK = 16  # steps
MIN_BLOCKS = 4.0  # blocks before a rate is given
SWING = math.log(1.5)  # with it each side of an interval holds in about 98% of runs
_FORGETTING = math.exp(-1 / 48)  # for each block
_CURVATURE = 1 / 64  # forgetting of the mean curvature, for each step
_QUANTILE = 1.645  # one-sided, 95%


class GrowthState(NamedTuple):
    """Weighted sums over the blocks, one entry for each candidate."""

    weight: Any
    weight_squared: Any
    total: Any
    square: Any
    neighbours: Any
    last: Any  # mean growth of the previous block
    partial: Any  # growth in the block that is not full yet
    steps: Any  # in it; negative during the burn-in of a burst
    curvature: Any  # exponential average
    seen: Any  # steps in that average


class Estimates(NamedTuple):
    """Rates per step with their intervals, and the number of blocks behind them."""

    rate: Any
    low: Any
    high: Any
    blocks: Any

    @property
    def is_known(self) -> Any:
        """Which candidates have been followed long enough for a rate."""
        return self.blocks >= MIN_BLOCKS

    @property
    def is_reliable(self) -> Any:
        """Which candidates have been followed so long that the mean counts without its interval."""
        return self.blocks >= 2 * MIN_BLOCKS

    @property
    def is_growing(self) -> Any:
        """Which candidates grow: the interval lies above 0."""
        return self.is_known & (self.low > 0)

    @property
    def is_decaying(self) -> Any:
        """Which candidates decay: the interval lies below 0."""
        return self.is_known & (self.high < 0)


def init(count: int, xp: Any = np) -> GrowthState:
    """Return the state before the first step."""
    return GrowthState(*(xp.zeros(count) for _ in GrowthState._fields))


def start_burst(growth: GrowthState, share: float, skip: int = BLOCK, xp: Any = np) -> GrowthState:
    """Return the state at the start of a burst: older bursts are down-weighted by ``share``.

    The first ``skip`` steps are burn-in. No correlation is counted across the gap.
    """
    zero = xp.zeros_like(growth.partial)
    return growth._replace(
        weight=share * growth.weight,
        weight_squared=share**2 * growth.weight_squared,
        total=share * growth.total,
        square=share * growth.square,
        neighbours=share * growth.neighbours,
        last=zero + xp.nan,
        partial=zero,
        steps=zero - skip,
        curvature=zero,
        seen=zero,
    )


def update(
    growth: GrowthState, before: Energy, after: Energy, curvature: Any, active: Any, xp: Any = np
) -> GrowthState:
    """Return the state after one more step of the candidates that are active.

    Parameters
    ----------
    growth
        The state before.
    before
        Energy of the shadows before the step.
    after
        Their energy after it, in the same units.
    curvature
        Rayleigh quotient of each shadow, u h / u u.
    active
        Which candidates are followed.
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
    seen = growth.seen + 1
    share = xp.maximum(1 / seen, _CURVATURE)
    mean_curvature = growth.curvature + share * (xp.maximum(curvature, 0.0) - growth.curvature)
    scale = xp.maximum(mean_curvature, 1e-12)
    step = 0.5 * xp.log(after.total(scale) / before.total(scale))
    steps = growth.steps + 1
    block = growth.partial + xp.where(steps > 0, step, 0.0)
    full = active & (steps >= BLOCK)
    if xp is np and not full.any():  # as in most steps; compiled code has no branches
        new = {"partial": block, "steps": steps, "curvature": mean_curvature, "seen": seen}
        kept = {name: np.where(active, one, getattr(growth, name)) for name, one in new.items()}
        return growth._replace(**kept)
    mean = block / BLOCK
    omega = _FORGETTING
    linked = ~xp.isnan(growth.last)
    product = xp.where(linked, mean * xp.where(linked, growth.last, 0.0), mean**2)

    def when_full(new: Any, old: Any) -> Any:
        return xp.where(full, new, old)

    def when_active(new: Any, old: Any) -> Any:
        return xp.where(active, new, old)

    return GrowthState(
        weight=when_full(omega * growth.weight + 1, growth.weight),
        weight_squared=when_full(omega**2 * growth.weight_squared + 1, growth.weight_squared),
        total=when_full(omega * growth.total + mean, growth.total),
        square=when_full(omega * growth.square + mean**2, growth.square),
        neighbours=when_full(omega * growth.neighbours + product, growth.neighbours),
        last=when_full(mean, growth.last),
        partial=when_active(when_full(0.0 * block, block), growth.partial),
        steps=when_active(when_full(0.0 * steps, steps), growth.steps),
        curvature=when_active(mean_curvature, growth.curvature),
        seen=when_active(seen, growth.seen),
    )


def estimates(growth: GrowthState, xp: Any = np) -> Estimates:
    """Return the rates with their 90% intervals, 95% on each side."""
    weight = xp.maximum(growth.weight, 1e-9)
    rate = growth.total / weight
    blocks = growth.weight**2 / xp.maximum(growth.weight_squared, 1e-9)
    freedom = xp.maximum(blocks - 1, 1.0)
    variance = xp.maximum(growth.square / weight - rate**2, 0.0) * blocks / freedom
    lag = xp.maximum(growth.neighbours / weight - rate**2, 0.0)
    error = xp.sqrt((variance + xp.minimum(2 * lag, 2 * variance)) / xp.maximum(blocks, 1.0))
    half = approximate_quantile(_QUANTILE, freedom) * error + SWING / (
        BLOCK * xp.maximum(blocks, 1.0)
    )
    return Estimates(rate, rate - half, rate + half, blocks)
