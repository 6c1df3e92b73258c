"""The bound for every order: closed forms, the order that attains it, other people's optimizers."""

from __future__ import annotations

import math

import numpy as np
import optax
import pytest

import resonax as rx
from resonax.figures import plot_map
from resonax.learners import Radial
from resonax.theory.order_proof import order_proof

OPTIMIZERS = {"heavy_ball": rx.heavy_ball, "nesterov": rx.nesterov}


def bound(name: str, momentum: float) -> float:
    """The largest lr L, derived by hand at the point z = 1 of the circle."""
    if name == "heavy_ball":
        return 2 * (1 - momentum) ** 2 / (1 + momentum)
    return (1 - momentum) ** 2 / (momentum**2 + (1 - momentum) / 2)


def turning(steps: int, period: float) -> np.ndarray:
    """A row of length 1 that makes half a turn in so many steps."""
    angle = np.pi * np.arange(steps) / period
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("momentum", [0.0, 0.3, 0.75, 0.9, 0.99])
@pytest.mark.parametrize("curvature", [0.1, 4.0])
def test_the_bound_is_the_closed_form(name, momentum, curvature):
    own = bound(name, momentum) / curvature
    for factor, holds in ((0.999, True), (1.001, False)):
        found = order_proof(OPTIMIZERS[name](factor * own, momentum), curvature)
        assert found.holds is holds
        assert found.lr == pytest.approx(own, rel=1e-9)
        assert (found.rate > 0) is not holds
    at_it = order_proof(OPTIMIZERS[name](own, min(momentum + 0.001, 0.999)), curvature)
    assert at_it.momentum == pytest.approx(momentum, abs=1e-8)


def test_no_momentum_is_proof_where_plain_gradient_descent_is_not():
    assert order_proof(rx.heavy_ball(0.6, 0.5), 4.0).momentum is None
    assert order_proof(rx.sgd(0.49), 4.0).holds
    assert not order_proof(rx.sgd(0.51), 4.0).holds


def test_the_worst_rate_of_heavy_ball_is_the_closed_form():
    """With x = lr L, y = (1 + mu) x - (1 - mu)^2: rho + mu/rho = 4 sqrt(mu y / (4 y - x^2))."""
    for momentum in (0.5, 0.9):
        x = 1.3 * bound("heavy_ball", momentum)
        y = (1 + momentum) * x - (1 - momentum) ** 2
        both = 4 * math.sqrt(momentum * y / (4 * y - x**2))
        rho = (both + math.sqrt(both**2 - 4 * momentum)) / 2
        found = order_proof(rx.heavy_ball(x, momentum), 1.0)
        assert found.rate == pytest.approx(math.log(rho), rel=1e-9)


def grown(rows: np.ndarray, step: float, momentum: float) -> float:
    """Growth per step of heavy ball in NumPy over the last half of rows, each of curvature 1."""
    error, velocity, logs = np.array([1.0, 0.3]), np.zeros(2), []
    for row in rows:
        velocity = momentum * velocity - step * row * (row @ error)
        error = error + velocity
        size = np.hypot(*error) + np.hypot(*velocity)
        error, velocity = error / size, velocity / size
        logs.append(np.log(size))
    return float(np.exp(np.mean(logs[len(logs) // 2 :])))


def test_from_some_step_on_the_worst_row_of_heavy_ball_stands_still():
    for momentum in (0.1, 0.5, 0.9):
        edge = (3 * (1 + momentum) + np.sqrt((1 + momentum) ** 2 + 32 * momentum)) / 2
        for step in (0.99 * edge, 1.01 * edge):
            ahead = (1 + momentum) * step - (1 - momentum) ** 2
            both = 4 * np.sqrt(momentum * ahead / (4 * ahead - step**2))
            if step > edge:
                both = step - (1 + momentum)
            closed = (both + np.sqrt(both**2 - 4 * momentum)) / 2
            found = order_proof(rx.heavy_ball(step, momentum), 1.0)
            assert np.exp(found.rate) == pytest.approx(closed, rel=1e-9)
            angle = np.arange(600) * np.pi / found.period
            rows = np.stack([np.cos(angle), np.sin(angle)], axis=1)
            assert grown(rows, step, momentum) == pytest.approx(closed, rel=1e-2)
            assert (found.period == 1.0) == (step > edge)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_a_turning_row_attains_the_worst_rate_with_optax(name, decay):
    found = order_proof(OPTIMIZERS[name](0.6, 0.5, weight_decay=decay), 2.0)
    assert found.rate > 0.01
    assert found.period is not None
    rows = turning(300, found.period)
    method = optax.chain(
        optax.add_decayed_weights(decay),
        optax.sgd(0.6, momentum=0.5, nesterov=name == "nesterov"),
    )
    weights, logs = np.array([1.0, 0.3]), []
    state = method.init(weights)
    for row in rows:
        updates, state = method.update(2 * row * (row @ weights), state, weights)
        weights = np.asarray(weights + updates, float)
        logs.append(math.log(np.linalg.norm(weights)))
    measured = np.polyfit(np.arange(100, 300), logs[100:], 1)[0]
    assert measured == pytest.approx(found.rate, rel=0.02)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_below_the_bound_no_order_that_was_tried_grows(name):
    """Random, on/off and turning orders of one step, 400 problems side by side."""
    rng = np.random.default_rng(0)
    problems, momentum = 400, 0.8
    optimizer = OPTIMIZERS[name](0.98 * bound(name, momentum), momentum)
    assert order_proof(optimizer, 1.0).holds
    here = rng.normal(size=(problems, 2))
    before, last = here, np.zeros_like(here)
    gain = optimizer.kappa * optimizer.alpha + optimizer.beta
    period = rng.uniform(2, 200, size=problems)
    kind = rng.integers(3, size=problems)
    largest = np.linalg.norm(here, axis=1)
    for step in range(1500):
        angle = np.where(kind == 0, rng.uniform(0, 2 * np.pi, problems), np.pi * step / period)
        on = np.where(kind == 2, (step // np.maximum(period // 2, 1)) % 2, 1.0)
        row = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        pull = on[:, None] * row * np.sum(row * here, axis=1, keepdims=True)
        ahead = here + momentum * (here - before) - gain * pull + momentum * optimizer.beta * last
        here, before, last = ahead, here, pull
        if step == 100:
            largest = np.linalg.norm(here, axis=1)
    # A common norm never rises; the Euclidean one differs from it by a factor at the most.
    assert np.all(np.linalg.norm(here, axis=1) < 20 * largest + 1e-9)
    assert np.median(np.linalg.norm(here, axis=1)) < 1e-6


def test_torch_diverges_above_it_and_not_below():
    import torch

    momentum = 0.5
    for factor, grows in ((2.5, True), (0.95, False)):
        lr = factor * bound("heavy_ball", momentum) / 2.0
        found = order_proof(rx.heavy_ball(lr, momentum), 2.0)
        rows = torch.tensor(turning(800, found.period or 6.0))
        weights = torch.nn.Parameter(torch.tensor([1.0, 0.3], dtype=torch.float64))
        method = torch.optim.SGD([weights], lr=lr, momentum=momentum)
        for row in rows:
            method.zero_grad()
            ((row @ weights) ** 2).backward()
            method.step()
        assert (float(weights.detach().norm()) > 1e3) is grows


def test_dampening_counts_as_a_smaller_step():
    plain = order_proof(rx.heavy_ball(0.05, 0.8), 1.0)
    damped = order_proof(rx.heavy_ball(0.1, 0.8, dampening=0.5), 1.0)
    assert damped.rate == pytest.approx(plain.rate, rel=1e-9)
    assert damped.lr == pytest.approx(2 * plain.lr, rel=1e-9)


def lengths_of(rows: np.ndarray) -> float:
    """The largest curvature of single rows with a bias, by hand."""
    return 2 * float(np.max(np.sum(rows**2, axis=1) + 1))


def test_data_a_recording_and_a_setting_have_one_bound():
    rows = np.random.default_rng(0).normal(size=(50, 2))
    own = order_proof(rx.heavy_ball(0.01, 0.9), lengths_of(rows))
    setting = rx.Setting(rx.Recorded.of(rows), rx.heavy_ball(0.01, 0.9), batch=7)
    for found in (
        order_proof(setting),
        order_proof(rows, lr=0.01, momentum=0.9, standardise=False),
    ):
        assert found.momentum == pytest.approx(own.momentum, rel=1e-6)
        assert found.lr == pytest.approx(own.lr, rel=1e-6)
    summed = order_proof(rx.Setting(setting.process, setting.optimizer, batch=7, reduction="sum"))
    assert summed.curvature == pytest.approx(7 * own.curvature, rel=1e-6)
    for given in ({}, {"lr": 0.1}, {"curvature": 3.0, "lr": 0.1, "momentum": 0.9}):
        with pytest.raises(rx.ArgumentError):
            order_proof(rows, **given)
    with pytest.raises(rx.ArgumentError, match="own optimizer"):
        order_proof(setting, lr=0.1)
    with pytest.raises(rx.ArgumentError, match="needs the curvature"):
        order_proof(rx.sgd(0.1))


def test_bounded_features_and_still_inputs_have_a_bound():
    optimizer = rx.heavy_ball(0.01, 0.9)
    waves = rx.Fourier.of([[1.0], [2.0]])
    assert order_proof(rx.Setting(rx.Iid(), optimizer, model=waves)).curvature == 6.0
    bumps = Radial.of([[0.0], [9.0]])
    assert order_proof(rx.Setting(rx.Iid(), optimizer, model=bumps)).curvature == 6.0
    still = rx.Sinusoid(period=20, amplitude=3.0, variance=0.0)
    assert order_proof(rx.Setting(still, optimizer)).curvature == pytest.approx(20.0)


def test_gaussian_inputs_have_none_and_a_chance_to_exceed_what_is_tolerated():
    from scipy.stats import ncx2

    setting = rx.Setting(rx.Iid(amplitude=1.0), rx.heavy_ball(0.3, 0.3))
    found = order_proof(setting, draws=20_000)
    assert (found.curvature, found.momentum, found.lr, found.holds) == (None, None, None, False)
    assert found.tolerated == pytest.approx(bound("heavy_ball", 0.3) / 0.3)
    exact = ncx2.sf(found.tolerated / 2 - 1, 1, 1.0)  # of x^2 with mean 1 and variance 1
    assert found.exceeds == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))
    assert "unbounded" in found.meaning()


def test_a_bias_without_momentum_needs_its_own_step_size():
    from resonax.theory.order_proof import judge_every_order

    small, large = (judge_every_order(rx.heavy_ball(0.01, 0.9), 10.0, lr) for lr in (0.19, 0.21))
    assert small.momentum == order_proof(rx.heavy_ball(0.01, 0.9), 10.0).momentum
    assert large.momentum is None


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("decay", [0.0, 0.02])
def test_the_norm_of_the_criterion_holds_for_any_row(name, decay):
    from resonax.rows.row_updates import RowUpdates
    from resonax.theory.common_norm import growth_in
    from resonax.theory.order_proof import circle_norm

    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, 3))
    rows *= (rng.uniform(size=(300, 1)) ** 0.2) / np.linalg.norm(rows, axis=1, keepdims=True)
    optimizer = OPTIMIZERS[name](0.3, 0.6, weight_decay=decay)
    norm, rate = circle_norm(optimizer, 2.0)
    updates = RowUpdates.of(rows, optimizer)
    grown = growth_in(np.kron(norm, np.eye(3)), updates.matrices(np.arange(300)))
    assert np.log(grown.max()) / 2 <= rate + 1e-9
    # Rows of full length in all directions are as bad as the rate, up to the room of the norm.
    assert rate == pytest.approx(order_proof(optimizer, 2.0).rate, abs=2e-4)


def test_a_map_of_a_recording_has_the_line_and_the_figure_names_it():
    rows = np.random.default_rng(0).uniform(-1, 1, size=(40, 1))
    setting = rx.Setting(rx.Recorded.of(rows, repeat=True), rx.heavy_ball(0.05, 0.9))
    found = rx.stability_map(setting, momentum=[0.3, 0.6, 0.9], lr=[0.01, 0.05, 0.1])
    assert found.order_proof.dims == ("lr",)
    proof = order_proof(rx.heavy_ball(0.05, 0.9), lengths_of(rows))
    assert float(found.order_proof.sel(lr=0.05)) == pytest.approx(proof.momentum, rel=1e-6)
    legend = plot_map(found).legends[0]
    assert "safe in every order" in [text.get_text() for text in legend.get_texts()]
    # below the line no cell of this order, or of any other, diverges
    assert float(found.rate.where(found.momentum < found.order_proof).max()) <= 0
    gaussian = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(0.05, 0.9))
    assert "order_proof" not in rx.stability_map(gaussian, momentum=[0.3], lr=[0.01])
