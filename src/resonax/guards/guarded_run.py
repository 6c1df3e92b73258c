"""A guarded run: a state machine of `init` and `update`, whatever it trains.

An adapter of a framework gives a learner that can be replayed, and calls `update` with each batch:
`begin` before the step, the learner's own step on what `trained_on` returns, `count_step` with its
loss, and `finish`, which tests, replays and chooses. Who steps the learner in a loop of its own
calls these four.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from resonax.guards import state as states
from resonax.guards.decision_log import DecisionLog, Judged, record
from resonax.guards.learner import Candidate, Replayable
from resonax.guards.report import Event, GuardReport, aside_event, event_of
from resonax.guards.state import GuardConfig, GuardState

__all__ = [
    "GuardedRun",
    "allow_mixing",
    "begin",
    "count_step",
    "finish",
    "init",
    "is_pending",
    "report",
    "trained_on",
    "update",
    "with_reservoir",
]

_ROWS = 128  # least rows of the reservoir


@dataclass(frozen=True)
class GuardedRun:
    """A guarded run between two steps: what is decided from, and what is reported.

    ``losses`` are mean losses, one for each spacing, of its finite ones; ``judged`` all losses
    on the reservoir that were asked for; ``memory`` is the most that snapshots and batches
    took, in bytes.
    """

    config: GuardConfig
    state: GuardState
    losses: tuple[float, ...] = ()
    events: tuple[Event, ...] = ()
    judged: tuple[Judged, ...] = ()
    memory: int = 0

    @property
    def setting(self) -> Candidate:
        """The candidate in use."""
        return self.config.candidates[self.state.place]


def init(config: GuardConfig) -> GuardedRun:
    """Return a run that begins."""
    return GuardedRun(config.checked(), states.init(config))


def with_reservoir(run: GuardedRun, rows: int) -> GuardedRun:
    """Return a run that begins with a reservoir for batches of so many rows."""
    if run.state.step:
        return run
    reservoir = max(run.config.reservoir, -(-_ROWS // rows))
    return replace(run, config=replace(run.config, reservoir=reservoir))


def allow_mixing(run: GuardedRun) -> GuardedRun:
    """Return a run whose guard may mix rows, and which is tested soon."""
    config, state = run.config, run.state
    if not config.asks or state.is_allowed:
        return run
    asked = [one.rewound for one in state.decisions if one.why == "ask"]
    length = asked[-1] if asked else state.length
    soon = (state.step // length + 1) * length
    allowed = replace(
        state, is_allowed=True, quiet=0, next_test=soon, length=length, marked=(), suspicion=0.1
    )
    return replace(run, state=allowed)


def update(run: GuardedRun, learner: Replayable, batch: Any) -> tuple[GuardedRun, Any]:
    """Train the learner on a batch, then test and replay where due; the run, and the loss."""
    run = begin(run, learner)
    loss = learner.step(trained_on(run, learner, batch))
    return finish(count_step(run, learner, batch, loss), learner), loss


def begin(run: GuardedRun, learner: Replayable) -> GuardedRun:
    """Return the run before a step, with a snapshot if it is time for one."""
    learner.set(run.setting)
    state = states.with_snapshot(run.state, run.config, learner)
    return run if state is run.state else replace(run, state=state)


def trained_on(run: GuardedRun, learner: Replayable, batch: Any) -> Any:
    """Return what a step trains on: its batch, or mixed rows of recent ones."""
    config, used = run.config, run.setting
    if not used.is_mixed:
        return batch
    state = states.with_batch(run.state, config, learner, batch)
    return states.trained_on(state, config, learner, used, len(state.history.batches))


def count_step(run: GuardedRun, learner: Replayable, batch: Any, loss: Any) -> GuardedRun:
    """Return the run after a step with its batch and its loss, which may be lazy."""
    config, before = run.config, run.state.recent
    state = states.with_batch(run.state, config, learner, batch)
    state = states.count_step(state, config, loss)
    if state.step % config.spacing:
        return replace(run, state=state)
    mean = math.nan if state.recent is before else state.recent[-1]
    memory = max(run.memory, _memory(state, learner))
    return replace(run, state=state, losses=(*run.losses, mean), memory=memory)


def is_pending(run: GuardedRun) -> bool:
    """Return whether `finish` has something to do after a step."""
    return states.is_marked(run.state, run.config) or states.is_due(run.state, run.config)


def finish(run: GuardedRun, learner: Replayable) -> GuardedRun:
    """Test, replay and choose what is due; the learner is where the run continues."""
    if not is_pending(run):
        return run
    state, judged = record(run.state, run.config, learner)
    new = state.decisions[len(run.state.decisions) :]
    known = [(one.why, one.cause) for one in run.state.decisions]
    new = tuple(  # one line for each finding that changes nothing
        one
        for one in new
        if (one.why, one.cause) not in known
        or not (one.why == "ask" or run.config.policy == "watch")
    )
    events = tuple(event_of(one, run.config.policy) for one in new)
    if state.set_aside and not run.state.set_aside:
        events = (aside_event(state, run.config.policy), *events)
    copies = [one.saved for one in run.state.history.snapshots]
    memory = _memory(run.state, learner) + learner.replay_size(copies, run.state.reservoir)
    return replace(
        run,
        state=state,
        events=(*run.events, *events),
        judged=(*run.judged, *judged),
        memory=max(run.memory, memory),
    )


def _memory(state: GuardState, learner: Replayable) -> int:
    """Return the bytes of snapshots and batches now."""
    counted = {id(one) for one in state.history.batches}
    others = sum(learner.size(one) for one in state.reservoir if id(one) not in counted)
    copies = sum(learner.saved_size(one.saved) for one in state.history.snapshots)
    return state.history.size + others + copies


def report(run: GuardedRun, learner: Replayable) -> GuardReport:
    """Return what is known of a run."""
    state, config = run.state, run.config
    return GuardReport(
        step=state.step,
        policy=config.policy,
        setting=str(run.setting),
        own=str(config.candidates[0]),
        candidate=run.setting,
        work=state.work / max(state.step, 1),
        spent=(state.looked, state.work - state.looked),
        allowed=(
            states.look_allowance(state.step, config),
            states.repair_allowance(state.step, config),
        ),
        memory=max(run.memory, _memory(state, learner)),
        tests=state.tests,
        rhythm=learner.rhythm(state.history.batches) if state.history.batches else None,
        spacing=config.spacing,
        losses=run.losses,
        decisions=state.decisions,
        events=run.events,
        log=DecisionLog(config, state.step, run.losses, run.judged, state.decisions, state.early),
        set_aside=state.set_aside,
        is_lost=state.is_lost,
        first_test=0 if state.tests else state.next_test,
    )
