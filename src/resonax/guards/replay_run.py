"""One run that is guarded by replay, step by step, whatever it trains."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from resonax.guards import replay
from resonax.guards.decision_log import Judged, record
from resonax.guards.learner import Candidate, Learner
from resonax.guards.replay import ReplayConfig, ReplayState
from resonax.guards.replay_report import ReplayReport, aside_event, event_of, replay_report
from resonax.guards.report import WARNED, Event, ResonanceWarning
from resonax.guards.rhythm import dominant_period

__all__ = [
    "ReplayLearner",
    "ReplayRun",
    "announce",
    "as_candidates",
    "begin",
    "count",
    "finish",
    "init",
    "is_pending",
    "report",
    "sized",
    "step",
    "trained_on",
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

    def replay_size(self, saved: Sequence[Any], batches: Sequence[Any]) -> int:
        """Return the bytes that a replay took beyond the copies of snapshots.

        ``batches`` are those that it was judged on.
        """
        ...


@dataclass(frozen=True)
class ReplayRun:
    """A guarded run between two steps: what is decided from, and what is told.

    ``losses`` are mean losses, one for each spacing, of its finite ones; ``judged`` all losses
    on the reservoir that were asked for; ``memory`` is the most that snapshots and batches
    took, in bytes.
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
    run = begin(run, learner)
    loss = learner.step(trained_on(run, learner, batch))
    return count(run, learner, (batch,), (loss,)), loss


def begin(run: ReplayRun, learner: ReplayLearner) -> ReplayRun:
    """Return the run before a step, with a snapshot if it is time for one."""
    learner.set(run.setting)
    state = replay.with_snapshot(run.state, run.config, learner)
    return run if state is run.state else replace(run, state=state)


def trained_on(run: ReplayRun, learner: ReplayLearner, batch: Any) -> Any:
    """Return what a step trains on when a batch has come: it, or mixed rows of recent ones."""
    config, used = run.config, run.setting
    if not used.is_mixed:
        return batch
    state = replay.with_batches(run.state, config, learner, (batch,))
    return replay.trained_on(state, config, learner, used, len(state.ladder.batches))


def count(
    run: ReplayRun, learner: ReplayLearner, batches: Sequence[Any], losses: Sequence[Any]
) -> ReplayRun:
    """Return the run after steps, not looked at yet; only the last may complete a spacing."""
    config, before = run.config, run.state.recent
    state = replay.with_batches(run.state, config, learner, batches)
    state = replay.count_steps(state, config, losses)
    if state.step % config.spacing:
        return replace(run, state=state)
    mean = math.nan if state.recent is before else state.recent[-1]
    memory = _most(run.memory, state, learner)
    return replace(run, state=state, losses=(*run.losses, mean), memory=memory)


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
    if state.set_aside and not run.state.set_aside:
        events = (aside_event(state, run.config.policy), *events)
    copies = [one.saved for one in run.state.ladder.snapshots]
    extra = learner.replay_size(copies, run.state.reservoir)
    return replace(
        run,
        state=state,
        events=(*run.events, *events),
        judged=(*run.judged, *judged),
        memory=_most(run.memory, run.state, learner, extra),
    )


def _most(memory: int, state: ReplayState, learner: ReplayLearner, extra: int = 0) -> int:
    """Return the most bytes so far, with those of snapshots, batches and others now."""
    copies = sum(learner.saved_size(one.saved) for one in state.ladder.snapshots)
    sizes = {id(one): learner.size(one) for one in state.reservoir}
    held = state.ladder.size + copies + extra
    if held + sum(sizes.values()) <= memory:
        return memory
    for one in state.ladder.batches:
        sizes.pop(id(one), None)  # those are counted already
    return max(memory, held + sum(sizes.values()))


def _period(state: ReplayState, learner: ReplayLearner) -> float | None:
    rows = [learner.summary(batch) for batch in state.ladder.batches]
    return dominant_period(np.stack(rows)) if rows else None


def report(run: ReplayRun, learner: ReplayLearner) -> ReplayReport:
    """Return what is known of a run."""
    return replay_report(
        run.state,
        run.config,
        memory=_most(run.memory, run.state, learner),
        period=_period(run.state, learner),
        losses=run.losses,
        events=run.events,
        judged=run.judged,
    )


def announce(events: Sequence[Event], stacklevel: int = 3) -> None:
    """Warn of what the user should act on; log what was changed."""
    for event in events:
        if event.kind in WARNED:
            text = f"step {event.step}: {event.text}"
            warnings.warn(text, ResonanceWarning, stacklevel=stacklevel)
        else:
            _LOGGER.warning("step %d: %s", event.step, event.text)
