"""The log of a guard: its decisions follow from it, and from no log that was changed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from linear_learner import LinearLearner, switching_rows
from resonax.core.errors import ArgumentError
from resonax.guards import state as states
from resonax.guards.decision_log import DecisionLog, record
from resonax.guards.learner import default_candidates
from resonax.guards.state import GuardConfig


def run(steps: int = 700, period: float = 6, memory: int = 2**28, **changes) -> DecisionLog:
    """Return the log of a guarded run on a stream that resonates."""
    config = GuardConfig(default_candidates(0.95), reservoir=128, memory=memory, **changes)
    learner = LinearLearner(lr=0.01, momentum=0.95)
    state, judged, losses = states.init(config), (), ()
    for batch in switching_rows(steps, period=period, seed=1):
        state = states.before_step(state, config, learner, batch)
        used = config.candidates[state.place]
        learner.set(used)
        count = len(state.history.batches)
        loss = learner.step(states.trained_on(state, config, learner, used, count))
        state = states.count_step(state, config, loss)
        losses = losses if state.step % config.spacing else (*losses, state.recent[-1])
        state, found = record(state, config, learner)
        judged = (*judged, *found)
    return DecisionLog(config, state.step, losses, judged, state.decisions, state.early)


@pytest.fixture(scope="module")
def log() -> DecisionLog:
    return run()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"policy": "watch", "steps": 450},
        {"policy": "fastest", "steps": 300},
        {"memory": 5000, "steps": 450},
        {"wait": 64, "steps": 530},
    ],
)
def test_decisions_follow_from_the_log_alone(options, tmp_path, log):
    made = run(**options) if options else log
    assert made.decisions
    loaded = DecisionLog.load(made.save(tmp_path / "guard.jsonl"))
    assert repr(loaded) == repr(made)  # not ==, as p of some is not a number
    assert loaded.check() == ()


def test_a_decision_that_was_changed_is_told(log):
    first = log.decisions[0]
    forged = replace(log, decisions=(first._replace(own=first.own / 2), *log.decisions[1:]))
    assert any(f"step {first.step}: own is" in one for one in forged.check())
    assert "0 decisions are logged" in replace(log, decisions=()).check()[0]


def test_a_loss_that_was_changed_is_told(log):
    step = log.decisions[0].step
    place = next(k for k, one in enumerate(log.judged) if one.step == step)
    entry = log.judged[place]
    doubled = tuple(2 * one for one in entry.losses)
    for losses in (doubled, entry.losses[:-1], (*entry.losses, 1.0)):
        judged = (*log.judged[:place], entry._replace(losses=losses), *log.judged[place + 1 :])
        assert replace(log, judged=judged).check()


def test_a_seed_or_candidates_that_were_changed_are_told(log):
    fewer = replace(log.config, candidates=log.config.candidates[:1])
    assert replace(log, config=fewer).check()
    assert replace(log, config=replace(log.config, harm=100.0)).check()


def test_a_file_that_is_no_log_is_refused_in_a_sentence(log, tmp_path):
    path = log.save(tmp_path / "guard.jsonl")
    lines = path.read_text().splitlines()
    assert all(json.loads(line) for line in lines)
    for text in ("", "{}\n{}\n", "\n".join(lines[1:]), path.read_text().replace("own", "won", 1)):
        path.write_text(text)
        with pytest.raises(ArgumentError, match="not the log"):
            DecisionLog.load(path)
