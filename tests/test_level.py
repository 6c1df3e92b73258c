"""The level of adaptive optimizers: closed forms, other routes to the same numbers, other Adams."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from resonax import (
    AR2,
    Problem,
    Recorded,
    Setting,
    Sinusoid,
    Switching,
    adam,
    heavy_ball,
    stability_map,
)
from resonax.core.errors import ArgumentError
from resonax.learners import Linear, Transform
from resonax.learners.adaptive import adaptive_form
from resonax.theory.closure import plan, solve
from resonax.theory.far_field import drift, find_escape
from resonax.theory.level import Branch, Level, _notes, level, levels
from resonax.theory.mean_square import noise_floor
from resonax.theory.orbit import raised_band
from resonax.theory.second_moment import Coordinates, Symmetry, at_rest, distances

NOISE, LR = 0.3, 0.05


def freeze(optimizer: Transform, square: np.ndarray) -> Any:
    """Return heavy ball at a mean square, by one program in place of one for every operation."""
    return jax.jit(adaptive_form(optimizer).freeze)(square)


def constant(optimizer: Transform) -> Problem:
    """Rows that are always 1: curvature 2, and gradients 2 (error - noise)."""
    rows = Recorded.of(np.ones((2, 1)), repeat=True)
    return Problem(rows, optimizer, Linear(bias=False), noise=NOISE)


def variance_of_heavy_ball(step: float, momentum: float) -> float:
    """Variance of an AR(2) process: the error of heavy ball on a constant curvature of 2."""
    curved = 2 * step
    forced = 4 * NOISE * step**2 * (1 + momentum)
    return forced / ((1 - momentum) * curved * (2 * (1 + momentum) - curved))


def test_constant_curvature_without_momentum_has_a_closed_form():
    found = level(constant(adam(LR, beta1=0.0)))
    root = (LR + np.sqrt(LR**2 + 16 * NOISE)) / 2  # v - lr sqrt(v) = 4 noise
    step = LR / root
    assert found.branches[0].square[0] == pytest.approx(root**2, rel=1e-5)
    assert found.rms == pytest.approx(np.sqrt(step * NOISE / (1 - step)), rel=1e-4)
    assert found.distance == pytest.approx(np.sqrt(2 / np.pi) * found.rms, rel=1e-6)
    assert found.over_iid == pytest.approx(1.0, rel=1e-4)
    assert found.period_low is None
    assert "no period" not in str(found)  # a constant curvature has none: none was tried


def test_heavy_ball_on_a_constant_curvature_has_a_closed_form():
    found = level(constant(heavy_ball(LR, 0.5)))
    assert found.rms == pytest.approx(np.sqrt(variance_of_heavy_ball(LR, 0.5)), rel=1e-9)
    assert (found.orbit, found.gain) == (0.0, None)
    assert found.over_iid == pytest.approx(1.0, rel=1e-9)


def test_constant_curvature_with_momentum_solves_the_closure():
    branch = level(constant(adam(LR, beta1=0.9))).branches[0]
    square = variance_of_heavy_ball(LR * 0.1 / np.sqrt(branch.square[0]), 0.9)
    assert branch.is_stable
    assert branch.rms == pytest.approx(np.sqrt(square), rel=1e-4)
    assert branch.square[0] == pytest.approx(4 * square + 4 * NOISE, rel=1e-5)


def test_rmsprop_enters_the_whole_gradient_into_its_velocity():
    rmsprop = Transform.of(optax.rmsprop, {"lr": LR, "decay": 0.99, "momentum": 0.9, "eps": 0.0})
    frozen = freeze(rmsprop, np.array([4.0]))
    assert (float(frozen.lr[0]), frozen.momentum) == (pytest.approx(LR / 2), 0.9)


def test_a_fixed_mean_square_gives_the_noise_floor_of_heavy_ball():
    stream = Sinusoid(period=7, amplitude=0.8, variance=0.3, dim=2)
    problem = Problem(stream, adam(LR, 0.8), batch=3, noise=NOISE)
    square = np.array([0.5, 0.7, 0.9])
    with jax.enable_x64(True):
        frozen = Setting.of(problem, optimizer=freeze(problem.optimizer, square))
        given, steps = plan(problem), jnp.asarray(7)

        @jax.jit
        def rest_of(frozen):
            rest = at_rest(frozen, given, steps, 7)
            return rest.exists, distances(frozen, given, rest, steps, 7).rms

        exists, rms = rest_of(frozen)
        assert bool(exists)
        assert float(rms) == pytest.approx(noise_floor(frozen), rel=1e-9)
        grown = Setting.of(problem, optimizer=freeze(adam(20.0, 0.8), square))
        assert not bool(rest_of(grown)[0])


@pytest.mark.slow
def test_a_sine_of_period_2_is_always_0():
    sine = Sinusoid(period=2.0, amplitude=1.0, variance=0.3)
    values = {"amplitude": np.array([1.0, 0.0]), "period": np.full(2, 2.0)}
    moving, still = levels(Problem(sine, adam(LR, 0.9), noise=NOISE), values)
    assert moving == pytest.approx(still, rel=1e-6)


@pytest.mark.slow
def test_symmetry_changes_nothing():
    found = []
    for variance in (np.float64(0.2), np.array([0.2, 0.2])):
        stream = Switching(period=4.5, amplitude=0.7, variance=variance, dim=2)
        problem = Problem(stream, adam(LR, 0.8), noise=NOISE)
        with jax.enable_x64(True):
            form = adaptive_form(problem.optimizer)
            frozen = Setting.of(problem, optimizer=form.freeze(np.array([0.4, 0.4, 0.6])))
            given = plan(problem)
            rest = jax.jit(at_rest, static_argnums=1)(frozen, given, jnp.asarray(5), 5)
        groups = given.symmetry.groups
        found.append(np.asarray(rest.square)[groups])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_coordinates_read_what_they_build():
    for symmetry in (
        Symmetry((0, 3), (1, 2)),
        Symmetry((0, 3), (1, 2), turned_over_cycle=(0, 1, 2)),
    ):
        found = Coordinates.of(symmetry)
        read = found.basis[:, found.row, found.column]
        np.testing.assert_array_equal(read, np.eye(len(read)))
        np.testing.assert_allclose(found.leave @ found.enter, np.eye(len(found.cycle_basis)))
    assert Symmetry((0, 3), (1, 2), turned_over_cycle=(0, 1, 2)).groups.tolist() == [0, 0, 0, 1]


def test_decoupled_decay_is_a_decay_of_its_own_for_each_weight():
    adamw = Transform.of(optax.adamw, {"lr": 0.1, "beta1": 0.7, "eps": 0.0, "weight_decay": 0.5})
    square = np.array([0.25, 4.0])
    frozen = freeze(adamw, square)
    rng = np.random.default_rng(0)
    weights = last = np.array([1.0, -2.0])
    kept, mean = weights.copy(), np.zeros(2)
    for _ in range(30):
        gradient = rng.normal(size=2)
        mean = 0.7 * mean + 0.3 * gradient
        kept = kept - 0.1 * 0.5 * kept - 0.1 * mean / np.sqrt(square)
        decayed = gradient + np.asarray(frozen.weight_decay) * weights
        move = frozen.momentum * (weights - last) - np.asarray(frozen.lr) * decayed
        weights, last = weights + move, weights
        if _ == 0:  # the first step has no step before it: AdamW begins with a mean of 0
            weights = kept
    np.testing.assert_allclose(weights, kept, rtol=1e-5)


def torch_levels(stream: Switching, periods: list[int], lr: float, beta1: float, noise: float):
    """Train many runs of torch's Adam at once; return mean distances and root mean squares."""
    runs, steps, dim = 400, 600, stream.dim
    rng = np.random.default_rng(5)
    error = torch.zeros((len(periods), runs, dim + 1))
    optimizer = torch.optim.Adam([error], lr=lr, betas=(beta1, 0.995))
    lengths, mean = [], np.zeros((len(periods), runs, dim))
    rows = torch.ones((len(periods), runs, dim + 1))
    for step in range(steps):
        for place, period in enumerate(periods):
            if step % period == 0:  # 0 is such a step
                mean[place] = stream.amplitude * rng.normal(size=(runs, dim))
        drawn = mean + np.sqrt(stream.variance) * rng.normal(size=mean.shape)
        rows[..., :dim] = torch.from_numpy(drawn)
        label = torch.from_numpy(np.sqrt(noise) * rng.normal(size=mean.shape[:2]))
        miss = (rows * error).sum(2) - label
        error.grad = (2 * miss[..., None] * rows).to(error)  # by hand: it is Adam that is torch's
        optimizer.step()
        if step >= 350:
            lengths.append(error.norm(dim=2).numpy())
    squares = np.sqrt(np.mean(np.square(lengths), axis=(0, 2)))
    return np.mean(lengths, axis=(0, 2)), squares


def test_torch_adam_settles_at_the_level():
    stream = Switching(period=8, amplitude=1.0, variance=0.2, dim=2)
    problem = Problem(stream, adam(0.02, beta1=0.9, beta2=0.995), noise=0.1)
    # As many cells as the map below has, of the same names: they share a compiled program.
    cells = {"beta1": np.full(4, 0.9), "period": np.array([1.0, 8.0, 1.0, 8.0])}
    found = solve(problem, cells, points=32)
    order = np.argsort(found.cell)[:2]
    mean, square = torch_levels(stream, [1, 8], 0.02, 0.9, 0.1)
    assert found.distance[order] == pytest.approx(mean, rel=0.06)
    assert found.rms[order] == pytest.approx(square, rel=0.06)
    assert found.distance.max() > 1.2 * found.distance.min()


EXAMPLE = np.array([[3.0, -1, -1], [-1, 3, -1], [-1, -1, 3]])


def hold(rows: np.ndarray, steps: int, optimizer: Transform, noise: float = 0.0) -> Problem:
    """Rows that repeat, each held for some steps."""
    law = Recorded.of(np.repeat(rows, steps, axis=0), repeat=True)
    return Problem(law, optimizer, Linear(bias=False), noise=noise)


def adam_errors(rows: np.ndarray, steps: int, lr: float, beta2: float, start: np.ndarray):
    """Train by Adam in NumPy without noise for 40 periods; return the error after each."""
    error, mean, square, found = start.astype(float), np.zeros(3), np.zeros(3), []
    for step in range(40 * steps * len(rows)):
        row = rows[step // steps % len(rows)]
        gradient = 2 * (row @ error) * row
        mean = 0.9 * mean + 0.1 * gradient
        square = beta2 * square + (1 - beta2) * gradient**2
        corrected = mean / (1 - 0.9 ** (step + 1))
        error = error - lr * corrected / (np.sqrt(square / (1 - beta2 ** (step + 1))) + 1e-8)
        if (step + 1) % (steps * len(rows)) == 0:
            found.append(np.linalg.norm(error))
    return np.array(found)


def test_held_rows_drive_adam_away_as_fast_as_predicted():
    found = level(hold(EXAMPLE, 30, adam(1e-3, beta2=0.9)))
    assert found.verdict == "diverges"
    assert found.distance is None
    lengths = adam_errors(EXAMPLE, 30, 1e-3, 0.9, np.array([3.0, 3.1, 2.9]))
    assert lengths[-1] > lengths[0] + 0.5
    assert found.growth == pytest.approx((lengths[-1] - lengths[19]) / (20 * 90), rel=0.02)
    assert "at least 0.9963" in found.notes[0]
    assert "without bound" in str(found)
    with pytest.raises(ArgumentError, match="no level to draw"):
        found.plot()


def test_a_memory_of_three_periods_does_not_save_all_rows():
    gap = 0.01  # rows that hardly see the direction (1, 1, 1)
    rows, beta2 = (3 + gap) * np.eye(3) - 1, 1 - 1 / (3.3 * 30)
    found = level(hold(rows, 10, adam(1e-3, beta2=beta2)))
    lengths = adam_errors(rows, 10, 1e-3, beta2, np.full(3, 1e4))
    assert found.verdict == "diverges"
    growth = (lengths[-1] - lengths[19]) / (20 * 30)
    assert growth > 0
    assert found.growth == pytest.approx(growth, rel=0.05)
    assert "beta2 would have to be larger" in found.notes[0]


@pytest.mark.slow
def test_a_long_memory_brings_the_same_rows_back_and_a_larger_mean_square_too():
    lengths = adam_errors(EXAMPLE, 30, 1e-3, 0.999, np.array([1.0, 1.1, 0.9]))
    assert lengths[-1] < 0.5 * lengths[0]
    assert find_escape(hold(EXAMPLE, 30, adam(1e-3, beta2=0.999))) is None
    amsgrad = Transform.of(optax.amsgrad, {"lr": 1e-3, "beta2": 0.9})
    assert find_escape(hold(EXAMPLE, 30, amsgrad)) is None
    assert level(hold(EXAMPLE, 30, adam(1e-3, beta2=0.999), 0.01)).verdict == "settles"


@pytest.mark.parametrize("make", [optax.rmsprop, optax.nadam, optax.adamw])
def test_other_adaptive_optimizers_drift_as_optax_moves_them(make):
    numbers = {"lr": 1e-3, "decay": 0.9, "momentum": 0.5} if make is optax.rmsprop else {}
    numbers = numbers or {"lr": 1e-3, "beta1": 0.8, "beta2": 0.9}
    if make is optax.adamw:
        numbers |= {"weight_decay": 0.0}
    optimizer = Transform.of(make, numbers)
    problem = hold(EXAMPLE, 30, optimizer)
    own = {"b1": 0.8, "b2": 0.9} if "beta1" in numbers else {"decay": 0.9, "momentum": 0.5}
    transform = make(1e-3, **own, **({"weight_decay": 0.0} if make is optax.adamw else {}))
    rows, start = np.repeat(EXAMPLE, 30, axis=0), np.array([4e4, 5e4, 3e4])

    @jax.jit
    def mean_step(start, rows):
        def step(carry, row):
            error, state = carry
            move, state = transform.update(2 * (row @ error) * row, state, error)
            return (error + move, state), None

        first = jax.lax.scan(step, (start, transform.init(start)), jnp.tile(rows, (4, 1)))[0]
        return (jax.lax.scan(step, first, rows)[0][0] - first[0]) / len(rows)

    with jax.enable_x64(True):
        moved = np.asarray(mean_step(jnp.asarray(start), jnp.asarray(rows)))
    assert -1e-3 * drift(problem, [start])[0] == pytest.approx(moved, rel=1e-3)


def test_weight_decay_stops_the_error_where_it_grows_as_fast_as_it_falls():
    adamw = Transform.of(optax.adamw, {"lr": 1e-3, "beta2": 0.9, "weight_decay": 0.01})
    found = level(hold(EXAMPLE, 30, adamw))
    assert found.verdict == "undecided"
    assert "near a distance of 18.8;" in found.notes[0]  # 0.1877 / 0.01


@pytest.mark.slow
def test_a_memory_below_three_periods_is_undecided_and_a_longer_one_is_not():
    for beta2, word in ((0.8, "undecided"), (0.84, "settles")):  # 5 and 6.25 steps, a cycle of 2
        found = level(constant(adam(LR, 0.0, beta2)))
        assert found.verdict == word
        assert (found.distance is None) == (word == "undecided")
    stream = Switching(period=8, amplitude=1.0, variance=0.2, dim=2)
    problem = Problem(stream, adam(0.02, beta2=0.9), noise=0.1)
    assert "beta2 would have to be at least 0.9583" in level(problem).notes[0]  # 1 - 1/24
    cells = {"beta1": np.full(2, 0.9), "period": np.array([1.0, 8.0])}
    assert np.isnan(levels(problem, cells)).tolist() == [False, True]
    held = levels(hold(EXAMPLE, 2, adam(1e-3, beta2=0.9)), {"beta1": np.array([0.0, 0.9])})
    assert np.isnan(held).all()


@pytest.mark.slow
def test_a_recording_is_taken_a_batch_at_a_time():
    rows = np.array([[1.0, 0.3], [-0.5, 1.0], [0.2, -1.0], [1.5, 0.1]])
    both = Problem(Recorded.of(rows, repeat=True), adam(LR), Linear(bias=False), 2, noise=NOISE)
    batches = Recorded.of(rows, repeat=True).grouped(2)
    alone = Problem(batches, adam(LR), Linear(bias=False), 2, noise=NOISE)
    assert level(both).rms == pytest.approx(level(alone).rms)
    assert drift(alone, [[1.0, 2.0]]).shape == (1, 2)


def test_a_level_can_be_given_up_while_it_is_computed():
    problem = Problem(Switching(period=8, amplitude=1.0, variance=0.2), adam(0.02), noise=0.1)

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        level(problem, stop)


def test_words_of_a_level_claim_a_prediction_only_where_there_is_one():
    problem = Problem(Switching(period=8.0), adam(0.02), batch=2)
    short = replace(problem, optimizer=adam(0.02, beta2=0.9))
    assert "random order" in level(problem).scoped(problem)
    assert level(problem).scoped(problem).endswith("(predicted for " + problem.scope() + ")")
    assert level(short).scoped(short).endswith("no level is predicted (for " + short.scope() + ")")


def test_several_levels_are_given_as_a_range():
    branches = tuple(Branch(rms, rms, (1.0,), is_stable=i != 1) for i, rms in enumerate((3, 2, 1)))
    found = Level(3.0, 3.0, 2.0, None, None, (), (), branches)
    assert str(found).startswith("settles between 1 and 3 from the best weights, up to 2.00 times")
    assert "does not say which" in _notes(adaptive_form(adam(LR)), branches)[0]


def test_what_has_no_level_is_refused_before_anything_is_computed(monkeypatch):
    monkeypatch.setattr(sys.modules[Level.__module__], "solve", None)
    rows = Recorded.of(np.random.default_rng(0).normal(size=(20, 12)), repeat=True)
    with pytest.raises(ArgumentError, match="at most 8 weights"):
        level(Problem(rows, adam(LR)))


@pytest.mark.slow
def test_random_order_has_the_symmetry_of_the_stream():
    stream = Sinusoid(period=4, amplitude=0.8, variance=0.3, dim=12)
    assert level(Problem(stream, adam(LR, beta2=0.95), noise=NOISE)).over_iid == pytest.approx(
        1, abs=0.5
    )


def test_amsgrad_is_bounded_and_others_are_refused():
    amsgrad = Transform.of(optax.amsgrad, {"lr": LR, "beta1": 0.5, "beta2": 0.999})
    assert "upper bound" in _notes(adaptive_form(amsgrad), ())[0]
    with pytest.raises(ArgumentError, match="a level is predicted for adam"):
        level(constant(Transform.of(optax.lion, {"lr": LR, "beta1": 0.5})))
    with pytest.raises(ArgumentError, match="repeats or switches"):
        level(Problem(AR2(period=20), adam(LR)))


def test_the_band_ends_where_the_ratio_crosses():
    periods = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    low, high = raised_band(periods, np.array([1.0, 1.0, 2.0, 2.0, 1.0]), 1.0)
    assert low == pytest.approx(2 * np.sqrt(2))
    assert high == pytest.approx(8 * np.sqrt(2))
    assert raised_band(periods, np.full(5, 1.4), 1.0) == (None, None)
    assert raised_band(periods, np.full(5, 1.6), 1.0) == (1.0, 16.0)


def test_a_map_of_levels_has_distances_and_a_picture():
    stream = Switching(period=8, amplitude=1.0, variance=0.2, dim=2)
    problem = Problem(stream, adam(0.02), noise=0.1)
    found = stability_map(problem, "level", beta1=[0.8, 0.9], period=[1.0, 8.0])
    assert found.distance.dims == ("beta1", "period")
    assert (np.diff(found.distance.values, axis=1) > 0).all()  # the switching period is worse
    assert found.resonax.summary()["largest"] == pytest.approx(float(found.distance.max()))
    assert found.resonax.plot().axes[0].get_ylabel() == "momentum of Adam β₁"
    for periods in ([8.0, 500.0], [400.0, 500.0]):  # too long for the memory, one of them or both
        some = stability_map(problem, "level", beta1=[0.8, 0.9], period=periods)
        (legend,) = some.resonax.plot().legends
        assert "it diverges or is undecided" in legend.get_texts()[0].get_text()
    lion = Problem(stream, Transform.of(optax.lion, {"lr": 0.01, "beta1": 0.9}))
    with pytest.raises(ArgumentError, match="a level is predicted for adam"):
        stability_map(lion, "level", beta1=[0.8, 0.9], period=[1.0, 8.0])
