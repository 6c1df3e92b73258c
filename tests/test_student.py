"""Student's intervals: against scipy, and by how often they miss in simulations under the null."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import scipy.signal
from scipy import stats

from resonax.core.intervals import (
    approximate_quantile,
    batch_means,
    half_width,
    mean_interval,
    tail_of,
)

LANES, STEPS = 2000, 2048


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_independent_samples_against_scipy(confidence):
    samples = np.random.default_rng(0).normal(size=(5, 9))
    mean, half = mean_interval(samples, tail_of(confidence))
    low, high = stats.t.interval(confidence, 8, samples.mean(1), stats.sem(samples, axis=1))
    np.testing.assert_allclose([mean - half, mean + half], [low, high], rtol=1e-12)
    assert np.array_equal(half_width(samples.std(1, ddof=1), 9, tail_of(confidence)), half)


def test_one_sample_bounds_nothing():
    assert mean_interval(np.array([3.0]), 0.025) == (3.0, np.inf)


@functools.cache
def series(memory: float, seed: int) -> np.ndarray:
    """Return stationary series of mean 0, (steps, lanes), with a memory of so many steps."""
    share = np.exp(-1 / memory) if memory else 0.0
    noise = np.random.default_rng(seed).normal(size=(STEPS + 400, LANES))
    return np.asarray(scipy.signal.lfilter([1.0], [1.0, -share], noise, axis=0))[400:]


@pytest.mark.parametrize("memory", [0.0, 8.0])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
@pytest.mark.parametrize("neighbours", [True, False])
def test_the_interval_of_a_correlated_series_misses_as_often_as_it_says(
    memory, confidence, neighbours
):
    """Of 2000 series; more than 4.5 deviations above the confidence occurs once in 10^5 times."""
    mean, half = batch_means(
        series(memory, 1), np.ones(STEPS), tail_of(confidence), neighbours=neighbours
    )
    tail = tail_of(confidence)
    most = tail + 4.5 * np.sqrt(tail / LANES)
    for side in (mean - half > 0, mean + half < 0):
        assert side.mean() < most
    assert (np.abs(mean) > half).mean() > (1 - confidence) / 5  # nor is it far too wide


def test_a_mean_away_from_zero_is_found():
    """The other side: 6 standard errors away, of which the interval takes about 2.6."""
    error = 1 / np.sqrt(STEPS)
    mean, half = batch_means(series(0.0, 2) + 6 * error, np.ones(STEPS), 0.025)
    assert (mean - half > 0).mean() > 0.97


def test_a_slow_change_is_no_chance_and_unequal_parts_are_weighed():
    time = np.linspace(0, 1, 1000)[:, None]
    assert batch_means(time, np.ones(1000), 0.025)[1] < 0.1
    counted = batch_means(time, np.ones(1000), 0.025, (8,), neighbours=False)[1]
    assert counted == pytest.approx(mean_interval(time.reshape(8, 125).mean(axis=1), 0.025)[1])
    assert counted > 0.25
    lengths = np.random.default_rng(0).integers(1, 9, 200).astype(float)
    mean, half = batch_means(3.0 * lengths[:, None], lengths, 0.025)  # a constant rate
    assert mean == pytest.approx(3.0)
    assert half == pytest.approx(0.0, abs=1e-12)


def test_the_quantile_of_compiled_code_is_that_of_scipy():
    freedom = np.arange(4.0, 100.0)
    exact = stats.t.ppf(0.95, freedom)
    np.testing.assert_allclose(
        approximate_quantile(float(stats.norm.ppf(0.95)), freedom), exact, rtol=0.01
    )
