"""Products over a period in tiles, against Kronecker matrices in NumPy, and how cells are tiled."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import resonax as rx
from oracles import numpy_radius
from resonax.theory.cells import tiles
from resonax.theory.discrete import discrete_rates
from resonax.theory.mean_square import mean_square_rates

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
def test_tiles_agree_with_kronecker_matrices(name, bias):
    process = rx.Sinusoid(period=9, amplitude=0.6, variance=0.8, phase=0.3)
    setting = rx.Setting(process, OPTIMIZERS[name], model=rx.Linear(bias=bias), batch=3)
    values = {"momentum": np.array([0.0, 0.5, 0.95, 0.95]), "period": np.array([9.0, 7, 7, 12])}
    expected = [
        numpy_rates(setting.at({key: float(array[cell]) for key, array in values.items()}))
        for cell in range(4)
    ]
    found = [discrete_rates(setting, values), mean_square_rates(setting, values)]
    np.testing.assert_allclose(np.transpose(found), expected, rtol=1e-11, atol=1e-13)


def test_radius_zero_and_a_defective_matrix():
    """Radius 0: lr H = 1 without momentum. A defective matrix: lr H = (1 - sqrt(mu))^2."""
    flat = rx.Setting(rx.Iid(), rx.heavy_ball(0.5, 0.0), model=rx.Linear(bias=False))
    momentum = 0.81
    values = {"momentum": np.array([0.0, momentum]), "lr": np.array([0.5, 0.005])}
    rates = discrete_rates(flat, values)
    assert np.isfinite(rates[0])
    assert rates[0] < -700
    assert rates[1] == pytest.approx(np.log(momentum) / 2, abs=1e-7)  # a root is known to 1e-8


def test_steps_too_large_for_a_tile_are_taken_one_by_one():
    """Where the state overflows between two scalings, the product is scaled step by step."""
    setting = rx.Setting(rx.Sinusoid(period=40, amplitude=1e6), rx.heavy_ball(1e6, 0.5), batch=2)
    values = {"momentum": np.array([0.5, 0.5]), "period": np.array([2.0, 40.0])}  # 2: a mean of 0
    found = mean_square_rates(setting, values)
    cells = [{name: array[[cell]] for name, array in values.items()} for cell in (0, 1)]
    alone = [mean_square_rates(setting, cell)[0] for cell in cells]
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, alone, rtol=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(1, 12), st.sampled_from([40, 256]), st.integers(0, 99))
def test_every_cell_is_in_a_row_of_its_own_law(count, laws, size, seed):
    rng = np.random.default_rng(seed)
    setting = rx.Setting(rx.Sinusoid(period=9), rx.heavy_ball(0.1, 0.9))
    period = rng.choice(np.arange(2.0, 2.0 + laws), count)
    values = {"period": period, "momentum": rng.uniform(0, 1, count)}
    steps = (3 * period).astype(int)
    made = list(tiles(setting, values, steps, size))
    assert {tile.places.shape for tile in made} <= {(size // 20, 20), (size, 1)}
    assert len({tile.places.shape for tile in made}) == 1
    np.testing.assert_array_equal(
        np.unique(np.concatenate([tile.places.ravel() for tile in made])), np.arange(count)
    )
    for tile in made:
        law = tile.laws["period"][:, None]
        np.testing.assert_array_equal(values["period"][tile.places], law + 0 * tile.places)
        np.testing.assert_array_equal(values["momentum"][tile.places], tile.numbers["momentum"])
        np.testing.assert_array_equal(tile.steps, steps[tile.places[:, 0]])
    assert (np.diff(np.concatenate([tile.steps for tile in made])) >= 0).all()


def test_rates_do_not_depend_on_the_number_of_threads(monkeypatch):
    setting = rx.Setting(rx.Sinusoid(period=9), rx.heavy_ball(0.1, 0.9))
    values = {"period": np.repeat(np.arange(2.0, 62.0), 20), "momentum": np.tile([0.5, 0.9], 600)}
    found, told = [], []
    for threads in ("1", "3"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        found.append(mean_square_rates(setting, values, told.append))
    np.testing.assert_array_equal(*found)
    assert sum(told) == 2 * 1200
    assert len(told) > 2 * 3  # tiles, more than one for each thread


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
