"""Going back and training again: what a guard tries out, and what it costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from resonax.guards.history import Snapshot
from resonax.guards.learner import Candidate, Replayable
from resonax.guards.order_test import geometric_mean
from resonax.guards.state import GuardConfig, GuardState, marks, trained_on

__all__ = ["BadBatches", "Choice", "Replays"]


class Choice(NamedTuple):
    """A candidate, the learner after its replay, and the losses of all that were tried."""

    place: int
    saved: Any
    tried: tuple[tuple[Candidate, float], ...]


class BadBatches(NamedTuple):
    """Steps without a finite loss at a snapshot, and the rest of the reservoir."""

    start: Snapshot
    steps: list[int]
    reservoir: tuple[Any, ...]


class Replays:
    """Replays of a run up to the step of a state.

    ``work`` counts what they cost, in steps; a loss without training counts a third of a step. The
    learner is left wherever the last of them ended.
    """

    def __init__(self, state: GuardState, config: GuardConfig, learner: Replayable):
        self.state, self.config, self.learner = state, config, learner
        self.used = config.candidates[state.place]
        self.work = 0.0

    def judge(self) -> float:
        """Return the loss of the learner on the reservoir."""
        if not self.state.reservoir:
            return math.inf
        self.work += len(self.state.reservoir) / 3
        return self.learner.loss(self.state.reservoir)

    def judge_snapshots(self) -> list[float]:
        """Return the loss of each snapshot on the reservoir."""
        judged = []
        for snapshot in self.state.history.snapshots:
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
        state, first = self.state, self.state.history.oldest
        batches = [
            trained_on(state, self.config, self.learner, candidate, step - first + 1)
            for step in range(start.step, state.step)
            if step not in state.aside
        ]
        return self.replay(start, batches, candidate, marked)

    def replay_mixed(self, start: Snapshot, rng: np.random.Generator) -> float:
        """Replay the candidate in use on the same rows in random order."""
        return self.replay(start, self.learner.mix(self.batches_since(start), rng), self.used)

    def batches_since(self, start: Snapshot) -> list[Any]:
        """Return the batches since a snapshot without those that were set aside."""
        batches = self.state.history.since(start)
        return [one for step, one in enumerate(batches, start.step) if step not in self.state.aside]

    def choose(self, start: Snapshot, target: float, places: Sequence[int]) -> Choice | None:
        """Replay candidates in turn; the first that reaches the target, or else the best."""
        best, least, tried = None, math.inf, []
        for place in places:
            loss = self.replay_in_order(start, self.config.candidates[place])
            tried.append((self.config.candidates[place], loss))
            if loss < least:
                best, least = (place, self.learner.save()), loss
            if loss <= target:
                break
        return None if best is None else Choice(*best, tuple(tried))

    def may_hold_bad(self) -> bool:
        """Return whether a batch has no finite loss: of mixed rows not all were trained on."""
        kept = [*self.batches_since(self.state.history.snapshots[0]), *self.state.reservoir]
        self.work += len(kept) / 3
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
        self.work += len(batches) / 3
        if math.isfinite(self.learner.loss(batches)):
            return []
        if len(batches) == 1:
            return [first]
        half = len(batches) // 2
        return [
            *self._without_loss(batches[:half], first),
            *self._without_loss(batches[half:], first + half),
        ]
