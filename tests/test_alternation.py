"""Phases that alternate: rates, orbits and maps against closed forms and brute force."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

import resonax as rx
from resonax.learners.adaptive import adaptive_form
from resonax.theory.alternation import canonical, driven_orbit, growth, phase_steps, settle
from resonax.theory.phases import alternation
from resonax.theory.subspace import Phase, Reduced, subspaces

OPTIMIZERS = {
    "sgd": rx.sgd(0.05),
    "heavy ball": rx.heavy_ball(0.01, 0.97),
    "nesterov": rx.nesterov(0.01, 0.95),
    "decay": rx.heavy_ball(0.02, 0.9, dampening=0.3, weight_decay=0.1),
}


def random_phases(size: int, steps: tuple[int, ...], samples: int = 3) -> list[Phase]:
    random = np.random.default_rng(size)
    phases = []
    for place, count in enumerate(steps):
        factor = random.normal(size=(samples, size, size))
        batches = factor @ factor.transpose(0, 2, 1) / size
        gradients = random.normal(size=(samples, size))
        phases.append(Phase(lambda v, of=batches: of @ v, gradients, count, f"p{place}"))
    return phases


def matrix_of(phase: Phase) -> np.ndarray:
    return np.stack([phase.product(one).mean(0) for one in np.eye(phase.gradients.shape[1])])


def moves(optimizer, curvature, weights, velocity, force):
    """One step as the optimizer is documented, written apart from the theory."""
    h = curvature @ weights + force + optimizer.weight_decay * weights
    velocity = optimizer.momentum * velocity - optimizer.alpha * h
    return weights + optimizer.kappa * velocity - optimizer.beta * h, velocity


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize(
    "process", [rx.Square(period=22), rx.Sinusoid(period=13)], ids=["square", "sinusoid"]
)
def test_linear_models_have_the_rates_of_the_map(name, process):
    optimizer = OPTIMIZERS[name]
    setting = rx.Setting(process, optimizer)
    with jax.enable_x64(True):
        curvatures = [
            np.asarray(setting.curvature(process.moments(step)))
            for step in range(int(process.period))
        ]
    phases = [Phase(lambda v, of=of: of @ v, np.zeros((1, len(of))), 1) for of in curvatures]
    [space] = subspaces(phases, sizes=[len(curvatures[0])])
    exact = rx.rates(setting, {"momentum": [optimizer.momentum]}, "map")[0]
    found = growth(canonical(optimizer)[0], space.reduced.means, space.reduced.steps)
    assert found == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_whole_subspace_is_the_product_of_the_matrices(name):
    optimizer, phases = OPTIMIZERS[name], random_phases(7, (5, 9, 3))
    *_, space = subspaces(phases, sizes=[3, 40])
    assert space.is_whole
    product = np.eye(14)
    for phase in phases:
        curvature = matrix_of(phase)
        for _ in range(phase.steps):
            columns = [moves(optimizer, curvature, c[:7], c[7:], 0.0) for c in product.T]
            product = np.array([np.concatenate(pair) for pair in columns]).T
    exact = math.log(np.abs(np.linalg.eigvals(product)).max()) / 17
    found = growth(canonical(optimizer)[0], space.reduced.means, space.reduced.steps)
    assert found == pytest.approx(exact, abs=1e-10)


def test_adam_with_a_fixed_second_moment_is_the_product_of_its_matrices():
    phases, random = random_phases(6, (4, 4)), np.random.default_rng(1)
    square, lr, beta1, decay = random.uniform(0.1, 4, 6), 0.05, 0.9, 0.3
    optimizer = rx.adamw(lr=lr, beta1=beta1, weight_decay=decay)
    rule, form = canonical(optimizer)
    assert form is not None
    *_, space = subspaces(phases, np.sqrt(square) + form.eps, sizes=[6])
    product = np.eye(12)
    for phase in phases:
        curvature = matrix_of(phase)
        step = np.zeros((12, 12))
        for k, (w, m) in enumerate(np.eye(12).reshape(12, 2, 6)):  # as torch.optim.AdamW does
            w, m = w * (1 - lr * decay), beta1 * m + (1 - beta1) * (curvature @ w)
            step[:, k] = np.concatenate([w - lr * m / (np.sqrt(square) + form.eps), m])
        product = np.linalg.matrix_power(step, phase.steps) @ product
    exact = math.log(np.abs(np.linalg.eigvals(product)).max()) / 8
    found = growth(rule, space.reduced.means, space.reduced.steps)
    assert found == pytest.approx(exact, abs=1e-9)


def test_the_orbit_is_that_of_a_long_run():
    optimizer, phases = rx.heavy_ball(0.05, 0.8, weight_decay=0.01), random_phases(4, (6, 10))
    *_, space = subspaces(phases, sizes=[4])
    found = driven_orbit(canonical(optimizer)[0], space.reduced)
    curvatures = [matrix_of(phase) for phase in phases]
    means = np.array([phase.gradients.mean(0) for phase in phases])
    noises = [np.cov(phase.gradients, rowvar=False) for phase in phases]
    shares = np.array([6, 10]) / 16
    mean, slope = np.tensordot(shares, curvatures, 1), shares @ means

    def costs(ordered):
        # Means and covariances of weights and velocity, step by step.
        cost = []
        state, spread = np.zeros(8), np.zeros((8, 8))
        gains = np.concatenate([np.full(4, -0.05)] * 2)
        for k in range(16 * 200):
            place = int(k % 16 >= 6)
            if k >= 16 * 199:
                square = spread[:4, :4] + np.outer(state[:4], state[:4])
                cost.append(0.5 * np.sum(mean * square) + slope @ state[:4])
            curvature = curvatures[place] if ordered else mean
            force = means[place] - slope if ordered else 0 * slope
            noise = noises[place] if ordered else np.tensordot(shares, noises, 1)
            columns = [moves(optimizer, curvature, e[:4], e[4:], 0.0) for e in np.eye(8)]
            step = np.array([np.concatenate(pair) for pair in columns]).T
            state = step @ state + gains * np.tile(force, 2)
            spread = step @ spread @ step.T + np.outer(gains, gains) * np.tile(noise, (2, 2))
        return np.mean(cost)

    assert found.excess == pytest.approx(costs(True) - costs(False), rel=1e-9)


def test_one_phase_costs_nothing():
    [space] = subspaces(random_phases(5, (8,)), sizes=[5])
    orbit = driven_orbit(canonical(rx.heavy_ball(0.02, 0.9))[0], space.reduced)
    assert orbit.excess == pytest.approx(0, abs=1e-12)


def test_the_direction_that_is_driven_at_its_own_period_carries_the_excess():
    lr, momentum = 0.01, 0.98
    curvature = np.diag([1.0, 4.0, 0.1])
    force = np.array([1.0, 0.1, 0.1])
    reduced = Reduced((curvature[None],) * 2, (force[None], -force[None]), (1, 1))
    swings = 2 * math.pi / math.sqrt(lr * 1.0)  # of the first direction: 62.8 steps
    periods = range(8, 200, 4)
    orbits = [
        driven_orbit(
            canonical(rx.heavy_ball(lr, momentum))[0],
            reduced._replace(steps=phase_steps((1, 1), period)),
        )
        for period in periods
    ]
    peak = int(np.argmax([orbit.excess for orbit in orbits]))
    assert periods[peak] == pytest.approx(swings, abs=4)
    assert orbits[peak].modes[0].curvature == pytest.approx(1.0)
    assert orbits[peak].modes[0].share > 0.9
    assert orbits[peak].modes[0].period == pytest.approx(swings, rel=0.02)


def test_a_second_moment_that_cannot_move_changes_nothing():
    phases = random_phases(5, (3, 3))
    form = adaptive_form(rx.adam(lr=0.03, beta1=0.8, beta2=1 - 1e-12))
    square = np.full(5, 4.0)
    *_, space = subspaces(phases, np.sqrt(square) + form.eps, sizes=[5], keep_products=True)
    rule = canonical(form)[0]
    gradients = np.array([phase.gradients.mean(0) for phase in phases])
    found = settle(rule, form, space, gradients, square, (3, 3), length=4_000)
    assert found.excess == pytest.approx(driven_orbit(rule, space.reduced).excess, rel=1e-3)


def test_growth_ends_where_the_second_moment_follows_it():
    # The phases are unstable together, so that a fixed second moment lets the orbit diverge.
    phases = [
        Phase(lambda v, h=h: h * v, np.array([[0.1], [-0.1], [0.2 * sign]]), 11)
        for h, sign in ((1.0, 1), (3.0, -1))
    ]
    form = adaptive_form(rx.adam(lr=0.01, beta1=0.99, beta2=0.9))
    square = np.array([1e-4])
    space = list(subspaces(phases, np.sqrt(square), sizes=[1], keep_products=True))[-1]
    rule = canonical(form)[0]
    assert growth(rule, space.reduced.means, (11, 11)) > 0.01
    assert driven_orbit(rule, space.reduced).excess == math.inf
    gradients = np.array([phase.gradients.mean(0) for phase in phases])
    ends = [
        settle(rule, form, space, gradients, square, (11, 11), length=length).excess
        for length in (1000, 2000)
    ]
    assert 0 < ends[1] < 1
    assert ends[1] == pytest.approx(ends[0], rel=0.4)


def test_a_mean_gradient_that_lasts_is_no_excess_where_phases_alternate_fast():
    # The second moment is 26 times that of mixed batches, so that steps are a fifth as long.
    phases = [Phase(lambda v: 1e-3 * v, np.array([[1.0 + force]]), 1) for force in (5.0, -5.0)]
    form, square = adaptive_form(rx.adam(lr=0.01, beta1=0.9, beta2=0.9)), np.array([1.0])
    *_, space = subspaces(phases, np.sqrt(square), sizes=[1], keep_products=True)
    gradients = np.array([phase.gradients.mean(0) for phase in phases])
    rule = canonical(form)[0]
    found = settle(rule, form, space, gradients, square, (1, 1), length=500)
    assert abs(found.excess) < 0.05


@pytest.mark.filterwarnings("error")
def test_where_mixed_batches_diverge_as_well_the_excess_is_infinite():
    phases = random_phases(5, (3, 3))
    form = adaptive_form(rx.adam(lr=3.0, beta1=0.8, beta2=0.9))
    square = np.full(5, 1e-4)
    *_, space = subspaces(phases, np.sqrt(square), sizes=[5], keep_products=True)
    rule = canonical(form)[0]
    assert growth(rule, space.reduced.means.mean(0)[None], (1,)) > 0.1
    gradients = np.array([phase.gradients.mean(0) for phase in phases])
    found = settle(rule, form, space, gradients, square, (3, 3), length=100)
    assert found.excess == math.inf


def test_the_verdict_has_an_interval_that_holds_that_of_more_batches():
    few = {"momenta": [0.5, 0.9], "periods": [8]}
    wide = alternation(random_phases(12, (4, 4), 4), rx.heavy_ball(0.02, 0.9), **few)
    assert wide.low < wide.rate < wide.high
    assert wide.is_settled
    alone = alternation(random_phases(12, (4, 4), 1), rx.heavy_ball(0.02, 0.9), **few)
    assert alone.low == alone.rate == alone.high


def test_rates_that_still_move_are_undecided():
    found = alternation(
        random_phases(200, (4, 4)),
        rx.heavy_ball(0.5, 0.9),
        directions=3,
        momenta=[0.9],
        periods=[8],
    )
    assert found.verdict == "undecided"
    assert "at least" in str(found)
    assert "with 3 directions" in str(found)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"phases": []}, "at least one phase"),
        ({"optimizer": "adam"}, "optimizer must be"),
        ({"optimizer": rx.adam(lr=0.1)}, "needs square"),
        ({"optimizer": rx.adam(lr=0.1), "square": [1.0]}, "square must be 4 numbers"),
        ({"directions": 0}, "directions must be"),
        ({"memory": 10}, "memory must be at least"),
        ({"momenta": [0.9, 0.5]}, "momentum must be an increasing list"),
        ({"periods": [1]}, "at least 2 steps"),
        ({"phases": [Phase(lambda v: v[:2], np.ones((1, 4)), 3)]}, "a product of a phase"),
        ({"phases": [Phase(lambda v: v * np.nan, np.ones((1, 4)), 3)]}, "not finite"),
        ({"phases": [Phase(lambda v: v, np.ones(4), 3)]}, "samples by weights"),
        ({"phases": [Phase(lambda v: v, np.ones((1, 4)), 0, "code")]}, "steps of code"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(change, words):
    given = {"phases": random_phases(4, (3, 3)), "optimizer": rx.sgd(0.1), **change}
    with pytest.raises(rx.ArgumentError, match=words) as caught:
        alternation(given.pop("phases"), given.pop("optimizer"), **given)
    assert "\n" not in str(caught.value)
