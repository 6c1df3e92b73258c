"""When the loss of a run has risen: is it an alarm, or are the rows to come tested for their order?

Bursts of noise end, and a stretch that is chosen for its large loss is worse than the same rows
mixed, whatever their order. So a risen loss is an alarm only if it is extreme, or high and lasts;
otherwise the order of the rows that come next is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from resonax.guards.replay import ReplayConfig, ReplayState

__all__ = ["after_a_rise", "is_alarm", "is_high", "is_tested", "may_be_high"]


def is_alarm(state: ReplayState, config: ReplayConfig, own: float, judged: Sequence[float]) -> bool:
    """Return whether a risen loss is an alarm, given the losses of the snapshots."""
    is_extreme = not own <= config.explodes**2 * float(np.median(judged))
    return is_extreme or (is_high(state, config, own, judged) and _lasts(state, config))


def after_a_rise(
    state: ReplayState, config: ReplayConfig, own: float, judged: Sequence[float]
) -> ReplayState:
    """Return the state with a test of the order of the rows that come next."""
    rose = state.rose if _lasts(state, config) else state.step
    soon = min(state.next_test, rose + 2 * config.spacing)
    recent = state.recent[:-1] if is_high(state, config, own, judged) else state.recent[-1:]
    return replace(state, recent=recent, next_test=soon, rose=rose)


def is_tested(state: ReplayState, config: ReplayConfig) -> bool:
    """Return whether a test at this step is of the rows since a rise."""
    return state.rose > 0 and state.step == state.rose + 2 * config.spacing


def may_be_high(state: ReplayState, config: ReplayConfig, own: float) -> bool:
    """Return whether a test has to judge the snapshots to know if its loss `is_high`."""
    return _is_far(state, config, own) or _has_start(state)


def is_high(state: ReplayState, config: ReplayConfig, own: float, judged: Sequence[float]) -> bool:
    """Return whether a loss is far above those of the snapshots.

    That is of most of them; or of one of them and the least so far, which alone does not count: it
    is of other rows, and they may have been easier; or of the first, while that is the start of the
    run: then training has done worse than none, in whatever order.
    """
    limits = [config.explodes * float(np.median(judged))]
    if _is_far(state, config, own):
        limits.append(config.explodes * min(judged))
    if _has_start(state):
        limits.append(config.spoils * judged[0])
    return not own <= min(limits)


def _is_far(state: ReplayState, config: ReplayConfig, own: float) -> bool:
    """Return whether a loss is far above the least one of the tests so far."""
    return not own <= 3 * config.explodes * state.least


def _has_start(state: ReplayState) -> bool:
    return state.ladder.snapshots[0].step == 0


def _lasts(state: ReplayState, config: ReplayConfig) -> bool:
    """Return whether the loss rose in the last two spacings already."""
    return state.rose > 0 and state.step - state.rose <= 2 * config.spacing
