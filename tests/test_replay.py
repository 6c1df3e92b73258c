"""The guard by replay without a framework: ladder, order test, decisions on linear streams."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from linear_learner import LinearLearner, switching_rows
from resonax.core.errors import ArgumentError
from resonax.guards import ladder as ladders
from resonax.guards import replay
from resonax.guards import window as windows
from resonax.guards.calm import calm_steps
from resonax.guards.ladder import Snapshot
from resonax.guards.learner import Candidate, default_candidates
from resonax.guards.replay import ReplayConfig
from resonax.guards.replay_report import event_of
from resonax.guards.reservoir import sampled
from resonax.guards.rewind import act
from resonax.guards.rhythm import dominant_period


def train(learner, config, batches, state=None):
    state = replay.init(config) if state is None else state
    for batch in batches:
        state = replay.before_step(state, config, learner, batch)
        used = config.candidates[state.place]
        learner.set(used)
        count = len(state.ladder.batches)
        loss = learner.step(replay.trained_on(state, config, learner, used, count))
        state, is_due = replay.after_step(state, config, learner, loss)
        if is_due:
            state = act(state, config, learner)
    return state


CONFIG = ReplayConfig(default_candidates(0.95), reservoir=128)


@pytest.mark.parametrize("rungs", [1, 3, 4])
def test_a_ladder_reaches_back_by_powers_of_two_and_holds_every_batch_since(rungs):
    ladder = ladders.EMPTY
    for step in range(800):
        if step % 10 == 0:
            ladder = ladders.push(ladder, Snapshot(step, step), 10, rungs)
            ages = [step - one.step for one in ladder.snapshots]
            assert len(ages) <= 2 * rungs
            if step >= 20 << rungs:
                assert 10 << (rungs - 1) <= max(ages) < 10 << rungs
        ladder = ladders.with_batches(ladder, [step], [1], limit=10**9)
        for snapshot in ladder.snapshots:
            assert list(ladders.since(ladder, snapshot)) == list(range(snapshot.step, step + 1))


def test_a_window_is_a_tuple_that_grows_and_loses_its_beginning():
    rng, window, plain = np.random.default_rng(0), windows.EMPTY, ()
    for step in range(400):
        older = window
        new = range(step, step + int(rng.integers(70)))
        window, plain = window.extend(new), (*plain, *new)
        assert len(older) == len(plain) - len(new)  # what was there before is as it was
        if rng.random() < 0.1:
            count = int(rng.integers(600))
            window, plain = window.drop(count), plain[count:]
        assert (len(window), tuple(window)) == (len(plain), plain)
        assert (window[-1:], window[3:9]) == (plain[-1:], plain[3:9])
    with pytest.raises(IndexError):
        window[len(plain)]


def test_a_ladder_forgets_its_oldest_rungs_where_batches_are_too_large():
    ladder = ladders.EMPTY
    for step in range(500):
        if step % 10 == 0:
            ladder = ladders.push(ladder, Snapshot(step, None), 10, 4)
        ladder = ladders.with_batches(ladder, [step], [100], limit=3000)
        assert ladder.size == sum(ladder.sizes) == 100 * len(ladder.batches)
        assert ladder.size <= 3000 or len(ladder.snapshots) == 1


def test_a_resonance_is_undone_and_its_cause_is_named():
    learner = LinearLearner(lr=0.01, momentum=0.95)
    state = train(learner, CONFIG, switching_rows(900, period=6, seed=1))
    plain = LinearLearner(lr=0.01, momentum=0.95)
    for batch in switching_rows(900, period=6, seed=1):
        plain.step(batch)
    assert np.linalg.norm(plain.weights) > 10  # without a guard the run is lost
    assert np.linalg.norm(learner.weights) < 1
    first = state.decisions[0]
    assert first.before == Candidate(0.95)
    assert first.after.momentum < 0.95
    assert first.own > 1.25 * np.max(first.mixed)
    assert " order " in event_of(first, "safe", None).text


def test_independent_rows_are_left_alone():
    """See `test_order_test.py` for how many; here, that the guard makes the tests at all."""
    changed = 0
    for seed in range(8):
        learner = LinearLearner(lr=0.01, momentum=0.95, seed=seed)
        config = replace(CONFIG, seed=seed)
        state = train(learner, config, switching_rows(300, period=1, seed=100 + seed))
        assert state.tests >= 4
        changed += bool(state.decisions)
    assert changed <= 2  # with a level of 5% more come in 0.6 of 100 cases


def test_a_setting_that_is_taken_up_again_is_tested_as_from_the_start():
    """Independent rows without noise, where the larger momentum learns faster."""
    learner = LinearLearner(lr=0.002, momentum=0.9)
    config = replace(CONFIG, candidates=default_candidates(0.9))
    state, tested = replace(replay.init(config), places=(0, 3), hold=64, next_test=1000), []
    for x, y in switching_rows(256, period=1, seed=2):
        count, state = state.tests, train(learner, config, [(x, 0 * y)], state)
        tested += [state.step] if state.tests > count else []
    assert [(one.step, one.why) for one in state.decisions] == [(64, "return")]
    assert tested == [64 + 32, 64 + 64, 64 + 128]


def test_a_rise_that_ends_is_no_alarm_and_the_rows_after_it_are_tested():
    """A stretch chosen for its loss is not compared with the same rows mixed."""
    rng = np.random.default_rng(0)
    batches = [(rng.standard_normal((8, 3)), rng.standard_normal(8)) for _ in range(700)]
    x, _ = batches[560]
    batches[560] = x, 30 * np.ones(8)  # one wrong batch: the error decays from then on
    config = replace(CONFIG, candidates=default_candidates(0.9), reservoir=16)
    learner = LinearLearner(lr=0.002, momentum=0.9, dim=3)
    before = train(learner, config, batches[:576])
    assert before.rose == 576
    assert before.next_test == 576 + 64
    after = train(learner, config, batches[576:], before)
    assert after.tests > before.tests
    assert not after.decisions


def test_the_fastest_candidate_is_taken_for_noise_alone():
    """On independent rows of noise small steps end lowest; the policy safe leaves them alone."""
    ends = {}
    for policy in ("safe", "fastest"):
        learner = LinearLearner(lr=0.02, momentum=0.9, seed=1)
        config = replace(CONFIG, candidates=default_candidates(0.9), policy=policy)
        state = train(learner, config, switching_rows(300, period=1, seed=3))
        ends[policy] = [(one.why, one.after) for one in state.decisions]
    assert not ends["safe"]
    why, after = ends["fastest"][-1]
    assert why == "fastest"
    assert after.lr / (1 - after.momentum) < 1 / (1 - 0.9)
    assert "ended lowest" in event_of(state.decisions[-1], "fastest", None).text


def unstable_rows(steps: int, scale: float):
    """Independent rows, a tenth of them large; the larger they are, the less stable is a step."""
    rng = np.random.default_rng(5)
    for _ in range(steps):
        x = rng.standard_normal((1, 6)) * (scale if rng.random() < 0.1 else 1.0)
        yield x, math.sqrt(0.1) * rng.standard_normal(1)


@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_a_run_that_does_worse_than_its_start_in_any_order_is_undone(scale):
    """Momentum 0.95 is unstable on large rows, in every order, and only noisy on the others."""
    learner, plain = (LinearLearner(lr=0.004, momentum=0.95) for _ in range(2))
    start, batches = plain.weights, list(unstable_rows(200, scale))
    for batch in batches:
        plain.step(batch)
    state = train(learner, CONFIG, batches)
    if scale == 1.0:
        assert not state.decisions
        return
    assert np.linalg.norm(plain.weights) > 10 * np.linalg.norm(start)
    first = state.decisions[0]
    assert first.why == "alarm"
    assert min(first.mixed) > first.own / 10  # the order is not to blame
    assert np.linalg.norm(learner.weights) < 3 * np.linalg.norm(start)


def test_rows_that_no_momentum_helps_are_mixed():
    """Two rows that pull apart, each for a long time: only their order keeps them from one fit."""
    x = np.array([[1.0, 0.0], [1.0, 1e-3]])
    y = np.array([1.0, -1.0])
    batches = [(x[[k // 8 % 2]], y[[k // 8 % 2]]) for k in range(256)]
    config = replace(CONFIG, candidates=default_candidates(0.5))
    learner = LinearLearner(lr=0.1, momentum=0.5, dim=2)
    state = train(learner, config, batches)
    assert config.candidates[state.place].is_mixed
    assert abs(learner.weights[0]) < 0.5  # in order it follows the last row, to +1 or -1


def test_a_loss_that_explodes_is_rewound_with_smaller_steps():
    """A step size beyond 2/curvature, in any order: small steps help."""
    rng = np.random.default_rng(3)
    batches = [(rng.standard_normal((8, 3)) * 3, rng.standard_normal(8)) for _ in range(300)]
    config = replace(CONFIG, candidates=default_candidates(0.9), reservoir=16)
    learner = LinearLearner(lr=1.0, momentum=0.9, dim=3)
    state = train(learner, config, batches)
    assert state.decisions[0].why == "alarm"
    assert config.candidates[state.place].lr < 1
    assert learner.loss(batches) < 10


def test_watching_changes_nothing():
    learner, plain = (LinearLearner(lr=0.004, momentum=0.95) for _ in range(2))
    config = replace(CONFIG, policy="watch")
    state = train(learner, config, switching_rows(300, period=6, seed=3))
    for batch in switching_rows(300, period=6, seed=3):
        plain.step(batch)
    assert state.decisions
    assert state.place == 0
    np.testing.assert_array_equal(learner.weights, plain.weights)
    assert event_of(state.decisions[0], "watch", None).kind == "order"


def test_a_replay_of_the_run_itself_gives_the_run_again():
    learner = LinearLearner(lr=0.01, momentum=0.9)
    config = replace(CONFIG, candidates=default_candidates(0.9))
    batches = list(switching_rows(150, period=1, seed=4))
    state = train(learner, config, batches)
    now = learner.weights.copy()
    start = state.ladder.snapshots[0]
    learner.load(start.saved)
    for batch in ladders.since(state.ladder, start):
        learner.step(batch)
    np.testing.assert_array_equal(learner.weights, now)


def test_an_error_in_a_replay_leaves_the_learner_as_it_was():
    class Failing(LinearLearner):
        fails = False

        def step(self, batch):
            if self.fails:
                raise RuntimeError("no")
            return super().step(batch)

    learner = Failing(lr=0.01, momentum=0.95)
    state, config = replay.init(CONFIG), CONFIG
    for batch in switching_rows(32, period=6, seed=1):
        state = replay.before_step(state, config, learner, batch)
        state, is_due = replay.after_step(state, config, learner, learner.step(batch))
    assert is_due
    weights, learner.fails = learner.weights.copy(), True
    with pytest.raises(RuntimeError, match="no"):
        act(state, config, learner)
    np.testing.assert_array_equal(learner.weights, weights)


def test_extra_work_stays_within_the_budget_in_the_long_run():
    learner = LinearLearner(lr=0.01, momentum=0.5)
    config = replace(CONFIG, candidates=default_candidates(0.5), reservoir=16, rungs=1, budget=0.05)
    batches = list(switching_rows(8000, period=1, seed=5))
    half = train(learner, config, batches[:4000])
    whole = train(learner, config, batches[4000:], half)
    assert not whole.decisions
    assert (whole.work - half.work) / 4000 < 1.3 * config.budget


def test_calm_steps_end_before_the_step_after_which_a_run_is_looked_at():
    rng = np.random.default_rng(0)
    for policy, place in [("safe", 0), ("safe", 1), ("fastest", 1)] * 100:
        config = replace(CONFIG, policy=policy)
        step, ahead, hold = rng.integers([1, -20, -20], [300, 90, 90]).tolist()
        state = replace(
            replay.init(config),
            step=step,
            next_test=step + ahead,
            hold=step + hold,
            places=(place,),
        )

        def is_looked_at(later: int, state=state, config=config) -> bool:
            then = replace(state, step=state.step + later, recent=(1.0,), reservoir=(0,))
            is_end = then.step % config.spacing == 0
            return is_end or replay.is_marked(then, config) or replay.is_due(then, config)

        calm = calm_steps(state, config)
        assert [is_looked_at(one + 1) for one in range(calm + 1)] == [False] * calm + [True]


def test_the_reservoir_is_a_uniform_sample_of_all_batches():
    counts = np.zeros(100)
    for seed in range(400):
        kept = sampled((), 5, range(30), 0, seed)
        kept = sampled(kept, 5, range(30, 100), 30, seed)
        assert len(set(kept)) == 5
        counts[list(kept)] += 1
    # Counts of 400 samples of 5 of 100: each has mean 20, and all add up, without replacement.
    assert stats.chi2.sf(np.sum((counts - 20) ** 2 / 20) / 0.95, df=99) > 0.001


@pytest.mark.parametrize("period", [6.0, 24.0, 40.5])
def test_a_rhythm_is_found_and_noise_has_none(period):
    steps = np.arange(256)
    rng = np.random.default_rng(0)
    wave = np.stack([np.cos(2 * np.pi * steps / period), rng.standard_normal(256)], axis=1)
    found = dominant_period(wave + 0.5 * rng.standard_normal(wave.shape))
    assert found == pytest.approx(period, rel=0.03)
    noise = [dominant_period(rng.standard_normal((256, 4))) for _ in range(300)]
    assert sum(one is not None for one in noise) <= 3  # the level is 0.001


@pytest.mark.parametrize("cycle", [20, 30, 40])
def test_a_rhythm_of_classes_is_told_from_its_harmonics(cycle):
    """Of ten classes in a cycle a harmonic is often the strongest line."""
    rng = np.random.default_rng(cycle)
    means, steps = rng.standard_normal((10, 16)), np.arange(256)
    rows = means[steps % cycle * 10 // cycle] + 0.3 * rng.standard_normal((256, 16))
    assert dominant_period(rows) == pytest.approx(cycle, rel=0.02)
    assert dominant_period(rows[: int(1.6 * cycle)]) is None  # not two periods


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"policy": "sfae"}, "safe"),
        ({"spacing": 4}, "at least 8"),
        ({"budget": 0.0}, "above 0"),
        ({"candidates": (Candidate(1.0),)}, "momentum in"),
    ],
)
def test_bad_configurations_are_refused_in_a_sentence(changes, text):
    with pytest.raises(ArgumentError, match=text):
        replace(CONFIG, **changes).checked()
