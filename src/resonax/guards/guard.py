"""The guard without a framework: one pure step from what a run shows to the momentum it should use.

An adapter feeds `observe` after every step of the optimizer with the size of the velocity and, in a
burst, with what the shadows met; it reads from the state which candidates to follow next and which
momentum to train with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resonax.guards.alarm import STRIDE, Passive, heard, quiet
from resonax.guards.growth import Estimates, Growth, estimates, forgotten, fresh, taken
from resonax.guards.policy import HOLD, decide, taken_up, warm
from resonax.guards.schedule import IDLE, WATCH, Duty, Plan, followed, rested, turn, waiting
from resonax.guards.shadows import Energy

__all__ = [
    "Met",
    "Rules",
    "Watched",
    "active",
    "as_lists",
    "begin",
    "from_lists",
    "is_probing",
    "observe",
    "usual",
]

_PLENTY = 1e6  # budget with which all candidates are followed all the time
_OLDER = 0.7  # weight of the bursts before, at the start of a burst


class Rules(NamedTuple):
    """What a guard may do: the policy, the candidates from the largest down, and the plan."""

    policy: str
    candidates: tuple[float, ...]
    plan: Plan = Plan()
    every: bool = False  # whether each burst follows all candidates


class Met(NamedTuple):
    """What the shadows met in one step, an entry for each candidate; others are ignored."""

    before: Energy
    after: Energy
    curvature: Any


class Watched(NamedTuple):
    """All that a guard knows."""

    growth: Growth
    passive: Passive
    duty: Duty
    current: Any  # place of the candidate in use
    advised: Any  # place that ``safe`` would move to; other than the current under ``watch`` only
    held: Any  # steps with shadows since a change was due, up to `HOLD`
    alarm: Any  # whether the run grew, or its momentum was found to grow, since the last rest
    begins: Any  # whether a burst begins with the next step
    step: Any


def begin(rules: Rules, xp: Any = np) -> Watched:
    """Return the state of a run that begins."""
    no = xp.zeros((), dtype=bool)
    zero = xp.zeros((), dtype=int)
    growth = forgotten(fresh(len(rules.candidates), xp), _OLDER, xp=xp)
    duty = waiting(rules.plan, xp)
    warms = rules.plan.warmup > 0
    current = zero + (warm(rules.policy, rules.candidates) if warms else 0)
    held = zero + HOLD
    return Watched(growth, quiet(0, xp), duty, current, current, held, no, no | warms, zero)


def active(state: Watched, rules: Rules, xp: Any = np) -> Any:
    """Return which candidates are followed in the next step."""
    every = _every(rules)
    return followed(state.duty, len(rules.candidates), state.current, every=every, xp=xp)


def _every(rules: Rules) -> bool:
    return rules.every or rules.policy == "fastest" or rules.plan.budget >= _PLENTY


def usual(rules: Rules) -> int:
    """Return how many candidates a burst without an alarm follows."""
    return len(rules.candidates) if _every(rules) else min(2, len(rules.candidates))


def observe(
    state: Watched, rules: Rules, size: Any, met: Met | None = None, xp: Any = np
) -> Watched:
    """Return the state after one step of the run.

    Parameters
    ----------
    state
        The state before.
    rules
        What the guard may do.
    size
        Norm of the velocity; it is looked at every `STRIDE` steps only.
    met
        What the shadows met, in a burst.
    xp
        `numpy`, or `jax.numpy` in compiled code.
    """
    if xp is np and met is None and state.duty.mode == IDLE and (state.step + 1) % STRIDE:
        duty, begins = rested(state.duty, rules.plan, usual(rules))
        if not begins:
            return state._replace(duty=duty, begins=False, step=state.step + 1)
    on = active(state, rules, xp)
    growth = state.growth
    if met is not None:
        growth = taken(growth, met.before, met.after, met.curvature, on, xp)
    found = estimates(growth, xp)
    step = state.step + 1
    looks = step % STRIDE == 0
    passive, rang = heard(state.passive, size, step, xp)
    passive = Passive(*(xp.where(looks, a, b) for a, b in zip(passive, state.passive, strict=True)))
    rang = (rang & looks) | (found.grows[state.current] & (state.duty.mode == WATCH))
    if rules.policy == "watch":  # what is known need not be searched for again
        rang = rang & ~(found.grows[state.current] & (state.duty.mode == IDLE))
    alarm = state.alarm | rang
    decided = _next(rules, found, state, alarm, xp)
    due = decided != state.current
    current = state.current if rules.policy == "watch" else decided
    moved = current != state.current
    undecided = alarm & ~due & ~found.falls[state.current]
    shadows = xp.sum(on)
    more = (shadows > 0) & (met is not None)
    held = xp.where(due, 0, xp.minimum(state.held + more, HOLD))
    # What ``watch`` has said stands until its momentum surely falls, for as long as a change holds.
    stands = ~(found.falls[state.current] & (held >= HOLD)) & (rules.policy == "watch")
    advised = xp.where(due, decided, xp.where(stands, state.advised, current))
    duty, begins = turn(
        state.duty, rules.plan, shadows, rang, usual=usual(rules), undecided=undecided, xp=xp
    )
    ended = (state.duty.mode != IDLE) & (duty.mode == IDLE)
    # After a closer look, or with another momentum, growth counts from here.
    again = (ended & alarm) | moved
    passive = passive._replace(
        floor=xp.where(again, xp.where(moved, xp.inf, passive.level), passive.floor),
        windows=xp.where(moved, xp.zeros_like(passive.windows), passive.windows),
    )
    older = forgotten(growth, _OLDER, xp=xp)
    growth = Growth(*(xp.where(begins, a, b) for a, b in zip(older, growth, strict=True)))
    alarm = alarm & ~ended & ~due
    return Watched(growth, passive, duty, current, advised, held, alarm, begins, step)


def _next(rules: Rules, found: Estimates, state: Watched, alarm: Any, xp: Any) -> Any:
    """Return the place of the candidate for the next step, in the warm-up and after it."""
    current, step, steady = state.current, state.step + 1, state.held >= HOLD
    momenta = xp.asarray(rules.candidates)
    decided = decide(rules.policy, found, momenta, current, alarm, steady, xp)
    if not rules.plan.warmup or rules.policy == "watch":
        return decided
    first = taken_up(found, xp)  # and, at once, what is done where that one is strained
    first = decide(rules.policy, found, momenta, first, xp.asarray(False), True, xp)
    decided = xp.where(step == rules.plan.warmup, first, decided)
    return xp.where((step < rules.plan.warmup) & ~found.grows[current], current, decided)


def is_probing(state: Watched) -> bool:
    """Return whether the next step is part of a burst."""
    return bool(state.duty.mode != IDLE)


def as_lists(state: Watched) -> list[Any]:
    """Return the state as plain numbers and lists."""
    parts = [*state.growth, *state.passive, *state.duty, *state[3:]]
    return [np.asarray(part).tolist() for part in parts]


def from_lists(parts: list[Any], rules: Rules) -> Watched:
    """Return the state that `as_lists` wrote, or raise `ValueError` where it cannot be one."""
    like = [np.asarray(part) for part in as_lists(begin(rules))]
    made = [np.asarray(part) for part in parts]
    if [part.shape for part in made] != [part.shape for part in like] or not all(
        np.issubdtype(part.dtype, np.number) or part.dtype == bool for part in made
    ):
        raise ValueError("its numbers are not those of a guard with such candidates")
    first = len(Growth._fields)
    second = first + len(Passive._fields)
    third = second + len(Duty._fields)
    growth, passive, duty = made[:first], made[first:second], made[second:third]
    state = Watched(Growth(*growth), Passive(*passive), Duty(*duty), *made[third:])
    places = range(len(rules.candidates))
    if state.current not in places or state.advised not in places or state.step < 0:
        raise ValueError("its candidate in use is none of them")
    return state
