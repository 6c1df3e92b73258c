"""What a guard by replay does when something is due: judge, replay, choose, and go on."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from resonax.guards import ladder as ladders
from resonax.guards import rises
from resonax.guards.ladder import Snapshot
from resonax.guards.learner import Candidate, Learner
from resonax.guards.order_test import geometric_mean, harm_of_order, level_of
from resonax.guards.replay import (
    Decision,
    ReplayConfig,
    ReplayState,
    has_risen,
    marks,
    may_return,
    next_test,
    trained_on,
)

__all__ = ["act"]


class _Choice(NamedTuple):
    """A candidate, the learner after its replay, and the losses of all that were tried."""

    place: int
    saved: Any
    tried: tuple[tuple[Candidate, float], ...]


def act(state: ReplayState, config: ReplayConfig, learner: Learner) -> ReplayState:
    """Return the state after what is due; the learner is where the run goes on.

    An exception in a replay leaves the learner as it was.
    """
    now = learner.save()
    try:
        return _Moment(state, config, learner, now).act()
    except BaseException:
        learner.load(now)
        learner.set(config.candidates[state.place])
        raise


class _Moment:
    """A moment of a run at which something is due; ``now`` is the learner at it."""

    def __init__(self, state: ReplayState, config: ReplayConfig, learner: Learner, now: Any):
        self.state, self.config, self.learner, self.now = state, config, learner, now
        self.used = config.candidates[state.place]
        self.work = 0.0

    def act(self) -> ReplayState:
        state, config = self.state, self.config
        if state.lost or (self.used.is_mixed and self.may_hold_bad()):
            return self.look_into_lost()
        if has_risen(state, config):
            own, judged = self.judge(), self.judge_snapshots()
            if rises.is_alarm(state, config, own, judged):
                return self.alarm(own, judged)
            self.state = state = rises.after_a_rise(state, config, own, judged)
            if state.step < state.next_test or self.used.is_mixed:
                return self.stay()
        if may_return(state, config):
            return self.go_back()
        return self.choose_fastest() if config.policy == "fastest" else self.test()

    def stay(self, **changes: Any) -> ReplayState:
        """Go on as before."""
        return self.settle(self.now, marked=(), **changes)

    def settle(self, saved: Any, **changes: Any) -> ReplayState:
        """Go on from a saved state of the learner."""
        state = replace(self.state, work=self.state.work + self.work, **changes)
        self.learner.load(saved)
        self.learner.set(self.config.candidates[state.place])
        return state

    def judge(self) -> float:
        if not self.state.reservoir:
            return math.inf
        self.work += len(self.state.reservoir) / 3
        return self.learner.loss(self.state.reservoir)

    def judge_snapshots(self) -> list[float]:
        judged = []
        for snapshot in self.state.ladder.snapshots:
            self.learner.load(snapshot.saved)
            judged.append(self.judge())
        return judged

    def replay(
        self,
        start: Snapshot,
        batches: Iterable[Any],
        candidate: Candidate,
        marked: Collection[int] | None = None,
    ) -> float:
        """Train from a snapshot; the geometric mean of the reservoir loss at the marks.

        There is one batch for each step since the snapshot that was not set aside.
        """
        self.learner.load(start.saved)
        self.learner.set(candidate)
        judged, coming = [], iter(batches)
        marked = marks(self.state.step, self.config.spacing) if marked is None else marked
        for step in range(start.step, self.state.step):
            if step not in self.state.aside:
                self.work += 1
                self.learner.step(next(coming))
            if step + 1 in marked:
                judged.append(self.judge())
        return geometric_mean(judged)

    def replay_in_order(
        self, start: Snapshot, candidate: Candidate, marked: Collection[int] | None = None
    ) -> float:
        """Replay a candidate on the batches as they came."""
        state, first = self.state, self.state.ladder.snapshots[0].step
        made = [
            trained_on(state, self.config, self.learner, candidate, step - first + 1)
            for step in range(start.step, state.step)
            if step not in state.aside
        ]
        return self.replay(start, made, candidate, marked)

    def stretch(self, start: Snapshot) -> list[Any]:
        """Return the batches since a snapshot without those that were set aside."""
        batches = ladders.since(self.state.ladder, start)
        return [one for step, one in enumerate(batches, start.step) if step not in self.state.aside]

    def look_into_lost(self) -> ReplayState:
        """Set batches aside that have no finite loss; if the run has none, undo that.

        Under ``watch`` the run stays as it is, and nothing is done while it has no finite loss.
        """
        start, bad, reservoir = self.find_bad()
        state, spacing = self.state, self.config.spacing
        oldest, before = state.ladder.snapshots[0].step, state.step - len(state.partial)
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
            return self.stay()
        if self.config.policy == "watch":
            self.state = replace(state, is_lost=True)
            return self.stay() if bad else self.alarm(math.inf, self.judge_snapshots())
        ladder = ladders.drop_after(state.ladder, start)
        if bad:
            self.replay_in_order(start, self.used, marked=())
            if not reservoir or math.isfinite(self.judge()):
                return self.settle(self.learner.save(), ladder=ladder, marked=())
        if not reservoir:
            return self.settle(start.saved, ladder=ladder, marked=())
        return self.alarm(math.inf, self.judge_snapshots())

    def may_hold_bad(self) -> bool:
        """Return whether a batch has no finite loss: of mixed rows not all were trained on."""
        kept = [*self.stretch(self.state.ladder.snapshots[0]), *self.state.reservoir]
        self.work += len(kept) / 3
        return not math.isfinite(self.learner.loss(kept))

    def find_bad(self) -> tuple[Snapshot, list[int], tuple[Any, ...]]:
        """Return a snapshot, the steps without a finite loss at it, and the rest of the reservoir.

        It is the newest before the first such step at which any batch has a finite loss. If there
        is none, the batches cannot be told from the weights, and are set aside: at the first step
        of a run that is all one can do.
        """
        state = self.state
        first = state.ladder.snapshots[0].step
        steps: Sequence[int] = [one for one in state.lost if one >= first]
        if self.used.is_mixed:  # a step trains on rows of others
            steps = [one for one in range(first, state.step) if one not in state.aside]
        batches = state.ladder.batches
        suspects = [batches[one - first] for one in steps]
        before = min(state.lost, default=state.step)
        early = [one for one in state.ladder.snapshots if one.step <= before]
        for start in reversed(early):
            self.learner.load(start.saved)
            bad = self.without_loss(suspects)
            lost = self.without_loss(state.reservoir)
            if len(bad) < len(suspects) or len(lost) < len(state.reservoir):
                kept = (one for place, one in enumerate(state.reservoir) if place not in lost)
                return start, [steps[one] for one in bad], tuple(kept)
        return (early or state.ladder.snapshots)[-1], [*steps], ()

    def without_loss(self, batches: Sequence[Any], first: int = 0) -> list[int]:
        """Return the places of batches whose loss is not finite, by bisection."""
        if not batches:
            return []
        self.work += len(batches) / 3
        if math.isfinite(self.learner.loss(batches)):
            return []
        if len(batches) == 1:
            return [first]
        half = len(batches) // 2
        return [
            *self.without_loss(batches[:half], first),
            *self.without_loss(batches[half:], first + half),
        ]

    def choose(self, start: Snapshot, target: float, places: Sequence[int]) -> _Choice | None:
        """Replay candidates in turn; the first that reaches the target, or else the best."""
        best, least, tried = None, math.inf, []
        for place in places:
            loss = self.replay_in_order(start, self.config.candidates[place])
            tried.append((self.config.candidates[place], loss))
            if loss < least:
                best, least = (place, self.learner.save()), loss
            if loss <= target:
                break
        return None if best is None else _Choice(*best, tuple(tried))

    def alarm(self, own: float, judged: list[float]) -> ReplayState:
        """Go back to the best snapshot, and on from there with a safer candidate."""
        start = self.state.ladder.snapshots[int(np.argmin(judged))]
        last = len(self.config.candidates) - 1
        places = range(self.state.place + 1, last + 1)
        found = self.choose(start, self.config.harm * min(judged), places)
        if found is None:  # nothing is finite, or nothing is left: the snapshot, and small steps
            found = _Choice(last, start.saved, ())
        return self.move("alarm", start, found, own, (self.mixed_loss(start),))

    def mixed_loss(self, start: Snapshot) -> float:
        """Replay the rows in a random order."""
        rng = np.random.default_rng([self.config.seed, 4, self.state.step])
        batches = self.learner.mix(self.stretch(start), rng)
        return self.replay(start, batches, self.used)

    def move(
        self,
        why: str,
        start: Snapshot,
        found: _Choice,
        own: float,
        mixed: tuple[float, ...] = (),
        p: float = math.nan,
    ) -> ReplayState:
        """Go on from the end of a replay."""
        state = self.state
        after, rewound = self.config.candidates[found.place], state.step - start.step
        made = Decision(state.step, why, self.used, after, rewound, own, mixed, found.tried, p)
        later = next_test(state, self.config, rewound)
        if self.config.policy == "watch":
            return self.stay(recent=(), next_test=later, decisions=(*state.decisions, made))
        return self.settle(
            found.saved,
            places=(*state.places, found.place),
            ladder=ladders.drop_after(state.ladder, start),
            recent=(),
            marked=(),
            hold=state.step + state.wait,
            wait=2 * state.wait,
            next_test=later,
            decisions=(*state.decisions, made),
        )

    def test(self) -> ReplayState:
        """Ask whether the order of the rows harms; if so, change what is needed."""
        state, config = self.state, self.config
        start = self.test_start()
        batches = self.stretch(start)
        later = next_test(state, config, len(batches))
        if state.step - start.step < config.spacing or not batches:
            return self.stay(next_test=later)
        own = self.own_loss(start)
        self.state = replace(state, tests=state.tests + 1, least=min(state.least, own))
        rng = np.random.default_rng([config.seed, 3, state.step])
        orders = (self.learner.mix(batches, rng) for _ in range(config.mixes))
        harm = harm_of_order(
            own,
            (self.replay(start, one, self.used) for one in orders),
            level_of(self.state.tests - state.earlier, config.level),
            harm=config.harm,
            beyond=config.beyond,
        )
        if harm is None and rises.may_be_high(state, config, own):
            judged = self.judge_snapshots()
            if rises.is_high(state, config, own, judged):  # it rose slowly, in any order
                return self.alarm(own, judged)
        if harm is None:
            return self.stay(next_test=later)
        mixed, p = harm
        if rises.is_tested(state, config):  # the loss was high when this stretch began: go back
            start = state.ladder.snapshots[int(np.argmin(self.judge_snapshots()))]
            found = self.without_harm(start, own, ())
        else:
            found = self.without_harm(start, own, mixed)
        if found is None:
            return self.stay(next_test=later)
        return self.move("order", start, found, own, mixed, p)

    def test_start(self) -> Snapshot:
        """Return the oldest snapshot of the setting in use; after a rise, that of the rise."""
        state, snapshots = self.state, self.state.ladder.snapshots
        first = state.rose if rises.is_tested(state, self.config) else state.returned
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

    def without_harm(self, start: Snapshot, own: float, mixed: Sequence[float]) -> _Choice | None:
        """Return the mildest candidate that does as well as mixed rows do, or else these.

        That is ``reach`` times what they do on average, and no worse than the worst of them.
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
            return _Choice(next(same, mixing[0]), saved, tried)
        helps = min((loss for _, loss in tried), default=math.inf) * self.config.harm < own
        return found if helps else None

    def choose_fastest(self) -> ReplayState:
        """Take the candidate that would have ended lowest on the last stretch."""
        state, start = self.state, self.state.ladder.snapshots[0]
        later = next_test(state, self.config, state.step - start.step)
        own = self.own_loss(start)
        places = [one for one in range(len(self.config.candidates)) if one != state.place]
        found = self.choose(start, 0.0, places)
        if found is None or not min(loss for _, loss in found.tried) < own:
            return self.stay(next_test=later)
        return self.move("fastest", start, found, own)

    def go_back(self) -> ReplayState:
        """Take the candidate before if it would have done as well on the last stretch."""
        state, config = self.state, self.config
        start = state.ladder.snapshots[0]
        place = state.places[-2] if len(state.places) > 1 else 0
        before = config.candidates[place]
        own = self.replay_in_order(start, self.used)
        loss = self.replay_in_order(start, before)
        if loss > own:
            return self.stay(hold=state.step + 2 * state.wait, wait=2 * state.wait)
        tried = ((before, loss),)
        made = Decision(state.step, "return", self.used, before, 0, own, (), tried)
        return self.stay(
            places=state.places[:-1] or (0,),
            hold=state.step + state.wait,
            next_test=state.step + config.spacing,
            returned=state.step,
            earlier=state.tests,
            decisions=(*state.decisions, made),
        )
