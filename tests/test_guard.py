"""The guard without a framework: shadows, rates, policies and the plan of its bursts."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest

from resonax import ArgumentError, heavy_ball
from resonax.guards.alarm import period_of
from resonax.guards.growth import BLOCK, Estimates, estimates, start_burst
from resonax.guards.growth import init as init_growth
from resonax.guards.growth import update as update_growth
from resonax.guards.guard import (
    GuardConfig,
    ShadowStep,
    active,
    as_lists,
    from_lists,
    is_probing,
)
from resonax.guards.guard import (
    init as init_guard,
)
from resonax.guards.guard import (
    update as update_guard,
)
from resonax.guards.policy import HOLD, POLICIES, checked_policy, decide
from resonax.guards.schedule import IDLE, Plan, update_idle
from resonax.guards.schedule import init as init_schedule
from resonax.guards.schedule import update as update_schedule
from resonax.guards.shadows import (
    Energy,
    candidates_below,
    checked_candidates,
    gains,
    step_shadow,
)

CANDIDATES = np.array([0.95, 0.9, 0.85, 0.75, 0.5, 0.0])


def follow(curvatures, lr=0.01, momenta=CANDIDATES, **options):
    """Rates of all candidates along a sequence of matrices: one for all, or one for each."""
    growth = init_growth(len(momenta))
    size = curvatures[0].shape[-1]
    place = np.tile(np.ones(size) / math.sqrt(size), (len(momenta), 1))
    velocity = np.zeros_like(place)
    by = gains(lr, momenta[:, None], **options)

    def energy():
        moving = np.sum(by.momentum * by.kappa * velocity**2, axis=1)
        return Energy(np.sum(by.alpha * place**2, axis=1), moving)

    for curvature in curvatures:
        before = energy()
        length = np.sum(place**2, axis=1)
        product = (place[:, None] @ curvature)[:, 0]
        moved, velocity, pull = step_shadow(place, velocity, product, by)
        met = np.sum(place * pull, axis=1) / length
        place = moved
        after = energy()
        growth = update_growth(growth, before, after, met, np.ones(len(momenta), bool))
        scale = np.sqrt(after.places + after.velocities)[:, None]
        place, velocity = place / scale, velocity / scale
    return estimates(growth)


@pytest.mark.parametrize("nesterov", [False, True])
def test_rates_on_a_constant_curvature_are_those_of_the_companion_matrix(nesterov):
    lr, curvature = 0.01, 2.0
    momenta, decays = (part.ravel() for part in np.meshgrid(CANDIDATES, [0.0, 0.3]))
    steps = [np.eye(1) * curvature] * 800
    found = follow(steps, lr, momenta, nesterov=nesterov, weight_decay=decays[:, None])
    for momentum, weight_decay, rate in zip(momenta, decays, found.rate, strict=True):
        by = gains(lr, momentum, nesterov=nesterov, weight_decay=weight_decay)
        pull = curvature + weight_decay
        row = np.array([-by.alpha * pull, by.momentum])
        matrix = np.array([[1 - by.beta * pull, 0.0], [0.0, 0.0]])
        matrix = matrix + np.outer([by.kappa, 1.0], row)
        expected = math.log(np.abs(np.linalg.eigvals(matrix)).max())
        assert rate == pytest.approx(expected, abs=2e-3)


def test_rates_of_a_square_wave_are_those_of_its_monodromy():
    curvatures = [np.eye(1) * (3.6 if step // 12 % 2 else 0.4) for step in range(1200)]
    found = follow(curvatures, momenta=np.array([0.97, 0.8]))
    for momentum, rate in zip((0.97, 0.8), found.rate, strict=True):
        product = np.eye(2)
        for curvature in curvatures[:24]:
            step = np.array([[1 - 0.01 * curvature[0, 0], 0.01 * momentum]])
            step = np.vstack([step, [-curvature[0, 0], momentum]])
            product = step @ product
        expected = math.log(np.abs(np.linalg.eigvals(product)).max()) / 24
        assert rate == pytest.approx(expected, abs=5e-4)
    assert found.is_growing.tolist() == [True, False]
    assert found.is_decaying.tolist() == [False, True]


def test_shadows_move_as_differences_of_the_canonical_optimizer_do():
    optimizer = heavy_ball(0.05, 0.9, dampening=0.3, weight_decay=0.1)
    by = gains(0.05, 0.9, dampening=0.3, weight_decay=0.1)
    place, velocity = 1.0, 0.0
    weight, speed = 1.0, 0.0
    for curvature in (1.0, 3.0, 0.5, 2.0):
        place, velocity, _ = step_shadow(place, velocity, curvature * place, by)
        decayed = curvature * weight + optimizer.weight_decay * weight
        speed = optimizer.momentum * speed - optimizer.alpha * decayed
        weight = weight + speed
        assert place == pytest.approx(weight)
        assert 0.05 * velocity == pytest.approx(speed)


def switching(seed, steps, period, dim=5, variance=0.25):
    """Curvatures of single rows, (steps, dim + 1, dim + 1): their mean is drawn every period."""
    drawn = np.random.default_rng(seed).normal(size=(-(-steps // period), 1 + period, dim))
    rows = drawn[:, :1] * math.sqrt(variance) + drawn[:, 1:] * 0.5
    rows = np.insert(rows.reshape(-1, dim)[:steps], dim, 1.0, axis=1)
    return 2 * rows[:, :, None] * rows[:, None]


def test_the_switching_stream_of_the_paper_is_seen_for_what_it_is():
    found = follow(switching(0, 900, period=6))
    assert found.rate[0] > 0.001
    assert found.is_decaying[1:].all()
    assert CANDIDATES[np.argmin(found.rate)] in (0.85, 0.75)
    calm = follow(switching(1, 900, period=1))
    assert calm.is_decaying.all()


def test_intervals_hold_the_long_run_but_are_not_idle():
    count = len(CANDIDATES)
    runs = np.stack([switching(seed, 272, period=6) for seed in range(40)], axis=1)
    found = follow(np.repeat(runs, count, axis=1), momenta=np.tile(CANDIDATES, 40))
    rate, low, high = (part.reshape(40, count) for part in found[:3])
    truth = rate.mean(axis=0)  # its error is a sixth of that of a run
    # Each side is meant to hold in 95% of runs and was seen to hold in 98% of many more; that 40
    # runs of six candidates, which share their batches, fall below 90% has a chance below 1e-3.
    assert np.mean(low < truth) > 0.9
    assert np.mean(truth < high) > 0.9
    assert np.all((high - low).mean(axis=0) < 4 * 1.645 * rate.std(axis=0))


def test_older_bursts_count_less_but_are_not_lost():
    growth = init_growth(1)
    for rate, steps in ((0.05, 20 * BLOCK), (-0.05, 20 * BLOCK)):
        growth = start_burst(growth, 0.5, skip=0)
        after = Energy(np.full(1, math.exp(2 * rate)), np.zeros(1))
        for _ in range(steps):
            one = Energy(np.ones(1), np.zeros(1))
            growth = update_growth(growth, one, after, np.ones(1), np.ones(1, bool))
    assert -0.05 < estimates(growth).rate[0] < 0.0


def found(rates, half=0.003, blocks=30.0):
    rate = np.array(rates)
    return Estimates(rate, rate - half, rate + half, np.full(len(rate), blocks))


MOMENTA = np.array([0.95, 0.9, 0.85])


@pytest.mark.parametrize(
    ("policy", "rates", "current", "alarm", "expected"),
    [
        ("watch", [0.01, -0.01, -0.02], 0, True, 1),  # what it would be good to do
        ("safe", [0.01, -0.01, -0.02], 0, False, 1),
        ("safe", [0.01, 0.001, -0.02], 0, False, 2),  # the second does not surely fall
        ("safe", [0.01, -0.001, -0.002], 0, False, 1),  # none surely falls
        ("safe", [0.03, 0.02, 0.01], 0, False, 2),  # all grow: the least
        ("safe", [0.001, -0.01, -0.02], 0, False, 0),  # not surely
        ("safe", [0.001, -0.01, -0.02], 0, True, 1),  # but the run itself grows
        ("safe", [-0.001, -0.01, -0.02], 0, True, 0),
        ("safe", [-0.02, -0.04, -0.06], 2, False, 1),  # up again, place by place
        ("safe", [-0.02, -0.04, -0.06], 2, True, 2),
        ("safe", [-0.002, -0.05, -0.07], 0, False, 1),  # falls, but the edge is near
        ("safe", [-0.002, -0.003, -0.07], 0, False, 2),
        ("safe", [-0.002, -0.05, -0.07], 1, False, 1),  # nor up to it
        ("safe", [-0.002, -0.001, -0.0005], 0, False, 0),  # slow, and less momentum is slower
        ("safe", [-0.02, -0.05, -0.07], 0, False, 0),  # no rhythm at all
        ("safe", [0.0, -0.001, -0.02], 2, False, 2),  # not surely calm
        ("safe", [0.0, -0.0001, 0.0], 2, False, 1),  # flat: no worse than now
        ("fastest", [-0.01, -0.03, -0.02], 0, False, 1),
        ("fastest", [-0.01, -0.012, -0.011], 0, False, 0),
    ],
)
def test_policies(policy, rates, current, alarm, expected):
    assert int(decide(policy, found(rates), MOMENTA, current, alarm)) == expected


def test_the_interval_of_the_momentum_in_use_has_no_say_in_a_raise():
    """Neither for it nor against it: what decides is known of the larger momentum."""
    rng = np.random.default_rng(0)
    counts = {True: 0, False: 0}
    for _ in range(400):
        rate = rng.uniform([-0.06, -0.06, -0.06], [0.01, 0.01, 0.0])
        half = rng.uniform(0.001, 0.02, size=3)
        chosen = []
        for own in (0.0005, 0.02, 0.1, 1.0):
            half[2] = own
            given = Estimates(rate, rate - half, rate + half, np.full(3, 30.0))
            chosen.append(int(decide("safe", given, MOMENTA, 2, False)))
        assert len(set(chosen)) == 1  # there is no smaller momentum to move to
        counts[chosen[0] == 1] += 1
    assert min(counts.values()) > 50
    weakly = np.array([0.01, -0.01, -0.04])  # 0.9 falls, slower than 0.85 and near the edge
    half = np.array([0.002, 0.002, 0.2])
    given = Estimates(weakly, weakly - half, weakly + half, np.full(3, 30.0))
    assert int(decide("safe", given, MOMENTA, 2, False)) == 2


def test_only_what_is_urgent_is_done_soon_after_a_change():
    for rates, current, later in (
        ([-0.02, -0.04, -0.06], 2, 1),  # raise
        ([-0.002, -0.05, -0.07], 0, 1),  # ease
    ):
        assert int(decide("safe", found(rates), MOMENTA, current, False, steady=False)) == current
        assert int(decide("safe", found(rates), MOMENTA, current, False)) == later
    assert int(decide("safe", found([0.01, -0.01, -0.02]), MOMENTA, 0, False, steady=False)) == 1


def noisy(seed, count=4):
    """What shadows meet on a stream that changes at times, and the size of the velocity."""
    rng = np.random.default_rng(seed)
    ones, none, size = np.ones(count), np.zeros(count), 1.0
    for step in range(400):
        if step % 160 == 0:
            mean = (0.01 if step % 320 == 0 else -0.05) + np.linspace(0.01, -0.02, count)
        growth = mean + rng.normal(scale=0.05) + rng.normal(scale=0.03, size=count)
        size = min(max(size * math.exp(growth[0]), 1e-3), 1e3)
        yield size, ShadowStep(Energy(ones, none), Energy(np.exp(2 * growth), none), ones)


@functools.cache
def all_changes(policy, seed):
    return list(changes(policy, seed))


def changes(policy, seed):
    """Steps at which the guard acts, or would, with the place before and the one after."""
    config = GuardConfig(policy, (0.95, 0.9, 0.75, 0.0), Plan(budget=1e9))
    state = init_guard(config)
    for size, met in noisy(seed):
        after = update_guard(state, config, size, met if is_probing(state) else None)
        if (after.current, after.advised) != (state.current, state.advised):
            yield int(after.step), int(state.current), int(after.advised)
        state = after


def test_watch_speaks_where_safe_would_act():
    for seed in range(3):
        assert next(changes("watch", seed)) == all_changes("safe", seed)[0]


def test_no_change_is_undone_on_the_evidence_that_it_was_made_on():
    raised = 0
    for seed in range(3):
        for (step, _, _), (later, old, new) in itertools.pairwise(all_changes("safe", seed)):
            if new < old:
                raised += 1
                assert later - step > HOLD
    assert raised >= 3


def test_nothing_is_done_on_little_evidence():
    for policy in POLICIES:
        assert int(decide(policy, found([0.05, -0.05], blocks=3.0), MOMENTA[:2], 0, True)) == 0


def test_policies_are_the_same_in_compiled_code():
    import jax
    import jax.numpy as jnp

    rates = itertools.product([-0.01, 0.001, 0.01], repeat=3)
    cases = [(found(one), *rest) for one in rates for rest in itertools.product(range(3), (0, 1))]
    given, current, alarm = zip(*cases, strict=True)
    given = Estimates(*map(np.stack, zip(*given, strict=True)))
    alarm = np.array(alarm, bool)

    @jax.jit
    @jax.vmap
    def compiled(given, current, alarm):
        momenta = jnp.asarray(MOMENTA)
        return [decide(policy, given, momenta, current, alarm, xp=jnp) for policy in POLICIES]

    found_by = compiled(given, np.array(current), alarm)
    for policy, places in zip(POLICIES, found_by, strict=True):
        expected = [
            int(decide(policy, one, MOMENTA, place, bool(is_alarmed)))
            for one, place, is_alarmed in cases
        ]
        assert places.tolist() == expected


def test_an_idle_step_is_the_general_one():
    plan = Plan(budget=1.7)
    one = other = init_schedule(plan)
    for _ in range(100):
        if one.mode != IDLE:
            break
        one, begins = update_idle(one, plan, 1)
        other, begun = update_schedule(
            other, plan, 0, np.bool_(False), usual=1, undecided=np.bool_(False)
        )
        assert [float(part) for part in one] == pytest.approx([float(part) for part in other])
        assert bool(begins) == bool(begun)
    assert one.mode != IDLE


def test_the_work_stays_within_the_budget():
    config = GuardConfig("safe", (0.9, 0.5, 0.0), Plan(budget=0.5))
    state, work, steps = init_guard(config), 0.0, 1_000
    calm = Energy(np.ones(3), np.zeros(3)), Energy(np.full(3, 0.98), np.zeros(3))
    for _ in range(steps):
        met = None
        if is_probing(state):
            work += 2.0 + 1.4 * active(state, config).sum()
            met = ShadowStep(*calm, np.ones(3))
        state = update_guard(state, config, 1.0, met)
    assert 0.25 < work / steps < 0.525
    assert int(state.current) == 0


def test_states_survive_as_lists():
    config = GuardConfig("safe", (0.9, 0.0))
    state = init_guard(config)
    for step in range(100):
        state = update_guard(state, config, 1.0 + step)
    again = from_lists(as_lists(state), config)
    for wrong in (as_lists(state)[:-1], [*as_lists(state)[:-1], "many"], as_lists(state)[::-1]):
        with pytest.raises(ValueError, match="its "):
            from_lists(wrong, config)
    for one, other in zip(as_lists(again), as_lists(state), strict=True):
        np.testing.assert_array_equal(one, other)


def rhythm(steps, growth):
    """Return what shadows meet whose lengths grow by the same factors in each step."""
    ones, none = np.ones(len(growth)), np.zeros(len(growth))
    met = ShadowStep(Energy(ones, none), Energy(np.exp(2 * np.asarray(growth)), none), ones)
    return [met] * steps


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        ((-0.02, -0.04, -0.05, -0.05), 0),
        ((0.02, -0.04, -0.05, -0.05), 1),
        ((0.04, 0.03, 0.02, 0.01), 3),
    ],
)
@pytest.mark.parametrize("policy", ["safe", "watch"])
def test_a_warm_up_ends_with_the_largest_momentum_that_does_not_grow(policy, growth, expected):
    config = GuardConfig(policy, (0.95, 0.9, 0.75, 0.0), Plan(warmup=128))
    state, places = init_guard(config), []
    for met in rhythm(128, growth):
        assert is_probing(state)
        assert active(state, config).all()
        places.append(int(state.current))
        state = update_guard(state, config, 1.0, met)
    small = 0 if policy == "watch" else 2
    if growth[2] < 0:  # else the guard need not wait for the end
        assert places == [small] * 128
    assert int(state.current) == (0 if policy == "watch" else expected)
    assert not is_probing(state)


def test_a_warm_up_is_long_enough_or_not_at_all():
    assert Plan(warmup=0).checked().warmup == 0
    with pytest.raises(ArgumentError, match="warmup must be 0 or at least 96 steps, got 64"):
        Plan(warmup=64).checked()
    config = GuardConfig("safe", (0.95, 0.0), Plan(warmup=96))
    state = init_guard(config)
    for met in rhythm(96, (-0.02, -0.03)):
        state = update_guard(state, config, 1.0, met)
    assert estimates(state.growth).is_known.all()


def test_a_rhythm_is_found_and_noise_has_none():
    rng = np.random.default_rng(0)
    steps = np.arange(256)
    for period in (6, 24, 48):
        signal = 1.0 * (steps % period < period / 2) + 0.3 * rng.normal(size=256)
        assert period_of(signal) == pytest.approx(period, rel=0.03)
    assert np.mean([period_of(rng.normal(size=256)) is not None for _ in range(100)]) < 0.1


def test_candidates():
    assert candidates_below(0.0) == (0.0,)
    assert candidates_below(0.99)[:3] == (0.99, 0.98, 0.97)
    assert checked_candidates([0.5], 0.9) == (0.9, 0.5)
    with pytest.raises(ArgumentError, match="candidates must be at least 0 and below 1"):
        checked_candidates([1.5], 0.9)
    with pytest.raises(ArgumentError, match="unknown policy 'save', did you mean 'safe'"):
        checked_policy("save")
