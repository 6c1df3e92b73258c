"""The level of adaptive optimizers: closed forms, other routes to the same numbers, other Adams."""

from __future__ import annotations

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
from resonax.checks import ArgumentError
from resonax.learners import Linear, Transform
from resonax.learners.adaptive import adaptive_form
from resonax.stability.closure import solve
from resonax.stability.coordinates import Coordinates, Layout
from resonax.stability.cycle import at_rest, distances
from resonax.stability.level import _band, _notes, level, levels
from resonax.stability.mean_square import noise_floor
from resonax.stability.plan import plan

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
        groups = given.layout.groups
        found.append(np.asarray(rest.square)[groups])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-6)


def test_coordinates_read_what_they_build():
    for layout in (Layout((0, 3), (1, 2)), Layout((0, 3), (1, 2), turned_over_cycle=(0, 1, 2))):
        found = Coordinates.of(layout)
        read = found.basis[:, found.row, found.column]
        np.testing.assert_array_equal(read, np.eye(len(read)))
        np.testing.assert_allclose(found.leave @ found.enter, np.eye(len(found.cycle_basis)))
    assert Layout((0, 3), (1, 2), turned_over_cycle=(0, 1, 2)).groups.tolist() == [0, 0, 0, 1]


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


def test_a_short_memory_is_said_and_a_long_one_is_not():
    for beta2, says in ((0.8, True), (0.84, False)):  # 5 and 6.25 steps, for a cycle of 2
        notes = level(constant(adam(LR, 0.0, beta2))).notes
        assert bool(notes) == says
        assert not says or "fewer than 3 periods" in notes[0]


def test_amsgrad_is_bounded_and_others_are_refused():
    amsgrad = Transform.of(optax.amsgrad, {"lr": LR, "beta1": 0.5, "beta2": 0.999})
    assert "upper bound" in _notes(adaptive_form(amsgrad), 2.0, ())[0]
    with pytest.raises(ArgumentError, match="a level is predicted for adam"):
        level(constant(heavy_ball(LR, 0.5)))
    with pytest.raises(ArgumentError, match="repeats or switches"):
        level(Problem(AR2(period=20), adam(LR)))


def test_the_band_ends_where_the_ratio_crosses():
    periods = np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    low, high = _band(periods, np.array([1.0, 1.0, 2.0, 2.0, 1.0]), 1.0)
    assert low == pytest.approx(2 * np.sqrt(2))
    assert high == pytest.approx(8 * np.sqrt(2))
    assert _band(periods, np.full(5, 1.4), 1.0) == (None, None)
    assert _band(periods, np.full(5, 1.6), 1.0) == (1.0, 16.0)


def test_a_map_of_levels_has_distances_and_a_picture():
    stream = Switching(period=8, amplitude=1.0, variance=0.2, dim=2)
    problem = Problem(stream, adam(0.02), noise=0.1)
    found = stability_map(problem, "level", beta1=[0.8, 0.9], period=[1.0, 8.0])
    assert found.distance.dims == ("beta1", "period")
    assert (np.diff(found.distance.values, axis=1) > 0).all()  # the switching period is worse
    assert found.resonax.summary()["largest"] == pytest.approx(float(found.distance.max()))
    assert found.resonax.plot().axes[0].get_ylabel() == "momentum of Adam β₁"
    heavy = Problem(stream, heavy_ball(0.01, 0.9))
    with pytest.raises(ArgumentError, match="a level is predicted for adam"):
        stability_map(heavy, "level", momentum=[0.8, 0.9], period=[1.0, 8.0])
