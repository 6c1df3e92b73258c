"""Small networks trained on phases that alternate, against what the theory predicts of them.

The subspace holds all weights, so that what is tested is the theory, not the projection.
"""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import resonax as rx
from resonax.jax.phases import make_phases
from resonax.learners.adaptive import adaptive_form
from resonax.theory.alternation import canonical, driven_orbit, growth, metric_of, settle
from resonax.theory.subspace import subspaces

INPUTS, ROWS = 3, 40


def apply(params, x):
    ones = jnp.ones((len(x), 1))
    return jnp.tanh(jnp.concatenate([x, ones], 1) @ params["in"]) @ params["out"]


def loss_fn(outputs, y):
    return ((outputs - y) ** 2).mean()


def task(gap: float, hidden: int = 20):
    """Weights, and a batch of each phase; ``gap`` is how far their targets are apart."""
    random = np.random.default_rng(0)
    shapes = {"in": (INPUTS + 1, hidden), "out": (hidden, 1)}  # 100 weights
    params = {k: random.normal(size=s) / np.sqrt(s[0]) for k, s in shapes.items()}
    batches = {}
    for sign in (-1.0, 1.0):
        x = random.normal(size=(ROWS, INPUTS)) * (1 + 0.6 * sign) + 0.5 * sign
        y = np.asarray(apply(params, x)) + gap * sign * np.sin(x[:, :1])
        batches[str(sign)] = [(jnp.asarray(x), jnp.asarray(y))]
    return params, batches


def in_64_bits(test):
    @functools.wraps(test)
    def wrapped(*args, **kwargs):
        with jax.enable_x64(True):
            return test(*args, **kwargs)

    return wrapped


def both(batches):
    return tuple(
        jnp.stack(pair) for pair in zip(*(one[0] for one in batches.values()), strict=True)
    )


def train(params, batches, step, state, period, steps):
    """Train; returns the weights after each step, (steps, n). Period 0: both phases at once."""
    start, shaped = ravel_pytree(params)
    xs, ys = both(batches)

    def loss(w, k):
        each = jax.vmap(lambda x, y: loss_fn(apply(shaped(w), x), y))(xs, ys)
        second = (k % max(period, 1)) >= period / 2
        return each.mean() if period == 0 else jnp.where(second, each[1], each[0])

    @jax.jit
    def run(start, state):
        def one(carry, k):
            w, state = step(carry[0], carry[1], jax.grad(loss)(carry[0], k))
            return (w, state), w

        return jax.lax.scan(one, (start, state), jnp.arange(steps))[1]

    return run(start, state)


def heavy_ball(lr, momentum):
    def step(w, v, g):
        v = momentum * v - lr * g
        return w + v, v

    return step


def adam(lr, beta1, beta2):
    def step(w, state, g):
        m, v = state
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        return w - lr * m / (jnp.sqrt(v) + 1e-8), (m, v)

    return step


def measured_rate(path, weights, period, skipped):
    """Growth per step of the distance, from whole periods, once what does not grow is small."""
    size = np.linalg.norm(np.asarray(path) - weights, axis=1)[period - 1 :: period][skipped:]
    return np.polyfit(period * np.arange(len(size)), np.log(size), 1)[0]


@pytest.mark.parametrize(("lr", "period"), [(0.02, 10), (0.05, 10), (0.05, 36)])
@in_64_bits
def test_a_small_error_grows_at_the_rate_of_the_theory(lr, period):
    params, batches = task(gap=0.0)  # which fit both phases: a rest of both
    flat = np.asarray(ravel_pytree(params)[0])
    optimizer = rx.heavy_ball(lr, 0.98)
    made = make_phases(apply, loss_fn, params, batches, (period // 2,) * 2, "hessian")
    *_, space = subspaces(made, sizes=[len(flat)])
    rate = growth(optimizer, space.reduced.means, space.reduced.steps)
    error = 1e-12 * np.random.default_rng(1).normal(size=len(flat))
    started = ravel_pytree(params)[1](flat + error)
    steps = period * min(60, int(22 / (max(rate, 1e-9) * period)))  # as long as it stays small
    path = train(started, batches, heavy_ball(lr, 0.98), jnp.zeros(len(flat)), period, steps)
    found = measured_rate(path, flat, period, steps // period // 3)
    assert space.is_whole
    assert found == pytest.approx(rate, abs=3e-3)


@in_64_bits
def test_under_adam_with_a_held_second_moment_as_well():
    params, batches = task(gap=0.0)
    flat = np.asarray(ravel_pytree(params)[0])
    square = np.random.default_rng(2).uniform(0.2, 4.0, len(flat))
    beta2 = 1 - 1e-15  # holds it
    form = adaptive_form(rx.adam(lr=0.2, beta1=0.97, beta2=0.999))
    made = make_phases(apply, loss_fn, params, batches, (8, 8), "hessian")
    *_, space = subspaces(made, metric_of(form, square), sizes=[len(flat)])
    rate = growth(canonical(form)[0], space.reduced.means, (8, 8))
    error = 1e-12 * np.random.default_rng(1).normal(size=len(flat))
    started = ravel_pytree(params)[1](flat + error)
    state = (jnp.zeros(len(flat)), jnp.asarray(square))
    path = train(started, batches, adam(0.2, 0.97, beta2), state, 16, 50 * 16)
    assert rate > 0.01
    assert measured_rate(path, flat, 16, 32) == pytest.approx(rate, abs=1e-3)


@functools.cache
def settled(gap, hidden=20):
    """Weights at rest under both phases at once, and a batch of each."""
    params, batches = task(gap, hidden)
    path = train(params, batches, heavy_ball(0.02, 0.95), jnp.zeros(5 * hidden), 0, 10_000)
    return ravel_pytree(params)[1](path[-1]), batches


def mean_loss(path, params, batches):
    shaped = ravel_pytree(params)[1]
    xs, ys = both(batches)
    each = jax.vmap(lambda w: jax.vmap(lambda x, y: loss_fn(apply(shaped(w), x), y))(xs, ys).mean())
    return float(each(path).mean())


@pytest.mark.parametrize("period", [24, 64])
@in_64_bits
def test_alternating_targets_cost_what_the_driven_orbit_predicts(period):
    # Fewer weights than rows, so that no direction is flat, in which a run would drift for ever.
    params, batches = settled(gap=0.005, hidden=3)
    optimizer = rx.heavy_ball(0.005, 0.9)
    made = make_phases(apply, loss_fn, params, batches, (period // 2,) * 2, "hessian")
    *_, space = subspaces(made, sizes=[15])
    predicted = driven_orbit(optimizer, space.reduced).excess
    steps = 12_800 // period * period
    path, mixed = (
        train(params, batches, heavy_ball(0.005, 0.9), jnp.zeros(15), one, steps)[-period:]
        for one in (period, 0)
    )
    found = mean_loss(path, params, batches) - mean_loss(mixed, params, batches)
    print(period, found, predicted)
    assert predicted == pytest.approx(found, rel=0.15)  # 25% at four times the gap


@pytest.mark.parametrize("period", [8, 24, 64])
@in_64_bits
def test_adam_settles_where_its_second_moment_follows(period):
    params, batches = settled(gap=0.05)
    lr, beta1, beta2 = 0.002, 0.9, 0.99
    form = adaptive_form(rx.adam(lr=lr, beta1=beta1, beta2=beta2))
    steps = 600 // period * period
    square = np.full(100, 1e-6)
    made = make_phases(apply, loss_fn, params, batches, (period // 2,) * 2)
    *_, space = subspaces(made, metric_of(form, square), sizes=[100], keep_products=True)
    gradients = np.stack([phase.gradients.mean(0) for phase in made])
    orbit = settle(
        canonical(form)[0], form, space, gradients, square, (period // 2,) * 2, length=steps
    )
    state = (jnp.zeros(100), jnp.asarray(square))
    path = train(params, batches, adam(lr, beta1, beta2), state, period, steps)
    rest = mean_loss(ravel_pytree(params)[0][None], params, batches)
    found = mean_loss(path[steps // 2 :], params, batches) - rest
    print(period, found, orbit.excess)
    assert 0.5 < orbit.excess / found < 2
