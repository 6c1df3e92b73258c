"""The compiled linear loop against plain NumPy loops: in law, to rounding, and bit by bit.

Tests of laws have fixed seeds. `accept` holds the chance of a false alarm to 1e-6 for each of
them, and so to 2e-5 for the file.
"""

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from scipy import optimize, stats

import resonax as rx
from resonax.learners import Transform
from resonax.simulation import Training, engine, linear, simulate
from resonax.simulation.batches import BLOCK
from resonax.simulation.cells import begin_walk
from resonax.simulation.trajectories import _gradient
from resonax.streams import shuffled

RUNS, STEPS, WINDOW = 2000, 80, 40
ROWS = np.random.default_rng(1).normal(size=(14, 2)) @ np.array([[1.0, 0.5], [0.0, 0.8]])
SLOPE = np.array([3.0, 4.0]) / 5


def accept(*pvalues):
    """Reject at level 1e-6 if any of several tests rejects (Bonferroni)."""
    assert np.min(pvalues) > 1e-6 / len(pvalues), sorted(pvalues)[:3]


# Inputs of every step, (runs, batch, dim), by definition


def sine_inputs(rng, shape):
    for k in range(STEPS):
        yield 0.5 * np.sin(2 * np.pi * k / 22) + rng.normal(size=shape)


def shuffled_inputs(rng, shape):
    for _ in range(STEPS):
        yield 2.0 * np.sin(2 * np.pi * rng.uniform(size=shape)) + 0.5 * rng.normal(size=shape)


def square_inputs(rng, shape):
    for k in range(STEPS):
        side = 1 if (2 * k // 7) % 2 == 0 else -1
        yield 0.8 * side * SLOPE + np.sqrt(0.3) * rng.normal(size=shape)


def switching_inputs(rng, shape):
    mean = 0.0
    for k in range(STEPS):
        if k % 5 == 0:
            mean = 0.6 * rng.normal(size=(shape[0], 1, shape[2]))
        yield mean + 0.5 * rng.normal(size=shape)


def ar2_inputs(rng, shape, share=1e-3):
    """Solve for unit variance with the peak at 1/20, and start from the stationary law."""

    def first(phi2):
        return 4 * phi2 * np.cos(2 * np.pi / 20) / (phi2 - 1)

    def excess(phi2):
        return share * (1 - phi2) - (1 + phi2) * ((1 - phi2) ** 2 - first(phi2) ** 2)

    phi2: Any = optimize.brentq(excess, -1 + 1e-9, -0.5)
    phi1 = first(phi2)
    lag = phi1 / (1 - phi2)
    then, now = rng.multivariate_normal([0, 0], [[1, lag], [lag, 1]], size=shape[0]).T
    for _ in range(STEPS):
        then, now = now, phi1 * now + phi2 * then + np.sqrt(share) * rng.normal(size=shape[0])
        yield 0.9 * now[:, None, None] + rng.normal(size=shape)


# Optimizers: (weights, memory, gradient, step) -> weights, memory


def numpy_heavy(theta, v, g, k, lr=0.05, momentum=0.9, dampening=0.0, decay=0.0):
    v = momentum * v - lr * (1 - dampening) * (g + decay * theta)
    return theta + v, v


def numpy_nesterov(theta, v, g, k, lr=0.05, momentum=0.9):
    v = momentum * v - lr * g
    return theta + momentum * v - lr * g, v


def numpy_torch(theta, v, g, k, **numbers):  # which dampens from the second step on
    return numpy_heavy(theta, v, g, k, **numbers, dampening=0.3 if k else 0.0)


def anchored(learning_rate, momentum):
    """Return an optax transform that looks at the weights, now and at the start."""

    def update(updates, state, params=None):
        pull = jax.tree.map(lambda g, w, a: g + w - momentum * a, updates, params, state)
        return jax.tree.map(lambda p: -learning_rate * p, pull), state

    return optax.GradientTransformation(lambda params: params, update)


def numpy_anchored(theta, memory, g, k, lr, momentum):
    first = memory if k else theta
    return theta - lr * (g + theta - momentum * first), first


def responses(distance, window):
    """Return log of the mean distance over the last steps, and its growth from the middle on."""
    half = len(distance) // 2
    middle, end = (np.log(np.mean(distance[at - window : at], 0)) for at in (half, 2 * half))
    return end, (end - middle) / half


def numpy_runs(rng, training, inputs, move, batch, dim):
    """Return log of the distance at the start, log of the response and rate of many runs."""
    powers = [0, 1, 2] if isinstance(training.model, rx.Polynomial) else []
    shape, start = (2, RUNS, len(powers) or dim + 1), training.start
    if training.start_law == "normal":
        theta, best = np.sqrt(start) * rng.normal(size=shape)
    else:
        theta, best = rng.uniform(-start, start, shape)
    memory, distance = np.zeros_like(theta), [np.linalg.norm(theta - best, axis=1)]
    for k, x in enumerate(inputs(rng, (RUNS, batch, dim))):
        phi = x**powers if powers else np.concatenate([x, np.ones_like(x[..., :1])], axis=-1)
        noise = np.sqrt(training.noise) * rng.normal(size=(RUNS, batch))
        y = np.einsum("rni,ri->rn", phi, best) + noise
        slopes = 2 * (np.einsum("rni,ri->rn", phi, theta) - y)[..., None] * phi
        slope = slopes.sum(1) if training.reduction == "sum" else slopes.mean(1)
        theta, memory = move(theta, memory, slope, k)
        distance.append(np.linalg.norm(theta - best, axis=1))
    return np.log(distance[0]), *responses(distance[1:], WINDOW)


HEAVY, DECAY = rx.heavy_ball(0.05, 0.9), rx.heavy_ball(0.05, 0.9, weight_decay=0.5)
DAMPED = rx.heavy_ball(0.005, 0.9, dampening=0.3)
numpy_damped = partial(numpy_heavy, lr=0.005, dampening=0.3)
SINE = rx.Sinusoid(period=22.0)
WIDE = rx.Sinusoid(period=22.0, amplitude=2.0, variance=0.25)
SQUARE = rx.Square(period=7.0, amplitude=0.8, variance=0.3, direction=SLOPE, dim=2)
SWITCHING = rx.Switching(period=5.0, amplitude=0.6, variance=0.25, dim=3)
AR2 = rx.AR2(period=20.0, amplitude=0.9, innovation=1e-3)
RECORDED = rx.Recorded.of(ROWS, repeat=True)
SQUARED = (rx.heavy_ball(0.01, 0.9), rx.Polynomial(2))
SUM = {"noise": 0.3, "reduction": "sum"}
NORMAL = {"noise": 0.3, "start": 0.25, "start_law": "normal"}
LAWS = {  # training, NumPy inputs, NumPy optimizer
    "large batch": (Training(SINE, HEAVY, batch=100, noise=0.3), sine_inputs, numpy_heavy),
    "ar2": (Training(AR2, HEAVY, batch=3), ar2_inputs, numpy_heavy),
    "square": (Training(SQUARE, DAMPED, batch=12, **SUM), square_inputs, numpy_damped),
    "switching": (Training(SWITCHING, HEAVY, batch=3, **NORMAL), switching_inputs, numpy_heavy),
    "shuffled": (Training(WIDE, HEAVY, batch=3), shuffled_inputs, numpy_heavy),
    "mixture": (Training(WIDE, HEAVY, batch=3), shuffled_inputs, numpy_heavy),
    "nesterov": (Training(SINE, rx.nesterov(0.05, 0.9)), sine_inputs, numpy_nesterov),
    "decay": (Training(SINE, DECAY), sine_inputs, partial(numpy_heavy, decay=0.5)),
    "squares": (Training(SINE, *SQUARED, batch=2), sine_inputs, partial(numpy_heavy, lr=0.01)),
    "in a column": (Training(SINE, HEAVY, batch=5), sine_inputs, numpy_heavy),
}
SHARED = {  # numbers of the cells that share a column
    "in a column": {"momentum": [0.0, 0.9], "batch": [3.0, 1.0]},
    "switching": {"momentum": [0.9, 0.9], "dim": [3.0, 2.0]},
}


# The rest of the laws are told apart by the same code: make test-slow runs them too.
LATER = set(LAWS) - {"ar2", "shuffled"}
CASES = [pytest.param(name, marks=[pytest.mark.slow] * (name in LATER)) for name in LAWS]


@pytest.mark.parametrize("name", CASES)
def test_law_of_runs_is_that_of_a_plain_loop(name):
    training, inputs, move = LAWS[name]
    if name == "mixture":  # the law of "shuffled" as one of many parts
        training = replace(training, process=shuffled(training.process))
    columns = {"period": [0.0]} if name == "shuffled" else {"start": [training.start]}
    shared = SHARED.get(name, {})
    found = simulate(training, columns, shared, runs=RUNS, steps=STEPS, window=WINDOW, seed=3)
    # Of cells with different dimensions all are compared, of others the last one.
    dims = [int(dim) for dim in shared.get("dim", [training.process.dim])]
    batch, rng = int(shared.get("batch", [training.batch])[-1]), np.random.default_rng(4)
    compared: list[Any] = []
    for cell, dim in zip(range(-len(dims), 0), dims, strict=True):
        expected = numpy_runs(rng, training, inputs, move, batch, dim)
        pairs = zip((found.log_start, found.log_response, found.rate), expected, strict=True)
        compared += [stats.ks_2samp(ours[0, cell], theirs) for ours, theirs in pairs]
    accept(*(each.pvalue for each in compared))


@partial(jax.jit, static_argnames=("loop", "steps"))
def factors(training, grid, loop, steps):
    """Draw again F (steps, cells or 1, streams, rows, weights), and the noise of its rows."""
    loop = loop._replace(gram=False, noisy=True)

    def block(state, first):
        return linear._form_block(training, grid, loop, state, first, None)

    firsts = jnp.arange(0, steps, BLOCK)
    rows, noise, _ = jax.lax.scan(block, begin_walk(training, grid, loop), firsts)[1]
    rows, noise = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), (rows, noise))
    return jnp.stack([jnp.stack(row, -1) for row in rows], -2), jnp.stack(noise, -1)


SCALED = Training(SINE, rx.nesterov(0.01, 0.9), batch=5)
TORCH = Training(AR2, rx.from_torch(0.01, 0.9, 0.3, 0.5), batch=2, **SUM)
# Rows one by one: the factor of their scatter would take the compiler a third longer.
MANY = Training(
    rx.Sinusoid(period=22.0, dim=6), rx.from_torch(0.01, 0.9, 0.3, 0.5), batch=4, noise=0.3
)
ANCHOR = Transform({"learning_rate": 0.1, "momentum": 0.5}, anchored)
ANY = Training(RECORDED, ANCHOR, batch=2, noise=0.3)
TWO = {"momentum": [0.5, 0.9], "noise": [0.0, 0.3]}
REPLAYS = {  # training, lr of the columns, shared, steps, NumPy optimizer
    "scaled": (SCALED, [0.35, 1.0], {"momentum": [0.0, 0.3]}, 880, numpy_nesterov),
    "torch": (TORCH, [0.01, 0.3], TWO, 160, numpy_torch),
    "many weights": (MANY, [0.01, 0.1], {"momentum": [0.5, 0.9, 0.0]}, 240, numpy_torch),
    "any": (ANY, [0.02, 0.1], {"momentum": [0.5, 0.9]}, 400, numpy_anchored),
}


@pytest.mark.parametrize("name", REPLAYS)
def test_fed_the_same_numbers_it_agrees_to_rounding(name, monkeypatch):
    training, lr, shared, steps, move, seen = *REPLAYS[name], []

    def spy(training, grid, *, loop):
        state = linear.begin_linear(training, grid, loop=loop)
        seen.extend([training, grid, loop, jax.tree.map(np.array, state)])
        return state

    monkeypatch.setattr(engine, "begin_linear", spy)
    options = {"runs": 2, "steps": steps, "window": steps // 4, "seed": 5}
    found = simulate(training, {"lr": lr}, shared, **options, double=True)
    training, grid, loop, state = seen
    with jax.enable_x64(True):
        found_factors = factors(training, grid, loop, steps)
        F, noise = (np.asarray(part).swapaxes(1, 2)[:, :4] for part in found_factors)
    error, target = (
        np.stack(part, -1).swapaxes(0, 1)[:4] for part in (state.weights, state.target)
    )
    decay = getattr(training.optimizer, "weight_decay", 0.0)
    scale = 2 * loop.rows if REPLAYS[name][0].reduction == "sum" else 2
    away = 0.0 if training.is_linear else target  # a sum with it would round small errors off
    size, momentum = np.repeat(lr, 2)[:, None, None], np.c_[shared.get("momentum", 0.9)]
    memory, distance = 0.0 * error, []
    for k in range(steps):
        gap = F[k] @ error[..., None] - noise[k][..., None]
        slope = scale * (np.swapaxes(F[k], -1, -2) @ gap)[..., 0] + decay * (error + target)
        moved, memory = move(error + away, memory, slope, k, lr=size, momentum=momentum)
        error = moved - away
        peak = np.abs(error).max(-1)  # divided by it, squares are neither 0 nor infinite
        distance.append(peak * np.linalg.norm(error / peak[..., None], axis=-1))
    theirs = np.stack(responses(distance, steps // 4)).reshape(2, len(lr), 2, -1).swapaxes(2, 3)
    np.testing.assert_allclose([found.log_response, found.rate], theirs, rtol=1e-12, atol=1e-11)
    if name in ("any", "many weights"):  # 3200 and more draws, whose deviation is told to 1%
        batch = REPLAYS[name][0].batch
        assert np.std(noise) == pytest.approx(np.sqrt(0.3 / batch), rel=0.04)
    if name == "any":  # which learns recorded rows, in their order
        rows = np.insert(ROWS, 2, 1.0, axis=1).reshape(7, 2, 3) / np.sqrt(2)
        np.testing.assert_allclose(F[:, 0, 0], np.resize(rows, F[:, 0, 0].shape), rtol=1e-15)
    if name == "scaled":  # no number is infinite where the error is not
        assert found.log_response.min() < -200 * np.log(10)
        assert found.log_response.max() > 200 * np.log(10)


@pytest.mark.parametrize(
    ("cells", "steps"), [(5, 2400), pytest.param(12, 4000, marks=pytest.mark.slow)]
)
def test_single_precision_gives_the_verdicts_of_double(cells, steps):
    training = Training(SINE, rx.heavy_ball(0.01, 0.9), batch=2)
    grid = {"period": np.linspace(16, 50, cells)}, {"momentum": np.linspace(0.9, 0.995, cells)}
    options = {"runs": 4, "steps": steps, "window": steps // 8, "seed": 6}
    single, double = (
        simulate(training, *grid, **options, double=d).rate.mean(2) for d in (False, True)
    )
    clear = np.abs(double) > 5e-4
    assert clear.mean() > 0.8
    assert set(np.sign(double[clear])) == {-1.0, 1.0}
    np.testing.assert_array_equal(np.sign(single[clear]), np.sign(double[clear]))
    # Nor is a number infinite where the error is not: it shrinks and grows by far more than 38
    # digits, in the programs above. Inputs that vary little leave roundings alone to differ.
    wave, momenta = rx.Sinusoid(period=22.0, amplitude=1.5, variance=0.01), np.linspace(0, 0.3, 5)
    columns, shared = grid[0], {"momentum": np.resize(momenta, cells)}
    ends = []
    for lr in (0.15, 2.0):
        scaled = replace(training, process=wave, optimizer=rx.heavy_ball(lr, 0.9))
        single, double = (
            simulate(scaled, columns, shared, **options | {"steps": 4800}, double=d).log_response
            for d in (False, True)
        )
        np.testing.assert_allclose(single, double, rtol=1e-4)
        ends += [double.min(), double.max()]
    assert min(ends) < -200 * np.log(10)
    assert max(ends) > 200 * np.log(10)


@pytest.mark.slow
def test_results_do_not_depend_on_how_a_grid_is_split():
    training, momentum = Training(SINE, HEAVY, noise=0.1), np.array([0.5, 0.9])
    columns = {"period": np.array([22.0, 10.0, 22.0]), "batch": np.array([3.0, 3.0, 1.0])}

    def run(first=0, last=3, low=0, high=2, seed=7):
        part = {name: array[first:last] for name, array in columns.items()}
        options = {"labels": np.arange(first, last), "seed": seed, "runs": 40}
        shared = {"momentum": momentum[low:high]}
        return np.stack(simulate(training, part, shared, **options, steps=40, window=20))

    whole = run()
    np.testing.assert_array_equal(run(), whole)
    for cuts in ((0, 2, 3), (0, 1, 2, 3)):
        parts = [run(*pair) for pair in pairwise(cuts)]
        np.testing.assert_array_equal(np.concatenate(parts, axis=1), whole)
    # Inside a column compilers may round sums as the size of an array goes.
    parts = np.concatenate([run(2, 3, 0, 1), run(2, 3, 1, 2)], axis=2)
    np.testing.assert_allclose(parts, whole[:, 2:], rtol=0, atol=1e-5)
    for other in (8, 7 + 2**32):
        assert (run(seed=other) != whole).mean() > 0.99


def test_a_second_call_compiles_nothing(caplog):
    def run(number, steps):
        # Of the shapes of a test before: its programs serve this one.
        training = Training(rx.Sinusoid(period=20.0 + number), rx.heavy_ball(0.01, 0.9), batch=2)
        shared = {"momentum": np.linspace(0, 0.1 * number, 5)}
        columns = {"period": [9.0 + number]}
        simulate(training, columns, shared, runs=2, steps=steps, window=20, seed=number)

    run(1, 40)
    with jax.log_compiles():
        run(2, 80)
        assert not [record for record in caplog.records if "Compiling" in record.getMessage()]
        jax.jit(lambda number: number + 1)(1.0)  # which shows that a compilation is seen
    assert [record for record in caplog.records if "Compiling" in record.getMessage()]


def test_progress_is_told_in_shares_of_the_whole():
    shares: list[float] = []
    columns = {"period": [0.0, 22.0, 30.0]}  # in random order, and in order
    simulate(SCALED, columns, runs=2, steps=4000, window=20, advance=shares.append)
    assert sum(shares) == pytest.approx(1.0)
    assert len(shares) > 4


def test_the_noise_of_single_runs_has_its_variance():
    training = Training(rx.Iid(variance=1.0), HEAVY, batch=3, noise=0.3)

    @jax.jit  # one program in place of one for every operation
    def gradients(seed):
        moments = training.process.stationary()
        keys = jax.random.split(jax.random.key(seed), 4000)
        return jax.vmap(lambda key: _gradient(training, key, moments, jnp.zeros(2), 4)[0])(keys)

    # At the best weights that of the bias is -2 times the mean of the noise.
    slopes = np.asarray(gradients(0))[:, -1]
    assert np.std(slopes) == pytest.approx(2 * np.sqrt(0.3 / 3), rel=0.04)
