"""The guard without a framework: one pure step from what a run shows to the momentum it should use.

An adapter feeds `update` after every step of the optimizer with the size of the velocity and, in a
burst, with what the shadows met; it reads from the state which candidates to follow next and which
momentum to train with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resonax.guards.alarm import STRIDE, Alarm
from resonax.guards.alarm import init as init_alarm
from resonax.guards.alarm import update as update_alarm
from resonax.guards.growth import Estimates, Growth, estimates, start_burst
from resonax.guards.growth import init as init_growth
from resonax.guards.growth import update as update_growth
from resonax.guards.policy import HOLD, decide, taken_up, warm
from resonax.guards.schedule import IDLE, WATCH, Plan, Schedule, followed, update_idle
from resonax.guards.schedule import init as init_schedule
from resonax.guards.schedule import update as update_schedule
from resonax.guards.shadows import Energy

__all__ = [
    "GuardConfig",
    "GuardState",
    "ShadowStep",
    "active",
    "as_lists",
    "from_lists",
    "init",
    "is_probing",
    "update",
    "usual",
]

_PLENTY = 1e6  # budget with which all candidates are followed all the time
_OLDER = 0.7  # weight of the bursts before, at the start of a burst


class GuardConfig(NamedTuple):
    """What a guard may do: the policy, the candidates from the largest down, and the plan."""

    policy: str
    candidates: tuple[float, ...]
    plan: Plan = Plan()
    every: bool = False  # whether each burst follows all candidates


class ShadowStep(NamedTuple):
    """What the shadows met in one step, an entry for each candidate; others are ignored."""

    before: Energy
    after: Energy
    curvature: Any


class GuardState(NamedTuple):
    """All that a guard knows."""

    growth: Growth
    passive: Alarm
    schedule: Schedule
    current: Any  # place of the candidate in use
    advised: Any  # place that ``safe`` would move to; other than the current under ``watch`` only
    held: Any  # steps with shadows since a change was due, up to `HOLD`
    alarm: Any  # whether the run grew, or its momentum was found to grow, since the last rest
    begins: Any  # whether a burst begins with the next step
    step: Any


def init(config: GuardConfig, xp: Any = np) -> GuardState:
    """Return the state of a run that begins."""
    no = xp.zeros((), dtype=bool)
    zero = xp.zeros((), dtype=int)
    growth = start_burst(init_growth(len(config.candidates), xp), _OLDER, xp=xp)
    schedule = init_schedule(config.plan, xp)
    warms = config.plan.warmup > 0
    current = zero + (warm(config.policy, config.candidates) if warms else 0)
    held = zero + HOLD
    return GuardState(
        growth, init_alarm(0, xp), schedule, current, current, held, no, no | warms, zero
    )


def active(state: GuardState, config: GuardConfig, xp: Any = np) -> Any:
    """Return which candidates are followed in the next step."""
    every = _every(config)
    return followed(state.schedule, len(config.candidates), state.current, every=every, xp=xp)


def _every(config: GuardConfig) -> bool:
    return config.every or config.policy == "fastest" or config.plan.budget >= _PLENTY


def usual(config: GuardConfig) -> int:
    """Return how many candidates a burst without an alarm follows."""
    return len(config.candidates) if _every(config) else min(2, len(config.candidates))


def update(
    state: GuardState, config: GuardConfig, size: Any, met: ShadowStep | None = None, xp: Any = np
) -> GuardState:
    """Return the state after one step of the run.

    Parameters
    ----------
    state
        The state before.
    config
        What the guard may do.
    size
        Norm of the velocity; it is looked at every `STRIDE` steps only.
    met
        What the shadows met, in a burst.
    xp
        `numpy`, or `jax.numpy` in compiled code.
    """
    if xp is np and met is None and state.schedule.mode == IDLE and (state.step + 1) % STRIDE:
        schedule, begins = update_idle(state.schedule, config.plan, usual(config))
        if not begins:
            return state._replace(schedule=schedule, begins=False, step=state.step + 1)
    on = active(state, config, xp)
    growth = state.growth
    if met is not None:
        growth = update_growth(growth, met.before, met.after, met.curvature, on, xp)
    found = estimates(growth, xp)
    step = state.step + 1
    looks = step % STRIDE == 0
    passive, rang = update_alarm(state.passive, size, step, xp)
    passive = Alarm(*(xp.where(looks, a, b) for a, b in zip(passive, state.passive, strict=True)))
    rang = (rang & looks) | (found.grows[state.current] & (state.schedule.mode == WATCH))
    if config.policy == "watch":  # what is known need not be searched for again
        rang = rang & ~(found.grows[state.current] & (state.schedule.mode == IDLE))
    alarm = state.alarm | rang
    decided = _next(config, found, state, alarm, xp)
    due = decided != state.current
    current = state.current if config.policy == "watch" else decided
    moved = current != state.current
    undecided = alarm & ~due & ~found.falls[state.current]
    shadows = xp.sum(on)
    more = (shadows > 0) & (met is not None)
    held = xp.where(due, 0, xp.minimum(state.held + more, HOLD))
    # What ``watch`` has said stands until its momentum surely falls, for as long as a change holds.
    stands = ~(found.falls[state.current] & (held >= HOLD)) & (config.policy == "watch")
    advised = xp.where(due, decided, xp.where(stands, state.advised, current))
    schedule, begins = update_schedule(
        state.schedule, config.plan, shadows, rang, usual=usual(config), undecided=undecided, xp=xp
    )
    ended = (state.schedule.mode != IDLE) & (schedule.mode == IDLE)
    # After a closer look, or with another momentum, growth counts from here.
    again = (ended & alarm) | moved
    passive = passive._replace(
        floor=xp.where(again, xp.where(moved, xp.inf, passive.level), passive.floor),
        windows=xp.where(moved, xp.zeros_like(passive.windows), passive.windows),
    )
    older = start_burst(growth, _OLDER, xp=xp)
    growth = Growth(*(xp.where(begins, a, b) for a, b in zip(older, growth, strict=True)))
    alarm = alarm & ~ended & ~due
    return GuardState(growth, passive, schedule, current, advised, held, alarm, begins, step)


def _next(config: GuardConfig, found: Estimates, state: GuardState, alarm: Any, xp: Any) -> Any:
    """Return the place of the candidate for the next step, in the warm-up and after it."""
    current, step, steady = state.current, state.step + 1, state.held >= HOLD
    momenta = xp.asarray(config.candidates)
    decided = decide(config.policy, found, momenta, current, alarm, steady, xp)
    if not config.plan.warmup or config.policy == "watch":
        return decided
    first = taken_up(found, xp)  # and, at once, what is done where that one is strained
    first = decide(config.policy, found, momenta, first, xp.asarray(False), True, xp)
    decided = xp.where(step == config.plan.warmup, first, decided)
    return xp.where((step < config.plan.warmup) & ~found.grows[current], current, decided)


def is_probing(state: GuardState) -> bool:
    """Return whether the next step is part of a burst."""
    return bool(state.schedule.mode != IDLE)


def as_lists(state: GuardState) -> list[Any]:
    """Return the state as plain numbers and lists."""
    parts = [*state.growth, *state.passive, *state.schedule, *state[3:]]
    return [np.asarray(part).tolist() for part in parts]


def from_lists(parts: list[Any], config: GuardConfig) -> GuardState:
    """Return the state that `as_lists` wrote, or raise `ValueError` where it cannot be one."""
    like = [np.asarray(part) for part in as_lists(init(config))]
    made = [np.asarray(part) for part in parts]
    if [part.shape for part in made] != [part.shape for part in like] or not all(
        np.issubdtype(part.dtype, np.number) or part.dtype == bool for part in made
    ):
        raise ValueError("its numbers are not those of a guard with such candidates")
    first = len(Growth._fields)
    second = first + len(Alarm._fields)
    third = second + len(Schedule._fields)
    growth, passive, schedule = made[:first], made[first:second], made[second:third]
    state = GuardState(Growth(*growth), Alarm(*passive), Schedule(*schedule), *made[third:])
    places = range(len(config.candidates))
    if state.current not in places or state.advised not in places or state.step < 0:
        raise ValueError("its candidate in use is none of them")
    return state
