"""The verdict of a recording: the words and numbers of a check, and truths beside both."""

from __future__ import annotations

import math

import numpy as np
import pytest

import resonax as rx
from recordings import RECORDINGS
from resonax.theory.lyapunov import lyapunov_rates

HOURS = np.arange(1000)
RNG = np.random.default_rng(5)
WAVE = 1.2 * np.sin(2 * np.pi * HOURS / 24) + 0.5 * RNG.normal(size=1000)
SIGNS = np.random.default_rng(0).choice([-1.0, 1.0], size=150)


def scaled(name: str) -> np.ndarray:
    rows = RECORDINGS[name]()[0][:1500]
    return ((rows - rows.mean(0)) / rows.std(0)).astype(np.float32)


# Rows, optimizer, and what else both are told.
STREAMS = {
    "signs": (lambda: SIGNS, rx.heavy_ball(1e-4, 0.999), {}),
    "wave": (lambda: WAVE, rx.heavy_ball(0.01, 0.95), {}),
    "wave, nesterov": (lambda: WAVE, rx.nesterov(0.01, 0.95, weight_decay=0.1), {}),
    "wave, batches": (lambda: WAVE, rx.heavy_ball(0.01, 0.95), {"batch": 4}),
    "shuffled": (lambda: RNG.permutation(WAVE), rx.heavy_ball(0.01, 0.95), {}),
    "fast": (lambda: WAVE, rx.heavy_ball(0.5, 0.9), {}),
    "san-francisco": (lambda: scaled("san-francisco"), rx.heavy_ball(0.01, 0.95), {}),
    "sunspots": (lambda: scaled("sunspots"), rx.heavy_ball(0.01, 0.9), {}),
    "returns": (lambda: scaled("returns"), rx.heavy_ball(0.002, 0.98), {}),
}


SLOW = ("wave, nesterov", "wave, batches", "returns")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in STREAMS]
)
def test_verdict_and_check_say_the_same(name):
    make, optimizer, rest = STREAMS[name]
    rows = make()
    found = rx.verdict(rx.Setting(rx.Recorded.of(rows), optimizer, **rest))
    told = rx.check(
        rows,
        lr=optimizer.lr,
        momentum=optimizer.momentum,
        optimizer=optimizer,
        standardise=False,
        grid=2,
        **rest,
    )
    assert found.verdict == told.verdict
    assert found.meaning() == told.on_these_rows.meaning()
    ends = told.on_more.rate, told.on_more.low, told.on_more.high
    assert found.lyapunov == pytest.approx(ends, rel=1e-3, abs=1e-6)


def test_rows_of_signs_do_not_diverge():
    """The exact rate of the repeated rows is -0.0005: log(0.999)/2 per step."""
    optimizer = rx.heavy_ball(1e-4, 0.999)
    for seed in range(10):
        rows = np.random.default_rng(seed).choice([-1.0, 1.0], size=150)
        again = rx.Recorded.of(rows, repeat=True)
        repeated = rx.rates(rx.Setting(again, optimizer), {"momentum": [0.999]}, "map")[0]
        assert repeated == pytest.approx(math.log(0.999) / 2, rel=1e-3)
        found = rx.verdict(rx.Setting(rx.Recorded.of(rows), optimizer))
        assert found.verdict == "converges"
        assert found.lyapunov.low < repeated < found.lyapunov.high


def test_a_replayed_recording_has_the_radius_of_a_pass():
    # As many rows as in the test before: they share a program.
    rows, optimizer = WAVE[:150], rx.heavy_ball(0.01, 0.95)
    setting = rx.Setting(rx.Recorded.of(rows, repeat=True), optimizer)
    rate = rx.rates(setting, {"momentum": [0.95]}, "map")[0]
    once = rx.verdict(rx.Setting(rx.Recorded.of(rows), optimizer))
    assert 150 * rate == pytest.approx(once.on_these_rows.log_pass_radius, rel=1e-9)


def test_the_growth_is_that_of_a_plain_product_of_matrices():
    """Against a loop over all starts at rest, by the energy that the check measures."""
    count = 1100  # more than the steps of a chunk
    rows, lr, momentum = np.resize(WAVE, count), 0.02, 0.9
    phi = np.column_stack([rows, np.ones(count)])
    curvature, axes = np.linalg.eigh(2 * phi.T @ phi / count)
    weights, velocity = axes.copy(), np.zeros((2, 2))
    before = weights
    for row in phi:
        before = weights
        velocity = momentum * velocity - 2 * lr * np.outer(row, row @ weights)
        weights = weights + velocity

    def energy(here, last):
        here, last, c = axes.T @ here, axes.T @ last, curvature[:, None]
        moving = np.maximum(1 / lr - c / 2, 0) * (here - last) ** 2
        return float(np.sum(c / 2 * (here**2 + last**2) + moving))

    grown = 0.5 * math.log(energy(weights, before) / energy(axes, axes))
    found = rx.verdict(rx.Setting(rx.Recorded.of(rows), rx.heavy_ball(lr, momentum)))
    assert found.on_these_rows.log_growth == pytest.approx(grown, rel=1e-9)
    assert found.verdict == ("diverges" if grown > 0 else "converges")


def test_a_sum_over_the_batch_is_a_larger_step():
    rows = rx.Recorded.of(WAVE)
    added = rx.Setting(rows, rx.heavy_ball(0.001, 0.95, weight_decay=0.4), batch=8, reduction="sum")
    mean = rx.Setting(rows, rx.heavy_ball(0.008, 0.95, weight_decay=0.05), batch=8)
    assert rx.lyapunov(added) == pytest.approx(rx.lyapunov(mean), rel=1e-9)
    cells = {"lr": np.array([0.001, 0.002])}
    wider = {"lr": np.array([0.008, 0.016])}
    np.testing.assert_allclose(lyapunov_rates(added, cells), lyapunov_rates(mean, wider), rtol=1e-5)


def test_the_level_is_that_of_the_interval():
    setting = rx.Setting(rx.Recorded.of(WAVE), rx.heavy_ball(0.01, 0.95))
    narrow, wide = (rx.lyapunov(setting, confidence=confidence) for confidence in (0.5, 0.99))
    assert narrow.rate == wide.rate
    assert wide.low < narrow.low < narrow.rate < narrow.high < wide.high
