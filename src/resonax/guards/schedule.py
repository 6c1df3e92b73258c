"""When candidates are followed: bursts of consecutive steps, within a budget of extra work.

A step that is probed with n shadows costs about ``2 + 1.4 n`` further steps. In every step the
guard is credited with ``budget`` steps; once the credit covers a burst it follows the momentum in
use and its neighbours among the candidates. An alarm, or a momentum that grows, starts a search at
once that follows all candidates; a part of its cost is debited. A warm-up is a search at the start
of the run.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError, check_number, check_whole

__all__ = ["Plan", "Schedule", "first_burst", "followed", "init", "update", "update_idle"]

IDLE, WATCH, SEARCH = 0, 1, 2
_BOUND = 1.5  # of the credit, in costs of a burst
_EXTENSIONS = 6  # of a search, by a burst each
_LEAST_WARMUP = 96  # steps


class Plan(NamedTuple):
    """How much extra work a guard may do."""

    budget: float = 0.07  # extra work for each step, in steps
    burst: int = 64
    search: int = 256
    warmup: int = 0

    def checked(self) -> Plan:
        """Return the plan, or raise the error of what is wrong with it."""
        check_number("budget", self.budget, low=0, high=1e9)
        check_whole("burst", self.burst, low=32)
        check_whole("search", self.search, low=32)
        check_whole("warmup", self.warmup, low=0)
        if 0 < self.warmup < _LEAST_WARMUP:
            raise ArgumentError(
                f"warmup must be 0 or at least {_LEAST_WARMUP} steps, got {self.warmup}: "
                "fewer do not give a rate"
            )
        return self


class Schedule(NamedTuple):
    """Idle, burst or search; the steps left in it; and the credit of extra work."""

    mode: Any
    left: Any
    credit: Any
    extensions: Any  # of the current search


def init(plan: Plan, xp: Any = np) -> Schedule:
    """Return the state at the start of a run: its warm-up, and credit for part of a burst."""
    zero = xp.zeros((), dtype=int)
    mode = SEARCH if plan.warmup else IDLE
    return Schedule(zero + mode, zero + plan.warmup, zero + 0.0 + plan.burst, zero)


def followed(schedule: Schedule, count: int, current: Any, *, every: bool, xp: Any = np) -> Any:
    """Return which of the candidates are followed in this step."""
    place = xp.arange(count)
    some = xp.abs(place - current) <= 1
    searching = (schedule.mode == SEARCH) | ((schedule.mode == WATCH) & every)
    return xp.where(searching, place >= 0, some & (schedule.mode == WATCH))


def _work(shadows: Any) -> Any:
    return 2.0 + 1.4 * shadows


def first_burst(plan: Plan, usual: int) -> float:
    """Return the steps until the first burst of a run without an alarm.

    Examples
    --------
    >>> first_burst(Plan(), usual=2), first_burst(Plan(budget=0.0), usual=2)
    (3475, inf)
    """
    if plan.warmup:
        return 0
    short = plan.burst * (_work(usual) - 1.0)  # it begins with a credit of `burst`
    return math.ceil(round(short / plan.budget, 6)) if plan.budget else math.inf


def update_idle(schedule: Schedule, plan: Plan, usual: int) -> tuple[Schedule, bool]:
    """Return what `update` does in an idle step without an alarm, at a fraction of its cost."""
    cost = plan.burst * _work(usual)
    credit = min(float(schedule.credit) + plan.budget, _BOUND * cost)
    begins = credit >= cost
    mode, left = (WATCH, plan.burst) if begins else (IDLE, 0)
    return Schedule(mode, left, credit, 0), begins


def update(
    schedule: Schedule,
    plan: Plan,
    shadows: Any,
    alarm: Any,
    *,
    usual: int,
    undecided: Any,
    xp: Any = np,
) -> tuple[Schedule, Any]:
    """Return what to do in the next step, and whether a burst begins with it.

    Parameters
    ----------
    schedule
        The state in this step.
    plan
        The budget and the lengths.
    shadows
        How many candidates were followed in this step.
    alarm
        Whether to start a search now.
    usual
        How many candidates a burst without an alarm follows.
    undecided
        Whether to extend a search that ends now.
    xp
        `numpy` or `jax.numpy`.

    Examples
    --------
    >>> schedule, begins = update(init(Plan()), Plan(), 0, True, usual=1, undecided=False)
    >>> int(schedule.mode), int(schedule.left), bool(begins)
    (2, 256, True)
    """
    cost = plan.burst * _work(usual)
    work = xp.where(shadows > 0, _work(shadows), 0.0)
    credit = xp.clip(schedule.credit + plan.budget - work, -_BOUND * cost, _BOUND * cost)
    left = xp.maximum(schedule.left - 1, 0)
    busy = (schedule.mode != IDLE) & (left > 0)
    stays = (
        (schedule.mode == SEARCH) & (left == 0) & undecided & (schedule.extensions < _EXTENSIONS)
    )
    search = alarm & (schedule.mode != SEARCH)
    watch = ~busy & ~stays & (credit >= cost)
    mode = xp.where(busy | stays, schedule.mode, xp.where(watch, WATCH, IDLE))
    mode = xp.where(search, SEARCH, mode)
    left = xp.where(stays, plan.burst, xp.where(watch, plan.burst, left))
    left = xp.where(search, plan.search, left)
    extensions = xp.where(
        stays, schedule.extensions + 1, xp.where(mode == SEARCH, schedule.extensions, 0)
    )
    # A burst that follows another at once only goes on.
    return Schedule(mode, left, credit, extensions), search | (watch & (schedule.mode != WATCH))
