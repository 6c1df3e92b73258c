"""Going back and training again: what a guard tries out, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from resonax.guards.history import Snapshot
from resonax.guards.learner import Candidate, Replayable
from resonax.guards.lost_steps import level_of
from resonax.guards.state import (
    GuardConfig,
    GuardState,
    judging_cost,
    marks,
    repair_allowance,
    trained_on,
)
from resonax.guards.trials import Run, Trials

__all__ = ["IN_NO_ORDER", "BadBatches", "Choice", "Replays", "Stretch"]

IN_NO_ORDER = 0.25  # of what tests may cost, where batches come in no order that can be seen


class Choice(NamedTuple):
    """A candidate, the learner after its replay, and the levels of all that were tried."""

    place: int
    saved: Any
    tried: tuple[tuple[Candidate, float], ...]


class BadBatches(NamedTuple):
    """Steps without a finite loss at a snapshot, and the rest of the reservoir."""

    start: Snapshot
    steps: list[int]
    reservoir: tuple[Any, ...]


class Stretch(Trials):
    """Runs from a snapshot to now, of which nothing but judged losses decides.

    So all that a guard decides follows from the losses in its log.
    """

    def run(
        self, candidate: Candidate, batches: Iterable[Any], judged: Sequence[Any] | None = None
    ) -> Run:
        """Train on batches; what comes after a loss that is not finite is infinite."""
        chosen = self.judged if judged is None else judged
        learner, losses, coming, last = self.learner, [], iter(batches), 0
        learner.load(self.start)
        learner.set(candidate)
        for mark in self.marks:
            if math.inf in losses:
                losses.append(math.inf)
                continue
            for _ in range(mark - last):
                learner.step(next(coming))
            self._count(mark - last)
            last = mark
            losses.append(self._judge(chosen) if mark else self._before(chosen))
        return Run(np.array(losses), max(losses))

    def _judge(self, judged: Sequence[Any]) -> float:
        self._count(judging_cost(len(judged)))
        return self.learner.loss(judged)

    def _before(self, judged: Sequence[Any]) -> float:
        """Return the loss at the snapshot, which is the same for all runs."""
        if judged is not self.judged:
            return self._judge(judged)
        if self._first is None:
            self._first = self._judge(judged)
        return self._first

    def loss_before(self) -> float:
        """Return the loss at the snapshot."""
        if self._first is None:
            self.learner.load(self.start)
        return self._before(self.judged)

    _first: float | None = None

    @property
    def length(self) -> float:
        """Steps at the end over which levels are taken."""
        return self.marks[-1] / 4 if self.window is None else self.window

    @property
    def cost(self) -> float:
        """Steps that a run takes."""
        return self.marks[-1] + judging_cost(len(self.judged)) * len(self.marks[1:])

    def level(self, candidate: Candidate, batches: Iterable[Any]) -> float:
        """Return the mean loss of a run over the last steps."""
        return float(level_of(self.marks, self.run(candidate, batches).losses, self.length))


class Replays:
    """Replays of a run up to the step of a state.

    ``work`` counts what they cost, in steps; a loss without training counts a third of a step.
    ``looked`` is that of a test which found nothing. The learner is left wherever the last of them
    ended.
    """

    def __init__(self, state: GuardState, config: GuardConfig, learner: Replayable):
        self.state, self.config, self.learner = state, config, learner
        self.used = config.candidates[state.place]
        self.work = self.looked = 0.0
        self.is_urgent = False  # a run that diverges is brought back whatever it costs

    def affords(self, cost: float) -> bool:
        """Return whether work about a harm fits into what the budget allows for it."""
        return self.is_urgent or cost <= self.left()

    def left(self) -> float:
        """Return the steps that the budget still allows for what is done about a harm."""
        done = self.state.work - self.state.looked + self.work - self.looked
        return repair_allowance(self.state.step, self.config) - done

    def judge(self) -> float:
        """Return the loss of the learner on the reservoir."""
        if not self.state.reservoir:
            return math.inf
        self._add_work(judging_cost(len(self.state.reservoir)))
        return self.learner.loss(self.state.reservoir)

    def judge_snapshots(self) -> list[float]:
        """Return the loss of each snapshot on the reservoir."""
        judged = []
        for snapshot in self.state.history.snapshots:
            self.learner.load(snapshot.saved)
            judged.append(self.judge())
        return judged

    def stretch(self, start: Snapshot, seed: int = 3) -> Stretch:
        """Return runs from a snapshot, on the batches since it that were not set aside."""
        state, config = self.state, self.config
        steps = state.step - start.step
        length = min(state.length, steps) if state.step == state.next_test else steps
        late = {one - start.step for one in marks(state.step, length)}
        path = {0, steps // 8}
        aside = [one - start.step for one in state.aside if one >= start.step]

        def kept(step: int) -> int:
            return step - sum(one < step for one in aside)

        return Stretch(
            self.learner,
            start.saved,
            self.batches_since(start),
            state.reservoir,
            sorted({kept(one) for one in late | path}),
            self.used,
            is_averaging=config.is_averaging,
            window=kept(steps) - kept(min(late)) + 0.5,
            seed=(config.seed << 64) + (seed << 48) + state.step,
            advance=self._add_work,
        )

    def _add_work(self, work: float) -> None:
        self.work += work

    def in_order(self, start: Snapshot, candidate: Candidate) -> list[Any]:
        """Return what a candidate trains on in the order in which batches came."""
        state, first = self.state, self.state.history.oldest
        return [
            trained_on(state, self.config, self.learner, candidate, step - first + 1)
            for step in range(start.step, state.step)
            if step not in state.aside
        ]

    def level_in_order(self, stretch: Stretch, start: Snapshot, candidate: Candidate) -> float:
        """Return the level of a candidate on the batches as they came."""
        return stretch.level(candidate, self.in_order(start, candidate))

    def train_again(self, start: Snapshot) -> None:
        """Train on the batches since a snapshot without judging."""
        self.learner.load(start.saved)
        self.learner.set(self.used)
        for batch in self.in_order(start, self.used):
            self.learner.step(batch)
            self._add_work(1)

    def batches_since(self, start: Snapshot) -> list[Any]:
        """Return the batches since a snapshot without those that were set aside."""
        batches = self.state.history.since(start)
        return [one for step, one in enumerate(batches, start.step) if step not in self.state.aside]

    def choose(self, start: Snapshot, target: float, places: Sequence[int]) -> Choice | None:
        """Replay candidates; the mildest that reaches the target, or else the best.

        It is found by bisection: of candidates of one kind a stronger one does as well. What the
        budget does not allow is not tried.
        """
        best, least, tried, stretch = None, math.inf, [], self.stretch(start)
        low, high = 0, len(places)
        while low < high and self.affords(stretch.cost):
            middle = (low + high) // 2
            place = places[middle]
            level = self.level_in_order(stretch, start, self.config.candidates[place])
            tried.append((self.config.candidates[place], level))
            if level <= target or (least > target and level < least):
                best, least = (place, self.learner.save()), level
            low, high = (low, middle) if level <= target else (middle + 1, high)
        return None if best is None else Choice(*best, tuple(tried))

    def may_hold_bad(self) -> bool:
        """Return whether a batch has no finite loss: of mixed rows not all were trained on."""
        kept = [*self.batches_since(self.state.history.snapshots[0]), *self.state.reservoir]
        self._add_work(len(kept) / 3)
        return not math.isfinite(self.learner.loss(kept))

    def find_bad(self) -> BadBatches:
        """Return the batches that have no finite loss, at a snapshot that gives others one.

        It is the newest before the first such step at which any batch has a finite loss. If there
        is none, the batches cannot be told from the weights, and are set aside: at the first step
        of a run that is all one can do.
        """
        state, first = self.state, self.state.history.oldest
        steps: Sequence[int] = [one for one in state.lost if one >= first]
        if self.used.is_mixed:  # a step trains on rows of others
            steps = [one for one in range(first, state.step) if one not in state.aside]
        suspects = [state.history.batches[one - first] for one in steps]
        before = min(state.lost, default=state.step)
        early = [one for one in state.history.snapshots if one.step <= before]
        for start in reversed(early):
            self.learner.load(start.saved)
            bad = self._without_loss(suspects)
            lost = self._without_loss(state.reservoir)
            if len(bad) < len(suspects) or len(lost) < len(state.reservoir):
                kept = (one for place, one in enumerate(state.reservoir) if place not in lost)
                return BadBatches(start, [steps[one] for one in bad], tuple(kept))
        return BadBatches((early or state.history.snapshots)[-1], [*steps], ())

    def _without_loss(self, batches: Sequence[Any], first: int = 0) -> list[int]:
        """Return the places of batches whose loss is not finite, by bisection."""
        if not batches:
            return []
        self._add_work(len(batches) / 3)
        if math.isfinite(self.learner.loss(batches)):
            return []
        if len(batches) == 1:
            return [first]
        half = len(batches) // 2
        return [
            *self._without_loss(batches[:half], first),
            *self._without_loss(batches[half:], first + half),
        ]
