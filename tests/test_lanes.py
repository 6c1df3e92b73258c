"""Networks in lanes: against jax, optax and NumPy; the same bits whatever the machine does.

`tests/test_networks.py` compares whole runs with the loop of jax.
"""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import llvmlite.binding as llvm
import numpy as np
import optax
import pytest

import resonax as rx
from resonax.checks import ArgumentError
from resonax.lanes import compiled, functions, random_numbers
from resonax.lanes.compiled import compile_code, link
from resonax.lanes.emitter import Code
from resonax.lanes.fleet import Fleet
from resonax.lanes.inputs import LawForm
from resonax.lanes.machine import Machine, host_machine
from resonax.lanes.program import Plan, Slots, write_program
from resonax.lanes.update import trace_update
from resonax.lanes.vectors import F32, F64, I32
from resonax.learners import Transform, make_optimizer
from resonax.registry import KINDS
from resonax.simulation import Training, choice, simulate
from resonax.simulation import random_numbers as theirs
from resonax.simulation.position_form import init_state, update_weights

LANES = 8


def apply(function, *arrays):
    """Return a function of vectors, one of each array (n,), at all of their numbers."""
    real = F64 if arrays[0].dtype == np.float64 else F32
    machine, size = host_machine(), -(-len(arrays[0]) // LANES) * LANES
    code = Code(LANES, real, machine.triple)
    names = [f"x{place}" for place in range(len(arrays))]
    probe = Code(LANES, real, machine.triple)
    given = probe.function("probe", ["count"], names, [])
    count = len(function(*(given[name].load(0) for name in names)))
    outs = [f"y{place}" for place in range(count)]
    given = code.function("apply", ["count"], [*names, *outs], [])
    with code.loop(given["count"]) as place:
        found = function(*(given[name].load(place) for name in names))
        for name, vector in zip(outs, found, strict=True):
            same = vector.bits_as(real) if vector.element == I32 else vector
            given[name].store(place, same)
    code.end()
    pointers = len(names) + len(outs)
    keep, run = link("apply", compile_code(code, machine), machine, 1, pointers)
    filled = [np.resize(array, size) for array in arrays]
    results = [np.zeros(size, arrays[0].dtype) for _ in outs]
    run(size // LANES, *(array.ctypes.data for array in [*filled, *results]))
    del keep
    return [result[: len(arrays[0])] for result in results]


# Functions of vectors


@pytest.mark.parametrize(("kind", "error"), [(np.float32, 3e-7), (np.float64, 5e-16)])
def test_elementary_functions_are_those_of_numpy(kind, error):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(1e-7, 4, 500), np.exp(rng.uniform(-80, 80, 500))]).astype(kind)
    (found,) = apply(lambda x: [functions.log(x)], x)
    np.testing.assert_allclose(found, np.log(x.astype(float)), rtol=error, atol=error)
    turns = np.concatenate([rng.uniform(-2, 2, 500), np.arange(-8, 9) / 4]).astype(kind)
    cosine, sine = apply(functions.cos_sin, turns)
    exact = 2 * np.pi * (turns.astype(float) % 1)
    np.testing.assert_allclose(cosine, np.cos(exact), atol=2 * error)
    np.testing.assert_allclose(sine, np.sin(exact), atol=2 * error)
    base = np.concatenate([rng.uniform(0.5, 1, 500), [0.9999, 0.0, 0.0, 1.0]]).astype(kind)
    count = np.concatenate([rng.integers(1, 20_000, 500), [9, 0, 7, 10**6]]).astype(kind)
    (found,) = apply(lambda b, n: [functions.power(b, n)], base, count)
    exact = base.astype(float) ** count.astype(float)
    np.testing.assert_allclose(found, exact, rtol=max(error, 1e-11), atol=1e-37)


@pytest.mark.parametrize("double", [False, True])
def test_random_numbers_are_those_of_the_other_loops(double):
    """Words bit by bit, numbers to rounding."""
    kind = np.float64 if double else np.float32
    keys = np.random.default_rng(1).integers(2**31, size=(24, 2), dtype=np.uint32)

    def words(one, two):
        key = one.as_type(I32), two.as_type(I32)
        counter = (key[0].full(7), key[0].full(5))
        if double:
            return random_numbers.normal_pair(key, counter)
        return *random_numbers.threefry(key, counter), *random_numbers.normal_pair(key, counter)

    exact = (keys % 2**20).astype(kind)  # whole numbers that both types can hold
    *found, one, two = apply(words, exact[:, 0].copy(), exact[:, 1].copy())
    keys = jnp.asarray(exact.astype(np.uint32))
    if not double:
        threefry = jax.jit(theirs.threefry)
        wanted = threefry((keys[:, 0], keys[:, 1]), (np.uint32(7), np.uint32(5)))
        for word, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(word.view(np.uint32), other)
    with jax.enable_x64(double):
        normals = jax.jit(theirs.normals, static_argnums=(2, 3))
        wanted = normals(keys, np.array([7], np.uint32), 10, 2)
    for ours, other in zip((one, two), wanted, strict=True):
        np.testing.assert_allclose(ours, other[0], rtol=0, atol=1e-14 if double else 2e-6)


# Optimizers


NUMBERS = {
    **{"lr": 0.02, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.05, "beta1": 0.8},
    **{"beta2": 0.9, "eps": 1e-6, "eps_root": 1e-9, "rho": 0.8, "decay": 0.9, "threshold": 5.0},
    **{"initial_accumulator_value": 0.2, "initial_scale": 0.1, "alpha": 1.1, "beta": 0.9},
    **{"eta_minus": 0.5, "eta_plus": 1.2, "min_step_size": 1e-6, "max_step_size": 50.0},
}
SWEPT = [name for name, kind in KINDS["optimizer"].items() if "sweep" in kind.uses]
OTHERS = {
    "torch": rx.from_torch(0.02, 0.9, 0.3, 0.05),
    "amsgrad": rx.amsgrad(0.02, 0.8, 0.9),
    "rmsprop": rx.rmsprop(0.02, 0.9, 0.5),
}
STEPS = 8


def registered(name):
    if name in OTHERS:
        return OTHERS[name]
    kind = KINDS["optimizer"][name]
    return make_optimizer(kind, {field: NUMBERS[field] for field in kind.fields})


@pytest.mark.parametrize("name", [*SWEPT, *OTHERS])
def test_every_optimizer_of_the_registry_is_written_as_optax_has_it(name):
    """With gradients that vanish now and then, and weights of a size."""
    optimizer = registered(name)
    rng = np.random.default_rng(2)
    slopes = rng.normal(size=(STEPS, LANES)) * (rng.uniform(size=(STEPS, LANES)) > 0.2)
    weights = rng.normal(size=LANES)
    step = functools.partial(update_weights, decays=True)
    with jax.enable_x64(True):
        update = trace_update(step, optimizer, init_state)
        first = init_state(optimizer, jnp.asarray(weights))
        leaves, form = jax.tree.flatten(first)

        def one(carry, slope):
            after = step(optimizer, slope, *carry)
            return after, after[0]

        wanted = jax.lax.scan(one, (jnp.asarray(weights), first), jnp.asarray(slopes))[1]
    numbers = [float(leaf) for leaf in jax.tree.leaves(optimizer)]
    assert len(numbers) == update.numbers
    assert form.num_leaves == len(update.states)
    wide = [np.asarray(s) for s, (_, is_wide) in zip(leaves, update.states, strict=True) if is_wide]

    def all_steps(weight, *rest):
        slopes, states = list(rest[:STEPS]), list(rest[STEPS:])
        fixed = [weight.full(number) for number in numbers]
        kinds = [kind for kind, is_wide in update.states if not is_wide]
        code = weight.code
        scalars = [code.constant(0, I32) for _ in kinds]
        scalars = [
            value.compare("!=", 1) if kind == "bool" else value  # optax begins with True
            for kind, value in zip(kinds, scalars, strict=True)
        ]
        path = []
        for slope in slopes:
            known, scalars = update.begin_step(code, fixed, scalars)
            weight, states = update.move(known, slope, weight, states)
            path.append(weight)
        return path

    found = apply(all_steps, weights, *slopes, *wide)
    np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-13)


# The same bits


SMALL = Training(
    rx.Switching(period=6.0, dim=2, amplitude=0.6, variance=0.1),
    rx.adam(0.01),
    rx.Network((6, 5)),
    batch=3,
    noise=0.1,
)


def small_plan(**changes):
    update = trace_update(
        functools.partial(update_weights, decays=False), SMALL.optimizer, init_state
    )
    form = LawForm(2)
    slots = Slots(*(place * 2**20 for place in range(5)))
    plan = Plan((2, 6, 5, 1), 3, 10, form, form, update, slots, False, 4, 20)
    return replace(plan, **changes)


@functools.cache
def trained(threads=1, split=(8,), folder=None, **changes):
    """Return weights and losses of 37 paths with 2 cells after 8 steps."""
    plan = small_plan(**changes)
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(37, 2, plan.weights)).astype(np.float32)
    zeros = np.zeros_like(weights)
    numbers = np.broadcast_to([0.01, 0.9, 0.99, 0.3, 2 / 3], (37, 2, 5))
    states = [np.zeros((37, 2), np.int32), zeros, zeros]
    keys = rng.integers(2**32, size=(37, 2), dtype=np.uint32)
    law = rng.uniform(0.5, 1, size=(8, 2, 4, 64)).astype(np.float32)
    fleet = Fleet(plan, keys, weights, states, numbers, threads=threads, folder=folder)
    first = 0
    for steps in split:
        here = np.ascontiguousarray(law[first : first + steps])
        fleet.advance(first, steps, here, law[0], record=True)
        first += steps
    return fleet.weights, fleet.total


@pytest.mark.parametrize(
    "changes",
    [{"lanes": 16, "sums": 12}, {"lanes": 8, "sums": 7}, {"threads": 3}, {"split": (4, 4)}],
    ids=str,
)
def test_no_bit_depends_on_lanes_tiles_threads_or_parts(changes):
    for ours, others in zip(trained(), trained(**changes), strict=True):
        np.testing.assert_array_equal(ours, others)
    assert np.isfinite(trained()[1]).all()


def test_small_numbers_are_flushed_inside_and_nowhere_else():
    trained()
    assert np.float32(1e-30) * np.float32(1e-10) > 0
    (found,) = apply(lambda x: [x * 1e-10], np.full(3, 1e-30, np.float32))
    assert (found == 0).all()


# Programs on disk and for other processors


def test_compiled_programs_are_kept_and_damaged_ones_are_made_again(tmp_path, monkeypatch):
    made, content = [], b"machine code"
    monkeypatch.setattr(compiled, "link", lambda *given: ("engine", given[1]))

    def compile_again(*given):
        made.append(given)
        return content

    monkeypatch.setattr(compiled, "compile_code", compile_again)
    monkeypatch.setattr(compiled, "write_program", lambda plan, _: plan)

    def load(folder, **changes):
        """Return how often it was compiled."""
        monkeypatch.setattr(compiled, "_loaded", {})
        made.clear()
        assert compiled.load_program(small_plan(**changes), folder) == content
        return len(made)

    assert load(tmp_path) == 1
    (file,) = tmp_path.iterdir()
    assert load(tmp_path) == 0
    whole = file.read_bytes()
    for damaged in (whole[:-1], whole[:40] + b"x" + whole[41:], b""):
        file.write_bytes(damaged)
        assert load(tmp_path) == 1
        assert file.read_bytes() == whole
    for changes in ({"rows": 4}, {"lanes": 8}, {"double": True}, {"law": LawForm(2, 3)}):
        assert load(tmp_path, **changes) == 1
    monkeypatch.setattr(compiled, "host_machine", lambda: AVX2)
    assert load(tmp_path) == 1  # for another processor
    assert load(None) == 1
    assert load(file / "not a folder") == 1


ARM = Machine("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+fp-armv8")
AVX2 = Machine("x86_64-unknown-linux-gnu", "haswell", "+avx,+avx2,+fma")
AVX512 = Machine("x86_64-unknown-linux-gnu", "skylake-avx512", "+avx2,+fma,+avx512f,+avx512dq")
OLD = Machine("x86_64-unknown-linux-gnu", "nehalem", "+sse4.2,-avx2,-fma")


def test_lanes_are_those_of_the_processor():
    found = [(m.lanes(False), m.lanes(True), m.sums) for m in (ARM, AVX2, AVX512, OLD)]
    assert found == [(4, 2, 20), (8, 4, 10), (16, 8, 20), (0, 0, 20)]


@pytest.mark.parametrize(("machine", "number"), [(ARM, 183), (AVX2, 62)], ids=["arm", "avx2"])
def test_programs_are_written_for_either_family_of_processors(machine, number):
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    plan = small_plan(lanes=machine.lanes(False), sums=machine.sums)
    content = compile_code(write_program(plan, machine.triple), machine)
    assert int.from_bytes(content[18:20], "little") == number  # e_machine of the ELF header
    names = content[content.rindex(b"\0advance\0") :]
    for called in (b"fmaf", b"sqrtf", b"rintf", b"floorf", b"memcpy", b"memset"):
        assert called not in names  # all of it is in vectors


# Which loop


def run_small(training=SMALL, **options):
    columns = options.pop("columns", {"lr": [0.01]})
    return simulate(training, columns, runs=2, steps=40, window=20, **options)


NORMED = replace(SMALL, optimizer=Transform({"learning_rate": 0.01}, optax.lars))
ROWS = replace(SMALL, process=rx.Recorded.of(np.zeros((300, 2)), repeat=True), batch=3)


@pytest.mark.parametrize(
    ("training", "patch", "reason"),
    [
        (NORMED, {}, "its optimizer has the operation reduce_sum"),
        (ROWS, {}, "its inputs have a law of more than 256 components"),
        (replace(SMALL, batch=50_000), {}, "its layers and batches are too large"),
        (SMALL, {"find_spec": lambda _: None}, "llvmlite is not installed: `pip install"),
    ],
    ids=["norm", "components", "size", "llvmlite"],
)
def test_what_lanes_cannot_train_is_said_and_jax_trains_it(training, patch, reason, monkeypatch):
    for name, function in patch.items():
        monkeypatch.setattr(choice.importlib.util, name, function)
    with pytest.raises(ArgumentError) as error:
        run_small(training, lanes=True)
    assert f"lanes cannot train these networks: {reason}" in str(error.value)
    called = []

    def run_jax(*given):
        called.append(given)
        return [np.zeros((64, 1))] * 3

    monkeypatch.setattr("resonax.simulation.network.run_networks", run_jax)
    run_small(training)
    assert len(called) == 1


def test_a_store_says_which_loop_trained_its_networks(monkeypatch):
    assert choice.network_loop("CPU") == "lanes 1"
    assert choice.network_loop("NVIDIA H200") == "jax"
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda _: None)
    assert choice.network_loop("CPU") == "jax"
