r"""From estimates to the next momentum: three policies as pure functions, with hysteresis.

Candidates are sorted from the largest momentum, the user's own, to the smallest. A policy returns
the index of the candidate to train with next. A momentum *grows* or *decays* where the interval of
its rate lies above or below 0, and *seems to* where the estimate alone does.

watch
    Decides as ``safe`` does, but the guard only warns.
safe
    Moves down once the current momentum grows, or seems to grow while there is an alarm, to the
    largest smaller one that decays. If none does, to the largest one that does not seem to grow,
    and else to the one with the smallest rate. Moves up by one candidate where that one decays. In
    a network with more weights than data no interval lies below 0; there it moves up where the
    larger momentum seems to decay, and no slower than the current one.

    Near the edge of a resonance a momentum still decays, but so slowly that gradient noise is
    amplified. Without modulation an oscillation decays by :math:`\log\sqrt\mu` per step. A momentum
    is weakly damped if it decays by a small share of that only, and a smaller momentum decays
    faster. The guard leaves a weakly damped momentum, and moves up only to one that is well damped
    by some margin, or that seems to decay no slower than the one in use: slow directions, which a
    smaller momentum makes slower, do not count.

    After a change the shadows must have been followed for `HOLD` further steps, as many as a first
    rate needs, before the guard moves up or leaves a weakly damped momentum; it leaves one that
    grows at once.
fastest
    Moves to the candidate that decays fastest, if its interval is clear of the current one's.

Training with a large momentum moves a network to a region of low curvature, which hides the
instability. So the last two may begin with a warm-up: the run trains with a small momentum while
all candidates are followed, and then changes to the largest one that does not seem to grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from resonax.core.errors import suggest
from resonax.guards.growth import BLOCK, MIN_BLOCKS, Estimates

__all__ = ["HOLD", "POLICIES", "after_warmup", "checked_policy", "decide", "warmup_place"]

POLICIES = ("watch", "safe", "fastest")
HOLD = int(MIN_BLOCKS * BLOCK)  # steps with shadows between a change and one that is not urgent
# Shares of the decay without modulation: below the first a momentum is weakly damped, above the
# second it is well damped; the gap between them is hysteresis.
_WEAKLY_DAMPED, _WELL_DAMPED = 0.3, 0.4
_WARMUP_GAP = 5.0  # 1 - momentum in a warm-up, as a multiple of that of the user's own momentum


def checked_policy(name: object) -> str:
    """Return the name of a policy, or raise the error that lists them."""
    if name not in POLICIES:
        raise suggest("policy", str(name), POLICIES)
    return str(name)


def _first(mask: Any, otherwise: Any, xp: Any) -> Any:
    return xp.where(mask.any(), xp.argmax(mask), otherwise)


def _decays_faster(found: Estimates, one: Any, other: Any) -> Any:
    """Return whether one candidate decays faster than another.

    They see the same batches, so that much of their noise is shared: half of the interval of each
    is enough for a difference.
    """
    ahead = (found.rate[one] + found.high[one]) < (found.rate[other] + found.low[other])
    return found.is_known[one] & found.is_known[other] & ahead


def _safe(found: Estimates, momenta: Any, current: Any, alarm: Any, steady: Any, xp: Any) -> Any:
    index = xp.arange(found.rate.shape[0])
    below = index > current
    urgent = found.is_growing[current] | (
        alarm & found.is_reliable[current] & (found.rate[current] > 0)
    )
    least = xp.argmin(xp.where(found.is_known & (index >= current), found.rate, xp.inf))
    mild = below & found.is_known & (found.rate <= 0)
    down = _first(below & found.is_decaying, _first(mild, least, xp), xp)
    up = xp.maximum(current - 1, 0)
    level = xp.where(found.is_known[current], xp.minimum(found.rate[current], 0.0), 0.0)
    calm = found.is_decaying[up] | (found.is_reliable[up] & (found.rate[up] <= level))
    natural = 0.5 * xp.log(xp.maximum(momenta, 1e-9))
    weak = found.is_known & (found.low > _WEAKLY_DAMPED * natural)
    well = found.low < _WELL_DAMPED * natural
    # Estimates alone: a wide interval of the momentum in use is no reason to leave it.
    no_slower = found.is_known[current] & (found.rate[up] <= level)
    rises = calm & ~alarm & (current > 0) & (well[up] | no_slower)
    relief = below & found.is_decaying & well & _decays_faster(found, index, current)
    eases = weak[current] & relief.any()
    moved = xp.where(eases, xp.argmax(relief), xp.where(rises, up, current))
    return xp.where(urgent, down, xp.where(steady, moved, current))


def _fastest(found: Estimates, current: Any, xp: Any) -> Any:
    best = xp.argmin(xp.where(found.is_reliable, found.rate, xp.inf))
    return xp.where(found.is_reliable[best] & _decays_faster(found, best, current), best, current)


def warmup_place(policy: str, candidates: tuple[float, ...]) -> int:
    """Return the index of the momentum to train with in a warm-up.

    Examples
    --------
    >>> warmup_place("safe", (0.95, 0.9, 0.85, 0.75, 0.5, 0.0)), warmup_place("watch", (0.95, 0.0))
    (3, 0)
    """
    if policy == "watch":
        return 0
    largest = 1.0 - _WARMUP_GAP * (1.0 - candidates[0])
    small = [place for place, one in enumerate(candidates) if one <= largest + 1e-9]
    return small[0] if small else len(candidates) - 1


def after_warmup(found: Estimates, xp: Any = np) -> Any:
    """Return the index of the largest momentum that does not seem to grow, after a warm-up."""
    least = xp.argmin(xp.where(found.is_known, found.rate, xp.inf))
    return _first(found.is_known & (found.rate <= 0), least, xp)


def decide(
    policy: str,
    found: Estimates,
    momenta: Any,
    current: Any,
    alarm: Any,
    steady: Any = True,
    xp: Any = np,
) -> Any:
    """Return the index of the candidate to train with next; for ``watch``, that of ``safe``.

    Parameters
    ----------
    policy
        One of `POLICIES`.
    found
        Rates of the candidates, from the largest momentum to the smallest.
    momenta
        The candidates themselves.
    current
        Index of the candidate in use.
    alarm
        Whether there is an alarm, see `resonax.guards.alarm`.
    steady
        Whether shadows were followed for `HOLD` steps since the last change.
    xp
        `numpy`, or `jax.numpy` in compiled code.

    Examples
    --------
    >>> rate = np.array([0.004, -0.01, -0.03])
    >>> found = Estimates(rate, rate - 0.003, rate + 0.003, np.full(3, 30.0))
    >>> momenta = np.array([0.95, 0.9, 0.85])
    >>> [int(decide(name, found, momenta, 0, False)) for name in POLICIES]
    [1, 1, 2]
    """
    if policy == "fastest":
        return _fastest(found, current, xp)
    return _safe(found, momenta, current, alarm, xp.asarray(steady), xp)
