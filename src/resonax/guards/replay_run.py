"""One run that is guarded by replay, step by step, whatever it trains."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from resonax.guards import replay
from resonax.guards.learner import Candidate, Learner
from resonax.guards.replay import ReplayConfig, ReplayState
from resonax.guards.replay_report import ReplayReport, event_of, replay_report
from resonax.guards.report import Event, ResonanceWarning
from resonax.guards.rewind import act
from resonax.guards.rhythm import dominant_period

__all__ = [
    "ReplayLearner",
    "ReplayRun",
    "act_on",
    "announce",
    "as_candidates",
    "init",
    "report",
    "sized",
    "step",
]

_LOGGER = logging.getLogger("resonax")
_ROWS = 128  # least rows of the reservoir


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

    ``losses`` are mean losses, one for each spacing; ``memory`` is the most that snapshots and
    batches took, in bytes.
    """

    config: ReplayConfig
    state: ReplayState
    losses: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()
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


def step(run: ReplayRun, learner: ReplayLearner, batch: Any) -> tuple[ReplayRun, Any, bool]:
    """Train the learner on a batch; the run after it, the loss, and whether something is due."""
    config = run.config
    state = replay.before_step(run.state, config, learner, batch)
    used = config.candidates[state.place]
    learner.set(used)
    count = len(state.ladder.batches)
    loss = learner.step(replay.trained_on(state, config, learner, used, count))
    state, is_due = replay.after_step(state, config, learner, loss)
    losses, memory = run.losses, run.memory
    if state.step % config.spacing == 0:
        losses = (*losses, state.recent[-1])
        memory = max(memory, _size(state, learner))
    return ReplayRun(config, state, losses, run.events, memory), loss, is_due


def act_on(run: ReplayRun, learner: ReplayLearner) -> ReplayRun:
    """Do what is due after a step; the learner is where the run goes on."""
    state = act(run.state, run.config, learner)
    new = state.decisions[len(run.state.decisions) :]
    period = _period(state, learner) if new else None
    events = tuple(event_of(one, run.config.policy, period) for one in new)
    return replace(run, state=state, events=(*run.events, *events))


def _size(state: ReplayState, learner: ReplayLearner) -> int:
    saved = (learner.saved_size(one.saved) for one in state.ladder.snapshots)
    return state.ladder.size + sum(saved)


def _period(state: ReplayState, learner: ReplayLearner) -> float | None:
    rows = [learner.summary(batch) for batch in state.ladder.batches]
    return dominant_period(np.stack(rows)) if rows else None


def report(run: ReplayRun, learner: ReplayLearner) -> ReplayReport:
    """Return what is known of a run."""
    return replay_report(
        run.state,
        run.config,
        memory=max(run.memory, _size(run.state, learner)),
        period=_period(run.state, learner),
        losses=run.losses,
        events=run.events,
    )


def announce(events: Sequence[Event], stacklevel: int = 3) -> None:
    """Warn of a resonance that is only watched; log what was changed."""
    for event in events:
        if event.kind == "resonance":
            text = f"step {event.step}: {event.text}"
            warnings.warn(text, ResonanceWarning, stacklevel=stacklevel)
        else:
            _LOGGER.warning("step %d: %s", event.step, event.text)
