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

from resonax.guards.cause import Cause, find_cause
from resonax.guards.history import Snapshot
from resonax.guards.learner import Candidate, Replayable
from resonax.guards.lost_steps import LostSteps, level_of
from resonax.guards.order_test import harm_of_order, significance_of
from resonax.guards.phases import Phases
from resonax.guards.replays import Choice, Replays, Stretch
from resonax.guards.state import (
    Decision,
    GuardConfig,
    GuardState,
    early_spread,
    has_risen,
    is_affordable,
    is_due,
    is_marked,
    judging_cost,
    marks,
    may_return,
    next_test,
    spread_of,
)

__all__ = ["act", "look"]

_NO_CAUSE, _NO_PHASES = Cause(None, ""), Phases()
# What is tried for each cause, and in which order; for others less momentum, then mixed rows.
_KINDS = {
    "forgetting": ("mix", "step", "momentum"),
    "step": ("step", "mix"),
    "phase": ("step", "mix"),
    "resonance": ("momentum", "mix"),
    "unclear": ("momentum", "mix", "step"),
}
_NEAR = 0.25  # of the range of losses, above the least: where a run is safe again
_AGAIN = 4  # mixed runs after a test of a risen loss


def look(state: GuardState, config: GuardConfig, learner: Replayable) -> tuple[GuardState, bool]:
    """Record the loss of the run if this step is a mark; return the state and whether to `act`."""
    if is_marked(state, config):
        judged = learner.loss(state.reservoir)
        work = state.work + judging_cost(len(state.reservoir))
        state = replace(state, marked=(*state.marked, judged), work=work)
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

    def later(self) -> int:
        """Return the step of the next test, given what this one has cost."""
        return next_test(self.state, self.config, self.work)

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
            self.train_again(start)
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
        target = min(judged) + _NEAR * _scale(self.state, judged)
        found = self.choose(start, target, places)
        if found is None:  # nothing is finite, or nothing is left: the snapshot, and small steps
            found = Choice(last, start.saved, ())
        stretch = self.stretch(start, seed=4)
        return self.change_setting("alarm", start, found, own, self.mixed_levels(stretch, 1))

    def mixed_levels(self, stretch: Stretch, count: int) -> tuple[float, ...]:
        """Return the levels of replays of the rows in random order."""
        orders = map(stretch.shuffled, range(count))
        return tuple(stretch.level(self.used, one) for one in orders)

    def change_setting(
        self,
        why: str,
        start: Snapshot,
        found: Choice,
        own: float,
        mixed: tuple[float, ...] = (),
        harm: LostSteps | None = None,
        cause: Cause = _NO_CAUSE,
        phases: Phases = _NO_PHASES,
    ) -> GuardState:
        """Continue from the end of a replay, with its candidate; under ``watch`` only record it."""
        state = self.state
        after, rewound = self.config.candidates[found.place], state.step - start.step
        made = Decision(
            state.step, why, self.used, after, rewound, own, mixed, found.tried, harm,
            cause.word, cause.text, phases.period, phases.rows,
        )  # fmt: skip
        later = self.later()
        if self.config.policy == "watch":  # what was found is there to stay: look again in a while
            quiet = state.step + math.ceil(self.work / self.config.budget)
            return self.keep_setting(
                recent=(), next_test=quiet, quiet=quiet, decisions=(*state.decisions, made)
            )
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
        if state.step - start.step < config.spacing or not self.batches_since(start):
            return self.keep_setting(next_test=self.later())
        stretch = self.stretch(start)
        cost = len(stretch.batches) + judging_cost(len(state.reservoir)) * len(stretch.marks)
        if not is_affordable(state, config, cost) and not self.learner.is_ordered(stretch.batches):
            return self.keep_setting(next_test=next_test(state, config, cost))
        own = self.own_losses(stretch, start)
        self.state = replace(state, tests=state.tests + 1)
        marks, window = stretch.marks, stretch.length
        level = float(level_of(marks, own, window))
        harm = harm_of_order(
            marks,
            own,
            (self.path_mixed(stretch, place) for place in range(config.mixes)),
            significance_of(self.state.tests - state.earlier, config.significance),
            window=window,
            least=config.harm,
        )
        if harm is None and not level <= stretch.loss_before():
            judged = self.judge_snapshots()
            if _is_high(state, config, level, judged):  # it rose slowly, in any order
                return self.alarm(level, judged)
        if harm is None:
            return self.keep_setting(next_test=self.later())
        if _is_test_of_rise(state, config):  # the loss was high when this stretch began: go back
            start = state.history.snapshots[int(np.argmin(self.judge_snapshots()))]
            mixed = self.mixed_levels(self.stretch(start), _AGAIN)
            cause, phases = _NO_CAUSE, _NO_PHASES
        else:
            mixed = harm.mixed
            cause, phases = self.find_cause(stretch, harm)
        found = self.remedy(start, level, mixed, cause.word)
        if found is None:
            return self.keep_setting(next_test=self.later())
        return self.change_setting("order", start, found, level, harm.mixed, harm, cause, phases)

    def find_cause(self, stretch: Stretch, harm: LostSteps) -> tuple[Cause, Phases]:
        """Return why the order of a stretch harms, and the rhythm and parts of it."""
        self.learner.load(stretch.start)
        phases = self.learner.phases(stretch.batches)
        self.work += len(stretch.batches)
        return find_cause(stretch, harm, phases.parts), phases

    def test_start(self) -> Snapshot:
        """Return the oldest snapshot of the setting in use; after a rise, that of the rise."""
        state, snapshots = self.state, self.state.history.snapshots
        first = state.rose if _is_test_of_rise(state, self.config) else state.returned
        return next((one for one in snapshots if one.step >= first), snapshots[-1])

    def own_losses(self, stretch: Stretch, start: Snapshot) -> np.ndarray:
        """Return the losses of the run at the marks, on the batches that others are judged on.

        It was recorded while the run went on, unless the test was not scheduled or the reservoir
        was not full at the first mark: then the run is replayed.
        """
        state, config = self.state, self.config
        inside = [one for one in marks(state.step, config.spacing) if one > start.step]
        is_full = min(inside) >= config.reservoir
        if is_full and state.step == state.next_test and len(state.marked) == len(inside):
            early = [math.nan] * (len(stretch.marks) - len(inside))
            return np.array([*early, *state.marked])
        return stretch.run(self.used, self.in_order(start, self.used)).losses

    def path_mixed(self, stretch: Stretch, number: int) -> np.ndarray:
        """Return the losses at the marks of a replay of the rows in random order."""
        return stretch.run(self.used, stretch.shuffled(number)).losses

    def remedy(
        self, start: Snapshot, own: float, mixed: Sequence[float], cause: str | None
    ) -> Choice | None:
        """Return the mildest candidate that does as well as mixed rows, by the cause of the harm.

        Less momentum first, then mixed rows; where the order harms without any momentum mixed rows
        first, then smaller steps; where steps are too large smaller ones first.
        It does as well if its level is no worse than the worst of theirs, and above their mean by
        no more than their deviation, or a tenth of what the order costs.
        """
        candidates, place = self.config.candidates, self.state.place
        usual = float(np.mean(mixed))
        near = max(float(np.std(mixed, ddof=1)), (own - usual) / 10)
        target = min(usual + near, max(mixed))
        tried: tuple[tuple[Candidate, float], ...] = ()
        best: Choice | None = None
        for kind in _KINDS.get(cause or "", ("momentum", "mix")):
            places = [
                one
                for one in range(len(candidates))
                if _kind(candidates[one], self.used) == kind and one != place
            ]
            if kind == "mix" and places:
                like = self.used._replace(is_mixed=True)
                same = (one for one in places if candidates[one] == like)
                return Choice(next(same, places[0]), self.state_of_mixed(start), tried)
            found = self.choose(start, target, places)
            if found is None:
                continue
            tried = (*tried, *found.tried)
            found = found._replace(tried=tried)
            if tried[-1][1] <= target:
                return found
            if best is None or _least(found.tried, best.place, candidates) > _least(
                found.tried, found.place, candidates
            ):
                best = found
        if best is None:
            return None
        least = _least(tried, best.place, candidates)
        helps = math.isfinite(least) and not own - least < (own - usual) / 2
        return best._replace(tried=tried) if helps else None

    def state_of_mixed(self, start: Snapshot) -> Any:
        """Return the learner after one more replay of the rows in random order."""
        stretch = self.stretch(start, seed=4)
        stretch.run(self.used, stretch.shuffled(0))
        return self.learner.save()

    def choose_fastest(self) -> GuardState:
        """Take the candidate with the lowest loss in a replay from the oldest snapshot."""
        state, start = self.state, self.state.history.snapshots[0]
        stretch = self.stretch(start)
        own = float(level_of(stretch.marks, self.own_losses(stretch, start), stretch.length))
        places = [one for one in range(len(self.config.candidates)) if one != state.place]
        found = self.choose(start, 0.0, places)
        if found is None or not min(loss for _, loss in found.tried) < own:
            return self.keep_setting(next_test=self.later())
        return self.change_setting("fastest", start, found, own)

    def try_previous(self) -> GuardState:
        """Return to the previous candidate if its replay from the oldest snapshot is no worse."""
        state, config = self.state, self.config
        start = state.history.snapshots[0]
        place = state.places[-2] if len(state.places) > 1 else 0
        previous = config.candidates[place]
        stretch = self.stretch(start)
        own = self.level_in_order(stretch, start, self.used)
        loss = self.level_in_order(stretch, start, previous)
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


def _kind(candidate: Candidate, used: Candidate) -> str:
    """Return what a candidate changes."""
    if candidate.is_mixed:
        return "mix"
    if candidate.momentum < used.momentum and candidate.lr >= used.lr:
        return "momentum"
    return "step" if candidate.lr < used.lr else "none"


def _least(
    tried: Sequence[tuple[Candidate, float]], place: int, candidates: Sequence[Candidate]
) -> float:
    """Return the level that a candidate reached."""
    return next(level for one, level in tried if one == candidates[place])


def _is_alarm(state: GuardState, config: GuardConfig, own: float, judged: Sequence[float]) -> bool:
    """Return whether a risen loss is an alarm, given the losses of the snapshots."""
    is_extreme = not _height(state, own, judged) <= config.explodes**2
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


def _is_high(state: GuardState, config: GuardConfig, own: float, judged: Sequence[float]) -> bool:
    """Return whether a loss is far above those of the snapshots."""
    return not _height(state, own, judged) <= config.explodes


def _height(state: GuardState, own: float, judged: Sequence[float]) -> float:
    """Return how far a loss is above the median of the snapshots, over the range of losses."""
    above = own - float(np.median(judged))
    return above / _scale(state, judged) if 0 < above < math.inf else max(0.0, above)


def _scale(state: GuardState, judged: Sequence[float]) -> float:
    """Return the range that losses had, of the snapshots and of the last spacings."""
    return max(spread_of(judged), spread_of(state.recent[:-1]), early_spread(state))


def _lasts(state: GuardState, config: GuardConfig) -> bool:
    """Return whether the loss had already risen within the last two spacings."""
    return state.rose > 0 and state.step - state.rose <= 2 * config.spacing
