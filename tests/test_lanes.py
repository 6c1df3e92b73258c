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
from resonax.keys import threefry
from resonax.lanes import compiled, functions, random_numbers
from resonax.lanes.compiled import compile_code, load_function
from resonax.lanes.emitter import Code
from resonax.lanes.equations import Unsupported
from resonax.lanes.fleet import Fleet
from resonax.lanes.inputs import LawForm
from resonax.lanes.machine import Machine, host_machine
from resonax.lanes.plan import Plan, Slots
from resonax.lanes.process import trace_process
from resonax.lanes.program import write_program
from resonax.lanes.update import Update, trace_update
from resonax.lanes.vectors import F32, F64, I32
from resonax.learners import Transform, make_optimizer
from resonax.moments import Moments
from resonax.paper.catalogue import catalogue
from resonax.registry import KINDS
from resonax.simulation import Training, choice, lane_laws, network_batches, simulate
from resonax.simulation import random_numbers as of_jax
from resonax.simulation.batches import split
from resonax.simulation.position_form import init_state, update_weights
from resonax.sweeps.computation import Computation
from resonax.sweeps.devices import describe_device

LANES = 4


def run_code(write, count, real, words=()):
    """Compile what ``write(code, given)`` writes and run it on arrays, by name; return nothing."""
    machine = host_machine()
    (kind,) = {array.dtype for array in real.values()}
    code = Code(LANES, F64 if kind == np.float64 else F32, machine.triple)
    words = dict(words)
    write(code, code.function("run", ["count"], list(real), list(words)))
    code.end()
    arrays = [*real.values(), *words.values()]
    run = load_function("run", code, 1, len(arrays))
    run(count, *(array.ctypes.data for array in arrays))


def apply(function, results, *arrays):
    """Return the results of a function of vectors, one of each array (n,), at all numbers."""
    size = -(-len(arrays[0]) // LANES) * LANES
    given = {f"x{place}": np.resize(array, size) for place, array in enumerate(arrays)}
    found = {f"y{place}": np.zeros(size, arrays[0].dtype) for place in range(results)}

    def write(code, memory):
        with code.loop(memory["count"]) as place:
            values = function(*(memory[name].load(place) for name in given))
            for name, vector in zip(found, values, strict=True):
                is_word = vector.element == I32
                memory[name].store(place, vector.bits_as(code.real) if is_word else vector)

    run_code(write, size // LANES, given | found)
    return [array[: len(arrays[0])] for array in found.values()]


# Functions of vectors


@pytest.mark.parametrize(("kind", "error"), [(np.float32, 3e-7), (np.float64, 5e-16)])
def test_elementary_functions_are_those_of_numpy(kind, error):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.uniform(1e-7, 4, 500), np.exp(rng.uniform(-80, 80, 500))]).astype(kind)
    (found,) = apply(lambda x: [functions.log(x)], 1, x)
    np.testing.assert_allclose(found, np.log(x.astype(float)), rtol=error, atol=error)
    turns = np.concatenate([rng.uniform(-2, 2, 500), np.arange(-8, 9) / 4]).astype(kind)
    cosine, sine = apply(functions.cos_sin, 2, turns)
    exact = 2 * np.pi * (turns.astype(float) % 1)
    np.testing.assert_allclose(cosine, np.cos(exact), atol=2 * error)
    np.testing.assert_allclose(sine, np.sin(exact), atol=2 * error)
    base = np.concatenate([rng.uniform(0.5, 1, 500), [0.9999, 0.0, 0.0, 1.0]]).astype(kind)
    count = np.concatenate([rng.integers(1, 20_000, 500), [9, 0, 7, 10**6]]).astype(kind)
    (found,) = apply(lambda b, n: [functions.power(b, n)], 1, base, count)
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
    *found, one, two = apply(words, 2 if double else 4, exact[:, 0].copy(), exact[:, 1].copy())
    keys = exact.astype(np.uint32)
    if not double:
        generate = jax.jit(threefry)
        wanted = generate((keys[:, 0], keys[:, 1]), (np.uint32(7), np.uint32(5)))
        for word, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(word.view(np.uint32), other)
    with jax.enable_x64(double):
        normals = jax.jit(of_jax.normals, static_argnums=(2, 3))
        wanted = normals(keys, np.array([7], np.uint32), 10, 2)
    for ours, other in zip((one, two), wanted, strict=True):
        np.testing.assert_allclose(
            ours, np.asarray(other)[0], rtol=0, atol=1e-14 if double else 2e-6
        )


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
STEPS = 12


def registered(name):
    if name in OTHERS:
        return OTHERS[name]
    kind = KINDS["optimizer"][name]
    return make_optimizer(kind, {field: NUMBERS[field] for field in kind.fields})


take_step = functools.partial(update_weights, decays=True)


@functools.cache
def taken_by_jax():
    """Return gradients, weights, and by optimizer the first state and the weights after each step.

    The gradients vanish now and then, and the weights have a size. One program serves all.
    """
    rng = np.random.default_rng(2)
    slopes = rng.normal(size=(STEPS, LANES)) * (rng.uniform(size=(STEPS, LANES)) > 0.2)
    weights = rng.normal(size=LANES)

    def take(optimizer):
        first = init_state(optimizer, weights)

        def one(carry, slope):
            after = take_step(optimizer, slope, *carry)
            return after, after[0]

        return first, jax.lax.scan(one, (weights, first), slopes)[1]

    with jax.enable_x64(True):
        every = {name: registered(name) for name in [*SWEPT, *OTHERS]}
        paths = jax.jit(lambda: {name: take(optimizer) for name, optimizer in every.items()})()
        return slopes, weights, jax.tree.map(np.asarray, paths)


@pytest.mark.parametrize("name", [*SWEPT, *OTHERS])
def test_every_optimizer_of_the_registry_is_written_as_optax_has_it(name):
    optimizer = registered(name)
    slopes, weights, paths = taken_by_jax()
    first, wanted = paths[name]
    leaves = jax.tree.leaves(first)
    with jax.enable_x64(True):
        update = trace_update(take_step, optimizer, init_state)
    numbers = [float(leaf) for leaf in jax.tree.leaves(optimizer)]
    wide = [np.array(s) for s, (_, is_wide) in zip(leaves, update.states, strict=True) if is_wide]
    flags = [s for s, (_, is_wide) in zip(leaves, update.states, strict=True) if not is_wide]
    real = {"slopes": slopes, "path": np.zeros_like(slopes), "weights": weights.copy()}
    real |= {"states": np.array([*wide, weights])}  # one more, so that it is never empty
    words = {"scalars": np.array([np.full(LANES, flag, np.int32) for flag in [*flags, 0]])}

    def write(code, memory):
        weight = code.variable(memory["weights"].load(0))
        states = [code.variable(memory["states"].load(place)) for place in range(len(wide))]
        fixed = [code.constant(number, F64) for number in numbers]
        with code.loop(memory["count"]) as step:
            before = [memory["scalars"].load(place) for place in range(len(flags))]
            before = [
                word.compare("!=", 0) if flag.dtype == bool else word
                for word, flag in zip(before, flags, strict=True)
            ]
            known, after = update.begin_step(code, fixed, before)
            for place, word in enumerate(after):
                memory["scalars"].store(place, word.as_type(I32))
            slope, held = memory["slopes"].load(step), [state.get() for state in states]
            new, after = update.move(known, slope, weight.get(), held)
            for variable, vector in zip([weight, *states], [new, *after], strict=True):
                variable.set(vector)
            memory["path"].store(step, new)

    run_code(write, STEPS, real, words)
    np.testing.assert_allclose(real["path"], wanted, rtol=1e-11, atol=1e-13)


# Laws


ROOTS = {"diagonal": np.diag([0.5, 1.5]), "dense": np.array([[0.5, 0.3], [-0.2, 1.5]])}


@functools.partial(jax.jit, static_argnums=1)
def parts_of(law, diagonal):
    """Return laws in the parts that lanes take, and their table."""
    parts = jax.vmap(jax.vmap(lambda law: split(law, diagonal)))(law)
    return parts, lane_laws.law_table(parts, LANES)


@pytest.mark.parametrize("root", ROOTS)
@pytest.mark.parametrize("components", [1, 3])
def test_inputs_of_every_form_of_law_are_those_of_jax(components, root):
    rng = np.random.default_rng(5)
    mean = rng.normal(size=(LANES, 1, components, 2)).astype(np.float32)
    scale = rng.uniform(1, 2, size=(LANES, 1, components, 1, 1))
    weight = np.full((LANES, 1, components), 1 / components, np.float32)
    law = Moments(mean, np.float32(scale * ROOTS[root]), weight)
    parts, tables = jax.tree.map(np.asarray, parts_of(law, root == "diagonal"))
    form, rows = lane_laws.law_form(parts, 2), 5
    assert form == LawForm(2, components, root == "diagonal")
    normal = rng.normal(size=(rows, 2, LANES)).astype(np.float32)
    uniform = rng.uniform(size=(rows, LANES)).astype(np.float32)
    table = tables[0, 0].copy()
    assert table.shape == (form.size, LANES)
    found = np.zeros_like(normal)

    def write(code, memory):
        with code.loop(memory["count"]) as row:
            standard = [memory["normal"].load(row * 2 + place) for place in range(2)]
            chosen = memory["uniform"].load(row) if components > 1 else None
            for place, value in enumerate(form.draw(memory["law"], standard, chosen)):
                memory["found"].store(row * 2 + place, value)

    real = {"law": table, "normal": normal, "uniform": uniform, "found": found}
    run_code(write, rows, real)
    draw = jax.jit(jax.vmap(network_batches._inputs))
    one = jax.tree.map(lambda leaf: leaf[:, 0], parts)
    wanted = draw(one, normal.transpose(2, 0, 1).reshape(LANES, -1), uniform.T)
    np.testing.assert_allclose(found, np.transpose(wanted, (1, 2, 0)), rtol=1e-5, atol=1e-6)


PROCESSES = {
    "switching": rx.Switching(period=2.5, dim=2, amplitude=0.6, variance=0.1, swing=0.3),
    "ar2": rx.AR2(period=9.0, dim=2, swing=0.3),
    "sinusoid": rx.Sinusoid(period=9.3, dim=3, swing=0.4, phase=0.2),
    "iid": rx.Iid(amplitude=0.4, dim=2),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_processes_walk_in_lanes_as_in_jax(name):
    process, steps = PROCESSES[name], 12
    normals = np.random.default_rng(8).normal(size=(steps, process.step_normals + 1, LANES))

    def step(process, state, normal, index):
        state, law = process.step(normal, state, index)
        return state, split(law, True)

    with jax.enable_x64(True):
        first = jax.jit(process.init)(np.ones(process.init_normals))
        walk = trace_process(step, process, first, process.step_normals)

        def one(state, now):
            return step(process, state, *now)

        def alone(normal):
            given = normal[:, : process.step_normals], jnp.arange(steps)
            return jnp.stack(jax.tree.leaves(jax.lax.scan(one, first, given)[1]))

        wanted = jax.jit(jax.vmap(alone, in_axes=-1, out_axes=-1))(normals)
    own = np.concatenate(
        [np.ravel(leaf) for leaf in jax.tree.leaves((process, first))], dtype=float
    )
    assert len(own) == walk.numbers + walk.states
    real = {"own": np.repeat(own[:, None], LANES, 1), "normal": normals}
    real |= {"law": np.zeros((steps, len(wanted), LANES))}

    def write(code, memory):
        with code.loop(memory["count"]) as step:
            given = [memory["own"].load(place) for place in range(len(own))]
            normal = memory["normal"].at(step * (walk.normals + 1))
            given += [normal.load(place) for place in range(walk.normals)]
            states, law = walk.write(code, given, code.splat(step, LANES))
            for place, state in enumerate(states):
                memory["own"].store(walk.numbers + place, state)
            for place, number in enumerate(law):
                memory["law"].store(step * len(law) + place, number)

    run_code(write, steps, real)
    np.testing.assert_allclose(real["law"], np.moveaxis(wanted, 0, 1), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("process", "reason"),
    [
        (rx.Square(period=6.0, dim=2), "its process has the operation rem"),
        (rx.Recorded.of(np.zeros((300, 2)), repeat=True), "its process has more than 64 numbers"),
    ],
    ids=["operation", "size"],
)
def test_what_cannot_walk_in_lanes_is_said(process, reason):
    def step(process, state, normal, index):
        return process.step(normal, state, index)

    with pytest.raises(Unsupported, match=reason):
        trace_process(step, process, (), 0)


# The same bits


SMALL = Training(
    rx.Switching(period=6.0, dim=2, amplitude=0.6, variance=0.1),
    rx.adam(0.01),
    rx.Network((6, 5)),
    batch=3,
    noise=0.1,
)


def small_plan(optimizer=SMALL.optimizer, **changes):
    update = trace_update(functools.partial(update_weights, decays=False), optimizer, init_state)
    slots = Slots(*(place * 2**20 for place in range(6)))
    # Few sums at once: a program of more takes the compiler twice as long. Nor are inputs drawn
    # for the test as well: each place at which numbers are drawn takes it a fifth of the time.
    laws = LawForm(2), LawForm(2, rows=6)
    plan = Plan((2, 3, 6, 1), 7, 6, *laws, update, None, slots, False, 4, 7)
    return replace(plan, **changes)


def walk_of(process):
    def step(process, state, normal, index):
        state, law = process.step(normal, state, index)
        return state, split(law, True)

    return trace_process(step, process, process.init(jnp.zeros(0)), process.step_normals)


@functools.cache
def trained(threads=1, split=(8,), folder=None, walks=False, **changes):
    """Return weights and losses of 37 paths with 2 cells after 8 steps."""
    plan = small_plan(**changes)
    plan = replace(plan, process=walk_of(SMALL.process)) if walks else plan
    rng = np.random.default_rng(3)
    weights = rng.normal(size=(37, 2, plan.weights)).astype(np.float32)
    optimizer = changes.get("optimizer", SMALL.optimizer)
    numbers = [*jax.tree.leaves(optimizer), 0.3, 2 / 3]
    numbers = np.broadcast_to(numbers, (37, 2, plan.numbers))
    # One program in place of one for every operation.
    states = jax.jit(jax.vmap(jax.vmap(functools.partial(init_state, optimizer))))(weights)
    states = [np.asarray(leaf) for leaf in jax.tree.leaves(states)]
    keys = rng.integers(2**32, size=(37, 2), dtype=np.uint32)

    def table(law, steps):
        numbers = rng.uniform(0.5, 1, size=(steps, 2, law.size, 64)).astype(np.float32)
        parts = numbers.reshape(steps, 2, law.size, -1, plan.lanes)
        return np.moveaxis(parts, -2, 0).copy()

    laws, test_laws = table(plan.law, 8), table(plan.test_law, 1)[:, 0]
    own = np.concatenate([jax.tree.leaves(SMALL.process), np.zeros(3)])  # and its state
    own = np.broadcast_to(own, (37, 2, len(own))) if walks else None
    fleet = Fleet(plan, keys, weights, states, numbers, own, threads=threads, folder=folder)
    first = 0
    for steps in split:
        given = None if walks else laws[:, first : first + steps]
        fleet.advance(first, steps, given, test_laws, record=True)
        first += steps
    return fleet.weights, fleet.total


HEAVY = rx.heavy_ball(0.01, 0.9)
ROWS_GIVEN = {"optimizer": HEAVY, "law": LawForm(2, rows=7)}  # of all numbers only noise is drawn
WALKS = {"walks": True, "widths": (2, 6, 1)}  # a layer less, which others have: compiled sooner


@pytest.mark.parametrize(
    ("given", "changes"),
    [  # rows that are given, as in the next test, whose program this is, and laws that walk
        (ROWS_GIVEN, {"lanes": 16, "sums": 5}),
        (WALKS, {"lanes": 8, "sums": 12}),
        (WALKS, {"threads": 3}),
        (WALKS, {"split": (4, 4)}),
    ],
    ids=["lanes 16", "lanes 8", "threads", "parts"],
)
def test_no_bit_depends_on_lanes_tiles_threads_or_parts(given, changes):
    ours, others = trained(**given), trained(**given, **changes)
    for one, other in zip(ours, others, strict=True):
        np.testing.assert_array_equal(one, other)
    assert np.isfinite(ours[1]).all()


def test_no_bit_depends_on_whether_weights_and_those_before_take_turns(monkeypatch):
    assert small_plan(HEAVY).update.before == 0
    assert small_plan().update.before is None  # Adam has no such state
    in_turn = trained(**ROWS_GIVEN)
    monkeypatch.setattr(Update, "before", None)
    monkeypatch.setattr(compiled, "_loaded", {})
    for ours, others in zip(in_turn, trained.__wrapped__(**ROWS_GIVEN), strict=True):
        np.testing.assert_array_equal(ours, others)


def test_small_numbers_are_flushed_inside_and_nowhere_else():
    trained(**ROWS_GIVEN)
    assert np.float32(1e-30) * np.float32(1e-10) > 0
    (found,) = apply(lambda x: [x * 1e-10], 1, np.full(3, 1e-30, np.float32))
    assert (found == 0).all()


# Programs on disk and for other processors


def test_compiled_programs_are_kept_and_damaged_ones_are_made_again(tmp_path, monkeypatch):
    made, content = [], b"machine code"
    monkeypatch.setattr(compiled, "_link", lambda *given: ("engine", given[1]))

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
    # Of few weights: their tables in full take the compiler three times as long.
    plan = small_plan(widths=(2, 4, 1), lanes=machine.lanes(False), sums=machine.sums)
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


def test_a_store_says_which_loop_trained_its_networks(monkeypatch, tmp_path):
    (experiment,) = catalogue(("switching-network",), "smoke")
    kind, _ = describe_device("cpu")

    def said(device):
        made = Computation(experiment, tmp_path, 0, device, False)
        return made._specification["networks"]

    assert said(kind) == "lanes 4"
    assert said("gpu") == "jax"
    monkeypatch.setattr(choice.importlib.util, "find_spec", lambda _: None)
    assert said(kind) == "jax"


# Whole runs


def test_no_bit_depends_on_the_parts_in_which_laws_are_computed(monkeypatch):
    options = {"runs": 2, "steps": 120, "window": 60, "lanes": True}
    # Its laws jax computes; the fewer weights, the sooner the network is compiled.
    square = rx.Square(period=7.0, dim=2)
    training = replace(SMALL, process=square, optimizer=HEAVY, model=rx.Network((2,)))
    whole = simulate(training, {"period": [7.0]}, **options)
    monkeypatch.setattr(lane_laws, "_MOST_BLOCKS", 2)  # no divisor of the blocks of a window
    for ours, others in zip(whole, simulate(training, {"period": [7.0]}, **options), strict=True):
        np.testing.assert_array_equal(ours, others)


RECORDED = np.random.default_rng(6).normal(size=(90, 2))
DENSE = np.array([[1.0, 0.4], [0.4, 0.5]])
LAWS = {
    "rows": (rx.Recorded.of(RECORDED, repeat=True), {"lr": [0.01, 0.02]}),
    "shuffled": (rx.Sinusoid(period=9.0, dim=2, swing=0.5), {"period": [0.0, 9.0]}),
    "square": (rx.Square(period=9.0, dim=2), {"period": [5.0, 9.0]}),
    "swing": (rx.AR2(period=9.0, dim=2, swing=0.3), {"period": [5.0, 9.0]}),
    "dense": (rx.AR2(period=9.0, dim=2, variance=DENSE), {"period": [0.0, 9.0]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SWEPT, *LAWS])
def test_runs_of_every_optimizer_and_law_are_those_of_jax(name):
    """In 64 bits for 200 steps, with a summed loss, a decay of weights, and cells of one path."""
    process, columns = LAWS.get(name, (SMALL.process, {"period": [3.0, 7.0]}))
    training = replace(SMALL, process=process, reduction="sum")
    if name in SWEPT:
        training = replace(training, optimizer=registered(name))
    options = {"runs": 3, "steps": 200, "window": 100, "double": True}
    shared = {} if name == "rows" else {"amplitude": [0.3, 0.6]}
    found, expected = (
        simulate(training, columns, shared, lanes=lanes, **options) for lanes in (True, False)
    )
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)
