"""The guard without a framework: a state machine, `init` and `update`, of pure functions.

After every step of the optimizer an adapter calls `update` with the norm of the velocity and, in a
burst, with a `ShadowStep`. The state says which candidates to follow in the next step and which
momentum to train with.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resonax.guards.alarm import STRIDE, AlarmState
from resonax.guards.alarm import init as init_alarm
from resonax.guards.alarm import update as update_alarm
from resonax.guards.growth import Estimates, GrowthState, estimates, start_burst
from resonax.guards.growth import init as init_growth
from resonax.guards.growth import update as update_growth
from resonax.guards.policy import HOLD, after_warmup, decide, warmup_place
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
    "usual_count",
]

_UNLIMITED = 1e6  # budget from which all candidates are followed in every burst
_OLDER = 0.7  # weight of earlier bursts at the start of a burst


class GuardConfig(NamedTuple):
    """What a guard may do: the policy, the candidates from the largest down, and the plan."""

    policy: str
    candidates: tuple[float, ...]
    plan: Plan = Plan()
    every: bool = False  # whether each burst follows all candidates


class ShadowStep(NamedTuple):
    """Energies and curvature of the shadows in one step; entries of idle candidates are ignored."""

    before: Energy
    after: Energy
    curvature: Any


class GuardState(NamedTuple):
    """State of a guard."""

    growth: GrowthState
    alarm: AlarmState
    schedule: Schedule
    current: Any  # index of the candidate in use
    advised: Any  # index that ``safe`` would move to; differs from current under ``watch`` only
    held: Any  # steps with shadows since a change was due, up to `HOLD`
    is_alarmed: Any  # whether the run, or the momentum in use, grew since the last idle step
    begins: Any  # whether a burst begins with the next step
    step: Any


def init(config: GuardConfig, xp: Any = np) -> GuardState:
    """Return the state of a run that begins."""
    no = xp.zeros((), dtype=bool)
    zero = xp.zeros((), dtype=int)
    growth = start_burst(init_growth(len(config.candidates), xp), _OLDER, xp=xp)
    schedule = init_schedule(config.plan, xp)
    warms = config.plan.warmup > 0
    current = zero + (warmup_place(config.policy, config.candidates) if warms else 0)
    held = zero + HOLD
    return GuardState(
        growth, init_alarm(0, xp), schedule, current, current, held, no, no | warms, zero
    )


def active(state: GuardState, config: GuardConfig, xp: Any = np) -> Any:
    """Return which candidates are followed in the next step."""
    every = _every(config)
    return followed(state.schedule, len(config.candidates), state.current, every=every, xp=xp)


def _every(config: GuardConfig) -> bool:
    return config.every or config.policy == "fastest" or config.plan.budget >= _UNLIMITED


def usual_count(config: GuardConfig) -> int:
    """Return how many candidates a burst without an alarm follows."""
    return len(config.candidates) if _every(config) else min(2, len(config.candidates))


def update(
    state: GuardState,
    config: GuardConfig,
    size: Any,
    shadow_step: ShadowStep | None = None,
    xp: Any = np,
) -> GuardState:
    """Return the state after one step of the run.

    Parameters
    ----------
    state
        The state before.
    config
        What the guard may do.
    size
        Norm of the velocity; it is sampled every `STRIDE` steps only.
    shadow_step
        Energies and curvature of the shadows, in a burst.
    xp
        `numpy`, or `jax.numpy` in compiled code.
    """
    if (
        xp is np
        and shadow_step is None
        and state.schedule.mode == IDLE
        and (state.step + 1) % STRIDE
    ):
        schedule, begins = update_idle(state.schedule, config.plan, usual_count(config))
        if not begins:
            return state._replace(schedule=schedule, begins=False, step=state.step + 1)
    on = active(state, config, xp)
    growth = state.growth
    if shadow_step is not None:
        growth = update_growth(growth, *shadow_step, on, xp)
    found = estimates(growth, xp)
    step = state.step + 1
    is_sampled = step % STRIDE == 0
    alarm, raised = state.alarm, xp.asarray(False)
    if xp is not np or is_sampled:  # compiled code has no branches
        sampled, raised = update_alarm(state.alarm, size, step, xp)
        pairs = zip(sampled, state.alarm, strict=True)
        alarm = AlarmState(*(xp.where(is_sampled, new, old) for new, old in pairs))
    grows = found.is_growing[state.current]
    raised = (raised & is_sampled) | (grows & (state.schedule.mode == WATCH))
    if config.policy == "watch":  # what is known need not be searched for again
        raised = raised & ~(grows & (state.schedule.mode == IDLE))
    is_alarmed = state.is_alarmed | raised
    decided = _next(config, found, state, is_alarmed, xp)
    due = decided != state.current
    current = state.current if config.policy == "watch" else decided
    moved = current != state.current
    undecided = is_alarmed & ~due & ~found.is_decaying[state.current]
    shadows = xp.sum(on)
    more = (shadows > 0) & (shadow_step is not None)
    held = xp.where(due, 0, xp.minimum(state.held + more, HOLD))
    # Advice of ``watch`` stands until its momentum decays, and at least as long as a change holds.
    stands = ~(found.is_decaying[state.current] & (held >= HOLD)) & (config.policy == "watch")
    advised = xp.where(due, decided, xp.where(stands, state.advised, current))
    schedule, begins = update_schedule(
        state.schedule,
        config.plan,
        shadows,
        raised,
        usual=usual_count(config),
        undecided=undecided,
        xp=xp,
    )
    ended = (state.schedule.mode != IDLE) & (schedule.mode == IDLE)
    # After a search, or with another momentum, the alarm has a new baseline.
    again = (ended & is_alarmed) | moved
    alarm = alarm._replace(
        floor=xp.where(again, xp.where(moved, xp.inf, alarm.level), alarm.floor),
        windows=xp.where(moved, xp.zeros_like(alarm.windows), alarm.windows),
    )
    if xp is not np or begins:
        older = start_burst(growth, _OLDER, xp=xp)
        growth = GrowthState(*(xp.where(begins, a, b) for a, b in zip(older, growth, strict=True)))
    is_alarmed = is_alarmed & ~ended & ~due
    return GuardState(growth, alarm, schedule, current, advised, held, is_alarmed, begins, step)


def _next(config: GuardConfig, found: Estimates, state: GuardState, alarm: Any, xp: Any) -> Any:
    """Return the index of the candidate for the next step, in the warm-up and after it."""
    current, step, steady = state.current, state.step + 1, state.held >= HOLD
    momenta = xp.asarray(config.candidates)
    decided = decide(config.policy, found, momenta, current, alarm, steady, xp)
    warmup = config.plan.warmup
    if not warmup or config.policy == "watch":
        return decided
    if xp is not np or step == warmup:  # compiled code has no branches
        first = after_warmup(found, xp)  # which may be weakly damped: decide once more
        first = decide(config.policy, found, momenta, first, xp.asarray(False), True, xp)
        decided = xp.where(step == warmup, first, decided)
    return xp.where((step < warmup) & ~found.is_growing[current], current, decided)


def is_probing(state: GuardState) -> bool:
    """Return whether the next step is part of a burst."""
    return bool(state.schedule.mode != IDLE)


def as_lists(state: GuardState) -> list[Any]:
    """Return the state as plain numbers and lists."""
    parts = [*state.growth, *state.alarm, *state.schedule, *state[3:]]
    return [np.asarray(part).tolist() for part in parts]


def from_lists(parts: list[Any], config: GuardConfig) -> GuardState:
    """Return the state that `as_lists` wrote, or raise `ValueError` where it cannot be one."""
    like = [np.asarray(part) for part in as_lists(init(config))]
    made = [np.asarray(part) for part in parts]
    if [part.shape for part in made] != [part.shape for part in like] or not all(
        np.issubdtype(part.dtype, np.number) or part.dtype == bool for part in made
    ):
        raise ValueError("its numbers are not those of a guard with such candidates")
    first = len(GrowthState._fields)
    second = first + len(AlarmState._fields)
    third = second + len(Schedule._fields)
    growth, alarm, schedule = made[:first], made[first:second], made[second:third]
    state = GuardState(GrowthState(*growth), AlarmState(*alarm), Schedule(*schedule), *made[third:])
    places = range(len(config.candidates))
    if state.current not in places or state.advised not in places or state.step < 0:
        raise ValueError("its candidate in use is none of them")
    return state
