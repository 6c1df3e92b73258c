"""The guard as an optax transformation."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from resonax import ArgumentError
from resonax.jax import guard, report


def switching(seed, steps, period, dim=5):
    rng = np.random.default_rng(seed)
    means = 0.5 * rng.standard_normal((steps // period + 1, dim))
    rows = np.repeat(means, period, axis=0)[:steps] + 0.5 * rng.standard_normal((steps, dim))
    targets = math.sqrt(0.1) * rng.standard_normal(steps)
    return np.c_[rows, np.ones(steps)].astype(np.float32), targets.astype(np.float32)


def loss(params, x, y):
    return (x @ params["w"] - y) ** 2


def train(optimizer, rows, targets, start=None, state=None) -> tuple[Any, Any, Any]:
    params = {"w": np.full(rows.shape[1], 0.5, np.float32)} if start is None else start
    state = jax.jit(optimizer.init)(params) if state is None else state
    return program(optimizer)(params, state, rows, targets)


@cache
def program(optimizer):
    """A run in one program, compiled once for all runs of the same length."""

    def step(carry, batch):
        params, state = carry
        grads = jax.grad(loss)(params, *batch)
        updates, state = optimizer.update(
            grads, state, params, value_fn=lambda params: loss(params, *batch)
        )
        params: Any = optax.apply_updates(params, updates)
        return (params, state), jnp.linalg.norm(params["w"])

    @jax.jit
    def run(params, state, rows, targets):
        (params, state), far = jax.lax.scan(step, (params, state), (rows, targets))
        return params, state, far

    return run


# Two tests share its program.
WATCHED = guard(0.01, 0.9, "watch", nesterov=True, budget=math.inf, candidates=[0.5], speak=False)


def test_watch_is_optax_sgd():
    data = switching(0, 200, 6)
    plain = optax.with_extra_args_support(optax.sgd(0.01, 0.9, nesterov=True))
    far = [train(optimizer, *data)[2] for optimizer in (WATCHED, plain)]
    assert np.allclose(*far, rtol=1e-3)


def test_safe_keeps_a_run_where_the_plain_one_is_lost_and_watch_warns_of_it(caplog):
    data = switching(0, 4000, 6)
    _, watching, lost = train(guard(0.01, 0.95, "watch"), *data)
    jax.effects_barrier()
    (warned,) = (record.getMessage() for record in caplog.records)
    caplog.clear()
    _, state, kept = train(guard(0.01, 0.95, "safe"), *data)
    jax.effects_barrier()
    acted = caplog.records[0].getMessage()
    step, text = acted.split(": ", 1)
    assert warned.startswith(f"{step}: momentum 0.95 ")
    assert text.startswith("momentum lowered from 0.95 to ")
    assert report(watching).policy == "watch"
    assert np.asarray(lost)[-1] > 1e3
    assert np.asarray(kept)[-500:].mean() < 1
    assert "lowered from 0.95" in str(report(state))
    found = report(state).to_dict()
    assert found["momentum"] in (0.9, 0.85)
    assert found["probed"] > 100


def test_a_warm_up_is_the_small_momentum_until_its_end():
    data = switching(0, 200, 6)
    warm = np.asarray(train(guard(0.01, 0.95, warmup=128), *data)[2])
    plain = optax.with_extra_args_support(optax.sgd(0.01, 0.75))
    small = np.asarray(train(plain, *data)[2])
    assert np.allclose(warm[:128], small[:128], rtol=1e-3)
    assert not np.allclose(warm[140:], small[140:], rtol=1e-2)


@pytest.mark.parametrize(
    ("runs", "steps"), [(20, 2000), pytest.param(40, 3000, marks=pytest.mark.slow)]
)
def test_most_iid_runs_are_left_alone_and_those_that_grow_are_not(runs, steps):
    data = [switching(seed, steps, t) for t in (1, 6) for seed in range(runs)]
    rows, targets = (np.stack(part) for part in zip(*data, strict=True))

    @jax.jit
    @jax.vmap
    def final(rows, targets):
        return train(guard(0.01, 0.95, speak=False), rows, targets)[1].momentum

    kept = np.asarray(final(rows, targets)) > 0.94
    assert kept[:runs].mean() >= 0.95
    assert kept[runs:].mean() <= 0.2


def test_a_resumed_run_goes_on_identically_and_schedules_work():
    rows, targets = switching(2, 400, 6)
    optimizer = guard(
        optax.exponential_decay(0.02, 100, 0.9), 0.9, budget=0.5, burst=32, candidates=[0.5]
    )
    # Begun with arrays of the host, as it is resumed: jax tells their types apart, and would
    # compile the run twice.
    params = {"w": np.full(rows.shape[1], 0.5, np.float32)}
    begun = jax.tree.map(np.asarray, jax.jit(optimizer.init)(params))
    middle = train(optimizer, rows[:200], targets[:200], params, begun)
    whole = train(optimizer, rows[200:], targets[200:], *middle[:2])
    assert int(whole[1].guard_state.step) == 400
    leaves, tree = jax.tree.flatten(middle[:2])
    copied = jax.tree.unflatten(tree, [np.asarray(leaf) for leaf in leaves])
    again = train(optimizer, rows[200:], targets[200:], *copied)
    for one, other in zip(jax.tree.leaves(whole), jax.tree.leaves(again), strict=True):
        assert np.array_equal(one, other, equal_nan=True)


def test_gauss_newton_of_a_linear_model_is_the_hessian_and_nothing_is_compiled_twice():
    rows, targets = switching(3, 200, 6)

    def value(params, x, y):
        return loss({"w": jnp.concatenate(params)}, x, y)

    @jax.jit
    def step(params, state, x, y):
        extra = {
            "output_fn": lambda params: x @ jnp.concatenate(params),
            "loss_fn": lambda z: (z - y) ** 2,
        }
        updates, state = WATCHED.update(jax.grad(value)(params, x, y), state, params, **extra)
        return optax.apply_updates(params, updates), state

    params = jax.device_put((np.full(2, 0.5, np.float32), np.full(4, 0.5, np.float32)))
    state = jax.jit(WATCHED.init)(params)  # one program, and not one for each number
    for x, y in zip(rows, targets, strict=True):
        params, state = step(params, state, x, y)
    assert step._cache_size() == 1
    other = train(WATCHED, rows, targets)[1]
    rates = [[row.rate for row in report(each).candidates] for each in (state, other)]
    assert rates[0] == pytest.approx(rates[1], rel=1e-2)


def test_a_report_finds_its_state_in_any_wrapper():
    params = {"w": jnp.ones(2)}
    made = guard(0.01, 0.9, "watch", warmup=96)
    begun = jax.jit(made.init)(params)
    own = made._replace(init=lambda _: begun)  # whoever wraps it, it begins alike
    plain = str(report(begun))
    assert "policy watch" in plain
    for wrapped in (
        optax.chain(optax.clip(1.0), own),
        optax.chain(optax.add_decayed_weights(0.1), optax.chain(own, optax.scale(1.0))),
        optax.MultiSteps(own, 2),
        optax.apply_if_finite(own, 3),
        optax.masked(own, {"w": True}),
        optax.partition({"own": own, "sgd": optax.sgd(0.1)}, {"w": "own"}),
        optax.inject_hyperparams(lambda scale: optax.chain(optax.scale(scale), own))(scale=1.0),
    ):
        state = wrapped.init(params)
        assert str(report(state)) == plain
        assert str(report((params, {"optimizer": state}))) == plain
    with pytest.raises(ArgumentError, match=r"one resonax.jax.guard in it, found none"):
        report(optax.sgd(0.1).init(params))
    with pytest.raises(ArgumentError, match="found 2"):
        report(optax.chain(own, own).init(params))
    many = jax.jit(jax.vmap(made.init))({"w": jnp.ones((3, 2))})
    with pytest.raises(ArgumentError, match="the state of 3 runs; take one of them"):
        report(many)
    one = jax.tree.map(lambda leaf: np.asarray(leaf)[1], many)  # jax compiles a slice of each shape
    assert str(report(one)) == plain


def test_a_run_inside_a_chain_that_was_never_looked_at_says_so():
    optimizer = optax.chain(optax.clip(1e9), guard(0.01, 0.9))
    both: Any = optimizer.init(jnp.ones(2))
    clip, state = both
    state = state._replace(guard_state=state.guard_state._replace(step=jnp.asarray(10)))
    assert "never looked at this run of 10 steps" in str(report((clip, state)))


def test_bad_arguments():
    optimizer = guard(0.01, 0.9)
    params = jnp.ones(2)
    state = optimizer.init(params)
    with pytest.raises(ArgumentError, match="needs value_fn"):
        optimizer.update(params, state, params)
    with pytest.raises(ArgumentError, match="needs the params"):
        optimizer.update(params, state, value_fn=jnp.sum)
    with pytest.raises(ArgumentError, match="learning_rate must be"):
        guard(-1.0, 0.9)
