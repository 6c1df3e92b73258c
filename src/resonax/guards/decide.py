"""What a guard does when something is due: it tests the order, answers an alarm, or returns.

Bursts of noise end, and a stretch that is chosen for its large loss is worse than the same rows
mixed, whatever their order. So a risen loss is an alarm only if it is extreme, or high and lasts;
otherwise the order of the rows that come next is tested.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from resonax.guards.history import Snapshot
from resonax.guards.learner import Replayable
from resonax.guards.order_test import geometric_mean, harm_of_order, significance_of
from resonax.guards.replays import Choice, Replays
from resonax.guards.state import (
    Decision,
    GuardConfig,
    GuardState,
    has_risen,
    is_due,
    is_marked,
    marks,
    may_return,
    next_test,
)

__all__ = ["act", "look"]


def look(state: GuardState, config: GuardConfig, learner: Replayable) -> tuple[GuardState, bool]:
    """Judge a run after a step where that is due; the state, and whether to `act` now."""
    if is_marked(state, config):
        judged = learner.loss(state.reservoir)
        work = state.work + len(state.reservoir) / 3
        state = replace(state, marked=(*state.marked, judged), work=work)
    return state, is_due(state, config)


def act(state: GuardState, config: GuardConfig, learner: Replayable) -> GuardState:
    """Return the state after what is due; the learner is where the run continues.

    An exception in a replay leaves the learner as it was.
    """
    now = learner.save()
    try:
        return _DueStep(state, config, learner, now).act()
    except BaseException:
        learner.load(now)
        learner.set(config.candidates[state.place])
        raise


class _DueStep(Replays):
    """A step of a run at which something is due; ``now`` is the learner at it."""

    def __init__(self, state: GuardState, config: GuardConfig, learner: Replayable, now: Any):
        super().__init__(state, config, learner)
        self.now = now

    def act(self) -> GuardState:
        state, config = self.state, self.config
        if state.lost or (self.used.is_mixed and self.may_hold_bad()):
            return self.examine_lost()
        if has_risen(state, config):
            own, judged = self.judge(), self.judge_snapshots()
            if _is_alarm(state, config, own, judged):
                return self.alarm(own, judged)
            self.state = state = _after_a_rise(state, config, own, judged)
            if state.step < state.next_test or self.used.is_mixed:
                return self.keep_setting()
        if may_return(state, config):
            return self.try_previous()
        return self.choose_fastest() if config.policy == "fastest" else self.test()

    def keep_setting(self, **changes: Any) -> GuardState:
        """Continue from the run as it is."""
        return self.continue_from(self.now, marked=(), **changes)

    def continue_from(self, saved: Any, **changes: Any) -> GuardState:
        """Continue from a saved state of the learner."""
        state = replace(self.state, work=self.state.work + self.work, **changes)
        self.learner.load(saved)
        self.learner.set(self.config.candidates[state.place])
        return state

    def examine_lost(self) -> GuardState:
        """Set batches aside that have no finite loss; if the run has none, undo that.

        Under ``watch`` the run stays as it is, and nothing is done while it has no finite loss.
        """
        start, bad, reservoir = self.find_bad()
        state, spacing = self.state, self.config.spacing
        oldest, before = state.history.oldest, state.step - len(state.partial)
        self.state = state = replace(
            state,
            partial=tuple(
                None if step in state.lost else one
                for step, one in enumerate(state.partial, before)
            ),
            lost=(),
            next_test=max(state.next_test, (state.step // spacing + 1) * spacing),
            aside=tuple(one for one in (*state.aside, *bad) if one >= oldest),
            set_aside=state.set_aside + len(bad),
            reservoir=reservoir,
        )
        self.learner.load(self.now)
        if math.isfinite(self.judge()):  # as where a gradient scaler left out the update
            return self.keep_setting()
        if self.config.policy == "watch":
            self.state = replace(state, is_lost=True)
            return self.keep_setting() if bad else self.alarm(math.inf, self.judge_snapshots())
        history = state.history.without_snapshots_after(start)
        if bad:
            self.replay_in_order(start, self.used, marked=())
            if not reservoir or math.isfinite(self.judge()):
                return self.continue_from(self.learner.save(), history=history, marked=())
        if not reservoir:
            return self.continue_from(start.saved, history=history, marked=())
        return self.alarm(math.inf, self.judge_snapshots())

    def alarm(self, own: float, judged: list[float]) -> GuardState:
        """Go back to the best snapshot, and on from there with a safer candidate."""
        start = self.state.history.snapshots[int(np.argmin(judged))]
        last = len(self.config.candidates) - 1
        places = range(self.state.place + 1, last + 1)
        found = self.choose(start, self.config.harm * min(judged), places)
        if found is None:  # nothing is finite, or nothing is left: the snapshot, and small steps
            found = Choice(last, start.saved, ())
        return self.change_setting("alarm", start, found, own, (self.mixed_loss(start),))

    def mixed_loss(self, start: Snapshot) -> float:
        """Return the loss of one more replay of the rows in random order."""
        return self.replay_mixed(
            start, np.random.default_rng([self.config.seed, 4, self.state.step])
        )

    def change_setting(
        self,
        why: str,
        start: Snapshot,
        found: Choice,
        own: float,
        mixed: tuple[float, ...] = (),
        p: float = math.nan,
    ) -> GuardState:
        """Continue from the end of a replay, with its candidate."""
        state = self.state
        after, rewound = self.config.candidates[found.place], state.step - start.step
        made = Decision(state.step, why, self.used, after, rewound, own, mixed, found.tried, p)
        later = next_test(state, self.config, rewound)
        if self.config.policy == "watch":
            return self.keep_setting(recent=(), next_test=later, decisions=(*state.decisions, made))
        return self.continue_from(
            found.saved,
            places=(*state.places, found.place),
            history=state.history.without_snapshots_after(start),
            recent=(),
            marked=(),
            hold=state.step + state.wait,
            wait=2 * state.wait,
            next_test=later,
            decisions=(*state.decisions, made),
        )

    def test(self) -> GuardState:
        """Test whether the order of the rows harms; if so, change the setting."""
        state, config = self.state, self.config
        start = self.test_start()
        batches = self.batches_since(start)
        later = next_test(state, config, len(batches))
        if state.step - start.step < config.spacing or not batches:
            return self.keep_setting(next_test=later)
        own = self.own_loss(start)
        self.state = replace(state, tests=state.tests + 1, least=min(state.least, own))
        rng = np.random.default_rng([config.seed, 3, state.step])
        harm = harm_of_order(
            own,
            (self.replay_mixed(start, rng) for _ in range(config.mixes)),
            significance_of(self.state.tests - state.earlier, config.significance),
            harm=config.harm,
            beyond=config.beyond,
        )
        if harm is None and _may_be_high(state, config, own):
            judged = self.judge_snapshots()
            if _is_high(state, config, own, judged):  # it rose slowly, in any order
                return self.alarm(own, judged)
        if harm is None:
            return self.keep_setting(next_test=later)
        mixed, p = harm
        if _is_tested(state, config):  # the loss was high when this stretch began: go back
            start = state.history.snapshots[int(np.argmin(self.judge_snapshots()))]
            found = self.remedy(start, own, ())
        else:
            found = self.remedy(start, own, mixed)
        if found is None:
            return self.keep_setting(next_test=later)
        return self.change_setting("order", start, found, own, mixed, p)

    def test_start(self) -> Snapshot:
        """Return the oldest snapshot of the setting in use; after a rise, that of the rise."""
        state, snapshots = self.state, self.state.history.snapshots
        first = state.rose if _is_tested(state, self.config) else state.returned
        return next((one for one in snapshots if one.step >= first), snapshots[-1])

    def own_loss(self, start: Snapshot) -> float:
        """Return the loss of the run at the marks, on the batches that mixed runs are judged on.

        It is replayed if the test was not foreseen, or the reservoir not full at the first mark.
        """
        state, config = self.state, self.config
        inside = [one for one in marks(state.step, config.spacing) if one > start.step]
        is_full = min(inside) >= config.reservoir
        if is_full and state.step == state.next_test and len(state.marked) == len(inside):
            return geometric_mean(state.marked)
        return self.replay_in_order(start, self.used)

    def remedy(self, start: Snapshot, own: float, mixed: Sequence[float]) -> Choice | None:
        """Return the mildest candidate that does as well as mixed rows, or else to mix rows.

        It does as well if its loss is at most ``reach`` times their mean, and no worse than the
        worst of them.
        """
        candidates, place = self.config.candidates, self.state.place
        places = [one for one in range(place + 1, len(candidates)) if not candidates[one].is_mixed]
        usual = geometric_mean([*mixed, self.mixed_loss(start)])
        target = min(self.config.reach * usual, max(mixed, default=math.inf))
        saved = self.learner.save()
        found = self.choose(start, target, places)
        if found is not None and found.tried[-1][1] <= target:
            return found
        tried = () if found is None else found.tried
        mixing = [one for one in range(len(candidates)) if candidates[one].is_mixed]
        if mixing:
            like = self.used._replace(is_mixed=True)
            same = (one for one in mixing if candidates[one] == like)
            return Choice(next(same, mixing[0]), saved, tried)
        helps = min((loss for _, loss in tried), default=math.inf) * self.config.harm < own
        return found if helps else None

    def choose_fastest(self) -> GuardState:
        """Take the candidate that would have ended lowest on the last stretch."""
        state, start = self.state, self.state.history.snapshots[0]
        later = next_test(state, self.config, state.step - start.step)
        own = self.own_loss(start)
        places = [one for one in range(len(self.config.candidates)) if one != state.place]
        found = self.choose(start, 0.0, places)
        if found is None or not min(loss for _, loss in found.tried) < own:
            return self.keep_setting(next_test=later)
        return self.change_setting("fastest", start, found, own)

    def try_previous(self) -> GuardState:
        """Take the candidate before if it would have done as well on the last stretch."""
        state, config = self.state, self.config
        start = state.history.snapshots[0]
        place = state.places[-2] if len(state.places) > 1 else 0
        before = config.candidates[place]
        own = self.replay_in_order(start, self.used)
        loss = self.replay_in_order(start, before)
        if loss > own:
            return self.keep_setting(hold=state.step + 2 * state.wait, wait=2 * state.wait)
        tried = ((before, loss),)
        made = Decision(state.step, "return", self.used, before, 0, own, (), tried)
        return self.keep_setting(
            places=state.places[:-1] or (0,),
            hold=state.step + state.wait,
            next_test=state.step + config.spacing,
            returned=state.step,
            earlier=state.tests,
            decisions=(*state.decisions, made),
        )


def _is_alarm(state: GuardState, config: GuardConfig, own: float, judged: Sequence[float]) -> bool:
    """Return whether a risen loss is an alarm, given the losses of the snapshots."""
    is_extreme = not own <= config.explodes**2 * float(np.median(judged))
    return is_extreme or (_is_high(state, config, own, judged) and _lasts(state, config))


def _after_a_rise(
    state: GuardState, config: GuardConfig, own: float, judged: Sequence[float]
) -> GuardState:
    """Return the state with a test of the order of the rows that come next."""
    rose = state.rose if _lasts(state, config) else state.step
    soon = min(state.next_test, rose + 2 * config.spacing)
    recent = state.recent[:-1] if _is_high(state, config, own, judged) else state.recent[-1:]
    return replace(state, recent=recent, next_test=soon, rose=rose)


def _is_tested(state: GuardState, config: GuardConfig) -> bool:
    """Return whether a test at this step is of the rows since a rise."""
    return state.rose > 0 and state.step == state.rose + 2 * config.spacing


def _may_be_high(state: GuardState, config: GuardConfig, own: float) -> bool:
    """Return whether a test has to judge the snapshots to know if its loss `_is_high`."""
    return _is_far(state, config, own) or _has_start(state)


def _is_high(state: GuardState, config: GuardConfig, own: float, judged: Sequence[float]) -> bool:
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


def _is_far(state: GuardState, config: GuardConfig, own: float) -> bool:
    """Return whether a loss is far above the least one of the tests so far."""
    return not own <= 3 * config.explodes * state.least


def _has_start(state: GuardState) -> bool:
    return state.history.oldest == 0


def _lasts(state: GuardState, config: GuardConfig) -> bool:
    """Return whether the loss rose in the last two spacings already."""
    return state.rose > 0 and state.step - state.rose <= 2 * config.spacing
