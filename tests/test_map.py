"""The exact discrete criterion against plain NumPy, the paper's numbers and its propositions."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from scipy.integrate import solve_ivp

import resonax as rx
from oracles import heavy_ball_matrix, numpy_radius, sinusoid_curvature
from resonax.dynamics import Flow, Map
from resonax.theory.period import rational_period


@jax.jit
def expected_map(setting: rx.Setting, step: jax.Array) -> jax.Array:
    return Map(setting).expected(setting.process.moments(step))


@jax.jit
def flow_matrix(setting: rx.Setting, time: jax.Array) -> jax.Array:
    return Flow(setting).matrix(time)


def rate(setting: rx.Setting, criterion: str = "map") -> float:
    return float(rx.rates(setting, {"momentum": [setting.optimizer.momentum]}, criterion)[0])


def test_agrees_with_a_plain_product_on_random_settings():
    random = np.random.default_rng(0)
    for _ in range(40):
        period, momentum = int(random.integers(2, 80)), random.uniform(0.3, 0.999)
        lr, amplitude = 10 ** random.uniform(-3, -0.5), random.uniform(0, 1.5)
        variance = random.uniform(0.1, 2)
        product = np.eye(4)
        for k in range(period):
            curvature = sinusoid_curvature(k, period, amplitude, variance)
            product = heavy_ball_matrix(curvature, lr, momentum) @ product
        process = rx.Sinusoid(period=period, amplitude=amplitude, variance=variance)
        found = rate(rx.Setting(process, rx.heavy_ball(lr, momentum)))
        exact = numpy_radius(product)
        assert np.exp(found * period) == pytest.approx(exact, abs=1e-10, rel=1e-10)


@pytest.mark.parametrize(
    ("period", "momentum", "flow", "discrete"),
    [(22, 0.97, 1.0022, 1.0020), (20, 0.98, 1.0022, 1.0031), (45, 0.999, 1.0035, 1.0036)],
)
def test_numbers_of_the_readings(period, momentum, flow, discrete):
    setting = rx.Setting(rx.Sinusoid(period=period), rx.heavy_ball(0.01, momentum), batch=20)
    assert np.exp(rate(setting, "flow")) == pytest.approx(flow, abs=5e-5)
    assert np.exp(rate(setting)) == pytest.approx(discrete, abs=5e-5)


@pytest.mark.parametrize("momentum", [0.9, 0.97, 0.999])
def test_off_the_tongues_all_multipliers_lie_on_one_circle(momentum):
    # det of the product is momentum^(2T) for two weights, so the circle has radius sqrt(momentum).
    setting = rx.Setting(rx.Sinusoid(period=30), rx.heavy_ball(0.01, momentum))
    assert rate(setting) == pytest.approx(np.log(momentum) / 2, abs=1e-9)


@pytest.mark.parametrize("period", [7.5, 22.25, np.e * 8, 100 / 3])
def test_periods_need_not_be_whole(period):
    """Growth of one long product along the rational period; and that one is close by."""
    steps, turns = rational_period(period)
    assert abs(steps / turns - period) < 1 / 64
    lr, momentum = 0.03, 0.97
    found = rate(rx.Setting(rx.Sinusoid(period=period), rx.heavy_ball(lr, momentum)))
    once, product, log = np.eye(4), np.eye(4), 0.0
    for k in range(steps):
        curvature = sinusoid_curvature(k, steps / turns, 0.5, 1.0)
        once = heavy_ball_matrix(curvature, lr, momentum) @ once
    for _ in range(60):
        product = once @ product
        size = np.abs(product).max()
        product, log = product / size, log + np.log(size)
    # The norm of a power differs from the power of the radius by a bounded factor.
    assert log / (60 * steps) == pytest.approx(found, abs=6 / (60 * steps))


@pytest.mark.parametrize(
    "process",
    [
        rx.Sinusoid(period=1e5),
        rx.Sinusoid(period=1),
        rx.Square(period=3.7),
        rx.Iid(),
        rx.Recorded.of(np.random.default_rng(0).normal(size=(500, 2)), repeat=True),
    ],
)
@pytest.mark.parametrize("optimizer", [rx.heavy_ball(1e3, 0.99999), rx.sgd(0.5), rx.sgd(1e-6)])
def test_nothing_overflows_or_vanishes(process, optimizer):
    assert np.isfinite(rate(rx.Setting(process, optimizer)))


@pytest.mark.parametrize("period", [1, 1e5])
def test_nor_does_it_with_lookahead(period):
    assert np.isfinite(rate(rx.Setting(rx.Sinusoid(period=period), rx.nesterov(0.9, 0.9))))


def test_a_nilpotent_update_has_a_finite_rate():
    # momentum 0 and lr B = 1: one step reaches the target, and the radius is 0.
    process = rx.Sinusoid(period=5, amplitude=0.0, variance=1.0)
    setting = rx.Setting(process, rx.sgd(0.5))
    assert -1e4 < rate(setting) < -100


def test_sgdm_is_the_split_integrator_of_the_flow():
    """Prop. 2, part 2: M = (I + h implicit part) (I + h explicit part), to rounding."""
    lr, momentum = 0.01, 0.95
    setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(lr, momentum))
    step = np.sqrt(lr)
    eye, zero = np.eye(2), np.zeros((2, 2))
    with jax.enable_x64(True):
        for index in (0.0, 3.0, 11.0):
            flow = np.asarray(flow_matrix(setting, index * step))
            explicit = np.eye(4) + step * np.block([[zero, zero], [flow[2:, :2], flow[2:, 2:]]])
            implicit = np.block([[eye, step * eye], [zero, eye]])
            # The map keeps v = sqrt(lr) times the velocity.
            units = np.diag([1, 1, step, step])
            split = units @ implicit @ explicit @ np.linalg.inv(units)
            expected = np.asarray(expected_map(setting, index))
            assert np.abs(split - expected).max() < 1e-14


def test_sgdm_integrates_the_flow_with_first_order():
    """Prop. 2: with friction (1-mu)/sqrt(eta) and time held fixed, the error falls as sqrt(eta)."""
    friction, end = 0.5, 6.0
    start = np.array([1.0, -0.5, 0.0, 0.0])

    def curvature(time):
        mean = 0.5 * np.sin(2 * np.pi * time / 2.2)
        return 2 * np.array([[1 + mean**2, mean], [mean, 1.0]])

    def slope(time, state):
        return np.concatenate([state[2:], -curvature(time) @ state[:2] - friction * state[2:]])

    exact = solve_ivp(slope, (0, end), start, method="DOP853", rtol=1e-12, atol=1e-13).y[:2, -1]
    errors, sizes, all_maps = [], [], jax.jit(jax.vmap(expected_map, (None, 0)))
    for number in (60, 120, 240, 480, 960):
        root = end / number
        lr, momentum = root**2, 1 - friction * root
        state = start.copy()
        process = rx.Sinusoid(period=2.2 / root)
        setting = rx.Setting(process, rx.heavy_ball(lr, momentum))
        with jax.enable_x64(True):
            matrices = np.asarray(all_maps(setting, np.arange(960.0)))
        for matrix in matrices[:number]:
            state = matrix @ state
        errors.append(np.linalg.norm(state[:2] - exact))
        sizes.append(root)
    order = np.polyfit(np.log(sizes), np.log(errors), 1)[0]
    assert order == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("momentum", "sign"), [(0.97, 1), (0.95, -1)])
def test_long_trajectories_grow_as_the_radius_says(momentum, sign):
    """Theorem 1, on both sides of 1: run the optimizer itself on expected gradients."""
    period = 22
    setting = rx.Setting(rx.Sinusoid(period=period), rx.heavy_ball(0.01, momentum))
    found = rate(setting)
    assert np.sign(found) == sign
    weights, velocity, sizes = np.array([1.0, 0.3]), np.zeros(2), []
    for k in range(200 * period):
        gradient = sinusoid_curvature(k, period, 0.5, 1.0) @ weights
        velocity = momentum * velocity - 0.01 * gradient
        weights = weights + velocity
        sizes.append(np.hypot(np.linalg.norm(weights), np.linalg.norm(velocity)))
    steps = np.arange(100 * period, 200 * period, period)
    slope = np.polyfit(steps, np.log(np.array(sizes)[steps]), 1)[0]
    # The size also turns with the phase of the multipliers: by a factor of order 1 in 2200 steps.
    assert slope == pytest.approx(found, abs=1e-4)
