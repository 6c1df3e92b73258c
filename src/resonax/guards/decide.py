"""The actions of a guard: test the order of the rows, answer an alarm, or return to a setting.

A rise of the loss is not yet an alarm. A burst of noise ends by itself, and rows selected for their
large loss would do worse than the same rows mixed even if their order did not matter. So a rise is
an alarm only if it is extreme, or large and lasting; otherwise the order of the next rows, which
were not selected by their loss, is tested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from resonax.guards.cause import Cause, find_cause
from resonax.guards.history import Snapshot
from resonax.guards.learner import Candidate, Replayable
from resonax.guards.lost_steps import LostSteps, level_of, lost_steps
from resonax.guards.order_test import FEW, harm_of_order, order_p, significance_of, together
from resonax.guards.phases import Phases
from resonax.guards.replays import IN_NO_ORDER, Choice, Replays, Stretch
from resonax.guards.state import (
    Decision,
    GuardConfig,
    GuardState,
    affords_test,
    early_spread,
    has_risen,
    is_due,
    is_marked,
    is_suspect,
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
_SUSPECT = 0.1  # p at which a test counts as one that found something, for the budget
_ORDERED = 0.1  # p at which batches count as ordered, so that a test may find something
_FEW = 2  # mixed runs with less momentum, to tell the cause


def look(state: GuardState, config: GuardConfig, learner: Replayable) -> tuple[GuardState, bool]:
    """Record the loss of the run if this step is a mark; return the state and whether to `act`."""
    if is_marked(state, config):
        judged = learner.loss(state.reservoir)
        cost = judging_cost(len(state.reservoir))
        state = replace(
            state,
            marked=(*state.marked, judged),
            work=state.work + cost,
            looked=state.looked + cost,
        )
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
        self.paths: list[np.ndarray] = []  # losses of mixed runs of a test
        self.seen: Phases | None = None  # order and rhythm of the batches, once they were looked at

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
        if config.policy == "fastest":
            return self.choose_fastest()
        return self.test()

    def keep_setting(self, **changes: Any) -> GuardState:
        """Continue the run as it is, without a change of setting."""
        return self.continue_from(self.current, marked=(), **changes)

    def continue_from(self, saved: Any, **changes: Any) -> GuardState:
        """Continue from a saved state of the learner."""
        state = replace(
            self.state,
            work=self.state.work + self.work,
            looked=self.state.looked + self.looked,
            **changes,
        )
        self.learner.load(saved)
        self.learner.set(self.config.candidates[state.place])
        return state

    def later(self, more: float = 0.0) -> dict[str, int]:
        """Return when the next test is, given what this one has cost, and of how many steps."""
        period = None if self.seen is None else self.seen.period
        cost = self.work if is_suspect(self.state) else self.looked
        step, length = next_test(self.state, self.config, cost, period)
        quiet = self.state.step + math.ceil(more / self.config.budget)
        step = max(step, -(-quiet // length) * length)
        return {"next_test": step, "length": length}

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
        self.is_urgent = True
        start = self.state.history.snapshots[int(np.argmin(judged))]
        target = min(judged) + _NEAR * _scale(self.state, judged)
        found = self.search(start, target, _KINDS["unclear"], self.state.place + 1)
        if found is None:  # nothing is finite, or nothing is left: the snapshot, and small steps
            kept = [one.is_mixed and not self.may_mix() for one in self.config.candidates]
            found = Choice(len(kept) - 1 - kept[::-1].index(False), start.saved, ())
        stretch = self.stretch(start, seed=4)
        mixed = self.mixed_levels(stretch, 1) if self.affords(stretch.cost) else ()
        return self.change_setting("alarm", start, found, own, mixed)

    def search(
        self, start: Snapshot, target: float, kinds: Sequence[str], first: int = 0
    ) -> Choice | None:
        """Return the first candidate of some kinds that reaches a target, or else the best."""
        candidates, used = self.config.candidates, self.used
        best, least, tried = None, math.inf, ()
        for kind in kinds:
            places = [
                one
                for one in range(first, len(candidates))
                if _kind(candidates[one], used) == kind
                and one != self.state.place
                and (kind != "mix" or self.may_mix())
            ]
            found = self.choose(start, target, places)
            if found is None:
                continue
            tried = (*tried, *found.tried)
            level = self.level_of(found)
            if level < least:
                best, least = found, level
            if level <= target:
                break
        return None if best is None else best._replace(tried=tried)

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
        is_asked = after.is_mixed and self.config.asks and not state.is_allowed
        made = made._replace(why="ask" if is_asked else why)
        self.state = replace(state, decisions=(*state.decisions, made))
        if self.config.policy == "watch" or is_asked:
            # What was found is there to stay: look again in a while.
            later = self.later(self.work)
            return self.keep_setting(recent=(), quiet=later["next_test"], **later)
        return self.continue_from(
            found.saved,
            places=(*state.places, found.place),
            history=state.history.without_snapshots_after(start),
            recent=(),
            marked=(),
            hold=state.step + state.wait,
            wait=2 * state.wait,
            **self.later(),
        )

    def test(self) -> GuardState:
        """Test whether the order of the rows harms; if so, change the setting."""
        state, config = self.state, self.config
        start = self.test_start()
        if state.step - start.step < config.spacing or not self.batches_since(start):
            return self.keep_setting(**self.later())
        stretch = self.stretch(start)
        self.seen = self.learner.rhythm(self.batches_since(state.history.snapshots[0]))
        # Where a stretch has no order to be seen, mixed rows are about the same.
        is_ordered = self.learner.rhythm(stretch.batches).p <= _ORDERED
        if self.seen.p <= _ORDERED and not is_ordered and self.seen.period is None:
            self.seen = self.seen._replace(period=2.0 * len(stretch.batches))
        runs = 2 if self.is_recorded(start) else 3
        cost, share = runs * stretch.cost, 1.0 if is_ordered else IN_NO_ORDER
        if _is_test_of_rise(state, config):
            is_paid = self.affords(cost)
        else:
            is_paid = affords_test(state, config, self.work + cost, state.step, share)
        # Where no order is seen that is an answer; where the budget is spent, there is none.
        self.state = state = replace(state, tests=state.tests + (is_paid or not is_ordered))
        if not is_paid:
            return self.keep_setting(**self.later())
        own = self.own_losses(stretch, start)
        level = float(level_of(stretch.marks, own, stretch.length))
        harm = harm_of_order(
            stretch.marks,
            own,
            self.mixed_paths(stretch),
            significance_of(state.tests - state.earlier, config.significance),
            window=stretch.length,
            least=config.harm,
            before=state.suspicion,
        )
        if harm is None and not level <= stretch.loss_before():
            judged = self.judge_snapshots()
            if _is_high(state, config, level, judged):  # it rose slowly, in any order
                return self.alarm(level, judged)
        if harm is None:
            self.state = replace(state, suspicion=self.suspicion(stretch, own))
            # More mixed runs than a few are trained only if p is small: they, and a test that
            # leaves a suspicion, count as work about a harm.
            if not (is_suspect(state) or is_suspect(self.state)):
                self.looked = self.work - max(0, len(self.paths) - FEW) * stretch.cost
            return self.keep_setting(**self.later())
        self.state = state = replace(state, suspicion=1.0)
        if _is_test_of_rise(state, config):  # the loss was high when this stretch began: go back
            start = state.history.snapshots[int(np.argmin(self.judge_snapshots()))]
            mixed = self.mixed_levels(self.stretch(start), _AGAIN)
            cause, phases = _NO_CAUSE, _NO_PHASES
        else:
            mixed = harm.mixed
            cause, phases = self.find_cause(stretch, harm)
        found = self.remedy(start, level, mixed, cause.word)
        if found is None:
            return self.keep_setting(**self.later(self.work))
        return self.change_setting("order", start, found, level, harm.mixed, harm, cause, phases)

    def mixed_paths(self, stretch: Stretch) -> Iterator[np.ndarray]:
        """Yield the losses at the marks of replays of the rows in random order."""
        for number in range(self.config.mixes):
            self.paths.append(stretch.run(self.used, stretch.shuffled(number)).losses)
            yield self.paths[-1]

    def suspicion(self, stretch: Stretch, own: np.ndarray) -> float:
        """Return the p of a test that found nothing, with that before, if it is small; else 1."""
        if len(self.paths) < 2:
            return 1.0
        lost = lost_steps(stretch.marks, own, np.stack(self.paths), window=stretch.length)
        is_worst = lost.own > max(lost.mixed) and lost.lost >= self.config.harm * lost.steps
        p = together(order_p(lost.own, lost.mixed), self.state.suspicion)
        return p if is_worst and p <= _SUSPECT else 1.0

    def find_cause(self, stretch: Stretch, harm: LostSteps) -> tuple[Cause, Phases]:
        """Return why the order of a stretch harms, and the rhythm and parts of it."""
        self.learner.load(stretch.start)
        self.learner.set(self.used)
        phases = self.learner.phases(stretch.batches)
        self._add_work(len(stretch.batches))
        if phases.period is None and self.seen is not None and self.seen.rows is not None:
            phases = phases._replace(period=self.seen.period, rows=self.seen.rows)
        most = stretch.work + self.left()
        # A run that is near its floor ends above its start by chance; one that fails, far above it.
        harm = replace(harm, start=max(harm.start, (harm.start + harm.own) / 2))
        return find_cause(stretch, harm, phases.parts, most, mixed=_FEW, is_brief=True), phases

    def test_start(self) -> Snapshot:
        """Return the snapshot at which the stretch of this test begins; after a rise, that of it.

        It is not before the setting in use was taken up.
        """
        state, snapshots = self.state, self.state.history.snapshots
        first = state.rose if _is_test_of_rise(state, self.config) else state.returned
        usable = [one for one in snapshots if one.step >= first] or [snapshots[-1]]
        whole = [one for one in usable if state.step - one.step >= state.length]
        return whole[-1] if whole else usable[0]

    def is_recorded(self, start: Snapshot) -> bool:
        """Return whether the run was judged at all marks, on the batches that are held now."""
        state = self.state
        inside = marks(state.step, state.length)
        is_full = inside[0] >= max(self.config.reservoir, start.step)
        return is_full and state.step == state.next_test and len(state.marked) == len(inside)

    def own_losses(self, stretch: Stretch, start: Snapshot) -> np.ndarray:
        """Return the losses of the run at the marks, on the batches that others are judged on.

        It was recorded while the run went on, unless the test was not scheduled or the reservoir
        was not full at the first mark: then the run is replayed.
        """
        if self.is_recorded(start):
            early = [math.nan] * (len(stretch.marks) - len(self.state.marked))
            return np.array([*early, *self.state.marked])
        return stretch.run(self.used, self.in_order(start, self.used)).losses

    def remedy(
        self, start: Snapshot, own: float, mixed: Sequence[float], cause: str | None
    ) -> Choice | None:
        """Return the mildest candidate that does as well as mixed rows, by the cause of the harm.

        Less momentum first, then mixed rows; where the order harms without any momentum mixed rows
        first, then smaller steps; where steps are too large smaller ones first.
        It does as well if its level is no worse than the worst of theirs, and above their mean by
        no more than their deviation, or a tenth of what the order costs. If none does, the best is
        taken if it ends half of the harm.
        """
        if not np.isfinite(mixed).all():  # mixed rows fail as well from here
            return self.search(start, -math.inf, _KINDS["unclear"])
        usual = float(np.mean(mixed))
        near = max(float(np.std(mixed, ddof=1)), (own - usual) / 10)
        target = min(usual + near, max(mixed))
        kinds, place = _KINDS.get(cause or "", ("momentum", "mix")), self.place_of_mixed()
        if place is not None:  # what comes after mixed rows is for runs that may not mix
            kinds = kinds[: kinds.index("mix")]
        found = self.search(start, target, [one for one in kinds if one != "mix"])
        if found is not None and self.level_of(found) <= target:
            return found
        if place is not None:
            return Choice(place, self.state_of_mixed(start), () if found is None else found.tried)
        if found is None:
            return None
        least = self.level_of(found)
        return found if math.isfinite(least) and not own - least < (own - usual) / 2 else None

    def level_of(self, found: Choice) -> float:
        """Return the level that the candidate of a choice reached."""
        return dict(found.tried)[self.config.candidates[found.place]]

    def may_mix(self) -> bool:
        """Return whether the guard may mix rows without asking."""
        return not self.config.asks or self.state.is_allowed

    def place_of_mixed(self) -> int | None:
        """Return the place of the candidate that trains as now, on mixed rows."""
        candidates, like = self.config.candidates, self.used._replace(is_mixed=True)
        places = [one for one, given in enumerate(candidates) if given.is_mixed]
        return next((one for one in places if candidates[one] == like), next(iter(places), None))

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
            return self.keep_setting(**self.later())
        return self.change_setting("fastest", start, found, own)

    def try_previous(self) -> GuardState:
        """Return to the previous candidate if its replay from the oldest snapshot is no worse."""
        state, config = self.state, self.config
        start = self.test_start()
        place = state.places[-2] if len(state.places) > 1 else 0
        previous = config.candidates[place]
        stretch = self.stretch(start)
        if not self.affords(2 * stretch.cost):
            return self.keep_setting(hold=state.step + 2 * state.wait, wait=2 * state.wait)
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
            length=config.spacing,
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
