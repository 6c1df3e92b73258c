r"""What a guard does with its estimates: three policies as pure functions, with hysteresis.

Candidates are sorted from the largest momentum, the user's own, to the smallest. A policy returns
the place of the candidate to train with next.

watch
    Decides as ``safe`` does, but nobody acts on it: the guard warns.
safe
    Moves down once the current momentum surely grows, or seems to grow while the run itself does,
    to the largest smaller one that surely falls. If none does, to the largest one that does not
    seem to grow, and else to the one that grows least. Moves up by one place where that one surely
    falls. In a network with more weights than data nothing surely falls; there it moves up where
    the larger one seems to fall, and no less than the current one, as it does in slow directions.

    At the edge of a resonance a momentum still falls, but so slowly that noise piles up. Without a
    rhythm an oscillation falls by :math:`\log\sqrt\mu` a step; a momentum is strained if it surely
    falls by a small share of that only, and a smaller one surely falls more. The guard leaves a
    strained momentum, and goes up only to one that is easy by some margin. Slow directions, which
    less momentum makes slower, strain none.

    A decision is undone on new evidence only. After a change the shadows must have been followed
    for `HOLD` further steps, as many as a rate needs before anything is said of it, until the guard
    goes up or leaves a strained momentum; one that grows it leaves at once.
fastest
    Moves to the candidate that falls most, if that is surely more than the current one does.

Training with a large momentum moves a network to a region of low curvature, which hides the
instability. So the last two may begin with a warm-up: the run trains with a small momentum while
all candidates are followed, and then takes up the largest one that does not seem to grow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from resonax.checks import suggest
from resonax.guards.growth import BLOCK, LEAST, Estimates

__all__ = ["HOLD", "POLICIES", "checked_policy", "decide", "taken_up", "warm"]

POLICIES = ("watch", "safe", "fastest")
HOLD = int(LEAST * BLOCK)  # steps with shadows between a change and one that is not urgent
# Shares of the fall without a rhythm: what surely falls less is strained, and what may fall more
# than the other share is easy; the gap between them keeps a momentum from going to and fro.
_STRAINED, _EASY = 0.3, 0.4
_WARM = 5.0  # what a momentum lacks to 1, in a warm-up, as a multiple of what the user's own lacks


def checked_policy(name: object) -> str:
    """Return the name of a policy, or raise the error that lists them."""
    if name not in POLICIES:
        raise suggest("policy", str(name), POLICIES)
    return str(name)


def _first(mask: Any, otherwise: Any, xp: Any) -> Any:
    return xp.where(mask.any(), xp.argmax(mask), otherwise)


def _surely_more(found: Estimates, one: Any, other: Any) -> Any:
    """Return whether one candidate surely falls more than another.

    They meet the same batches, so that much of their noise is shared: half of the interval of each
    is enough for a difference.
    """
    ahead = (found.rate[one] + found.high[one]) < (found.rate[other] + found.low[other])
    return found.known[one] & found.known[other] & ahead


def _safe(found: Estimates, momenta: Any, current: Any, alarm: Any, steady: Any, xp: Any) -> Any:
    place = xp.arange(found.rate.shape[0])
    below = place > current
    lost = found.grows[current] | (alarm & found.weighty[current] & (found.rate[current] > 0))
    least = xp.argmin(xp.where(found.known & (place >= current), found.rate, xp.inf))
    mild = below & found.known & (found.rate <= 0)
    down = _first(below & found.falls, _first(mild, least, xp), xp)
    up = xp.maximum(current - 1, 0)
    level = xp.where(found.known[current], xp.minimum(found.rate[current], 0.0), 0.0)
    calm = found.falls[up] | (found.weighty[up] & (found.rate[up] <= level))
    natural = 0.5 * xp.log(xp.maximum(momenta, 1e-9))
    strained = found.known & (found.low > _STRAINED * natural)
    easy = found.low < _EASY * natural
    rises = calm & ~alarm & (current > 0) & (easy[up] | ~_surely_more(found, current, up))
    relief = below & found.falls & easy & _surely_more(found, place, current)
    eases = strained[current] & relief.any()
    moved = xp.where(eases, xp.argmax(relief), xp.where(rises, up, current))
    return xp.where(lost, down, xp.where(steady, moved, current))


def _fastest(found: Estimates, current: Any, xp: Any) -> Any:
    best = xp.argmin(xp.where(found.weighty, found.rate, xp.inf))
    return xp.where(found.weighty[best] & _surely_more(found, best, current), best, current)


def warm(policy: str, candidates: tuple[float, ...]) -> int:
    """Return the place of the momentum to train with in a warm-up.

    Examples
    --------
    >>> warm("safe", (0.95, 0.9, 0.85, 0.75, 0.5, 0.0)), warm("watch", (0.95, 0.0))
    (3, 0)
    """
    if policy == "watch":
        return 0
    largest = 1.0 - _WARM * (1.0 - candidates[0])
    small = [place for place, one in enumerate(candidates) if one <= largest + 1e-9]
    return small[0] if small else len(candidates) - 1


def taken_up(found: Estimates, xp: Any = np) -> Any:
    """Return the place of the largest momentum that does not seem to grow, after a warm-up."""
    least = xp.argmin(xp.where(found.known, found.rate, xp.inf))
    return _first(found.known & (found.rate <= 0), least, xp)


def decide(
    policy: str,
    found: Estimates,
    momenta: Any,
    current: Any,
    alarm: Any,
    steady: Any = True,
    xp: Any = np,
) -> Any:
    """Return the place of the candidate to train with next; for ``watch``, that of ``safe``.

    Parameters
    ----------
    policy
        One of `POLICIES`.
    found
        Rates of the candidates, from the largest momentum to the smallest.
    momenta
        The candidates themselves.
    current
        Place of the candidate in use.
    alarm
        Whether the run itself grows, see `resonax.guards.alarm`.
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
