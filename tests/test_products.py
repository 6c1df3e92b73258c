"""Products over a period, of one setting and of many cells, against Kronecker matrices in NumPy."""

from __future__ import annotations

import math

import jax
import numpy as np
import pytest

import resonax as rx
from oracles import numpy_radius
from resonax.theory.map import map_rates
from resonax.theory.mean_square import mean_square_rates
from resonax.theory.period import multiply
from resonax.theory.verdict import rates

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
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(8)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def numpy_matrix(optimizer, hessian):
    """Return M of one step: v' = mu v - alpha h, e' = e + kappa v' - beta h."""
    eye, mu, zero = np.eye(len(hessian)), optimizer.momentum, np.zeros_like(hessian)
    hessian = hessian + optimizer.weight_decay * eye
    velocity = np.hstack([-optimizer.lr * (1 - optimizer.dampening) * hessian, mu * eye])
    share, once = (mu, optimizer.lr) if optimizer.lookahead else (1.0, 0.0)
    return np.vstack([np.hstack([eye - once * hessian, zero]) + share * velocity, velocity])


def numpy_rates(setting):
    """Return the rates of map and mean_square, by products of M and of E[M (x) M]."""
    process, optimizer = setting.process, setting.optimizer
    period, size = int(process.period), setting.size
    product, second = np.eye(2 * size), np.eye(4 * size**2)
    for k in range(period):
        mean = process.amplitude * np.sin(2 * np.pi * k / period + process.phase)
        x = mean + np.sqrt(process.variance) * NODES
        phi = np.stack([x, np.ones_like(x)][:size], 1)
        drawn = [numpy_matrix(optimizer, 2 * np.outer(row, row)) for row in phi]
        expected = sum(w * m for w, m in zip(WEIGHTS, drawn, strict=True))
        single = sum(w * np.kron(m, m) for w, m in zip(WEIGHTS, drawn, strict=True))
        around = single - np.kron(expected, expected)  # M is affine in the drawn matrix
        product = expected @ product
        second = (np.kron(expected, expected) + around / setting.batch) @ second
    return np.log([numpy_radius(product), np.sqrt(numpy_radius(second))]) / period


OPTIMIZERS = {
    "heavy ball": rx.heavy_ball(0.05, 0.9),
    "dampened": rx.heavy_ball(0.05, 0.9, dampening=0.4, weight_decay=0.3),
    "nesterov": rx.nesterov(0.05, 0.9, weight_decay=0.3),
}


@pytest.mark.parametrize(
    ("name", "bias"), [*((name, True) for name in OPTIMIZERS), ("heavy ball", False)]
)
def test_rates_agree_with_kronecker_matrices(name, bias):
    process = rx.Sinusoid(period=9, amplitude=0.6, variance=0.8, phase=0.3)
    setting = rx.Setting(process, OPTIMIZERS[name], model=rx.Linear(bias=bias), batch=3)
    values = {"momentum": np.array([0.0, 0.5, 0.95, 0.95]), "period": np.array([9.0, 7, 7, 12])}
    expected = [
        numpy_rates(setting.at({key: float(array[cell]) for key, array in values.items()}))
        for cell in range(4)
    ]
    found = [map_rates(setting, values), mean_square_rates(setting, values)]
    np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-11, atol=1e-13)


def test_radius_zero_and_a_defective_matrix():
    """Radius 0: lr H = 1 without momentum. A defective matrix: lr H = (1 - sqrt(mu))^2."""
    flat = rx.Setting(rx.Iid(), rx.heavy_ball(0.5, 0.0), model=rx.Linear(bias=False))
    momentum = 0.81
    values = {"momentum": np.array([0.0, momentum]), "lr": np.array([0.5, 0.005])}
    rates = map_rates(flat, values)
    assert np.isfinite(rates[0])
    assert rates[0] < -700
    assert rates[1] == pytest.approx(np.log(momentum) / 2, abs=1e-7)  # a root is known to 1e-8


def test_large_steps_do_not_overflow():
    setting = rx.Setting(rx.Sinusoid(period=40, amplitude=1e6), rx.heavy_ball(1e6, 0.5), batch=2)
    values = {"momentum": np.array([0.5, 0.5]), "period": np.array([2.0, 40.0])}  # 2: a mean of 0
    found = mean_square_rates(setting, values)
    cells = [{name: array[[cell]] for name, array in values.items()} for cell in (0, 1)]
    alone = [mean_square_rates(setting, cell)[0] for cell in cells]
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, alone, rtol=1e-12)


def test_rates_do_not_depend_on_the_number_of_threads(monkeypatch):
    setting = rx.Setting(rx.Sinusoid(period=9), rx.heavy_ball(0.1, 0.9))
    values = {"period": np.repeat(np.arange(2.0, 62.0), 20), "momentum": np.tile([0.5, 0.9], 600)}
    found, told = [], []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(mean_square_rates(setting, values, told.append))
    np.testing.assert_array_equal(*found)
    assert sum(told) == 2 * 1200
    assert len(told) > 2 * 3  # blocks, more than one for each thread


def test_maps_of_other_numbers_compile_nothing(caplog):
    def draw(period, lr, count):
        setting = rx.Setting(rx.Sinusoid(period=period), rx.heavy_ball(lr, 0.9), batch=4)
        axes = {"momentum": np.linspace(0.5, 0.9, count), "period": np.linspace(3, period, count)}
        rx.stability_map(setting, **axes)

    draw(5.0, 0.01, 6)
    with jax.log_compiles():
        draw(7.5, 0.02, 6)
        draw(9.0, 0.02, 9)
        assert not [record for record in caplog.records if "Compiling" in record.getMessage()]
        jax.jit(lambda number: number + 1)(1.0)  # which shows that a compilation is seen
    assert [record for record in caplog.records if "Compiling" in record.getMessage()]


@pytest.mark.parametrize("name", SETTINGS)
def test_a_cell_has_the_rates_that_it_has_alone(name):
    """Also beside cells of other periods and momenta."""
    setting = SETTINGS[name].grouped
    momentum = float(setting.optimizer.momentum)
    values = {"momentum": np.array([0.5, momentum, 0.99])}
    if "period" in setting.process.axes:
        values["period"] = np.array([3.0, float(setting.process.period), 7.5])
    for criterion, tolerance in (("flow", 1e-10), ("map", 1e-14), ("mean_square", 1e-14)):
        together = rates(setting, values, criterion)[1]
        alone = rates(setting, {"momentum": [momentum]}, criterion)[0]
        assert together == pytest.approx(alone, abs=tolerance)


def test_products_of_any_length_neither_overflow_nor_vanish():
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    for size in (1e-3, 1.0, 1e3):
        for count in (1, 2, 7, 64, 1001):
            found = multiply(np.repeat(size * turn[None, None], count, axis=1))
            assert found.log_radii()[0] == pytest.approx(count * math.log(size), rel=1e-12)


def test_a_verdict_of_other_numbers_compiles_nothing(caplog):
    def judge(period, lr, momentum):
        setting = rx.Setting(rx.Sinusoid(period=period), rx.heavy_ball(lr, momentum))
        rx.verdict(setting, paths=8)  # as many as in tests/test_cli.py, whose programs these are

    judge(20.0, 0.01, 0.9)
    with jax.log_compiles():
        judge(33.3, 0.02, 0.5)
        judge(501.0, 0.01, 0.99)
    assert not [line for line in caplog.messages if "ompil" in line]
