"""The conventions of torch, optax and river, learned by running torch, optax and river."""

import itertools

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import river.optim
import torch

import resonax as rx
from resonax.dynamics import Map

STEPS, BATCH, SIZE = 80, 4, 3
LR = 0.04
seeds = pytest.mark.parametrize("seed", range(3))


@pytest.fixture(autouse=True, scope="module")
def double():
    with jax.enable_x64(True):
        yield


def stream(seed):
    """Return inputs, targets and first weights of a linear regression with noise."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(STEPS, BATCH, SIZE))
    targets = inputs @ rng.normal(size=SIZE) + rng.normal(size=(STEPS, BATCH))
    return inputs, targets, rng.normal(size=SIZE)


def gradient(weights, inputs, targets):
    return 2 / BATCH * inputs.T @ (inputs @ weights - targets)


def run_optax(transform, inputs, targets, weights):
    def step(carry, row):
        weights, state = carry
        updates, state = transform.update(gradient(weights, *row), state, weights)
        weights = optax.apply_updates(weights, updates)
        return (weights, state), weights

    return jax.lax.scan(step, (weights, transform.init(weights)), (inputs, targets))[1]


@jax.jit
def run_resonax(optimizer, inputs, targets, weights):
    return run_optax(optimizer.transform(), inputs, targets, weights)


def run_torch(arguments, inputs, targets, weights):
    weights = torch.tensor(weights, requires_grad=True)
    optimizer = torch.optim.SGD([weights], **arguments)
    path = []
    for row, target in zip(torch.tensor(inputs), torch.tensor(targets), strict=True):
        optimizer.zero_grad()
        torch.mean((row @ weights - target) ** 2).backward()
        optimizer.step()
        path.append(weights.detach().numpy().copy())
    return np.array(path)


def run_river(optimizer, inputs, targets, weights):
    """Return the weights after every step, and river's velocity, whose sign is the other one."""
    weights = dict(enumerate(weights.tolist()))
    path, velocity = [], []
    for row, target in zip(inputs, targets, strict=True):
        weights = optimizer.look_ahead(weights)
        slope = gradient(np.array(list(weights.values())), row, target)
        weights = optimizer.step(weights, dict(enumerate(slope.tolist())))
        path.append(list(weights.values()))
        velocity.append([-optimizer.s[i] for i in range(SIZE)])
    return np.array(path), np.array(velocity)


def assert_same_path(found, want):
    # A weight may pass through 0, so rounding is measured against the largest weight.
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12 * np.abs(want).max())


@seeds
@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"weight_decay": 0.1},
        {"momentum": 0.9},
        {"momentum": 0.9, "dampening": 0.4},
        {"momentum": 0.8, "dampening": 0.4, "weight_decay": 0.1},
        {"momentum": 0.9, "nesterov": True},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
        {"dampening": 0.4},  # torch ignores the dampening where there is no momentum
    ],
    ids=lambda arguments: " ".join(arguments) or "plain",
)
def test_torch(arguments, seed):
    data, arguments = stream(seed), {"lr": LR, **arguments}
    assert_same_path(run_resonax(rx.from_torch(**arguments), *data), run_torch(arguments, *data))


KINDS_OF_SGD = list(itertools.product([None, 0.0, 0.9], [False, True]))


@jax.jit
def run_sgds(*data):
    """Return the paths of optax's own, of every momentum and with Nesterov's or without."""
    return [
        run_optax(optax.sgd(LR, momentum, nesterov), *data) for momentum, nesterov in KINDS_OF_SGD
    ]


@pytest.mark.parametrize(("momentum", "nesterov"), KINDS_OF_SGD)
def test_optax(momentum, nesterov):
    ours, place = rx.from_optax(LR, momentum, nesterov), KINDS_OF_SGD.index((momentum, nesterov))
    for seed in range(3):
        data = stream(seed)
        assert_same_path(run_resonax(ours, *data), np.asarray(run_sgds(*data)[place]))


@seeds
@pytest.mark.parametrize("rho", [0.0, 0.9])
def test_river(rho, seed):
    data = stream(seed)
    want, _ = run_river(river.optim.Momentum(LR, rho), *data)
    assert_same_path(run_resonax(rx.from_river(LR, rho), *data), want)


def test_defaults_of_river():
    found, theirs = rx.from_river(), river.optim.Momentum()
    assert (found.lr, found.momentum) == (theirs.learning_rate, theirs.rho)


@seeds
def test_weights_of_nesterov_are_the_point_where_the_textbook_form_takes_its_gradient(seed):
    data, momentum = stream(seed), 0.9
    weights, velocity = run_river(river.optim.NesterovMomentum(LR, momentum), *data)
    found = run_resonax(rx.nesterov(LR, momentum), *data)
    assert_same_path(found, weights + momentum * velocity)


@jax.jit
def one_step(optimizer, hessian, weights, velocity):
    """Return a step of the transform, of the map's matrix and of the map's parts."""
    transform = optimizer.transform()
    state = transform.init(weights)._replace(velocity=velocity, steps=jnp.asarray(1, jnp.int32))
    updates, state = transform.update(hessian @ weights, state, weights)
    step_map = Map(rx.Setting(rx.Iid(dim=SIZE - 1), optimizer))
    matrix = step_map.matrix(hessian)
    decayed = hessian + optimizer.weight_decay * jnp.eye(SIZE)
    parts = step_map.step(decayed, weights, velocity)
    moved = jnp.concatenate([weights + updates, state.velocity])
    return matrix, moved, matrix @ jnp.concatenate([weights, velocity]), jnp.concatenate(parts)


@hypothesis.given(
    st.integers(0, 2**32 - 1),
    st.floats(1e-4, 2),
    st.floats(0, 0.999),
    st.floats(0, 0.99),
    st.floats(0, 1),
)
def test_the_map_is_one_step_of_the_transform(seed, lr, momentum, dampening, decay):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(SIZE, SIZE))
    hessian, start = root @ root.T, rng.normal(size=(2, SIZE))
    curvatures = np.linalg.eigvalsh(hessian) + decay
    cases = [  # with det M: the velocity alone shrinks, and Nesterov's step on the gradient
        (rx.sgd(lr, weight_decay=decay), 0.0),
        (rx.heavy_ball(lr, momentum, weight_decay=decay), momentum**SIZE),
        (rx.heavy_ball(lr, momentum, dampening=dampening), momentum**SIZE),
        (rx.from_torch(lr, momentum, dampening, decay), momentum**SIZE),
        (rx.nesterov(lr, momentum, weight_decay=decay), np.prod(momentum * (1 - lr * curvatures))),
    ]
    for optimizer, determinant in cases:
        matrix, moved, *maps = one_step(optimizer, hessian, *start)
        scale = np.abs(matrix).max()
        for found in maps:
            np.testing.assert_allclose(found, moved, rtol=1e-12, atol=1e-13 * scale)
        # Products of up to 2 * SIZE entries cancel in the determinant.
        tolerance = 1e-13 * scale ** (2 * SIZE)
        assert np.linalg.det(matrix) == pytest.approx(determinant, rel=1e-10, abs=tolerance)


WRONG = {
    "lr must be above 0": lambda: rx.sgd(0.0),
    "lr must be a number": lambda: rx.sgd("0.1"),
    "momentum must be at least 0 and below 1, got 1": lambda: rx.heavy_ball(0.1, 1.0),
    "momentum must be finite, at least 0 and below 1, got nan": lambda: rx.nesterov(0.1, np.nan),
    "dampening must be at least 0": lambda: rx.heavy_ball(0.1, 0.9, dampening=-0.5),
    "weight_decay must be at least 0": lambda: rx.from_torch(0.1, weight_decay=-1.0),
    "nesterov needs a momentum above 0": lambda: rx.from_torch(0.1, nesterov=True),
    "nesterov .* dampening of 0": lambda: rx.from_torch(0.1, 0.9, 0.1, nesterov=True),
    "update needs the params": lambda: rx.sgd(0.1).transform().update(1.0, None),
}


@pytest.mark.parametrize(("message", "call"), WRONG.items(), ids=WRONG)
def test_a_wrong_argument_is_named_with_what_is_allowed(message, call):
    with pytest.raises(rx.ArgumentError, match=message):
        call()
