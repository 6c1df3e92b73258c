"""The flow criterion against other integrators, closed forms and invariants."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import solve_ivp

import resonax as rx
from oracles import numpy_radius, sinusoid_curvature
from resonax.dynamics import Flow
from resonax.theory.flow import (
    _chebyshev_nodes,
    _interpolation_matrix,
    _resolved_grid,
    collocation,
    flow_grid_rates,
    flow_monodromy,
)


def rate(setting: rx.Setting) -> float:
    return float(rx.rates(setting, {"momentum": [setting.optimizer.momentum]}, "flow")[0])


def monodromy(setting: rx.Setting) -> np.ndarray:
    values = {"momentum": np.array([setting.optimizer.momentum])}
    with jax.enable_x64(True):
        product = flow_monodromy(setting, values, np.array([4 * setting.process.pieces]))
    return np.ldexp(product.matrix[0], product.exponent[0])


def oracle(curvature, periods: np.ndarray, lr: np.ndarray, momentum: np.ndarray) -> np.ndarray:
    """The paper's equation of many cells, over a period in its own time, by scipy's DOP853.

    All of them at once: the time is that of the period, from 0 to 1.
    """
    size = curvature(0.0).shape[-1]
    root = np.sqrt(lr)
    matrices = np.zeros((len(periods), 2 * size, 2 * size))
    matrices[:, :size, size:] = np.eye(size)
    matrices[:, size:, size:] = ((momentum - 1) / root)[:, None, None] * np.eye(size)

    def slope(turns, state):
        matrices[:, size:, :size] = -curvature(turns * periods)
        change = matrices @ state.reshape(matrices.shape)
        return ((root * periods)[:, None, None] * change).ravel()

    start = np.broadcast_to(np.eye(2 * size), matrices.shape).ravel()
    found = solve_ivp(slope, (0.0, 1.0), start, method="DOP853", rtol=1e-12, atol=1e-13)
    return found.y[:, -1].reshape(matrices.shape)


def test_agrees_with_scipy_on_random_settings():
    random = np.random.default_rng(0)
    count = 12
    period, momentum = random.uniform(3, 120, count), random.uniform(0.5, 0.999, count)
    lr, amplitude = 10 ** random.uniform(-3, -1.3, count), random.uniform(0, 1.5, count)
    variance = random.uniform(0.1, 2, count)
    exact = oracle(
        lambda k: sinusoid_curvature(k, period, amplitude, variance), period, lr, momentum
    )
    # Plain numbers, as in the other tests of this file: they share a program.
    numbers = np.array([period, amplitude, variance, lr, momentum]).T.tolist()
    for (period, amplitude, variance, *settings), matrix in zip(numbers, exact, strict=True):
        process = rx.Sinusoid(period=period, amplitude=amplitude, variance=variance)
        found = monodromy(rx.Setting(process, rx.heavy_ball(*settings)))
        # The whole matrix, velocities in the paper's units.
        assert np.abs(found - matrix).max() < 1e-8
        assert abs(numpy_radius(found) - numpy_radius(matrix)) < 1e-8


def square(period: float, direction=(0.6, 0.8), **rest) -> rx.Square:
    """A square wave in the plane: all of them share a program."""
    return rx.Square(period=period, dim=2, direction=np.array(direction), **rest)


def test_square_wave_is_a_product_of_two_exponentials():
    direction, lr, momentum, period = np.array([0.6, 0.8]), 0.01, 0.95, 26.5
    process = square(period, amplitude=0.5, variance=0.25)
    root = np.sqrt(lr)
    halves = []
    for sign in (1, -1):
        mean = np.append(sign * 0.5 * direction, 1.0)
        curvature = 2 * (np.diag([0.25] * 2 + [0.0]) + np.outer(mean, mean))
        eye = np.eye(3)
        flow = np.block([[0 * eye, eye], [-curvature, -(1 - momentum) / root * eye]])
        halves.append(scipy.linalg.expm(flow * root * period / 2))
    exact = halves[1] @ halves[0]
    setting = rx.Setting(process, rx.heavy_ball(lr, momentum))
    assert np.abs(monodromy(setting) - exact).max() < 1e-9


@given(st.floats(0, 2 * np.pi), st.sampled_from([rx.Sinusoid, square]))
def test_does_not_depend_on_the_phase(phase, kind):
    rates = [
        rate(rx.Setting(kind(period=21.3, phase=turn), rx.heavy_ball(0.01, 0.98)))
        for turn in (0.0, phase)
    ]
    assert rates[0] == pytest.approx(rates[1], abs=1e-9)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=2).filter(lambda u: np.linalg.norm(u) > 0.1))
def test_does_not_depend_on_the_direction_of_the_mean(direction):
    rates = [
        rate(rx.Setting(square(22, u), rx.heavy_ball(0.01, 0.97))) for u in ([1.0, 0.0], direction)
    ]
    assert rates[0] == pytest.approx(rates[1], abs=1e-9)


@jax.jit
def matrices_at(flow, times):
    return jax.vmap(flow.matrix)(times)


@pytest.mark.parametrize(
    "optimizer",
    [
        rx.heavy_ball(0.02, 0.9, dampening=0.3, weight_decay=0.5),
        rx.nesterov(0.02, 0.9),
        rx.sgd(0.02),
    ],
)
def test_liouville(optimizer):
    """det of the monodromy matrix is exp of the integral of the trace of A."""
    process = square(17, amplitude=0.7, swing=0.8)
    setting = rx.Setting(process, optimizer, batch=3)
    flow = Flow(setting)
    # The trace has one value in each half of a period: a few equal steps integrate it exactly.
    times = (np.arange(16) + 0.5) / 16 * float(flow.period)
    matrices = np.asarray(matrices_at(flow, times))
    trace = np.trace(matrices, axis1=1, axis2=2).mean()
    _, log_det = np.linalg.slogdet(monodromy(setting))
    assert log_det == pytest.approx(trace * float(flow.period), rel=1e-5)


def test_constant_law_has_the_roots_of_the_companion_polynomial():
    lr, momentum, variance = 0.01, 0.9, 3.0
    setting = rx.Setting(
        rx.Iid(variance=variance), rx.heavy_ball(lr, momentum), model=rx.Linear(bias=False)
    )
    friction = (1 - momentum) / np.sqrt(lr)
    roots = np.roots([1.0, friction, 2 * variance])
    assert rate(setting) == pytest.approx(np.sqrt(lr) * roots.real.max(), abs=1e-10)


def test_any_length_of_period_stays_finite():
    for period in (1.0, 1.5, 1e4):
        for optimizer in (rx.heavy_ball(0.01, 0.999), rx.sgd(0.5), rx.heavy_ball(1e-4, 0.5)):
            found = rate(rx.Setting(rx.Sinusoid(period=period), optimizer))
            assert np.isfinite(found)
    # A slow drift is a sequence of constant laws: the slowest root decides, on average.
    slow = rx.Setting(rx.Sinusoid(period=1e4, amplitude=0.0), rx.heavy_ball(0.01, 0.5))
    roots = np.roots([1.0, 0.5 / 0.1, 2.0])
    assert rate(slow) == pytest.approx(0.1 * roots.real.max(), abs=1e-9)


@pytest.mark.parametrize(
    "axes",
    [
        {"momentum": np.linspace(0.95, 0.999, 40), "period": np.linspace(15, 60, 50)},
        {"period": np.linspace(15, 30, 40), "momentum": np.linspace(0.9, 0.99, 40)},
    ],
)
def test_interpolated_maps_equal_direct_integration(paper, axes):
    grid = flow_grid_rates(paper, axes)
    assert _resolved_grid(paper, axes, grid.size) is not None  # this map does go by interpolation
    first, second = np.meshgrid(*axes.values(), indexing="ij")
    random = np.random.default_rng(1).choice(first.size, 60, replace=False)
    values = {
        name: array.ravel()[random] for name, array in zip(axes, (first, second), strict=True)
    }
    assert np.abs(rx.rates(paper, values, "flow") - grid.ravel()[random]).max() < 1e-9


def test_the_interpolant_passes_through_its_nodes_and_is_exact_for_polynomials():
    axis = np.random.default_rng(3).uniform(10, 60, 50)
    nodes = _chebyshev_nodes(axis, 24)
    np.testing.assert_array_equal(_interpolation_matrix(nodes, nodes), np.eye(25))
    for power in (0, 1, 7, 24):
        exact = ((axis - 35) / 25) ** power
        np.testing.assert_allclose(
            _interpolation_matrix(nodes, axis) @ ((nodes - 35) / 25) ** power, exact, atol=1e-12
        )


@pytest.mark.parametrize(("low", "last"), [(0.95, 2000.0), (0.0, 500.0)])
def test_maps_of_long_periods_are_integrated_cell_by_cell(paper, low, last):
    axes = {"momentum": np.linspace(low, 0.999, 40), "period": np.linspace(20, last, 4)}
    grid = flow_grid_rates(paper, axes)
    first, second = (axis.ravel() for axis in np.meshgrid(*axes.values(), indexing="ij"))
    some = np.random.default_rng(2).choice(first.size, 5, replace=False)
    for cell in some:
        process = rx.Sinusoid(period=float(second[cell]))
        direct = rate(rx.Setting(process, rx.heavy_ball(0.01, float(first[cell])), batch=20))
        assert abs(direct - grid.ravel()[cell]) < 1e-9


def test_collocation_integrates_polynomials_exactly():
    nodes, weights, coefficients = collocation()
    for power in range(8):
        np.testing.assert_allclose(
            coefficients @ nodes**power, nodes ** (power + 1) / (power + 1), atol=1e-14
        )
    for power in range(16):
        assert weights @ nodes**power == pytest.approx(1 / (power + 1), rel=1e-13)


def test_a_flow_too_stiff_to_integrate_has_no_rate():
    setting = rx.Setting(rx.Sinusoid(period=1e4, amplitude=1e6), rx.heavy_ball(1.0, 0.9))
    assert np.isnan(rate(setting))
