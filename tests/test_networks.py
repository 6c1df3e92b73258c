"""Networks against backpropagation by hand; the random numbers of all loops; wrong arguments.

Tests of laws have fixed seeds. `accept` holds the chance of a false alarm to 1e-6 for each of
them, and so to 2e-5 for the file.
"""

import importlib.util
from dataclasses import replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import resonax as rx
from resonax.core.errors import ArgumentError
from resonax.core.moments import Moments
from resonax.learners import Network, adam
from resonax.simulation import Training, engine, network, network_loop, simulate
from resonax.simulation.batches import Draws, Needs, draw, draw_factor, needs_of, split
from resonax.simulation.random_numbers import chi, path_keys


def accept(pvalues):
    """Reject at level 1e-6 if any of several tests rejects (Bonferroni)."""
    assert np.min(pvalues) > 1e-6 / np.size(pvalues), np.sort(np.ravel(pvalues))[:3]


def mean_pvalues(samples, expected):
    """Return p-values of the hypothesis that independent samples (first axis) have this mean."""
    error = samples.std(0) / np.sqrt(len(samples))
    return 2 * stats.norm.sf(np.abs(samples.mean(0) - expected) / error)


# Random numbers


def test_numbers_are_independent_and_depend_on_path_purpose_and_block_alone():
    drawing = jax.jit(draw, static_argnums=2)
    keys, needs = path_keys(1, np.arange(100), 200), Needs(process=1, input=3, choice=2, noise=1)
    drawn = drawing(keys, 3, needs)
    part = drawing(path_keys(1, np.arange(4, 6), 200), 3, needs)
    for some, every in zip(part, drawn, strict=True):
        np.testing.assert_allclose(some, every[800:1200], rtol=1e-5, atol=1e-6)
    later = drawing(keys, 4, needs)
    normal = [np.asarray(each) for each in (drawn.process, drawn.input, drawn.noise)]
    # Uniform numbers are multiples of 2^-23, 0 among them: take the middle of each step.
    uniform = stats.norm.ppf(np.asarray(drawn.choice, float) + 2.0**-24)
    both = [*normal, uniform, np.asarray(later.input)]
    values = np.concatenate(both, axis=2).transpose(2, 1, 0)[:, :3]  # (slots, steps, streams)
    accept([stats.kstest(row, "norm").pvalue for row in values.reshape(-1, values.shape[2])])
    for table in (values, values**2):
        slots = table.reshape(-1, table.shape[2])
        neighbours = np.stack([slots[:, :-1].ravel(), slots[:, 1:].ravel()])  # streams
        for pairs in (slots, neighbours):
            of = np.corrcoef(pairs)[np.triu_indices(len(pairs), 1)]
            accept(2 * stats.norm.sf(np.abs(of) * np.sqrt(pairs.shape[1])))


FREEDOMS = [9, 10, 19, 49, 999, 10**5]


@cache
def roots(double, reach):
    """Return normal numbers, and the roots of chi-squares that they give; one program for all."""
    normal = np.linspace(-reach, reach, 1001)
    with jax.enable_x64(double):
        found = jax.jit(lambda one: [chi(one, freedom) for freedom in FREEDOMS])(normal)
    return normal, dict(zip(FREEDOMS, np.asarray(found, float), strict=True))


@pytest.mark.parametrize("freedom", FREEDOMS)
@pytest.mark.parametrize(("double", "reach", "error"), [(False, 5.45, 5e-7), (True, 5.45, 1e-12)])
def test_many_degrees_of_freedom_are_one_number_through_the_quantile_function(
    freedom, double, reach, error
):
    """As far out as a normal number ever comes."""
    normal, found = roots(double, reach)
    lower, upper = stats.norm.cdf(normal), stats.norm.sf(normal)
    theirs = np.where(normal < 0, stats.chi2.ppf(lower, freedom), stats.chi2.isf(upper, freedom))
    root, least = found[freedom], error * np.sqrt(freedom)
    np.testing.assert_allclose(root, np.sqrt(theirs), rtol=0, atol=least)


MEAN = {1: np.array([0.7]), 3: np.array([0.7, -0.4, 0.2])}
ROOT = {1: np.array([[0.8]]), 3: np.array([[0.8, 0.3, 0.0], [0.1, 0.5, 0.2], [-0.4, 0.0, 0.9]])}


@jax.jit
def second_of(law):
    return rx.Linear().second(law)


@jax.jit
def fourth_of(law, matrix):
    return rx.Linear().fourth(law)(matrix)


# Rows one by one, and the scatter.
BATCHES = [(2, 1), (10, 1), (100, 1), (2, 3), (7, 3), (20, 3)]
COUNT = 10_000


def law_of(dim):
    mean, root = np.float32(MEAN[dim])[None], np.float32(ROOT[dim])[None]
    return Moments(mean, root, np.ones(1, np.float32))


@cache
def grams():
    """Return F'F of many batches of each size: one program, which draws the numbers of all once."""
    scatters = {(batch, dim): batch - dim >= 9 for batch, dim in BATCHES}
    needs = {size: needs_of(*size[::-1], process=0, scatter=by) for size, by in scatters.items()}
    most = Needs(*map(max, zip(*needs.values(), strict=True)))

    def gram(size, drawn):
        batch, dim = size
        first = [part[..., :count] for part, count in zip(drawn, needs[size], strict=True)]
        options = {"rows": batch, "scatter": scatters[size], "batch": batch}
        parts = split(law_of(dim), diagonal=dim == 1)
        one = partial(draw_factor, law=parts, features=rx.Linear(), **options)
        rows = jax.vmap(one)(Draws(*(list(part[:, 0].T) for part in first)))
        factor = jnp.stack([jnp.stack(row, -1) for row in rows], -2)
        return jnp.swapaxes(factor, -1, -2) @ factor

    @jax.jit
    def every(keys):
        drawn = draw(keys, 0, most)
        return {size: gram(size, drawn) for size in BATCHES}

    return every(path_keys(3, np.arange(COUNT), 1))


@pytest.mark.parametrize(("batch", "dim"), BATCHES)
def test_a_factor_has_the_law_of_a_batch(batch, dim):
    law, count = law_of(dim), COUNT
    ours = np.asarray(grams()[batch, dim], float)
    rng = np.random.default_rng(4)
    inputs = MEAN[dim] + rng.normal(size=(count, batch, dim)) @ ROOT[dim].T
    phi = np.concatenate([inputs, np.ones((count, batch, 1))], axis=2)
    theirs = np.swapaxes(phi, 1, 2) @ phi / batch
    # Beside the entries themselves, E[G S G] for S = ab' + ba' tells all of their covariances.
    second = np.asarray(second_of(law), float)
    pvalues, places = [], np.tril_indices(dim + 1)
    pvalues.extend(mean_pvalues(ours[:, :-1], second[:-1]).ravel())  # the last diagonal entry is 1
    for a, b in zip(*places, strict=True):
        S = np.zeros((dim + 1, dim + 1))
        S[a, b] = S[b, a] = 1.0
        expected = np.asarray(fourth_of(law, S), float) / batch
        expected += (1 - 1 / batch) * second @ S @ second
        pvalues.extend(mean_pvalues((ours @ S @ ours)[:, :-1], expected[:-1]).ravel())
    for a, b in zip(places[0][:-1], places[1][:-1], strict=True):
        pvalues.append(stats.ks_2samp(ours[:, a, b], theirs[:, a, b])[1])
    np.testing.assert_allclose(ours[:, -1, -1], 1.0, rtol=1e-5)
    accept(pvalues)


# Networks


SINE = rx.Sinusoid(period=400.0, amplitude=2.0, variance=0.5, swing=0.8, dim=2)
NET = Training(SINE, rx.heavy_ball(0.02, 0.9), Network((5, 4)), batch=3, noise=0.2)
LINE = rx.Sinusoid(period=400.0, amplitude=2.0, variance=0.5, swing=0.8)
ADAM = Training(LINE, adam(0.02, 0.8, 0.9), Network((4,)), batch=3, noise=0.2, reduction="sum")
NETWORKS = {"mean": NET, "sum": ADAM}
RATES = [0.02, 1e-12, 1e6]  # networks that learn, stay and overflow
RUNS = {"mean": 106, "sum": 64}  # the law of the first is tested; 320 paths hold its cells
OPTIONS: dict[str, Any] = {"steps": 40, "window": 20, "seed": 5, "double": True}


@cache
def ran(reduction):
    """Return responses, grid, networks after 0 and 20 steps, and sum of the next 20 losses."""
    seen, run, runs = [], engine.run_networks, RUNS[reduction]
    streams = len(RATES) * runs  # the engine adds some, to fill its arrays up

    def spy(training, grid, loop, *rest):
        seen.extend([training, grid, loop])
        return run(training, grid, loop, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "run_networks", spy)
        found = simulate(NETWORKS[reduction], {"lr": RATES}, runs=runs, **OPTIONS, numba=False)
    training, grid, loop = seen  # in the form in which its programs are compiled
    with jax.enable_x64(True):
        state = network.begin_networks(training, grid, loop=loop)
        begin = jax.tree.map(lambda leaf: np.array(leaf)[0, :streams], state.layers)
        state = network.step_networks(training, grid, state, 0, 1, False, loop=loop)
        end = jax.tree.map(lambda leaf: np.array(leaf)[0, :streams], state.layers)
        state = network.step_networks(training, grid, state, 20, 1, True, loop=loop)
        total = np.array(state.total)[0, :streams]
    return found, grid, begin, end, total


draw_of = jax.jit(draw, static_argnums=2)


def of_stream(layers, stream):
    return [[leaf[stream] for leaf in layer] for layer in layers]


def numpy_inputs(wave, standard):
    """Return inputs of mean 2 w in the first coordinate and variances exp(0.8 w) / 2."""
    x = np.sqrt(0.5 * np.exp(0.8 * np.c_[wave])) * standard
    x[:, 0] += 2.0 * wave
    return x


def predict(layers, x):
    """Return the activations of every layer."""
    values = [x]
    for number, (weights, bias) in enumerate(layers):
        x = values[-1] @ weights + bias
        values.append(np.maximum(x, 0) if number < len(layers) - 1 else x)
    return values


def backpropagate(layers, x, y):
    """Return the gradient of the mean squared error."""
    values = predict(layers, x)
    pull, slopes = 2 * (values[-1] - y[:, None]) / len(x), []
    for (weights, _), before in zip(layers[::-1], values[-2::-1], strict=True):
        slopes.append((before.T @ pull, pull.sum(0)))
        pull = (pull @ weights.T) * (before > 0)
    return slopes[::-1]


def heavy(memory, g, k):
    memory = 0.9 * memory - 0.02 * g
    return memory, memory


def numpy_adam(memory, g, k):
    m, s = memory if k else (0.0, 0.0)
    m, s = 0.8 * m + 0.2 * g, 0.9 * s + 0.1 * g**2
    root = np.sqrt(s / (1 - 0.9 ** (k + 1)))
    return -0.02 * m / (1 - 0.8 ** (k + 1)) / (root + 1e-8), (m, s)


@pytest.mark.parametrize(("reduction", "move"), [("mean", heavy), ("sum", numpy_adam)])
def test_training_is_backpropagation(reduction, move):
    _, grid, begin, end, _ = ran(reduction)
    dim = NETWORKS[reduction].process.dim
    with jax.enable_x64(True):
        drawn = draw_of(grid.keys[:3], 0, needs_of(dim, 3, process=0))
    standard, noise = np.asarray(drawn.input), np.sqrt(0.2) * np.asarray(drawn.noise)
    for stream in range(3):
        layers = of_stream(begin, stream)
        memory = [[np.zeros_like(leaf) for leaf in layer] for layer in layers]
        for k in range(20):
            given = standard[stream, k].reshape(3, dim)
            x = numpy_inputs(np.sin(2 * np.pi * k / 400), given)
            y = np.cos(np.pi * np.linalg.norm(x, axis=1)) + noise[stream, k]
            for at, slopes in enumerate(backpropagate(layers, x, y)):
                for part, slope in enumerate(slopes):
                    slope = slope * (3 if reduction == "sum" else 1)
                    step, memory[at][part] = move(memory[at][part], slope, k)
                    layers[at][part] = layers[at][part] + step
        for ours, theirs in zip(of_stream(end, stream), layers, strict=True):
            for one, other in zip(ours, theirs, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("reduction", NETWORKS)
def test_numba_and_jax_train_the_same_networks(reduction):
    """As far as their roundings allow, which those that overflow magnify."""
    jax_found = ran(reduction)[0]
    training, runs = NETWORKS[reduction], RUNS[reduction]
    found = simulate(training, {"lr": RATES}, runs=runs, **OPTIONS, numba=True)
    for ours, theirs in zip(found, jax_found, strict=True):
        np.testing.assert_allclose(ours[:2], theirs[:2], rtol=1e-9, atol=1e-11)
    over, theirs = (np.isposinf(each.log_response[2]).mean() for each in (found, jax_found))
    assert abs(over - theirs) < 0.02
    np.testing.assert_allclose(found.log_start[2], jax_found.log_start[2], rtol=1e-6)
    if reduction == "sum":  # the smaller network, which is compiled sooner
        options: dict[str, Any] = OPTIONS | {"double": False}
        single = simulate(training, {"lr": RATES}, runs=runs, **options, numba=True)
        assert np.median(np.abs(single.log_response[:2] - found.log_response[:2])) < 1e-5


SMALL = Training(
    rx.Switching(period=3.0, dim=2, amplitude=0.6, variance=0.1),
    rx.heavy_ball(0.02, 0.9),
    Network((3,)),
    batch=2,
    noise=0.1,
)
OTHERS = {  # a recursion of its own each: lookahead, dampening that begins late, decay, no momentum
    "nesterov": rx.nesterov(0.02, 0.9, weight_decay=0.05),
    "torch": rx.from_torch(0.02, 0.9, 0.3, 0.05),
    "sgd": rx.sgd(0.02),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_numba_takes_the_steps_of_every_linear_optimizer(name):
    """For columns in random order, too, and cells that share the inputs of a column."""
    training = replace(SMALL, optimizer=OTHERS[name])
    grid = {"period": [0.0, 3.0]}, {"lr": [0.01, 0.1]}
    options = {"runs": 2, "steps": 80, "window": 40, "double": True}
    found, wanted = (simulate(training, *grid, **options, numba=numba) for numba in (True, False))
    for ours, theirs in zip(found, wanted, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-11)


@pytest.mark.slow
def test_networks_do_not_depend_on_threads_nor_on_the_other_columns(monkeypatch):
    found = []
    for threads, periods in (("1", [3.0, 5.0, 7.0]), ("2", [3.0, 5.0, 7.0]), ("2", [5.0, 7.0])):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        labels = {3.0: 0, 5.0: 1, 7.0: 2}
        options = {"labels": [labels[period] for period in periods], "runs": 30, "window": 20}
        found.append(simulate(SMALL, {"period": periods}, steps=40, numba=True, **options))
    for one, other, part in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
        np.testing.assert_array_equal(one[1:], part)


@pytest.mark.parametrize(
    ("training", "reason"),
    [
        (replace(SMALL, optimizer=rx.rmsprop(0.01)), "only SGD with momentum and Adam"),
        (replace(SMALL, model=Network((65,))), "layers of more than 64 units"),
    ],
)
def test_what_numba_cannot_train_is_said(training, reason):
    with pytest.raises(ArgumentError, match=f"numba cannot train these networks: {reason}"):
        simulate(training, {"period": [3.0]}, steps=40, window=20, numba=True)


def test_without_numba_jax_trains_networks(monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "numba" else find(name)
    )
    assert network_loop("cpu") == "jax"
    with pytest.raises(ArgumentError, match=r'pip install "resonax\[fast\]"'):
        simulate(SMALL, {"period": [3.0]}, steps=40, window=20, numba=True)


def test_networks_start_after_he_and_are_judged_by_the_stationary_law():
    found, _, begin, _, total = ran("mean")
    pvalues, scores, rng = [], [], np.random.default_rng(7)
    for width, (weights, bias) in zip((2, 5, 4), begin, strict=True):
        assert (bias == 0).all()
        standard = weights.ravel() / np.sqrt(2 / width)
        pvalues += [stats.kstest(standard, "norm").pvalue, mean_pvalues(standard**2, 1.0)]
    runs = RUNS["mean"]
    for run in range(runs):  # of those that stay where they are, each on 200 inputs of its own
        x = numpy_inputs(np.sin(2 * np.pi * rng.uniform(size=4000)), rng.normal(size=(4000, 2)))
        outputs = predict(of_stream(begin, runs + run), x)[-1][:, 0]
        losses = (outputs - np.cos(np.pi * np.linalg.norm(x, axis=1))) ** 2
        error = losses.std() * np.sqrt(1 / 200 + 1 / 4000)
        ours = np.exp([found.log_start[1, 0, run], found.log_response[1, 0, run]])
        scores.append((ours - losses.mean()) / error)
    scores = np.array(scores)
    accept([*pvalues, *mean_pvalues(scores, 0.0), *mean_pvalues(scores**2, 1.0)])
    # The response is the loss over the last steps, and that of an overflow infinite, never nan.
    fine, ours = np.isfinite(total), found.log_response.ravel()
    np.testing.assert_allclose(ours[fine], np.log(total[fine] / 20), rtol=1e-10)
    assert np.isposinf(ours[~fine]).all()
    assert np.isposinf(found.rate.ravel()[~fine]).all()
    share = fine.reshape(found.rate.shape).mean(axis=2).ravel()
    assert share[:2].tolist() == [1.0, 1.0]
    assert share[2] < 0.5


# Wrong arguments


PLAIN = Training(SINE, rx.heavy_ball(0.01, 0.9))
ROWS = np.ones((60, 1))
LONG = Training(rx.Recorded.of(ROWS), rx.sgd(0.1), batch=2)
WRONG = {
    "runs must be at least 1": (PLAIN, {"lr": [1]}, {}, {"runs": 0}),
    "runs must be a whole number": (PLAIN, {"lr": [1]}, {}, {"runs": 1.5}),
    "seed must be at least 0": (PLAIN, {"lr": [1]}, {}, {"seed": -1}),
    "steps must be a multiple of 20, got 50": (PLAIN, {"lr": [1]}, {}, {"steps": 50}),
    "window must be at least 20": (PLAIN, {"lr": [1]}, {}, {"window": 0}),
    "at least two windows": (PLAIN, {"lr": [1]}, {}, {"steps": 40, "window": 40}),
    "steps must be a multiple of 40": (PLAIN, {"lr": [1]}, {}, {"steps": 60, "window": 20}),
    "columns must name at least one": (PLAIN, {}, {}, {}),
    "columns must be arrays of one": (PLAIN, {"lr": [1, 2], "period": [9]}, {}, {}),
    "shared must be arrays of one": (PLAIN, {"period": [9]}, {"lr": [[1, 2]]}, {}),
    "period must be in columns": (PLAIN, {"lr": [1]}, {"period": [9]}, {}),
    "lr must be in columns or in shared": (PLAIN, {"lr": [1]}, {"lr": [2]}, {}),
    "unknown axis 'momentun', did you mean 'momentum'": (PLAIN, {"momentun": [0.5]}, {}, {}),
    "momentum must be at least 0 and below 1, got 1.5": (PLAIN, {"momentum": [0.5, 1.5]}, {}, {}),
    "period must be at least 1": (PLAIN, {"period": [0, 0.5]}, {}, {}),
    "batch must be a whole number, got 2.5": (PLAIN, {"batch": [2.5]}, {}, {}),
    "dim must be at least 1 and at most 2, got 3": (PLAIN, {"lr": [1]}, {"dim": [1, 3]}, {}),
    "dim cannot vary": (NET, {"lr": [1]}, {"dim": [1, 2]}, {}),
    "batch must be in columns for a network": (NET, {"lr": [1]}, {"batch": [1, 2]}, {}),
    "batch must be at least 1 and at most 131072": (NET, {"batch": [2e5]}, {}, {}),
    "batch cannot vary for a recording": (LONG, {"batch": [2]}, {}, {}),
    "steps must be at most 30 for one pass, got 40": (LONG, {"lr": [1]}, {}, {}),
    "at most 24 weights, got 28": (
        *(Training(SINE, PLAIN.optimizer, rx.Polynomial(6)), {"lr": [1]}),
        *({}, {}),
    ),
    "labels must be whole numbers": (PLAIN, {"lr": [1, 2]}, {}, {"labels": [0, 0.5]}),
    "labels must be whole numbers of at least 0, one": (PLAIN, {"lr": [1]}, {}, {"labels": [0, 1]}),
}


@pytest.mark.parametrize("sentence", WRONG)
def test_wrong_arguments_are_named(sentence):
    training, columns, shared, options = WRONG[sentence]
    with pytest.raises(ArgumentError) as error:
        simulate(training, columns, shared, **{"steps": 40, "window": 20} | options)
    assert sentence in str(error.value)
