"""Real learners on streams whose growth is known: replay and probe."""

from __future__ import annotations

import copy
import math
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from river import compose, linear_model, optim, preprocessing
from sklearn.linear_model import SGDClassifier, SGDRegressor
from sklearn.neural_network import MLPRegressor

import resonax as rx
from resonax.core.errors import ArgumentError
from resonax.probing.adapters import Learner, adapt
from resonax.probing.probe import probe
from resonax.probing.replay import replay

LR = 0.01


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the networks are tiny
    yield
    torch.set_num_threads(before)


@cache
def _stream(seed: int, amplitude: float, variance: float) -> tuple[np.ndarray, np.ndarray]:
    process = rx.Switching(period=6, dim=5, amplitude=amplitude, variance=variance)
    rows = np.asarray(process.sample(jax.random.key(seed), steps=2000, batch=1), float)[:, 0]
    noise = 0.1 * np.random.default_rng(seed).normal(size=len(rows))
    return rows, rows @ [1.0, 2.0, 3.0, 4.0, 5.0] + 0.5 + noise


def switching(steps: int, seed: int = 1, amplitude: float = 0.5, variance: float = 0.25):
    rows, target = _stream(seed, amplitude, variance)
    return rows[:steps], target[:steps]


def shuffle(rows: np.ndarray, target: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(0).permutation(len(rows))
    return rows[order], target[order]


def with_one(rows: np.ndarray) -> np.ndarray:
    return np.c_[rows, np.ones(len(rows))]


def numpy_ball(momentum: float, size: int = 6):
    def step(state, inputs, target):
        weights, velocity = state
        features = with_one(inputs)
        gradient = 2 * features.T @ (features @ weights - target) / len(inputs)
        velocity = momentum * velocity - LR * gradient
        return weights + velocity, velocity

    return step, (np.zeros(size), np.zeros(size)), lambda s, inputs: with_one(inputs) @ s[0]


def optax_sgd(momentum: float, dtype=jnp.float32, size: int = 6):
    optimizer = optax.sgd(LR, momentum)

    @jax.jit
    def step(state, inputs, target):
        weights, memory = state
        features = jnp.c_[inputs, jnp.ones(len(inputs))].astype(dtype)
        loss = lambda w: jnp.mean((features @ w - target) ** 2)  # noqa: E731
        moves, memory = optimizer.update(jax.grad(loss)(weights), memory)
        return weights + moves, memory

    weights = jnp.zeros(size, dtype)
    return step, (weights, optimizer.init(weights))


def torch_linear(momentum: float, dtype=torch.float64):
    module = torch.nn.Linear(5, 1, dtype=dtype)
    for parameter in module.parameters():
        torch.nn.init.zeros_(parameter)
    return module, torch.optim.SGD(module.parameters(), LR, momentum=momentum)


def network(make, activation=torch.nn.ReLU, dropout: float = 0.0, **settings):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(5, 16), activation(), torch.nn.Linear(16, 1)]
    module = torch.nn.Sequential(*layers[:2], torch.nn.Dropout(dropout), layers[2])
    return module, make(module.parameters(), **settings)


def river_linear(momentum: float, **settings):
    return linear_model.LinearRegression(optim.Momentum(LR, momentum), **settings)


def constant_sgd(eta0: float, **settings):
    return SGDRegressor(penalty=None, learning_rate="constant", eta0=eta0, **settings)


def tangent_rate(rows, target, momentum, start, probed, batch: int = 1, lr: float = LR) -> float:
    """The rate of the linearised heavy ball over the steps that a probe counts, by hand.

    There is one momentum for each weight, as river has none for its intercept. Start and norm are
    the probe's: after 32 steps, in units of the size that weights and velocity had until then.
    """
    momentum = np.broadcast_to(momentum, rows.shape[1] + 1)
    features = with_one(rows).reshape(-1, batch, len(momentum))
    weights, velocity = np.zeros((2, len(momentum)))
    has = momentum > 0
    size = np.full(2, 1e-300)
    for k, x in enumerate(features[:32]):
        error = x @ weights - target[k * batch : (k + 1) * batch]
        velocity = momentum * velocity - lr * 2 * x.T @ error / batch
        weights = weights + velocity
        size = np.maximum(
            size, [np.mean(weights**2), np.sum(velocity[has] ** 2) / max(has.sum(), 1)]
        )
    weights, velocity = start / np.linalg.norm(start), np.zeros(len(momentum))
    norms = [1.0]
    for x in features[32:]:
        velocity = momentum * velocity - lr * 2 * x.T @ (x @ weights) / batch
        weights = weights + velocity
        norms.append(
            math.sqrt(weights @ weights + velocity[has] @ velocity[has] * size[0] / size[1])
        )
    return math.log(norms[probed.steps] / norms[probed.steps // 10]) / (
        probed.steps - probed.steps // 10
    )


FRAMEWORKS = {
    "torch": (torch_linear, 0.98, 1e-6),
    "torch in single precision": (lambda mu: torch_linear(mu, torch.float32), 0.85, 5e-5),
    "optax in single precision": (optax_sgd, 0.98, 5e-5),
}


@pytest.mark.parametrize(("momentum", "verdict"), [(0.98, "diverges"), (0.85, "converges")])
def test_a_heavy_ball_grows_as_its_tangent_map(momentum, verdict):
    rows, target = switching(1000)
    found = probe(numpy_ball(momentum), rows, target)
    assert (found.verdict, found.bounded, found.steps) == (verdict, True, 968)
    start = np.random.default_rng(0).normal(size=6)  # of seed 0; the weights come first
    truth = tangent_rate(rows, target, momentum, start, found)
    assert found.rate == pytest.approx(truth, abs=1e-6)
    theory = rx.lyapunov(rx.Setting(rx.Recorded.of(rows), rx.heavy_ball(LR, momentum)))
    assert found.low < theory.rate < found.high


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_frameworks_agree(name):
    make, momentum, error = FRAMEWORKS[name]
    stream = switching(200)
    found, expected = probe(make(momentum), *stream), probe(numpy_ball(momentum), *stream)
    assert found.verdict == expected.verdict
    assert found.rate == pytest.approx(expected.rate, abs=error)


def test_river_grows_as_its_tangent_map():
    for momentum, steps, verdict in [(0.99, 2000, "diverges"), (0.85, 1000, "converges")]:
        rows, target = switching(steps, seed=2)
        learner = river_linear(momentum)
        found = probe(learner, rows, target)
        fitted = adapt(learner).fresh()
        fitted.learn(rows[:1], target[:1])
        kinds = fitted.kinds()
        start = np.random.default_rng(0).normal(size=len(kinds))[kinds == 0]
        start = np.roll(start, -1)  # here the intercept is the last
        truth = tangent_rate(rows, target, [*[momentum] * 5, 0.0], start, found)
        assert found.verdict == verdict
        assert found.rate == pytest.approx(truth, abs=1e-6)


def test_batches_and_epochs():
    wave = 0.5 * np.sin(2 * np.pi * np.arange(264) / 22)
    rows = (wave[:, None] + np.random.default_rng(0).normal(size=(264, 20))).reshape(-1, 1)
    learner = numpy_ball(0.97, size=2)
    found = probe(learner, rows, rows[:, 0], batch=20)
    start = np.random.default_rng(0).normal(size=2)
    truth = tangent_rate(rows, rows[:, 0], 0.97, start, found, batch=20)
    assert found.rate == pytest.approx(truth, abs=1e-6)
    twice = probe(learner, rows, rows[:, 0], batch=20, epochs=2)
    assert twice.steps == 2 * 264 - 32
    assert twice.high - twice.low < found.high - found.low


def test_replay_blows_up_in_order_and_not_shuffled():
    rows, target = switching(1500, amplitude=1.0, variance=0.1)
    learner = river_linear(0.95)
    chronological, shuffled = (replay(learner, rows, target, seed=seed) for seed in (None, 0))
    assert shuffled.bounded
    assert len(shuffled.errors) == 1500
    assert len(shuffled.norms) == len(shuffled.steps) == 1000
    assert np.median(shuffled.errors[-300:]) < np.median(shuffled.errors[:50])
    assert not chronological.bounded
    assert chronological.overflow == len(chronological.errors) - 1
    assert chronological.errors.max() > 1e20
    assert np.isfinite(chronological.errors).all()
    found = probe(learner, rows, target)
    assert (found.verdict, found.bounded) == ("diverges", False)
    assert found.low > 0


@pytest.mark.parametrize("average", [False, True])
def test_scikit_learn(average):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(256, 3))
    target = rows.sum(axis=1) + 0.01 * rng.normal(size=256)
    small = probe(constant_sgd(0.1, average=average), rows, target)
    assert small.verdict == "converges"
    start = np.random.default_rng(0).normal(size=4)
    truth = tangent_rate(rows, target, 0.0, start, small, lr=0.05)  # its loss has a factor 1/2
    assert small.rate == pytest.approx(truth, abs=1e-6)
    for eta0 in (0.9, 10.0, 1e6):  # the last one is gone before anything can be measured
        large = probe(constant_sgd(eta0, average=average), rows, target)
        assert (large.verdict, large.bounded) == ("diverges", False)
        assert large.rate > 0
    if not average:
        assert not replay(constant_sgd(0.9), rows, target).bounded
        large = probe(small_mlp(solver="sgd", learning_rate_init=1e3), rows, target)
        assert (large.verdict, large.bounded) == ("diverges", False)


def test_a_network_resonates_with_sgd_and_not_with_adam():
    rows, _ = switching(240, seed=2, amplitude=1.0, variance=0.05)
    target = rows.sum(axis=1)
    sgd = {"lr": 0.003, "momentum": 0.95}
    ordered = probe(network(torch.optim.SGD, **sgd), rows, target)
    assert (ordered.verdict, ordered.bounded) == ("diverges", False)
    mixed = probe(network(torch.optim.SGD, **sgd), *shuffle(rows, target))
    adam = probe(network(torch.optim.Adam, lr=0.003), rows, target)
    for found in (mixed, adam):
        assert (found.verdict, found.bounded) == ("marginal", True)
        assert abs(found.rate) < 0.02
    assert ordered.rate > mixed.rate + 0.05
    bounded = network(torch.optim.SGD, activation=torch.nn.Tanh, **sgd)
    pumped = probe(bounded, rows, target)
    assert pumped.bounded  # as its gradient is
    assert pumped.rate > mixed.rate + 0.05


def small_mlp(**settings):
    return MLPRegressor(hidden_layer_sizes=(4,), **settings)


LEARNERS = {
    "numpy": lambda: numpy_ball(0.9),
    "optax": lambda: (*optax_sgd(0.9), lambda s, inputs: with_one(inputs) @ np.asarray(s[0])),
    "torch": lambda: torch_linear(0.9),
    "torch network": lambda: network(torch.optim.SGD, lr=0.01, momentum=0.9, dropout=0.5),
    "torch adam": lambda: network(torch.optim.Adam, lr=0.01, amsgrad=True),
    "torch huber": lambda: (*network(torch.optim.RMSprop, lr=0.01), torch.nn.HuberLoss()),
    "river": lambda: river_linear(0.9),
    "river adam": lambda: linear_model.LinearRegression(optim.Adam(0.01), l2=0.01),
    "river pipeline": lambda: preprocessing.StandardScaler() | river_linear(0.9),
    "scikit-learn": lambda: constant_sgd(0.01),
    "scikit-learn average": lambda: constant_sgd(0.01, average=5),
    "scikit-learn network": lambda: small_mlp(solver="sgd"),
    "scikit-learn adam": lambda: small_mlp(),
}


@pytest.mark.parametrize("name", LEARNERS)
def test_the_state_is_all_that_the_future_depends_on(name):
    rows, target = switching(60)
    one = adapt(LEARNERS[name]()).fresh()
    assert isinstance(one, Learner)
    two = one.fresh()
    for begin in range(0, 16, 4):
        one.learn(rows[begin : begin + 4], target[begin : begin + 4])
        two.learn(rows[begin + 20 : begin + 24], -target[begin : begin + 4])
    assert one.state().shape == one.kinds().shape
    assert (one.kinds() == 0).any()
    assert not np.array_equal(one.state(), two.state())
    two.load(one.state())
    three = two.fresh()
    before = one.state().copy()
    for begin in range(20, 60, 4):
        for learner in (one, two):
            learner.learn(rows[begin : begin + 4], target[begin : begin + 4])
    np.testing.assert_allclose(two.state(), one.state(), rtol=1e-6, atol=1e-12)
    np.testing.assert_array_equal(three.state(), before)  # a copy stays behind
    assert one.predict(rows).shape == (60,)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_callers_learner_stays_as_it_is_and_results_repeat(name):
    rows, target = switching(64)  # as few as a probe takes
    learner = LEARNERS[name]()
    before, noise = adapt(copy.deepcopy(learner)).state(), torch.get_rng_state()
    found = probe(learner, rows, target)
    assert probe(learner, rows, target) == found
    first, second = (replay(learner, rows, target, batch=3, seed=1) for _ in range(2))
    np.testing.assert_array_equal(first.errors, second.errors)
    assert len(first.errors) == 21
    assert math.isfinite(found.rate)
    assert found.low < found.rate < found.high
    np.testing.assert_array_equal(adapt(learner).state(), before)
    assert torch.equal(torch.get_rng_state(), noise)


def test_a_weight_that_is_not_trained_is_not_perturbed():
    assert probe(river_linear(0.85, intercept_lr=0.0), *switching(1000)).verdict == "converges"
    module, _ = torch_linear(0.85)
    module.bias.requires_grad_(False)
    learner = adapt((module, torch.optim.SGD([module.weight], LR)))
    assert learner.kinds().tolist() == [0] * 5


def forget(state, inputs, target):
    return target


def stay(state, inputs, target):
    return state


def explode(state, inputs, target):
    return 1e30 * state + 1.0


def shrink(state, inputs, target):
    weight, square = state  # which must not be negative
    return 0.5 * weight + np.sqrt(square), 0.5 * square


def test_ends_of_the_scale():
    rows, target = np.ones((100, 1)), np.ones(100)
    found = probe((forget, np.zeros(1)), rows, target)
    assert found.verdict == "converges"  # down to the rounding, in each step
    assert found.rate == pytest.approx(0.6 * math.log(np.finfo(float).eps), rel=1e-3)
    found = probe((stay, np.ones(2)), rows, target)
    assert (found.verdict, found.rate) == ("marginal", pytest.approx(0.0, abs=1e-9))
    found = probe((explode, np.ones(2)), rows, target)
    assert (found.verdict, found.bounded, found.steps) == ("diverges", False, 1)
    found = probe((shrink, (np.ones(1), np.ones(1))), rows, target)
    assert found.rate < -0.1


def test_names_of_columns():
    import pandas

    rows, target = switching(80)
    frame = pandas.DataFrame(rows, columns=list("abcde"))
    learner = compose.Select("a", "c") | river_linear(0.9)
    found = replay(learner, frame, target)
    plain = replay(river_linear(0.9), rows[:, [0, 2]], target)
    np.testing.assert_allclose(found.errors, plain.errors)


ROWS = np.ones((100, 2))
WRONG = {
    "table": (numpy_ball(0.9), np.ones((4, 4, 4)), np.ones(4), {}, "inputs must be a table"),
    "nan": (numpy_ball(0.9), ROWS * np.nan, np.ones(100), {}, "inputs must be finite"),
    "target": (numpy_ball(0.9), ROWS, np.ones(99), {}, "target must have 100 numbers"),
    "infinite": (numpy_ball(0.9), ROWS, np.full(100, np.inf), {}, "target must be finite"),
    "batch": (numpy_ball(0.9, 3), ROWS, np.ones(100), {"batch": 101}, "batch must be at most"),
    "word": ("sgd", ROWS, np.ones(100), {}, "learner must be a scikit-learn regressor.*got str"),
    "tuple": ((1, 2), ROWS, np.ones(100), {}, "learner must be .*begins with int"),
    "classifier": (SGDClassifier(), ROWS, np.ones(100), {}, "learner must be .*SGDClassifier"),
    "optax": (optax.sgd(0.1), ROWS, np.ones(100), {}, "learner must be .*GradientTransformation"),
    "module": (torch.nn.Linear(2, 1), ROWS, np.ones(100), {}, "learner must be .*got Linear"),
    "optimizer": (
        (torch.nn.Linear(2, 1), torch.optim.SGD(torch.nn.Linear(2, 1).parameters())),
        ROWS,
        np.ones(100),
        {},
        "optimizer of its parameters",
    ),
    "outputs": (
        (wide := torch.nn.Linear(2, 3), torch.optim.SGD(wide.parameters())),
        ROWS,
        np.ones(100),
        {},
        "the module must give 1 x 1 numbers",
    ),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("function", [probe, replay])
def test_errors_say_what_to_do(function, name):
    learner, inputs, target, options, message = WRONG[name]
    with pytest.raises(ArgumentError, match=message):
        function(learner, inputs, target, **options)


def test_errors_of_either():
    learner = numpy_ball(0.9, 3)
    with pytest.raises(ArgumentError, match="at least 128 rows for 64 steps with batch 2"):
        probe(learner, ROWS, np.ones(100), batch=2)
    with pytest.raises(ArgumentError, match="separation must be at least 2e-15"):
        probe(learner, ROWS, np.ones(100), separation=1e-16)
    with pytest.raises(ArgumentError, match="confidence must be"):
        probe(learner, ROWS, np.ones(100), confidence=1.0)
    with pytest.raises(ArgumentError, match=r"\(step, state, predict\)"):
        replay(learner[:2], ROWS, np.ones(100))
    with pytest.raises(ArgumentError, match="found none"):
        probe((stay, np.ones(3, int)), ROWS, np.ones(100))
