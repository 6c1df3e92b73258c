"""The almost-sure criterion: intervals that cover the exact rate at the confidence they state."""

from __future__ import annotations

import itertools
import math
import sys
from statistics import NormalDist

import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

import resonax as rx
from resonax.theory.lyapunov import RESOLUTION, Interval, lyapunov_rates


def scalar_rate(process: rx.Sinusoid, lr: float) -> float:
    """One weight, batch 1, no momentum: the mean over the period of E log|1 - 2 eta x^2|."""
    pole, total = 1 / np.sqrt(2 * lr), 0.0
    steps, spread = round(process.period), math.sqrt(process.variance)
    for k in range(steps):
        law = NormalDist(process.amplitude * math.sin(2 * math.pi * k / steps), spread)

        def density(x, law=law):
            return math.log(abs(1 - 2 * lr * x**2)) * law.pdf(x)

        # A logarithm has an integrable pole: the parts between the poles, each on its own.
        cuts = [law.mean - 12 * spread, -pole, pole, law.mean + 12 * spread]
        total += sum(
            integrate.quad(density, a, b, limit=200, epsabs=1e-10)[0]
            for a, b in itertools.pairwise(cuts)
            if b > a
        )
    return total / steps


SHORT = rx.Setting(
    rx.Sinusoid(period=4.0, amplitude=1.0, variance=0.5), rx.sgd(0.05), rx.Linear(bias=False)
)


def short_rates(*lr, seed=0):
    return lyapunov_rates(SHORT, {"lr": lr}, paths=12, steps=128, confidence=0.9, seed=seed)


def test_intervals_cover_the_exact_rate_at_the_stated_confidence():
    """200 independent intervals at 90%; fewer than 166 hits have a probability below 1e-3."""
    lr = 0.05, 0.6
    exact = np.array([scalar_rate(SHORT.process, one) for one in lr])
    found = [short_rates(*lr, seed=seed) for seed in range(200)]
    _, low, high = np.moveaxis(np.array(found), -1, 0)
    assert ((low <= exact) & (exact <= high)).sum(axis=0).min() >= stats.binom.ppf(1e-3, 200, 0.9)
    # Nor are they so wide that they say nothing.
    assert (np.median(high - low, axis=0) < 0.2 * np.abs(exact) + 0.1).all()


@pytest.mark.parametrize("period", [10.0, 22.0, 22.5, 30.0, 44.5])
def test_without_randomness_the_interval_is_tight_around_the_map(period):
    process = rx.Sinusoid(period=period, amplitude=1.0, variance=0.0)
    momenta = np.linspace(0.0, 0.999, 20)
    setting = rx.Setting(process, rx.heavy_ball(0.01, 0.9))
    exact = rx.rates(setting, {"momentum": momenta}, "map")
    found = lyapunov_rates(setting, {"momentum": momenta}, paths=6, steps=4096)
    assert all(low <= rate <= high for rate, (_, low, high) in zip(exact, found, strict=True))
    assert all(abs(rate - item.rate) < 1e-4 for rate, item in zip(exact, found, strict=True))


@pytest.mark.slow
def test_large_batches_approach_the_map(paper):
    exact = rx.rates(paper, {"momentum": [0.97]}, "map")[0]
    setting = rx.Setting(paper.process, paper.optimizer, batch=10**6)
    rate, low, high = rx.lyapunov(setting, paths=32, steps=1024)
    assert low - RESOLUTION <= exact <= high + RESOLUTION
    assert rate == pytest.approx(exact, abs=5e-5)


@pytest.mark.slow
def test_agrees_with_a_plain_numpy_run_on_a_random_mean():
    """Switching stream of the paper, d = 5, v = 0.25, T = 6: it diverges at momentum 0.95."""
    setting = rx.Setting(rx.Switching(period=6, dim=5), rx.heavy_ball(0.01, 0.95))
    found = rx.lyapunov(setting)
    rng = np.random.default_rng(3)
    runs, steps = 64, 6000
    weights, velocity = rng.normal(size=(runs, 6)), np.zeros((runs, 6))
    log = np.zeros(runs)
    for k in range(steps):
        if k % 6 == 0:
            mean = 0.5 * rng.normal(size=(runs, 5))
        if k == 2000:
            log[:] = 0.0
        x = np.concatenate([mean + 0.5 * rng.normal(size=(runs, 5)), np.ones((runs, 1))], axis=1)
        velocity = 0.95 * velocity - 0.02 * x * (x * weights).sum(1, keepdims=True)
        weights = weights + velocity
        size = np.sqrt((weights**2).sum(1) + (velocity**2).sum(1))
        weights, velocity, log = (
            weights / size[:, None],
            velocity / size[:, None],
            log + np.log(size),
        )
    rates = log / (steps - 2000)
    error = rates.std(ddof=1) / np.sqrt(runs)
    assert found.low > 0
    # Two independent estimates: 4 standard errors of their difference.
    assert abs(rates.mean() - found.rate) < 4 * np.hypot(error, (found.high - found.low) / 4)


@pytest.mark.slow
def test_mean_square_bounds_the_almost_sure_rate(paper):
    """Jensen: E log|x| <= log E|x|^2 / 2."""
    setting = rx.Setting(paper.process, paper.optimizer, batch=2)
    bound = rx.rates(setting, {"momentum": [0.97]}, "mean_square")[0]
    assert rx.lyapunov(setting).low < bound


def test_a_recording_is_followed_row_by_row():
    """Against a product of plain matrices over the last part of the recording."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3200, 1)) + np.sin(2 * np.pi * np.arange(3200) / 22)[:, None]
    setting = rx.Setting(rx.Recorded.of(rows), rx.heavy_ball(0.01, 0.97))
    rate, low, high = rx.lyapunov(setting)
    vector, growth = np.array([1.0, 0.2, 0.1, 0.0]), []
    for row in rows:
        x = np.append(row, 1.0)
        vector[2:] = 0.97 * vector[2:] - 0.02 * x * (x @ vector[:2])
        vector[:2] += vector[2:]
        growth.append(np.log(np.linalg.norm(vector)))
        vector /= np.linalg.norm(vector)
    kept = (3200 - 320) // 16 * 16
    assert rate == pytest.approx(np.mean(growth[-kept:]), abs=2e-3)
    assert low < rate < high


def test_same_seed_same_bits_and_cells_do_not_depend_on_their_company():
    together = short_rates(0.05, 0.6)
    assert together == short_rates(0.05, 0.6)
    assert together[1] == short_rates(0.6, 0.3)[0]
    assert together[1].rate != short_rates(0.05, 0.6, seed=1)[1].rate
    assert jnp.zeros(1).dtype == jnp.float32  # the caller's precision is left alone


@pytest.mark.parametrize(
    ("lr", "momentum", "steps"),
    [
        (0.01, 0.9, 4096),
        (1e-6, 0.9, int(16 * 2 * np.pi / np.sqrt(1e-6 * 2.0))),  # 16 swings under E x^2 = 1
        (0.01, 0.9999, 80_000),  # 8 times as long as the friction needs
        (0.01, 0.99999, 2**17),
    ],
)
def test_paths_are_as_long_as_the_slowest_motion_needs(monkeypatch, lr, momentum, steps):
    asked = []

    def noting(setting, values, **more):
        asked.append(more["steps"])
        return [Interval(0.0, 0.0, 0.0)]

    monkeypatch.setattr(sys.modules["resonax.theory.lyapunov"], "lyapunov_rates", noting)
    rx.lyapunov(rx.Setting(rx.Iid(), rx.heavy_ball(lr, momentum), rx.Linear(bias=False)))
    assert asked == [pytest.approx(steps, abs=1)]


def test_paths_that_are_followed_together_fit_into_memory(monkeypatch):
    """Those of 512 cells with periods of 100000 steps would keep 200 GB."""
    sizes = []

    def sampled(setting, values, sampling, batch):
        sizes.append(len(values["period"]) * sampling.paths * 1.5 * sampling.steps * 16)
        return [Interval(0.0, 0.0, 0.0)] * len(values["period"])

    monkeypatch.setattr(sys.modules["resonax.theory.lyapunov"], "_sampled", sampled)
    for longest, most in ((100, 1), (1e5, 13)):
        values = {"period": np.linspace(5, longest, 1000), "lr": np.full(1000, 0.01)}
        assert len(lyapunov_rates(SHORT, values)) == 1000
        assert 0 < max(sizes) < most * 2**30
