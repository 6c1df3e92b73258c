"""The actions of a guard: test the order of the rows, answer an alarm, or return to a setting.

A rise of the loss is not yet an alarm. A burst of noise ends by itself, and rows selected for their
large loss would do worse than the same rows mixed even if their order did not matter. So a rise is
an alarm only if it is extreme, or large and lasting; otherwise the order of the next rows, which
were not selected by their loss, is tested.
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
    """Record the loss of the run if this step is a mark; return the state and whether to `act`."""
    if is_marked(state, config):
        loss = learner.loss(state.reservoir)
        work = state.work + len(state.reservoir) / 3  # a loss counts as a third of a step
        state = replace(state, marked=(*state.marked, loss), work=work)
    return state, is_due(state, config)


def act(state: GuardState, config: GuardConfig, learner: Replayable) -> GuardState:
    """Do what is due; return the new state, and leave the learner where the run continues.

    An exception in a replay leaves the learner as it was.
    """
    saved = learner.save()
    try:
        return _Action(state, config, learner, saved).act()
    except BaseException:
        learner.load(saved)
        learner.set(config.candidates[state.place])
        raise


class _Action(Replays):
    """What a guard does at one step of a run; ``current`` is the saved learner at this step."""

    def __init__(self, state: GuardState, config: GuardConfig, learner: Replayable, current: Any):
        super().__init__(state, config, learner)
        self.current = current

    def act(self) -> GuardState:
        state, config = self.state, self.config
        if state.lost or (self.used.is_mixed and self.may_hold_bad()):
            return self.examine_lost()
        if has_risen(state, config):
            own, judged = self.judge(), self.judge_snapshots()
            if _is_alarm(state, config, own, judged):
                return self.alarm(own, judged)
            self.state = state = _schedule_test(state, config, own, judged)
            if state.step < state.next_test or self.used.is_mixed:
                return self.keep_setting()
        if may_return(state, config):
            return self.try_previous()
        return self.choose_fastest() if config.policy == "fastest" else self.test()

    def keep_setting(self, **changes: Any) -> GuardState:
        """Continue the run as it is, without a change of setting."""
        return self.continue_from(self.current, marked=(), **changes)

    def continue_from(self, saved: Any, **changes: Any) -> GuardState:
        """Continue from a saved state of the learner."""
        state = replace(self.state, work=self.state.work + self.work, **changes)
        self.learner.load(saved)
        self.learner.set(self.config.candidates[state.place])
        return state

    def examine_lost(self) -> GuardState:
        """Set aside batches without a finite loss, and train again without them if they harmed.

        If the run has no finite loss even so, that is an alarm. Under ``watch`` the run is not
        changed, and not examined again while its loss is not finite.
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
        self.learner.load(self.current)
        if math.isfinite(self.judge()):  # a gradient scaler may have skipped the update
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
        """Go back to the best snapshot, and continue from there with a safer candidate."""
        start = self.state.history.snapshots[int(np.argmin(judged))]
        last = len(self.config.candidates) - 1
        places = range(self.state.place + 1, last + 1)
        found = self.choose(start, self.config.harm * min(judged), places)
        if found is None:  # no candidate is left or has a finite loss: take the safest
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
        """Continue from the end of a replay, with its candidate; under ``watch`` only record it."""
        state = self.state
        after, rewound = self.config.candidates[found.place], state.step - start.step
        decision = Decision(state.step, why, self.used, after, rewound, own, mixed, found.tried, p)
        decisions = (*state.decisions, decision)
        later = next_test(state, self.config, rewound)
        if self.config.policy == "watch":
            return self.keep_setting(recent=(), next_test=later, decisions=decisions)
        return self.continue_from(
            found.saved,
            places=(*state.places, found.place),
            history=state.history.without_snapshots_after(start),
            recent=(),
            marked=(),
            hold=state.step + state.wait,
            wait=2 * state.wait,
            next_test=later,
            decisions=decisions,
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
            if _is_high(state, config, own, judged):  # a slow rise, whatever the order
                return self.alarm(own, judged)
        if harm is None:
            return self.keep_setting(next_test=later)
        mixed, p = harm
        if _is_test_of_rise(state, config):  # the loss was high at its start: go back further
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
        first = state.rose if _is_test_of_rise(state, self.config) else state.returned
        return next((one for one in snapshots if one.step >= first), snapshots[-1])

    def own_loss(self, start: Snapshot) -> float:
        """Return the mean loss of the run at the marks, on the same batches as that of mixed runs.

        It was recorded while the run went on, unless the test was not scheduled or the reservoir
        was not full at the first mark: then the run is replayed.
        """
        state, config = self.state, self.config
        inside = [mark for mark in marks(state.step, config.spacing) if mark > start.step]
        was_full = min(inside) >= config.reservoir
        was_scheduled = state.step == state.next_test and len(state.marked) == len(inside)
        if was_full and was_scheduled:
            return geometric_mean(state.marked)
        return self.replay_in_order(start, self.used)

    def remedy(self, start: Snapshot, own: float, mixed: Sequence[float]) -> Choice | None:
        """Return the first later candidate that does as well as mixed rows, or else one that mixes.

        Candidates are ordered from mild to safe. One does as well if its loss is at most ``reach``
        times the mean of the mixed runs, and at most that of the worst of them. If no candidate
        mixes rows, the best one is returned if it is clearly better than the run, else None.
        """
        candidates, place = self.config.candidates, self.state.place
        places = [one for one in range(place + 1, len(candidates)) if not candidates[one].is_mixed]
        mean = geometric_mean([*mixed, self.mixed_loss(start)])
        target = min(self.config.reach * mean, max(mixed, default=math.inf))
        saved = self.learner.save()  # the end of the mixed run
        found = self.choose(start, target, places)
        if found is not None and found.tried[-1][1] <= target:
            return found
        tried = () if found is None else found.tried
        mixing = [one for one in range(len(candidates)) if candidates[one].is_mixed]
        if mixing:  # if possible with the step size and momentum in use
            same = [one for one in mixing if candidates[one] == self.used._replace(is_mixed=True)]
            return Choice((same or mixing)[0], saved, tried)
        least = min((loss for _, loss in tried), default=math.inf)
        return found if least * self.config.harm < own else None

    def choose_fastest(self) -> GuardState:
        """Take the candidate with the lowest loss in a replay from the oldest snapshot."""
        state, start = self.state, self.state.history.snapshots[0]
        later = next_test(state, self.config, state.step - start.step)
        own = self.own_loss(start)
        places = [one for one in range(len(self.config.candidates)) if one != state.place]
        found = self.choose(start, 0.0, places)
        if found is None or not min(loss for _, loss in found.tried) < own:
            return self.keep_setting(next_test=later)
        return self.change_setting("fastest", start, found, own)

    def try_previous(self) -> GuardState:
        """Return to the previous candidate if its replay from the oldest snapshot is no worse."""
        state, config = self.state, self.config
        start = state.history.snapshots[0]
        place = state.places[-2] if len(state.places) > 1 else 0
        previous = config.candidates[place]
        own = self.replay_in_order(start, self.used)
        loss = self.replay_in_order(start, previous)
        if loss > own:
            return self.keep_setting(hold=state.step + 2 * state.wait, wait=2 * state.wait)
        tried = ((previous, loss),)
        decision = Decision(state.step, "return", self.used, previous, 0, own, (), tried)
        return self.keep_setting(
            places=state.places[:-1] or (0,),
            hold=state.step + state.wait,
            next_test=state.step + config.spacing,
            returned=state.step,
            earlier=state.tests,
            decisions=(*state.decisions, decision),
        )


def _is_alarm(state: GuardState, config: GuardConfig, own: float, judged: Sequence[float]) -> bool:
    """Return whether a rise of the loss is an alarm, given the losses of the snapshots."""
    is_extreme = not own <= config.explodes**2 * float(np.median(judged))
    return is_extreme or (_is_high(state, config, own, judged) and _lasts(state, config))


def _schedule_test(
    state: GuardState, config: GuardConfig, own: float, judged: Sequence[float]
) -> GuardState:
    """Return the state after a rise of the loss, with a test at most two spacings later."""
    rose = state.rose if _lasts(state, config) else state.step
    soon = min(state.next_test, rose + 2 * config.spacing)
    recent = state.recent[:-1] if _is_high(state, config, own, judged) else state.recent[-1:]
    return replace(state, recent=recent, next_test=soon, rose=rose)


def _is_test_of_rise(state: GuardState, config: GuardConfig) -> bool:
    """Return whether a test at this step is of the rows since the loss rose."""
    return state.rose > 0 and state.step == state.rose + 2 * config.spacing


def _may_be_high(state: GuardState, config: GuardConfig, own: float) -> bool:
    """Return whether `_is_high` is possible: if not, the snapshots need not be evaluated."""
    return _is_far(state, config, own) or _has_start(state)


def _is_high(state: GuardState, config: GuardConfig, own: float, judged: Sequence[float]) -> bool:
    """Return whether a loss is far above the losses of the snapshots.

    It is if it is far above one of these:

    - their median;
    - their least, provided it is also far above the least loss of all tests, which alone is no
      evidence: it was measured on other, perhaps easier, rows;
    - the first, while this is the start of the run: then training did harm, in whatever order.
    """
    limits = [config.explodes * float(np.median(judged))]
    if _is_far(state, config, own):
        limits.append(config.explodes * min(judged))
    if _has_start(state):
        limits.append(config.spoils * judged[0])
    return not own <= min(limits)


def _is_far(state: GuardState, config: GuardConfig, own: float) -> bool:
    """Return whether a loss is far above the least loss of the tests so far."""
    return not own <= 3 * config.explodes * state.least


def _has_start(state: GuardState) -> bool:
    """Return whether the oldest snapshot is the start of the run."""
    return state.history.oldest == 0


def _lasts(state: GuardState, config: GuardConfig) -> bool:
    """Return whether the loss had already risen within the last two spacings."""
    return state.rose > 0 and state.step - state.rose <= 2 * config.spacing
