"""The guard of JAX, as pure functions."""

from __future__ import annotations

import functools
import math
import pickle
from itertools import pairwise

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_digits

import resonax.jax
from linear_learner import switching_rows
from resonax import ArgumentError
from resonax.guards.learner import Candidate
from resonax.guards.report import GuardWarning
from resonax.jax.batches import KeptBatch, mix_rows
from resonax.jax.learner import JaxLearner, Saved, compile_programs

IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = np.asarray(IMAGES / 16, np.float32)


def sgd(lr=0.01, momentum=0.95, **options):
    return optax.inject_hyperparams(optax.sgd)(lr, momentum=momentum, **options)


def adam(lr):
    return optax.inject_hyperparams(optax.adam)(lr)


def squared(params, batch):
    x, y = batch
    return jnp.mean((x @ params["w"] - y) ** 2)


def start(dim=6):
    return {"w": jnp.asarray(0.5 * np.random.default_rng(0).standard_normal(dim), jnp.float32)}


def train(guard, state, batches):
    losses = []
    for batch in batches:
        state, info = guard.update(state, batch)
        losses.append(info.loss)
    return state, np.array(losses)


def leaves_of(tree):
    made = []
    for leaf in jax.tree.leaves(tree):
        is_key = hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        made.append(np.asarray(jax.random.key_data(leaf) if is_key else leaf))
    return made


def assert_same_bits(first, second):
    assert jax.tree.structure(first.params) == jax.tree.structure(second.params)
    for one, other in zip(leaves_of(first), leaves_of(second), strict=True):
        np.testing.assert_array_equal(one, other)
    assert repr(first.run.state.decisions) == repr(second.run.state.decisions)
    assert first.run.events == second.run.events


def test_a_resonance_is_undone_and_its_cause_is_named(caplog):
    rows = list(switching_rows(160, period=6, seed=3))
    ends = {}
    for policy in ("watch", "safe"):
        guard = resonax.jax.guard(squared, sgd(0.03), policy)
        state = guard.init(start())
        if policy == "watch":
            with pytest.warns(GuardWarning, match="the loss on past data"):
                state, _ = train(guard, state, rows)
            assert state.setting == Candidate(0.95)
        else:
            state, _ = train(guard, state, rows)
        ends[policy] = float(np.linalg.norm(state.params["w"]))
    assert ends["watch"] > 2
    assert ends["safe"] < 1
    report = guard.report(state)
    assert report.candidate.momentum < 0.95 or report.candidate.is_mixed
    assert "the loss on past data" in str(report)
    assert [record.getMessage() for record in caplog.records] == [
        f"step {event.step}: {event.text}" for event in report.events
    ]
    assert report.log.check() == ()
    assert float(state.opt_state.hyperparams["momentum"]) == np.float32(0.95)  # between steps


def network(widths=(64, 64, 64, 10)):
    rng = np.random.default_rng(1)
    return [
        (math.sqrt(2 / n) * rng.standard_normal((n, m), np.float32), np.zeros(m, np.float32))
        for n, m in pairwise(widths)
    ]


@functools.cache
def digits_guard():
    return resonax.jax.guard(cross_entropy, adam(0.01), spacing=16, log_changes=False)


def outputs(params, x):
    for w, b in params[:-1]:
        x = jax.nn.relu(x @ w + b)
    return x @ params[-1][0] + params[-1][1]


def cross_entropy(params, batch):
    logits = outputs(params, batch["image"])
    return optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"]).mean()


def cycles(steps, cycle=40, seed=3):
    """Digits, one class after the other in every cycle; of no class in particular if it is 0."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        label = step % cycle * 10 // cycle if cycle else None
        chosen = rng.choice(len(LABELS) if label is None else np.flatnonzero(label == LABELS), 16)
        yield {"image": IMAGES[chosen], "label": LABELS[chosen]}


def right(params):
    x, params = IMAGES, jax.device_get(params)
    for w, b in params[:-1]:
        x = np.maximum(x @ w + b, 0)
    return float(np.mean(np.argmax(x @ params[-1][0] + params[-1][1], 1) == LABELS))


def test_a_network_on_classes_in_cycles_is_saved():
    guard = digits_guard()
    state, _ = train(guard, guard.init(network()), cycles(100))
    assert right(plain(adam(0.01), cross_entropy, network(), cycles(100))) < 0.3
    assert right(state.params) > 0.8
    assert state.setting != Candidate(0.9)


def test_independent_rows_are_left_alone():
    guard = digits_guard()
    state, _ = train(guard, guard.init(network()), cycles(100, cycle=0))
    assert state.setting == Candidate(0.9)
    assert not state.run.events
    assert right(state.params) > 0.9


OPTIMIZERS = {
    "sgd": lambda: sgd(0.01, 0.9, nesterov=True),
    "schedule": lambda: sgd(optax.exponential_decay(0.02, 10, 0.9), 0.9),
    "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), sgd(0.01, 0.9)),
    "adam": lambda: adam(0.003),
    "adamw": lambda: optax.inject_hyperparams(optax.adamw)(0.003),
    "rmsprop": lambda: optax.inject_hyperparams(optax.rmsprop)(0.001, momentum=0.9),
    "accumulates": lambda: optax.MultiSteps(sgd(0.01, 0.9), 4).gradient_transformation(),
}


def plain(optimizer, loss_fn, params, batches):
    """An ordinary loop of optax."""
    state = jax.jit(optimizer.init)(params)  # one program, and not one for each number

    @jax.jit
    def step(params, state, batch):
        grads = jax.grad(loss_fn)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state

    for batch in batches:
        params, state = step(params, state, batch)
    return params


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_guard_that_does_nothing_is_the_plain_loop_of_optax(name):
    batches = list(switching_rows(40, period=1, seed=2))
    guard = resonax.jax.guard(squared, OPTIMIZERS[name](), "watch", spacing=16, budget=1.0)
    state, _ = train(guard, guard.init(start()), batches)
    wanted = plain(OPTIMIZERS[name](), squared, start(), batches)
    np.testing.assert_allclose(state.params["w"], wanted["w"], rtol=1e-5, atol=1e-7)
    assert state.run.state.work > 0.5 * 40


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_candidate_is_the_optimizer_with_other_numbers(name):
    """Its factor multiplies the step size, below a schedule too."""
    batches = list(switching_rows(20, period=3, seed=2))
    optimizer = OPTIMIZERS[name]()
    programs = compile_programs(squared, squared, optax.with_extra_args_support(optimizer), None)
    learner = JaxLearner(programs, Saved(start(), jax.jit(optimizer.init)(start()), None))
    learner.set(Candidate(0.5, 0.1))
    for batch in batches:
        learner.step(kept(batch, learner.saved))
    changed = {
        "sgd": lambda: sgd(0.001, 0.5, nesterov=True),
        "schedule": lambda: sgd(optax.exponential_decay(0.002, 10, 0.9), 0.5),
        "chain": lambda: optax.chain(optax.clip_by_global_norm(1.0), sgd(0.001, 0.5)),
        "adam": lambda: optax.adam(0.0003, b1=0.5),
        "adamw": lambda: optax.adamw(0.0003, b1=0.5),
        "rmsprop": lambda: optax.rmsprop(0.0001, momentum=0.5),
        "accumulates": lambda: optax.MultiSteps(sgd(0.001, 0.5), 4).gradient_transformation(),
    }[name]()
    wanted = plain(changed, squared, start(), batches)
    np.testing.assert_allclose(learner.saved.params["w"], wanted["w"], rtol=2e-5)


def kept(batch, saved, step=0, key=None):
    from resonax.jax import hyperparameters

    return KeptBatch(batch, key, step, hyperparameters.read(saved.opt_state))


def noisy(params, model_state, batch, key):
    """A loss with dropout and a running mean, as batch norm has."""
    x, y = batch
    mean = 0.9 * model_state["mean"] + 0.1 * jnp.mean(x, axis=0)
    keeps = jax.random.bernoulli(key, 0.8, x.shape)
    return jnp.mean((((x - mean) * keeps) @ params["w"] - y) ** 2), {"mean": mean}


@functools.cache
def noisy_guard():
    guard = resonax.jax.guard(noisy, sgd(0.06), spacing=16, average=True, log_changes=False)
    key = jax.random.key(0, impl="unsafe_rbg")  # the quickest to compile
    return guard, guard.init(start(), key=key, model_state={"mean": jnp.zeros(6)})


def test_updates_are_pure_and_a_pickled_state_goes_on_with_the_same_bits():
    """Through tests, rewinds and mixed rows, and from a state of the host."""
    rows = list(switching_rows(160, period=6, seed=2))
    guard, state = noisy_guard()
    middle, _ = train(guard, state, rows[:40])
    before = [leaf.copy() for leaf in leaves_of(middle)]
    end, losses = train(guard, middle, rows[40:])
    assert end.run.state.decisions
    for one, other in zip(before, leaves_of(middle), strict=True):
        np.testing.assert_array_equal(one, other)
    again, losses_again = train(guard, middle, rows[40:])
    np.testing.assert_array_equal(losses, losses_again)
    assert_same_bits(end, again)
    loaded = pickle.loads(pickle.dumps(jax.device_get(middle)))
    assert not any(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(loaded.params))
    assert_same_bits(end, train(guard, loaded, rows[40:])[0])
    one, other = (guard.offered(made)[1] for made in (end, again))
    for mine, others in zip(leaves_of(one), leaves_of(other), strict=True):
        np.testing.assert_array_equal(mine, others)


def test_the_average_is_offered_where_it_does_better_and_kept_while_the_run_is_worse():
    """Noise alone, of which the average has less; then outputs that are wrong."""
    rows = list(switching_rows(320, period=1, seed=3))
    guards = {one: resonax.jax.guard(squared, sgd(), "watch", average=one) for one in (False, True)}
    ends = {one: train(guard, guard.init(start()), rows)[0] for one, guard in guards.items()}
    assert_same_bits(ends[False], ends[True]._replace(average=None))
    state, found = guards[True].offered(ends[True])
    assert np.linalg.norm(found.params["w"]) < 0.5 * np.linalg.norm(state.params["w"])
    wrong = [(x, y + 30) for x, y in rows[:16]]
    later, _ = train(guards[True], state, wrong)
    _, kept = guards[True].offered(later)
    np.testing.assert_array_equal(kept.params["w"], found.params["w"])
    _, plain = guards[False].offered(ends[False])
    np.testing.assert_array_equal(plain.params["w"], ends[False].params["w"])


def test_a_replay_of_a_run_gives_its_bits_again():
    rows = list(switching_rows(40, period=6, seed=1))
    guard, state = noisy_guard()
    state, _ = train(guard, state, rows[:20])
    kept = state.run.state.history
    programs = compile_programs(noisy, noisy, optax.with_extra_args_support(sgd()), None)
    learner = JaxLearner(programs, kept.snapshots[0].saved)
    learner.set(state.setting)
    for batch in kept.batches:
        learner.step(batch)
    np.testing.assert_array_equal(learner.saved.params["w"], state.params["w"])
    np.testing.assert_array_equal(learner.saved.model_state["mean"], state.model_state["mean"])


def test_what_a_person_changes_in_the_state_is_replayed():
    rows = list(switching_rows(30, period=1, seed=1))
    guard = resonax.jax.guard(squared, sgd(0.05, 0.5), log_changes=False)
    state, _ = train(guard, guard.init(start()), rows[:10])
    changed = {**state.opt_state.hyperparams, "learning_rate": jnp.asarray(0.001)}
    state = state._replace(opt_state=state.opt_state._replace(hyperparams=changed))
    state, _ = train(guard, state, rows[10:])
    history = state.run.state.history
    programs = compile_programs(squared, squared, optax.with_extra_args_support(sgd()), None)
    learner = JaxLearner(programs, history.snapshots[0].saved)
    for batch in history.batches:
        learner.step(batch)
    np.testing.assert_array_equal(learner.saved.params["w"], state.params["w"])


def test_a_step_is_compiled_once_and_a_judgement_once():
    rows = list(switching_rows(120, period=6, seed=1))
    guard = resonax.jax.guard(squared, sgd(0.06), spacing=16, log_changes=False)
    state = guard.init(start())
    compiled = []
    state, _ = train(guard, state, rows[:16])  # up to the first judgement
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, *_, **__: compiled.append(name) if "backend_compile" in name else None
    )
    state, _ = train(guard, state, rows[16:])
    jax.monitoring.clear_event_listeners()
    assert state.run.state.decisions
    assert compiled == []


def test_a_loader_may_fill_its_buffer_again():
    rows = list(switching_rows(40, period=1, seed=1))
    guard = resonax.jax.guard(squared, sgd(0.01, 0.5), spacing=16, log_changes=False)
    wanted, _ = train(guard, guard.init(start()), rows)
    x, y, state = np.zeros((1, 6)), np.zeros(1), guard.init(start())
    for batch in rows:
        x[...], y[...] = batch
        state, _ = guard.update(state, (x, y))
    x[...] = np.nan
    assert_same_bits(wanted, state)


def test_mixed_rows_are_the_same_rows_in_batches_of_the_same_sizes():
    rng = np.random.default_rng(0)
    sizes = (3, 5, 2)
    made, first = [], 0
    for size in sizes:
        ids = jnp.arange(first, first + size)
        made.append(KeptBatch({"id": ids, "twice": np.asarray(2 * ids)}, None, first, ()))
        first += size
    mixed = mix_rows(made, rng, None)
    assert [len(one.data["id"]) for one in mixed] == list(sizes)
    assert [one.step for one in mixed] == [one.step for one in made]
    ids = np.concatenate([one.data["id"] for one in mixed])
    assert sorted(ids) == list(range(10))
    assert list(ids) != list(range(10))
    np.testing.assert_array_equal(np.concatenate([one.data["twice"] for one in mixed]), 2 * ids)
    assert isinstance(mixed[0].data["id"], jax.Array)
    assert isinstance(mixed[0].data["twice"], np.ndarray)


def test_modules_of_equinox_are_params_once_their_arrays_are_told_apart():
    # Its arrays by hand: jax would compile a program for each number that it draws.
    empty = eqx.filter_eval_shape(eqx.nn.MLP, 6, 1, 4, 1, key=jax.random.key(0))
    drawn, rng = eqx.filter(empty, lambda leaf: hasattr(leaf, "shape")), np.random.default_rng(0)
    made = jax.tree.map(lambda leaf: jnp.asarray(0.3 * rng.normal(size=leaf.shape), "f4"), drawn)
    model = eqx.combine(made, empty)
    params, static = eqx.partition(model, eqx.is_array)

    def loss_fn(params, batch):
        given = jax.vmap(eqx.combine(params, static))(batch[0])
        return jnp.mean((given[:, 0] - batch[1]) ** 2)

    guard = resonax.jax.guard(loss_fn, sgd(0.01, 0.9), spacing=16)
    state, losses = train(guard, guard.init(params), switching_rows(20, period=1, seed=0))
    assert np.all(np.isfinite(losses))
    assert isinstance(state.params, eqx.nn.MLP)
    with pytest.raises(ArgumentError, match=r"equinox.filter\(model, equinox.is_array\)"):
        guard.init(model)


ROW = (np.ones((1, 6)), np.ones(1))


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda: resonax.jax.guard(squared, optax.sgd(0.1, 0.9)).init(start()),
            r"inject_hyperparams\(optax.sgd\)",
        ),
        (lambda: resonax.jax.guard(squared, 0.1), "one of optax, got float"),
        (
            lambda: resonax.jax.guard(squared, sgd(momentum=optax.constant_schedule(0.9))).init(
                start()
            ),
            "momentum follows a schedule",
        ),
        (
            lambda: resonax.jax.guard(squared, sgd(), knob="b1").init(start()),
            "learning_rate, momentum",
        ),
        (lambda: resonax.jax.guard(squared, sgd(), "sfae").init(start()), "safe"),
        (
            lambda: updated(squared, (np.ones((1, 6)), np.float32(1))),
            "one row for each example",
        ),
        (
            lambda: updated(squared, ROW, (np.ones((1, 6)), np.ones((1, 1)))),
            "pad them to one shape",
        ),
        (lambda: updated(lambda p, b: b[0] @ p["w"], ROW), r"one number, got \(1,\)"),
    ],
)
def test_what_cannot_be_guarded_is_refused_in_a_sentence(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()


def updated(loss_fn, *batches):
    guard = resonax.jax.guard(loss_fn, sgd())
    return train(guard, guard.init(start()), batches)


def test_an_optimizer_without_momentum_is_guarded_by_mixing_and_smaller_steps():
    guard = resonax.jax.guard(squared, optax.inject_hyperparams(optax.sgd)(0.01))
    found = guard.init(start()).run.config.candidates
    assert {one.momentum for one in found} == {0.0}
    assert min(one.lr for one in found) < 1


def test_a_momentum_of_another_name_is_lowered():
    optimizer = optax.chain(
        optax.inject_hyperparams(optax.trace)(decay=0.9), optax.scale_by_learning_rate(0.01)
    )
    guard = resonax.jax.guard(squared, optimizer, knob="decay")
    assert guard.init(start()).setting == Candidate(0.9)
