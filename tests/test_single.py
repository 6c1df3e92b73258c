"""The criteria of one setting: plain linear algebra and the compiled way give the same numbers."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

import resonax as rx
from resonax.theory.criteria import rates
from resonax.theory.mean_square import noise_floor
from resonax.theory.single import RATES, _collocation, _multiply, mean_square_level

ROWS = np.random.default_rng(0).normal(size=(24, 2))
SETTINGS = {
    "sinusoid": rx.Setting(rx.Sinusoid(period=40), rx.heavy_ball(0.01, 0.95)),
    "swing": rx.Setting(
        rx.Sinusoid(period=22.37, phase=1.0, swing=0.5), rx.heavy_ball(0.01, 0.97), batch=20
    ),
    "square": rx.Setting(
        rx.Square(period=30.5, dim=2, direction=np.array([0.6, 0.8])),
        rx.nesterov(0.02, 0.9, weight_decay=0.1),
        batch=3,
    ),
    "iid": rx.Setting(rx.Iid(amplitude=0.2), rx.heavy_ball(0.01, 0.9), rx.Linear(bias=False)),
    "recorded": rx.Setting(
        rx.Recorded.of(ROWS, repeat=True),
        rx.heavy_ball(0.01, 0.9),
        batch=2,
        reduction="sum",
    ),
    "growing": rx.Setting(rx.Sinusoid(period=200, amplitude=30), rx.heavy_ball(0.02, 0.95)),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_both_ways_agree(name):
    setting = SETTINGS[name]
    own = {"momentum": np.array([setting.optimizer.momentum])}
    for criterion, tolerance in (("flow", 1e-10), ("map", 1e-14), ("mean_square", 1e-14)):
        found = RATES[criterion](setting.grouped)
        assert found == pytest.approx(float(rates(setting, own, criterion)[0]), abs=tolerance)
        if criterion == "mean_square" and found < 0:
            level = noise_floor(setting.grouped)
            assert mean_square_level(setting.grouped) == pytest.approx(level, rel=1e-10)


def test_a_verdict_of_other_numbers_compiles_nothing(caplog):
    def judge(period, lr, momentum):
        setting = rx.Setting(rx.Sinusoid(period=period), rx.heavy_ball(lr, momentum))
        rx.verdict(setting, paths=8)  # as many as in tests/test_cli.py, whose programs these are

    judge(20.0, 0.01, 0.9)
    with jax.log_compiles():
        judge(33.3, 0.02, 0.5)
        judge(501.0, 0.01, 0.99)
    assert not [line for line in caplog.messages if "ompil" in line]


def test_collocation_integrates_polynomials_exactly():
    nodes, weights, coefficients = _collocation()
    for power in range(8):
        np.testing.assert_allclose(
            coefficients @ nodes**power, nodes ** (power + 1) / (power + 1), atol=1e-14
        )
    for power in range(16):
        assert weights @ nodes**power == pytest.approx(1 / (power + 1), rel=1e-13)


def test_products_of_any_length_neither_overflow_nor_vanish():
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    for size in (1e-3, 1.0, 1e3):
        for count in (1, 2, 7, 64, 1001):
            found = _multiply(np.repeat(size * turn[None], count, axis=0))
            assert found.log_radius() == pytest.approx(count * math.log(size), rel=1e-12)


def test_a_flow_too_stiff_to_integrate_has_no_rate():
    setting = rx.Setting(rx.Sinusoid(period=1e4, amplitude=1e6), rx.heavy_ball(1.0, 0.9))
    assert math.isnan(RATES["flow"](setting))
    assert math.isfinite(RATES["map"](setting))
