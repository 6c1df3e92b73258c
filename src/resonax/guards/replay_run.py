"""One run that is guarded by replay, step by step, whatever it trains."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from resonax.guards import replay
from resonax.guards.decision_log import Judged, record
from resonax.guards.learner import Candidate, Learner
from resonax.guards.replay import ReplayConfig, ReplayState
from resonax.guards.replay_report import ReplayReport, event_of, replay_report
from resonax.guards.report import Event, ResonanceWarning
from resonax.guards.rhythm import dominant_period

__all__ = [
    "ReplayLearner",
    "ReplayRun",
    "announce",
    "as_candidates",
    "finish",
    "init",
    "is_pending",
    "report",
    "sized",
    "step",
]

_LOGGER = logging.getLogger("resonax")
_ROWS = 128  # least rows of the reservoir
_COPIES = 3  # of the learner that a replay holds for a while


class ReplayLearner(Learner, Protocol):
    """A learner that also knows what a report needs."""

    def summary(self, batch: Any) -> np.ndarray:
        """Return a few numbers of a batch, in which a rhythm is looked for."""
        ...

    def saved_size(self, saved: Any) -> int:
        """Return the bytes that a copy takes."""
        ...


@dataclass(frozen=True)
class ReplayRun:
    """A guarded run between two steps: what is decided from, and what is told.

    ``losses`` are mean losses, one for each spacing; ``judged`` all losses on the reservoir that
    were asked for; ``memory`` is the most that snapshots and batches took, in bytes.
    """

    config: ReplayConfig
    state: ReplayState
    losses: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()
    judged: tuple[Judged, ...] = ()
    memory: int = 0

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self.config.candidates[self.state.place]


def as_candidates(given: Iterable[float | Candidate]) -> tuple[Candidate, ...]:
    """Return candidates, where a number is a momentum."""
    return tuple(one if isinstance(one, Candidate) else Candidate(float(one)) for one in given)


def init(config: ReplayConfig) -> ReplayRun:
    """Return a run that begins."""
    return ReplayRun(config.checked(), replay.init(config))


def sized(run: ReplayRun, rows: int) -> ReplayRun:
    """Return a run that begins with a reservoir for batches of so many rows."""
    if run.state.step:
        return run
    reservoir = max(run.config.reservoir, -(-_ROWS // rows))
    return replace(run, config=replace(run.config, reservoir=reservoir))


def step(run: ReplayRun, learner: ReplayLearner, batch: Any) -> tuple[ReplayRun, Any]:
    """Train the learner on a batch; the run after it, not looked at yet, and the loss."""
    config = run.config
    state = replay.before_step(run.state, config, learner, batch)
    used = config.candidates[state.place]
    learner.set(used)
    count = len(state.ladder.batches)
    loss = learner.step(replay.trained_on(state, config, learner, used, count))
    state = replay.count_step(state, config, loss)
    made = replace(run, state=state)
    if state.step % config.spacing:
        return made, loss
    memory = max(run.memory, _size(state, learner, 0))
    return replace(made, losses=(*run.losses, state.recent[-1]), memory=memory), loss


def is_pending(run: ReplayRun) -> bool:
    """Return whether `finish` has something to do after a step."""
    return replay.is_marked(run.state, run.config) or replay.is_due(run.state, run.config)


def finish(run: ReplayRun, learner: ReplayLearner) -> ReplayRun:
    """Look at a run after a step and do what is due; the learner is where the run goes on."""
    if not is_pending(run):
        return run
    state, judged = record(run.state, run.config, learner)
    new = state.decisions[len(run.state.decisions) :]
    period = _period(state, learner) if new else None
    events = tuple(event_of(one, run.config.policy, period) for one in new)
    memory = max(run.memory, _size(state, learner, _COPIES))
    return replace(
        run,
        state=state,
        events=(*run.events, *events),
        judged=(*run.judged, *judged),
        memory=memory,
    )


def _size(state: ReplayState, learner: ReplayLearner, copies: int) -> int:
    """Return the bytes of snapshots and batches, and of some copies of the newest snapshot."""
    inside = {id(one) for one in state.ladder.batches}
    outside = sum(learner.size(one) for one in state.reservoir if id(one) not in inside)
    saved = [learner.saved_size(one.saved) for one in state.ladder.snapshots]
    return state.ladder.size + outside + sum(saved) + copies * max(saved, default=0)


def _period(state: ReplayState, learner: ReplayLearner) -> float | None:
    rows = [learner.summary(batch) for batch in state.ladder.batches]
    return dominant_period(np.stack(rows)) if rows else None


def report(run: ReplayRun, learner: ReplayLearner) -> ReplayReport:
    """Return what is known of a run."""
    return replay_report(
        run.state,
        run.config,
        memory=max(run.memory, _size(run.state, learner, 0)),
        period=_period(run.state, learner),
        losses=run.losses,
        events=run.events,
        judged=run.judged,
    )


def announce(events: Sequence[Event], stacklevel: int = 3) -> None:
    """Warn of a resonance that is only watched; log what was changed."""
    for event in events:
        if event.kind == "resonance":
            text = f"step {event.step}: {event.text}"
            warnings.warn(text, ResonanceWarning, stacklevel=stacklevel)
        else:
            _LOGGER.warning("step %d: %s", event.step, event.text)
