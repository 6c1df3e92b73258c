"""The mean-square criterion against Kronecker products and direct simulation."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import resonax as rx
from oracles import heavy_ball_matrix, numpy_radius
from resonax.theory.mean_square import noise_floor
from resonax.theory.second_moment import Frame, Symmetry, law_of, step_of


def rate(setting: rx.Setting) -> float:
    momentum = setting.optimizer.momentum
    return float(rx.rates(setting, {"momentum": [momentum]}, "mean_square")[0])


@pytest.mark.parametrize("batch", [1, 3, 20])
def test_agrees_with_a_product_of_kronecker_matrices(batch):
    """E[M (x) M] entry by entry, with the fourth moments of x from Gauss-Hermite quadrature."""
    period, lr, momentum, amplitude, variance = 9, 0.05, 0.9, 0.6, 0.8
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    weights = weights / weights.sum()
    product = np.eye(16)
    for k in range(period):
        mean = amplitude * np.sin(2 * np.pi * k / period)
        x = mean + np.sqrt(variance) * nodes
        phi = np.stack([x, np.ones_like(x)], 1)
        each = 2 * phi[:, :, None] * phi[:, None, :]
        expected = np.einsum("q,qij->ij", weights, each)
        fixed = heavy_ball_matrix(expected, lr, momentum)
        # Cov of the mean of a batch is that of one sample over n; M is affine in B.
        spread = heavy_ball_matrix(np.zeros((2, 2)), lr, momentum)
        noise = np.array([heavy_ball_matrix(b, lr, momentum) - spread for b in each - expected])
        step = (
            np.kron(fixed, fixed)
            + sum(w * np.kron(m, m) for w, m in zip(weights, noise, strict=True)) / batch
        )
        product = step @ product
    process = rx.Sinusoid(period=period, amplitude=amplitude, variance=variance)
    found = rate(rx.Setting(process, rx.heavy_ball(lr, momentum), batch=batch))
    assert 2 * found * period == pytest.approx(np.log(numpy_radius(product)), abs=1e-10)


def floor_of(setting: rx.Setting) -> float:
    found = noise_floor(setting)
    assert found is not None
    return found


def simulate(setting, steps, runs, start, rng, lr, momentum):
    """Plain SGD with momentum on drawn batches; yields the error of the weights after each step."""
    process, batch = setting.process, int(setting.batch)
    weights = np.tile(start, (runs, 1))
    velocity = np.zeros_like(weights)
    for k in range(steps):
        mean = process.amplitude * np.sin(2 * np.pi * k / process.period)
        x = mean + np.sqrt(process.variance) * rng.normal(size=(runs, batch))
        noise = np.sqrt(setting.noise) * rng.normal(size=(runs, batch))
        miss = weights[:, :1] * x + weights[:, 1:] - noise
        gradient = 2 * np.stack([(miss * x).mean(1), miss.mean(1)], 1)
        velocity = momentum * velocity - lr * gradient
        weights = weights + velocity
        yield weights


FRAME = Frame.of(Symmetry((0, 1)))


@jax.jit
def after_step(setting, moment, k):
    """The second moment after a step, on (coordinates, 1) as the criterion multiplies them."""
    found = FRAME.coordinates
    given = jnp.append(moment[found.row, found.column], 1.0)
    law = law_of(setting, FRAME, setting.process.moments(k))
    return jnp.tensordot((step_of(setting, FRAME, law) @ given)[:-1], jnp.asarray(found.basis), 1)


@pytest.mark.parametrize(("batch", "runs"), [(1, 40_000), (8, 10_000)])
def test_second_moment_agrees_with_direct_simulation(batch, runs):
    """E|theta_k - theta*|^2 step by step, from a fixed start; 4.5 standard errors at every step."""
    lr, momentum, steps = 0.01, 0.97, 66
    process = rx.Sinusoid(period=22.0, amplitude=0.5, variance=1.0)
    setting = rx.Setting(process, rx.heavy_ball(lr, momentum), batch=batch, noise=0.5)
    start = np.array([1.0, -0.5])
    with jax.enable_x64(True):
        moment = np.zeros((4, 4))
        moment[:2, :2] = np.outer(start, start)
        exact = []
        for k in range(steps):
            moment = np.asarray(after_step(setting, moment, float(k)))
            exact.append(moment[0, 0] + moment[1, 1])
    rng = np.random.default_rng(5)
    for k, weights in enumerate(simulate(setting, steps, runs, start, rng, lr, momentum)):
        square = (weights**2).sum(1)
        error = square.std() / np.sqrt(runs)
        assert abs(square.mean() - exact[k]) < 4.5 * error + 1e-12


@pytest.mark.parametrize(("batch", "runs"), [(1, 4000), (8, 600)])
def test_noise_floor_agrees_with_direct_simulation(batch, runs):
    """The level of long runs, over whole periods, from the spread between independent runs."""
    lr, momentum, period = 0.01, 0.9, 30
    process = rx.Sinusoid(period=float(period), amplitude=0.5, variance=1.0)
    setting = rx.Setting(process, rx.heavy_ball(lr, momentum), batch=batch, noise=1.0)
    found = floor_of(setting)
    rng = np.random.default_rng(2)
    total, steps = np.zeros(runs), 20 * period
    for k, weights in enumerate(simulate(setting, steps, runs, np.zeros(2), rng, lr, momentum)):
        if k >= 10 * period:
            total += (weights**2).sum(1) / (10 * period)
    error = total.std() / np.sqrt(runs)
    assert abs(total.mean() - found**2) < 4 * error


def test_noise_floor_scales_with_the_noise_and_vanishes_without():
    process, optimizer = rx.Sinusoid(period=30), rx.heavy_ball(0.01, 0.9)
    floors = [floor_of(rx.Setting(process, optimizer, noise=noise)) for noise in (0.0, 1.0, 4.0)]
    assert floors[0] == 0
    assert floors[2] == pytest.approx(2 * floors[1], rel=1e-9)


def test_scalar_sgd_in_closed_form():
    """One weight, no momentum: E(1 - 2 eta x^2)^2 = 1 - 4 eta c + 12 eta^2 c^2, and its floor."""
    lr, variance, noise = 0.1, 0.7, 0.3
    setting = rx.Setting(
        rx.Iid(variance=variance), rx.sgd(lr), noise=noise, model=rx.Linear(bias=False)
    )
    factor = 1 - 4 * lr * variance + 12 * lr**2 * variance**2
    assert rate(setting) == pytest.approx(np.log(factor) / 2, abs=1e-12)
    floor = 4 * lr**2 * noise * variance / (1 - factor)
    assert floor_of(setting) ** 2 == pytest.approx(floor, rel=1e-10)


def test_large_batches_approach_the_expected_map():
    process, optimizer = rx.Sinusoid(period=22), rx.heavy_ball(0.01, 0.97)
    exact = rx.rates(rx.Setting(process, optimizer), {"momentum": [0.97]}, "map")[0]
    gaps = [rate(rx.Setting(process, optimizer, batch=n)) - exact for n in (10, 100, 1000, 10**9)]
    assert gaps[3] == pytest.approx(0, abs=1e-9)
    # The mean square never grows more slowly than the mean, and the gap falls as 1/batch.
    assert gaps[0] > gaps[1] > gaps[2] > 0
    assert gaps[1] / gaps[2] == pytest.approx(10, rel=0.05)


@pytest.mark.slow
def test_summed_gradients_are_averaged_ones_with_a_larger_step():
    process = rx.Square(period=12, amplitude=0.5, variance=0.25, dim=2)
    summed = rx.Setting(process, rx.heavy_ball(0.01, 0.95), batch=5, reduction="sum")
    averaged = rx.Setting(process, rx.heavy_ball(0.05, 0.95), batch=5)
    assert rate(summed) == pytest.approx(rate(averaged), abs=1e-12)
    assert noise_floor(
        rx.Setting(process, rx.heavy_ball(0.001, 0.9), batch=5, reduction="sum")
    ) == (pytest.approx(noise_floor(rx.Setting(process, rx.heavy_ball(0.005, 0.9), batch=5))))


def test_a_repeated_recording_has_no_sampling_noise():
    # As many rows, added up, as in tests/test_single.py: they share their programs.
    rows = rx.Recorded.of(np.random.default_rng(0).normal(size=(24, 2)), repeat=True)
    setting = rx.Setting(rows, rx.heavy_ball(0.02, 0.9), batch=2, reduction="sum")
    exact = rx.rates(setting, {"momentum": [0.9]}, "map")[0]
    assert rate(setting) == pytest.approx(exact, abs=1e-10)
