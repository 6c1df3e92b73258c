"""The check of a recording: its passes, its statistics, its attribution."""

from __future__ import annotations

import functools
import itertools
import json
import math

import jax
import numpy as np
import pytest

import resonax as rx
from resonax.checking.remedies import safe_cells, with_changes
from resonax.core.objects import is_deferred
from resonax.learners import Linear, Momentum
from resonax.recordings.recording import Recording
from resonax.rows.feed import principal_axes
from resonax.rows.intervals import TRANSIENT, Pass, measure
from resonax.rows.subject import Subject
from resonax.rows.surrogates import (
    buffered,
    phase_randomised,
    shuffled,
    stretched,
    without_rhythm,
    without_size_rhythm,
)
from resonax.streams import Process

ROWS = 700
SIZE = 3  # weights: of two columns, as in the checks of other tests, and the bias


def data(rows: int = ROWS, columns: int = SIZE - 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, columns))
    X[:, 0] += 1.2 * np.sin(2 * np.pi * np.arange(rows) / 24)
    X = (X - X.mean(0)) / X.std(0)
    return X, X @ rng.normal(size=columns) + 0.3 * rng.normal(size=rows)


def subject(
    X: np.ndarray,
    y: np.ndarray | None,
    optimizer: Momentum,
    batch: int = 1,
    epochs: int = 1,
    intercept_lr: float | None = None,
) -> Subject:
    target = None if y is None else y.astype(np.float32)
    names = tuple(str(i) for i in range(X.shape[1]))
    recording = Recording(X.astype(np.float32), target, names, None, "array", ())
    model = principal_axes(Linear(), recording.inputs, intercept_lr)
    return Subject(optimizer, model, batch, recording=recording, epochs=epochs)


def matrices(
    X: np.ndarray, optimizer: Momentum, batch: int, intercept_lr: float | None
) -> list[np.ndarray]:
    """The update matrices of (weights, velocity), written down from the recursion itself."""
    rows = np.hstack([X, np.ones((len(X), 1))]).astype(np.float32).astype(float)
    size = rows.shape[1]
    eye, zero = np.eye(size), np.zeros((size, size))
    moved = eye.copy()
    plain = zero.copy()
    if intercept_lr is not None:
        moved[-1, -1], plain[-1, -1] = 0.0, intercept_lr
    found = []
    for start in range(0, len(rows) // batch * batch, batch):
        part = rows[start : start + batch]
        hessian = 2 / batch * part.T @ part
        decayed = hessian + optimizer.weight_decay * moved
        velocity = np.hstack([-optimizer.alpha * moved @ decayed, optimizer.momentum * moved])
        weights = np.hstack([eye - (optimizer.beta * moved + plain) @ decayed, zero])
        found.append(np.vstack([weights + optimizer.kappa * velocity, velocity]))
    return found


OPTIMIZERS = {
    "heavy_ball": (rx.heavy_ball(0.01, 0.95), 1, None),
    "batch": (rx.heavy_ball(0.02, 0.9), 3, None),
    "large batch": (rx.heavy_ball(0.02, 0.9), 10, None),
    "nesterov": (rx.nesterov(0.02, 0.97), 1, None),
    "decay": (rx.nesterov(0.02, 0.9, weight_decay=0.05), 2, None),
    "dampening": (rx.heavy_ball(0.05, 0.9, dampening=0.3), 1, None),
    "sgd": (rx.sgd(0.3), 1, None),
    "river": (rx.heavy_ball(0.01, 0.95), 1, 0.01),
}


# Each compiles a loop of its own: half of them go with the longer tests.
LONGER = ("large batch", "decay", "dampening", "sgd")
VARIANTS = [
    pytest.param(name, marks=pytest.mark.slow if name in LONGER else ()) for name in OPTIMIZERS
]


def chain(steps: list[np.ndarray]) -> np.ndarray:
    return functools.reduce(lambda product, matrix: matrix @ product, steps)


def energies(
    X: np.ndarray, optimizer: Momentum, intercept_lr: float | None, states: np.ndarray
) -> np.ndarray:
    """The energy of columns (weights, velocity) after each step between two of the states."""
    rows = np.hstack([X, np.ones((len(X), 1))]).astype(np.float32).astype(float)
    moved = np.ones(SIZE)
    gains = np.full(SIZE, optimizer.kappa * optimizer.alpha + optimizer.beta)
    if intercept_lr is not None:
        moved[-1], gains[-1] = 0.0, intercept_lr
    curvature = 2 * rows.T @ rows / len(rows)
    if intercept_lr is not None:
        curvature[-1, :-1] = curvature[:-1, -1] = 0.0
    curvature += optimizer.weight_decay * np.diag(moved)
    values, vectors = np.linalg.eigh(np.diag(1 / gains) - curvature / 2)
    inertia = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T
    before, here = states[:-1, :SIZE], states[1:, :SIZE]
    total = 0.5 * here * (curvature @ here) + 0.5 * before * (curvature @ before)
    return (total + (here - before) * (inertia @ (here - before))).sum(axis=1)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_growth_on_rows_is_that_of_the_product_of_their_matrices(name):
    """Three passes, from rest; the matrices are written down from the recursion itself."""
    optimizer, batch, intercept_lr = OPTIMIZERS[name]
    X, _ = data(300)
    steps = matrices(X, optimizer, batch, intercept_lr)
    found = subject(X, None, optimizer, batch, 3, intercept_lr).follow_exactly()
    product = chain(steps)
    radius = np.abs(np.linalg.eigvals(product)).max()
    assert found.log_radius == pytest.approx(math.log(radius), abs=1e-6)
    start = np.eye(2 * SIZE)[:, :SIZE]
    begun = energies(X, optimizer, intercept_lr, np.stack([start, start])).sum()
    states = np.stack([*itertools.accumulate(steps * 3, lambda s, m: m @ s, initial=start)])
    ended = energies(X, optimizer, intercept_lr, states).sum(axis=1)
    path = [0.0, *(0.5 * np.log(ended / begun))]
    assert found.log_growth == pytest.approx(path[-1], abs=1e-6)
    assert found.passes[0] == pytest.approx(path[len(steps)], abs=1e-6)
    last = chain(steps[:-1]) @ np.linalg.matrix_power(product, 9) @ start
    ended = energies(X, optimizer, intercept_lr, np.stack([last, steps[-1] @ last])).sum()
    assert found.passes[9] == pytest.approx(0.5 * math.log(ended / begun), abs=1e-5)
    assert found.path == pytest.approx(np.array(path[1:]), abs=1e-6)
    rise = np.max(np.array(path) - np.minimum.accumulate(path))
    assert found.log_rise == pytest.approx(rise, abs=1e-6)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_compiled_pass_is_the_product_of_its_matrices(name):
    """One difference in 32 bits, from a random direction, against the matrices in 64."""
    optimizer, batch, intercept_lr = OPTIMIZERS[name]
    X, _ = data()
    asked = subject(X, None, optimizer, batch, intercept_lr=intercept_lr)
    assert asked.model.basis is not None
    start = asked.model.basis @ np.random.default_rng(asked.seed).normal(size=SIZE)
    state = np.concatenate([start, np.zeros(SIZE)])[:, None]
    begun = energies(X, optimizer, intercept_lr, np.stack([state, state]))[0]
    last = state
    for matrix in matrices(X, optimizer, batch, intercept_lr):
        state, last = matrix @ state, state
    ended = energies(X, optimizer, intercept_lr, np.stack([last, state]))[0]
    total = 0.5 * math.log(ended[0] / begun[0])
    assert asked.measure().total[0] == pytest.approx(total, abs=2e-3)


@pytest.mark.parametrize("name", VARIANTS)
def test_a_trained_model_is_that_of_a_plain_loop(name):
    optimizer, batch, intercept_lr = OPTIMIZERS[name]
    X, y = data()
    rows = np.hstack([X, np.ones((len(X), 1))])
    weights, velocity = np.zeros(SIZE), np.zeros(SIZE)
    plain = intercept_lr if intercept_lr is not None else 0.0
    moved = np.array([1, 1, 0 if intercept_lr is not None else 1])
    sizes, errors = [], []
    for start in range(0, len(rows) // batch * batch, batch):
        part, target = rows[start : start + batch], y[start : start + batch]
        gradient = 2 / batch * part.T @ (part @ weights - target)
        errors.append(np.mean((part @ weights - target) ** 2))
        decayed = moved * (gradient + optimizer.weight_decay * weights)
        velocity = optimizer.momentum * velocity - optimizer.alpha * decayed
        weights = weights + optimizer.kappa * velocity - optimizer.beta * decayed
        weights = weights - (1 - moved) * plain * gradient
        sizes.append(np.linalg.norm(weights))
    found = subject(X, y, optimizer, batch, intercept_lr=intercept_lr).train()
    assert found.log_norm is not None
    assert found.log_loss is not None
    assert found.log_norm[-1, 0] == pytest.approx(math.log(sizes[-1]), abs=2e-3)
    block = math.ceil(len(sizes) / len(found.log_norm))
    mean = np.mean(errors[-8:]) if block >= 7 else np.mean(errors[-block:])
    assert found.log_loss[-1, 0] == pytest.approx(math.log(mean), abs=2e-3)


def test_violent_growth_is_never_mistaken_for_rest():
    """A row of length 50 multiplies an error by thousands; nothing may overflow or vanish."""
    X, _ = data()
    X = X.copy()
    X[::50, 1] = 50.0
    lrs = np.geomspace(0.01, 1e4, 30)
    optimizer = Momentum(lrs, np.full(30, 0.9))
    found = subject(X, None, optimizer).measure()
    for values in (found.rate, found.low, found.high):
        assert np.isfinite(values).all()
    assert (np.diff(found.rate[10:]) > 0).all()
    assert (found.verdicts[10:] == "diverges").all()
    # One step multiplies by at most 3 + 2 lr |x|^2.
    assert (found.rate < np.log(3 + 2 * lrs * 2600)).all()


def test_epochs_multiply_the_passes():
    """Many passes grow by the radius of one, each."""
    X, _ = data()
    optimizer = rx.heavy_ball(0.03, 0.9)
    product = chain(matrices(X, optimizer, 1, None))
    exact = math.log(np.abs(np.linalg.eigvals(product)).max()) / ROWS
    many = subject(X, None, optimizer, epochs=40)
    assert many.measure().rate[0] == pytest.approx(exact, abs=1e-4)


def test_directions_that_no_row_has_do_not_count():
    """Twins of a column add a direction in which nothing moves: the rate must stay."""
    X, _ = data()
    optimizer = rx.heavy_ball(0.005, 0.9)
    alone = subject(X, None, optimizer)
    twins = subject(np.hstack([X, X[:, :1]]) / math.sqrt(1), None, optimizer)
    assert twins.model.size(SIZE) == alone.model.size(SIZE - 1) == SIZE
    assert twins.measure().rate[0] < -1e-3


def naive_buffer(rows: int, size: int, rng: np.random.Generator) -> list[int]:
    held, out = list(range(size)), []
    places = rng.integers(size, size=rows - size)
    for step, place in enumerate(places):
        out.append(held[place])
        held[place] = size + step
    return out + rng.permutation(held).tolist()


@pytest.mark.parametrize("size", [1, 2, 7, 100, 199, 200])
def test_a_shuffle_buffer_is_the_one_of_data_loaders(size):
    found = buffered(200, size, 1, np.random.default_rng(3))
    assert found.tolist() == naive_buffer(200, size, np.random.default_rng(3))
    assert sorted(buffered(200, size, 2, np.random.default_rng(3))) == sorted([*range(200)] * 2)


def test_surrogates_keep_what_they_promise():
    X, _ = data(2000)
    X = X.astype(np.float32)
    rng = np.random.default_rng(0)
    assert sorted(shuffled(50, 2, rng).tolist()) == sorted([*range(50)] * 2)
    assert stretched(10, 2.0).tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]

    def power(rows: np.ndarray) -> np.ndarray:
        return np.abs(np.fft.rfft(rows, axis=0)) ** 2

    random = phase_randomised(X, rng)
    np.testing.assert_allclose(power(random), power(X), rtol=1e-2, atol=1.0)
    cross = [np.cov(rows.T) for rows in (X, random)]
    np.testing.assert_allclose(cross[0], cross[1], atol=1e-3)
    calm = without_rhythm(X, 21, 27, rng)
    lines = slice(2000 // 27 + 1, 2000 // 21)
    assert power(calm)[lines, 0].sum() < 0.2 * power(X)[lines, 0].sum()
    np.testing.assert_allclose(calm.var(0), X.var(0), rtol=0.1)
    swing = X * np.exp(0.8 * np.sin(2 * np.pi * np.arange(2000) / 24))[:, None].astype(np.float32)
    even = without_size_rhythm(swing, 21, 27, rng)
    energy = [np.abs(np.fft.rfft((rows**2).sum(1)))[lines].max() for rows in (swing, even)]
    assert energy[1] < 0.5 * energy[0]
    assert (even**2).sum() == pytest.approx((swing**2).sum(), rel=1e-3)


def synthetic(growth: np.ndarray, length: float = 8.0) -> Pass:
    path = np.concatenate([np.zeros((1, growth.shape[1])), np.cumsum(growth, axis=0)])
    rise = np.max(path - np.minimum.accumulate(path, axis=0), axis=0)
    return Pass(growth, rise, np.full(len(growth), length))


def test_intervals_cover_the_mean_of_independent_and_of_correlated_growth():
    """400 recordings each; at a true coverage of 95% fewer than 360 occur in one of 10^5."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(512, 400))
    for memory in (0.0, 0.8):
        growth = np.zeros_like(noise)
        for k in range(512):
            growth[k] = memory * growth[k - 1] + noise[k] if k else noise[k]
        found = measure(synthetic(growth))
        covered = (found.low < 0) & (found.high > 0)
        assert covered.sum() >= 360
        # The transient alone must not be what covers.
        assert np.median(found.high - found.low) > 3 * TRANSIENT / (512 * 8)


def test_slow_change_is_not_chance_but_bursts_are_told():
    steps = np.arange(512)
    trend = 0.1 + 0.2 * np.sin(2 * np.pi * steps / 512)
    rng = np.random.default_rng(0)
    found = measure(synthetic((trend + 0.1 * rng.normal(size=512))[:, None]))
    assert found.low[0] > 0
    burst = np.full(512, -0.2)
    burst[100:130] = 0.5
    found = measure(synthetic(burst[:, None]))
    assert found.rise[0] == pytest.approx(15.0)
    assert found.verdicts[0] == "undecided"


@pytest.mark.parametrize("lr", [1e-5, 1e-3, 0.1])
@pytest.mark.parametrize("momentum", [0.0, 0.9, 0.999])
def test_a_swing_alone_is_no_growth(lr, momentum):
    """Rows of +-1 all have the same update matrix: whatever swings, nothing grows."""
    x = np.random.default_rng(0).choice([-1.0, 1.0], 3000)
    recording = Recording(x[:, None].astype(np.float32), None, ("0",), None, "array", ())
    model = principal_axes(Linear(bias=False), recording.inputs)
    found = Subject(rx.heavy_ball(lr, momentum), model, recording=recording).measure()
    assert found.rise[0] < 0.5
    assert found.high[0] > found.rate[0]


def test_a_glitch_of_a_few_rows_in_many_is_seen():
    x = np.random.default_rng(0).choice([-1.0, 1.0], 40_000)
    x[20_000:20_006] *= 6
    found = subject(x[:, None], None, rx.sgd(0.1)).measure()
    assert found.rise[0] > 3


def test_false_alarms_on_independent_rows_are_rarer_than_the_significance():
    """256 recordings just below the boundary: more than 16 alarms at 2.5% occur once in 10^4."""
    rng = np.random.default_rng(0)
    optimizer = rx.heavy_ball(0.23, 0.0)
    alarms, total = 0, 0.0
    for _ in range(16):
        X = rng.normal(size=(1000, 3, 16)).astype(np.float32)
        asked = subject(X[:, :, 0], None, optimizer)
        found = asked.measure_rows([lambda i=i, X=X: X[:, :, i] for i in range(16)])
        alarms += int((found.low > 0).sum())
        total += float(found.rate.mean()) / 16
    assert -0.02 < total < 0
    assert alarms <= 16


def stream(process: Process) -> np.ndarray:
    return np.asarray(process.sample(jax.random.key(1), 4000, 1)).reshape(4000, -1)


def wave(steps: int, amplitude: float, variance: float, swing: float = 0.0) -> np.ndarray:
    """Rows whose mean, or the log of whose variance, is a sinusoid of period 22."""
    angle = 2 * np.pi * np.arange(steps) / 22
    noise = np.random.default_rng(1).normal(size=steps)
    return amplitude * np.sin(angle) + np.sqrt(variance * np.exp(swing * np.sin(angle))) * noise


KNOWN = {
    "sinusoid": (lambda: wave(2000, amplitude=1.0, variance=0.5), 0.97, 22, 1),
    "square": (lambda: stream(rx.Square(period=26, amplitude=0.9, variance=0.4)), 0.97, 26, 1),
    "ar2": (lambda: stream(rx.AR2(period=22.0, amplitude=0.9, variance=0.4)), 0.97, 22, 1),
    "size": (lambda: wave(9000, amplitude=0.0, variance=1.0, swing=1.3), 0.95, 22, 1),
    "batches": (lambda: stream(rx.Sinusoid(period=88, amplitude=1.2, variance=0.3)), 0.97, 22, 4),
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("sinusoid", "size") else pytest.mark.slow)
        for name in KNOWN
    ],
)
def test_the_period_of_a_known_rhythm_is_found(name):
    make, momentum, period, batch = KNOWN[name]
    found = rx.check(make(), lr=0.01, momentum=momentum, batch=batch, standardise=False, grid=4)
    assert found.verdict == "diverges"
    assert found.period == pytest.approx(period, rel=0.05)
    assert found.rhythm == ("size" if name == "size" else "values")
    assert found.rate > found.shuffled_high


def test_cause_of_independent_and_of_harmless_rows():
    rows = np.random.default_rng(0).normal(size=1200)  # one column, as in the tests beside it
    found = rx.check(rows, lr=0.3, momentum=0.9, grid=4)
    assert (found.verdict, found.cause, found.period) == ("diverges", "generic", None)
    assert found.safe["shuffle_buffer"] is None
    found = rx.check(rows, lr=0.01, momentum=0.8, grid=4)
    assert (found.verdict, found.cause, found.period) == ("converges", "none", None)
    assert found.safe["shuffle_buffer"] == 1


def test_a_daily_rhythm_is_the_order_and_plain_json():
    hours = np.arange(600)
    rng = np.random.default_rng(0)
    x = 1.2 * np.sin(2 * np.pi * hours / 24) + 0.5 * rng.normal(size=600)
    found = rx.check(x, np.roll(x, -1), lr=0.01, momentum=0.95, grid=4)
    assert (found.verdict, found.cause) == ("diverges", "order")
    assert found.low < found.rate < found.high
    again = rx.check(x, np.roll(x, -1), lr=0.01, momentum=0.95, grid=4)
    assert json.dumps(found.to_dict(), allow_nan=False) == json.dumps(again.to_dict())
    assert is_deferred(found, "dataset")  # words and numbers need no picture
    wanted = {"rate", "low", "high", "verdict", "cause", "period", "shuffled_rate", "pass_radius"}
    assert wanted <= found.to_dict().keys()
    assert set(found.safe) == {"momentum", "lr", "batch", "shuffle_buffer", "fastest_momentum"}
    assert "doubles every" in str(found)
    assert found.on_these_rows.log_growth == pytest.approx(600 * found.rate)
    # Momentum and step size go as far as is safe: 1% more, of the friction or of the step, is not.
    asked = subject(((x - x.mean()) / x.std())[:, None], None, rx.heavy_ball(0.01, 0.95))
    for more, wanted in ((1.0, [True, True]), (1.01, [False, False])):
        momentum, lr = 1 - (1 - found.safe["momentum"]) / more, more * found.safe["lr"]
        tried = with_changes(asked, [("momentum", momentum), ("lr", lr)])
        assert safe_cells(tried.measure()).tolist() == wanted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"optimizer": "adam"}, "check does not cover the optimizer adam, only heavy_ball"),
        ({"optimizer": "sgd"}, "momentum is not a parameter of sgd"),
        ({"optimizer": "optax", "dampening": 0.5}, "dampening is not a parameter of optax"),
        ({"lr": -1.0}, "lr must be above 0"),
        ({"lr": math.nan}, "lr must be finite"),
        ({"momentum": 1.0}, "momentum must be at least 0 and below 1"),
        ({"batch": 0}, "batch must be at least 1"),
        (
            {"batch": 20},
            "at least 1280 are needed with a batch of 20, so use more rows or a smaller batch",
        ),
        ({"batch": 100, "epochs": 10}, "batch must be at most an eighth of the 700 rows"),
        ({"lr": 1e5}, "lr must be above 0 and at most 10000"),
        ({"epochs": 0.5}, "epochs must be a whole number"),
        ({"grid": 1}, "grid must be at least 2"),
        ({"confidence": 1.0}, "confidence must be below 1, got 1.0"),
        ({"intercept_lr": -1.0}, "intercept_lr must be"),
    ],
)
def test_bad_arguments_are_told_in_a_sentence(change, words):
    X, y = data()
    with pytest.raises(rx.ArgumentError, match=words):
        rx.check(X, y, **{"lr": 0.01, "momentum": 0.9, "grid": 4} | change)


@pytest.mark.slow
def test_optimizers_of_the_libraries():
    """torch and optax are heavy ball; river's bias has no momentum, which changes the growth."""
    X, _ = data(1500)
    rates = {
        name: rx.check(X, lr=0.01, momentum=0.95, optimizer=name, grid=2).rate
        for name in ("heavy_ball", "torch", "optax", "river")
    }
    assert rates["torch"] == rates["optax"] == rates["heavy_ball"]
    assert rates["river"] != rates["heavy_ball"]


def test_a_learner_is_laid_over_the_prediction():
    def step(state, inputs, target):
        weights, velocity = state
        rows = np.append(inputs, 1.0)
        velocity = 0.95 * velocity - 0.01 * 2 * (rows @ weights - target[0]) * rows
        return weights + velocity, velocity

    learner = (
        step,
        (np.zeros(2), np.zeros(2)),
        lambda state, x: np.append(x, 1.0) @ state[0][:, None],
    )
    hours = np.arange(2000)
    rng = np.random.default_rng(0)
    x = 1.2 * np.sin(2 * np.pi * hours / 24) + 0.5 * rng.normal(size=2000)
    found = rx.check(x, np.roll(x, -1), lr=0.01, momentum=0.95, learner=learner, grid=2)
    assert found.learner_bounded == {"chronological": False, "shuffled": True}
    own, predicted = found.dataset.learner_error, found.dataset.error
    calm = [float((10 ** curve.sel(order="shuffled")).mean()) for curve in (own, predicted)]
    assert calm[0] == pytest.approx(calm[1], rel=0.02)
    ended = np.isfinite(own.sel(order="chronological").values)
    assert 10 < ended.sum() < len(ended)
    gap = (own - predicted).sel(order="chronological").values[ended]
    assert np.median(np.abs(gap)) < 0.2
    with pytest.raises(rx.ArgumentError, match="a learner needs a target"):
        rx.check(x, lr=0.01, momentum=0.95, learner=learner)
    with pytest.raises(rx.ArgumentError, match="learner must be"):
        rx.check(x, x, lr=0.01, momentum=0.95, learner="mine")


@pytest.mark.slow
def test_a_basis_and_no_bias():
    X, y = data(1500, columns=1)
    plain = rx.check(X, y, lr=0.01, momentum=0.9, bias=False, grid=2)
    assert dict(plain.facts)["weights"] == "1"
    cubic = rx.check(X, y, lr=0.001, momentum=0.9, basis=rx.Polynomial(3), grid=2)
    assert dict(cubic.facts)["weights"] == "4"
    assert cubic.settings["basis"] == "polynomial"
