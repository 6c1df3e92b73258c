"""The guard without a framework: history, order test, decisions on linear streams."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from linear_learner import LinearLearner, switching_rows
from resonax.core.errors import ArgumentError
from resonax.guards import guarded_run
from resonax.guards import state as states
from resonax.guards.decide import act, look
from resonax.guards.history import EMPTY, Snapshot, sampled
from resonax.guards.learner import Candidate, default_candidates
from resonax.guards.report import event_of
from resonax.guards.rhythm import dominant_period
from resonax.guards.state import GuardConfig


def train(learner, config, batches, state=None):
    state = states.init(config) if state is None else state
    for batch in batches:
        state = states.before_step(state, config, learner, batch)
        used = config.candidates[state.place]
        learner.set(used)
        count = len(state.history.batches)
        loss = learner.step(states.trained_on(state, config, learner, used, count))
        state, is_due = look(states.count_step(state, config, loss), config, learner)
        if is_due:
            state = act(state, config, learner)
    return state


CONFIG = GuardConfig(default_candidates(0.95), reservoir=128)


@pytest.mark.parametrize("doublings", [1, 3, 4])
def test_a_history_reaches_back_by_powers_of_two_and_holds_every_batch_since(doublings):
    history = EMPTY
    for step in range(800):
        if step % 10 == 0:
            history = history.with_snapshot(Snapshot(step, step), 10, doublings)
            ages = [step - one.step for one in history.snapshots]
            assert len(ages) <= 2 * doublings
            if step >= 20 << doublings:
                assert 10 << (doublings - 1) <= max(ages) < 10 << doublings
        history = history.with_batch(step, size=1, limit=10**9)
        for snapshot in history.snapshots:
            assert list(history.since(snapshot)) == list(range(snapshot.step, step + 1))


def test_a_history_drops_its_oldest_snapshots_where_batches_are_too_large():
    history = EMPTY
    for step in range(500):
        if step % 10 == 0:
            history = history.with_snapshot(Snapshot(step, None), 10, 4)
        history = history.with_batch(step, size=100, limit=3000)
        assert history.size == sum(history.sizes) == 100 * len(history.batches)
        assert history.size <= 3000 or len(history.snapshots) == 1


def test_a_run_that_its_order_makes_diverge_is_undone():
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
    assert " order " in event_of(first, "safe").text


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
    state, tested = replace(states.init(config), places=(0, 3), hold=64, next_test=1000), []
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
    assert "ended lowest" in event_of(state.decisions[-1], "fastest").text


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
    assert event_of(state.decisions[0], "watch").kind == "order"


def test_a_replay_of_the_run_itself_gives_the_run_again():
    learner = LinearLearner(lr=0.01, momentum=0.9)
    config = replace(CONFIG, candidates=default_candidates(0.9))
    batches = list(switching_rows(150, period=1, seed=4))
    state = train(learner, config, batches)
    now = learner.weights.copy()
    start = state.history.snapshots[0]
    learner.load(start.saved)
    for batch in state.history.since(start):
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
    state, config = states.init(CONFIG), CONFIG
    for batch in switching_rows(32, period=6, seed=1):
        state = states.before_step(state, config, learner, batch)
        state = states.count_step(state, config, learner.step(batch))
        state, is_due = look(state, config, learner)
    assert is_due
    weights, learner.fails = learner.weights.copy(), True
    with pytest.raises(RuntimeError, match="no"):
        act(state, config, learner)
    np.testing.assert_array_equal(learner.weights, weights)


def test_extra_work_stays_within_the_budget_in_the_long_run():
    learner = LinearLearner(lr=0.01, momentum=0.5)
    config = replace(
        CONFIG, candidates=default_candidates(0.5), reservoir=16, doublings=1, budget=0.05
    )
    batches = list(switching_rows(8000, period=1, seed=5))
    half = train(learner, config, batches[:4000])
    whole = train(learner, config, batches[4000:], half)
    assert not whole.decisions
    assert (whole.work - half.work) / 4000 < 1.3 * config.budget


def test_the_reservoir_is_a_uniform_sample_of_all_batches():
    counts = np.zeros(100)
    for seed in range(400):
        kept = ()
        for step in range(100):
            kept = sampled(kept, 5, step, step, seed)
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


class Shifted(LinearLearner):
    """The same learner with another unit and zero of its loss."""

    def __init__(self, scale: float, shift: float, **options):
        super().__init__(**options)
        self.scale, self.shift = scale, shift

    def step(self, batch):
        return self.scale * super().step(batch) + self.shift

    def loss(self, batches):
        return self.scale * super().loss(batches) + self.shift


@pytest.mark.parametrize("why", ["order", "alarm"])
@pytest.mark.parametrize(("scale", "shift"), [(1.0, 5.0), (3.0, 0.0)])
def test_decisions_are_the_same_for_a_loss_that_is_multiplied_or_shifted(scale, shift, why):
    made = []
    for given in ((1.0, 0.0), (scale, shift)):
        learner = Shifted(*given, lr=0.01 if why == "order" else 0.004, momentum=0.95)
        rows = switching_rows(500, 6, seed=1) if why == "order" else unstable_rows(200, 5.0)
        state = train(learner, CONFIG, rows)
        made.append([(one.step, one.why, one.after, one.rewound) for one in state.decisions])
    assert made[0] == made[1]
    assert made[0]


def sine(steps: int):
    """The mean of the inputs swings with a period of 24 steps: momentum 0.95 resonates."""
    rng = np.random.default_rng(0)
    swing = 1.5 * np.sin(2 * np.pi * np.arange(steps) / 24)[:, None, None]
    x = swing + 0.5 * rng.standard_normal((steps, 16, 2))
    return list(zip(x, x @ [1, 0.5] + 0.1 * rng.standard_normal((steps, 16)), strict=True))


def opposite(steps: int):
    """Inputs whose targets turn every 32 steps: what was learnt is forgotten."""
    rng = np.random.default_rng(0)
    sign = np.where(np.arange(steps) % 64 < 32, 1, -1)[:, None, None]
    x = 1 + 0.5 * rng.standard_normal((steps, 16, 2))
    x = np.append(x, np.broadcast_to(0.3 * sign, (steps, 16, 1)), axis=2)
    return list(zip(x, sign[..., 0] * (x[..., :2] @ [1, 0.5]), strict=True))


@pytest.mark.parametrize(
    ("rows", "momentum", "lr", "cause"),
    [(sine, 0.95, 0.02, "resonance"), (opposite, 0.5, 0.05, "forgetting")],
)
@pytest.mark.parametrize("policy", ["safe", "watch"])
def test_the_cause_decides_the_cure_and_is_named(rows, momentum, lr, cause, policy):
    config = replace(CONFIG, candidates=default_candidates(momentum), reservoir=16, policy=policy)
    learner = LinearLearner(lr=lr, momentum=momentum, dim=2 if rows is sine else 3)
    state = train(learner, config, rows(500))
    first = state.decisions[0]
    text = event_of(first, policy).text
    assert first.cause == cause
    assert (cause in text, "resonance" in text) == (True, cause == "resonance")
    assert first.after.is_mixed == (cause == "forgetting")
    assert ("now " in text, "rewound" in text) == (policy == "safe", policy == "safe")
    if cause == "resonance":
        assert first.after.momentum < momentum
        assert first.period is None or first.period == pytest.approx(24, rel=0.05)
    without = replace(config, candidates=default_candidates(momentum, mix=False))
    learner = LinearLearner(lr=lr, momentum=momentum, dim=2 if rows is sine else 3)
    for one in train(learner, without, rows(500)).decisions:
        assert not one.after.is_mixed


def test_watching_costs_no_more_than_acting_and_says_each_finding_once():
    work, events = {}, {}
    for policy in ("safe", "watch"):
        config = replace(CONFIG, reservoir=16, policy=policy)
        learner, run = LinearLearner(lr=0.02, momentum=0.95, dim=2), guarded_run.init(config)
        for batch in sine(800):
            run, _ = guarded_run.update(run, learner, batch)
        work[policy], events[policy] = run.state.work, run.events
    assert work["watch"] <= work["safe"]
    assert len({one.text.partition(":")[2] for one in events["watch"]}) == len(events["watch"]) == 1
    assert "now " not in events["watch"][0].text


def mild(steps: int, is_ordered: bool, seed: int):
    """Rows whose mean changes slowly, which a small step does not mind; or the same in no order."""
    rng = np.random.default_rng(seed)
    phase = np.arange(steps) / 40 if is_ordered else rng.random(steps)
    x = np.sin(2 * np.pi * phase)[:, None, None] + rng.standard_normal((steps, 16, 6))
    return list(zip(x, x.sum(axis=2) + 0.1 * rng.standard_normal((steps, 16)), strict=True))


@pytest.mark.parametrize("is_ordered", [False, True])
def test_where_nothing_is_wrong_a_thousand_steps_cost_half_as_many_more_at_most(is_ordered):
    """And a twentieth of the later ones; the report before the first test says when it will be."""
    ends = []
    for seed in range(5):
        config = replace(CONFIG, candidates=default_candidates(0.9), reservoir=8, seed=seed)
        learner, run = LinearLearner(lr=0.0005, momentum=0.9, seed=seed), guarded_run.init(config)
        assert "the first is after step 32" in str(guarded_run.report(run, learner))
        work = {}
        for step, batch in enumerate(mild(3000, is_ordered, seed), 1):
            run, _ = guarded_run.update(run, learner, batch)
            work[step] = run.state.work
        assert not run.state.decisions
        assert work[1000] <= 500
        assert work[3000] > 100 * is_ordered  # where rows are in order it does test
        ends.append(work[3000])
    assert np.median(ends) <= 500 + 0.05 * 2000  # a run that looks harmed by chance costs more


@pytest.mark.parametrize("policy", ["safe", "watch", "fastest"])
@pytest.mark.parametrize("budget", [0.01, 0.05])
def test_no_test_begins_beyond_the_budget(policy, budget):
    """One that was begun may go beyond it; the marks at which the run is judged are part of it."""
    config = replace(CONFIG, reservoir=16, policy=policy, budget=budget)
    for rows, dim in ((sine(1200), 2), (switching_rows(1200, 6, seed=1), 6)):
        learner, run = LinearLearner(lr=0.02, momentum=0.95, dim=dim), guarded_run.init(config)
        for batch in rows:
            before = run.state
            run, _ = guarded_run.update(run, learner, batch)
            if run.state.tests == before.tests:
                continue
            if before.decisions or before.suspicion < 1:
                assert before.work - before.looked <= budget * (60_000 + run.state.step)
            else:
                assert before.looked <= budget * (6000 + 4 * min(run.state.step, 1000) + 200) + 40


def test_a_guard_that_asks_mixes_rows_only_once_it_is_allowed_to():
    config = replace(CONFIG, candidates=default_candidates(0.5), reservoir=16, asks=True)
    learner, run = LinearLearner(lr=0.05, momentum=0.5, dim=3), guarded_run.init(config)
    rows = opposite(700)
    for batch in rows[:300]:
        run, _ = guarded_run.update(run, learner, batch)
    assert [one.why for one in run.state.decisions] == ["ask"]
    assert "guard.allow_mixing() allows" in run.events[-1].text
    assert "now " not in run.events[-1].text
    assert not run.setting.is_mixed
    run = guarded_run.allow_mixing(run)
    for batch in rows[300:]:
        run, _ = guarded_run.update(run, learner, batch)
    assert run.setting.is_mixed
    assert run.events[-1].kind == "setting"


def test_a_budget_that_allows_no_test_is_told_at_once():
    config = replace(CONFIG, budget=1e-9)
    step, length = states.next_test(states.init(config), config, 40.0)
    assert step > 10**9
    assert step % length == 0
