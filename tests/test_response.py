"""The frequency response of learners: poles that are known, intervals, refusals, resonance."""

from __future__ import annotations

import contextlib
import json
import re
import shlex

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch
from river import linear_model, optim
from sklearn.linear_model import SGDRegressor

import resonax as rx
from resonax.checking.response import Response
from resonax.checking.rhythms import find_modulations, modulation_depth
from resonax.cli.app import app
from resonax.core.errors import ArgumentError, ResonaxError
from resonax.probing.adapters import adapt
from resonax.probing.copies import Readout, linear_learner, make_copies
from resonax.probing.excitation import choose_mode, lines_for, multisine
from resonax.probing.oscillator import (
    PolePair,
    critical_depth,
    dangerous_periods,
    fit_pole_pair,
    jackknife_interval,
    momentum_poles,
)
from resonax.probing.period_sweep import arrange


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # the modules are tiny
    yield
    torch.set_num_threads(before)


QUICK = {"realisations": 4, "periods": 1, "burn_in": 1024, "length": 512}
FEW = {**QUICK, "burn_in": 32, "length": 64}  # for learners that are copied one by one


def rows(count: int = 2000, dim: int = 1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, dim))
    return inputs, inputs.sum(axis=1) + 0.5 * rng.normal(size=count)


def measured(found: Response) -> tuple[float, float]:
    assert found.reason is None, found.reason
    assert found.natural_period is not None
    assert found.damping is not None
    return found.natural_period, found.damping


# Constant inputs: nothing is random, and the poles are known.


@pytest.mark.parametrize("nesterov", [False, True])
def test_with_constant_inputs_the_poles_come_out_exactly(nesterov):
    make = rx.nesterov if nesterov else rx.heavy_ball
    learner, ones = make(0.01, 0.95), np.ones((64, 1))
    bare = rx.Linear(bias=False)
    how = {**QUICK, "length": 1024, "excitation": 0.01}
    found = rx.response(learner, ones, 3 * ones[:, 0], model=bare, **how)
    truth = momentum_poles(0.01, 0.95, 2.0, nesterov=nesterov)
    assert found.curvature == pytest.approx(2.0)
    assert measured(found) == pytest.approx((truth.natural_period, truth.damping), rel=1e-6)
    assert found.damped_period == pytest.approx(truth.damped_period, rel=1e-6)


def test_periods_and_damping_are_those_of_the_exponents():
    # s = -zeta w +- i w sqrt(1 - zeta^2), with w = 0.2 and zeta = 0.3, written out.
    s = 0.2 * (-0.3 + 1j * np.sqrt(1 - 0.09))
    pair = PolePair.from_poles(np.exp(s), np.exp(s.conjugate()))
    assert pair.natural_period == pytest.approx(2 * np.pi / 0.2)
    assert pair.damping == pytest.approx(0.3)
    assert pair.damped_period == pytest.approx(2 * np.pi / 0.2 / np.sqrt(0.91))
    overdamped = PolePair.from_poles(np.exp(-0.1), np.exp(-0.4))
    assert overdamped.damping == pytest.approx(0.25 / 0.2)
    assert np.isnan(PolePair.from_poles(0.5, -0.5).damping)


@pytest.mark.parametrize("nesterov", [False, True])
def test_the_transfer_function_is_that_of_the_recursion(nesterov):
    lr, momentum, curvature = 0.02, 0.9, 1.5
    signal = multisine(lines_for(256), 256, np.random.default_rng(0))
    weight = velocity = 0.0
    seen = []
    for step in range(256 * 16):
        seen.append(weight)
        gradient = curvature * (weight - signal[step % 256])
        velocity = momentum * velocity - lr * gradient
        weight += momentum * velocity - lr * gradient if nesterov else velocity
    lines = lines_for(256)
    gain = np.fft.rfft(seen[-256:])[lines] / np.fft.rfft(signal)[lines]
    truth = momentum_poles(lr, momentum, curvature, nesterov=nesterov)
    np.testing.assert_allclose(gain, truth.gain(lines / 256), rtol=1e-8)


def test_a_multisine_has_its_lines_and_a_low_crest():
    lines = lines_for(1024)
    signal = multisine(lines, 1024, np.random.default_rng(1))
    power = np.abs(np.fft.rfft(signal)) ** 2
    assert power[lines].min() == pytest.approx(power[lines].max())
    assert power.sum() == pytest.approx(power[lines].sum())
    assert abs(signal).max() < 3.2


# Random inputs.


def test_a_noisy_stream_is_met_within_its_interval():
    inputs, target = rows(4000, dim=3)
    found = rx.response(rx.heavy_ball(0.01, 0.95), inputs, target, seed=3)
    assert found.curvature is not None
    truth = momentum_poles(0.01, 0.95, found.curvature)
    assert measured(found) == pytest.approx((truth.natural_period, truth.damping), rel=0.05)
    assert found.natural_period_low < truth.natural_period < found.natural_period_high
    assert found.damping_low < truth.damping < found.damping_high
    assert found.nonlinearity < 1e-6


def test_a_recorded_process_is_its_rows():
    inputs = np.sign(rows(40)[0])
    bare = rx.Linear(bias=False)
    learner = rx.heavy_ball(0.02, 0.9)
    found = rx.response(learner, rx.Recorded.of(inputs), model=bare, **{**QUICK, "length": 128})
    truth = momentum_poles(0.02, 0.9, 2.0)
    assert measured(found) == pytest.approx((truth.natural_period, truth.damping), rel=0.01)


def test_each_direction_has_its_own_period():
    inputs = rows(4000, dim=2)[0] * [2.0, 1.0]
    bare = rx.Linear(bias=False)
    how = {"batch": 16, "realisations": 8, "periods": 2, "length": 1024, "burn_in": 1024}
    for place, curvature in ((0, 8.0), (1, 2.0)):
        found = rx.response(
            rx.heavy_ball(0.003, 0.97),
            inputs,
            inputs[:, 0],
            model=bare,
            mode=place,
            **how,
        )
        assert found.curvature == pytest.approx(curvature, rel=0.1)
        truth = momentum_poles(0.003, 0.97, found.curvature or 0.0)
        assert measured(found) == pytest.approx((truth.natural_period, truth.damping), rel=0.06)


def test_intervals_cover_as_often_as_they_say():
    truth = momentum_poles(0.01, 0.95, 2.0)
    rng, lines = np.random.default_rng(7), lines_for(512) / 512
    inside, draws = np.zeros(2), 40
    for _ in range(draws):
        noise = rng.normal(size=(2, 8, len(lines))) * 0.3 * np.abs(truth.gain(lines))
        gain = truth.gain(lines) + noise[0] + 1j * noise[1]
        error = gain.std(axis=0, ddof=1)
        whole = fit_pole_pair(lines, gain.mean(axis=0), error)
        others = [
            fit_pole_pair(lines, np.delete(gain, out, 0).mean(axis=0), error, whole)
            for out in range(8)
        ]
        for place, name in enumerate(("natural_period", "damping")):
            left = np.array([getattr(one, name) for one in others])
            low, high = jackknife_interval(getattr(whole, name), left, 0.95)
            inside[place] += low < getattr(truth, name) < high
    assert (inside >= 34).all()  # of a level of 95%, fewer of 40 come with probability 0.003
    assert inside.sum() < 2 * draws  # and not because they are too wide


# Learners of others.


def test_torch_and_its_momentum():
    module = torch.nn.Linear(1, 1, bias=False, dtype=torch.float64)
    learner = module, torch.optim.SGD(module.parameters(), 0.05, momentum=0.7)
    before = module.weight.item()
    inputs, target = rows(500)
    signs = np.sign(inputs)  # a constant curvature: nothing is random
    found = rx.response(learner, signs, target, batch=2, **FEW, model=rx.Linear(bias=False))
    truth = momentum_poles(0.05, 0.7, 2.0)
    assert measured(found) == pytest.approx((truth.natural_period, truth.damping), rel=1e-3)
    assert module.weight.item() == before


def adam_learner(lr: float, beta1: float, features):
    optimizer = optax.adam(lr, beta1)

    def step(state, inputs, target):
        weights, memory = state
        slope = jax.grad(lambda w: jnp.mean((features(inputs) @ w - target) ** 2))(weights)
        moves, memory = optimizer.update(slope, memory, weights)
        return weights + moves, memory

    weights = jnp.zeros(1)
    return step, (weights, optimizer.init(weights)), lambda s, inputs: features(inputs) @ s[0]


def test_adam_is_heavy_ball_with_a_frozen_second_moment():
    # A bias alone: gradients 2 (w - y) with unit noise have the second moment 4 (1 + Var w), and
    # Var w is small.
    learner = adam_learner(0.05, 0.97, lambda inputs: jnp.ones((len(inputs), 1)))
    target = np.random.default_rng(0).normal(size=4000)
    level = lambda inputs: np.ones(len(inputs))  # noqa: E731
    found = rx.response(learner, np.ones((4000, 1)), target, mode=level, realisations=16)
    truth = momentum_poles(0.05 * (1 - 0.97) / np.sqrt(4 * np.var(target)), 0.97, 2.0)
    assert measured(found) == pytest.approx((truth.natural_period, truth.damping), rel=0.05)


def test_river_and_scikit_learn():
    inputs, target = rows(500)
    signs = np.sign(inputs)  # a constant curvature: nothing is random
    model = linear_model.LinearRegression(optim.Momentum(0.05, 0.7), intercept_lr=0.0)
    found = rx.response(model, signs, target, **FEW, model=rx.Linear(bias=False))
    truth = momentum_poles(0.05, 0.7, 2.0)
    assert measured(found) == pytest.approx((truth.natural_period, truth.damping), rel=1e-3)
    large = SGDRegressor(penalty=None, learning_rate="constant", eta0=3.0)
    refused = rx.response(large, inputs, target, batch=2, **FEW)
    assert refused.natural_period is None
    assert "diverges on these rows" in (refused.reason or "")


def test_copies_of_scikit_learn_learn_as_an_optimizer_does():
    by_name = linear_learner(rx.sgd(0.005), rx.Linear(), 2)
    theirs = SGDRegressor(penalty=None, learning_rate="constant", eta0=0.01)  # of half the square
    inputs, target = rows(50, 2)
    readout = Readout(inputs[:5], target[:5], np.full(5, 0.2))
    order = np.random.default_rng(0).integers(50, size=(30, 3, 1))
    seen = []
    for learner in (by_name, theirs):
        copies = make_copies(adapt(learner), readout, 1)
        copies.advance(inputs[order[:, :1]], target[order[:, :1]])  # then all begin where it is
        seen.append(copies.fork(3).advance(inputs[order], target[order]))
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-10)


def test_what_jax_cannot_trace_is_copied_and_gives_the_same():
    def numpy_step(state, inputs, target):
        weights, velocity = (np.asarray(part) for part in state)
        gradient = 2 * inputs.T @ (inputs @ weights - target) / len(inputs)
        velocity = 0.9 * velocity - 0.02 * gradient
        return weights + velocity, velocity

    optimizer = linear_learner(rx.heavy_ball(0.02, 0.9), rx.Linear(bias=False), 2)
    by_hand = numpy_step, (np.zeros(2), np.zeros(2)), lambda state, inputs: inputs @ state[0]
    inputs, target = rows(50, 2)
    readout = Readout(inputs[:5], target[:5], np.full(5, 0.2))
    both = [make_copies(adapt(learner), readout, 2) for learner in (optimizer, by_hand)]
    assert [copies.is_compiled for copies in both] == [True, False]
    order = np.random.default_rng(0).integers(50, size=(30, 3, 2))
    seen = [copies.fork(3).advance(inputs[order], target[order]) for copies in both]
    np.testing.assert_allclose(seen[0], seen[1], rtol=1e-10)


# What has no natural period, and why.


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (rx.sgd(0.01), "damping is above 0.9"),
        (rx.heavy_ball(0.001, 0.5), "damping is above 0.9"),
        (rx.heavy_ball(0.9, 0.95), "diverges on these rows"),
    ],
)
def test_refusals_say_why(learner, words):
    found = rx.response(learner, *rows(dim=2), **QUICK)
    assert words in (found.reason or "")
    assert words in found.sentence
    assert (found.natural_period, found.damping, found.depth) == (None, None, None)


def test_a_stream_in_resonance_has_no_response():
    law = rx.Sinusoid(period=22.0, amplitude=0.5)
    found = rx.response(rx.heavy_ball(0.01, 0.99), law, batch=8, shuffle=False, **QUICK)
    assert "unstable" in (found.reason or "") or "diverges" in (found.reason or "")


def test_linearity_is_judged_from_both_sides():
    learner = rx.adam(0.01, 0.9)
    small = rx.response(learner, *rows(), excitation=0.01, **QUICK)
    large = rx.response(learner, *rows(), excitation=20.0, **QUICK)
    assert small.nonlinearity < 0.01
    assert "not linear" in (large.reason or "")


# Resonance.


def radius(period: int, depth: float, lr: float, momentum: float) -> float:
    """Spectral radius over one period of heavy ball with a modulated curvature, by hand."""
    product = np.eye(2)
    for step in range(period):
        turn = lr * 2 * (1 + depth * np.cos(2 * np.pi * step / period))
        product = np.array([[1 + momentum - turn, -momentum], [1, 0]]) @ product
    return abs(np.linalg.eigvals(product)).max()


@pytest.mark.parametrize(("period", "rel"), [(22, 0.02), (25, 0.03), (44, 0.04)])
def test_the_critical_depth_is_that_of_the_discrete_recursion(period, rel):
    lr, momentum = 0.01, 0.98
    pair = momentum_poles(lr, momentum, 2.0)
    depth = critical_depth(period, pair.natural_period, pair.damping)
    assert depth is not None
    assert (
        radius(period, (1 - rel) * depth, lr, momentum)
        < 1
        < radius(period, (1 + rel) * depth, lr, momentum)
    )


def test_the_first_tongue_begins_at_four_times_the_damping():
    assert dangerous_periods(44.0, 2) == [22.0, 44.0]
    for damping in (0.01, 0.05):
        assert critical_depth(22.0, 44.0, damping) == pytest.approx(4 * damping, rel=0.005)
        off = 4 * np.hypot(damping, 22.0 / 23.0 - 1)
        assert critical_depth(23.0, 44.0, damping) == pytest.approx(off, rel=0.03)
    assert critical_depth(22.0, 44.0, 0.8) is None


def test_the_depth_of_a_rhythm_and_of_none():
    rng = np.random.default_rng(0)
    wave = 1 + 0.6 * np.cos(2 * np.pi * np.arange(4000) / 24)
    inputs = np.sqrt(wave)[:, None] * rng.normal(size=(4000, 1))
    curvature = choose_mode(0, inputs, inputs).modulation(1)
    (period, depth), *_ = find_modulations(curvature)
    assert period == pytest.approx(24, rel=0.01)
    assert depth == pytest.approx(0.6, rel=0.1)
    shuffled = curvature[rng.permutation(4000)]
    assert find_modulations(shuffled) == []
    assert modulation_depth(shuffled, 24.0) < 0.15


def test_modes_of_equal_curvature_resonate_together():
    # A moving mean couples weight and bias: neither alone swings with its period.
    # Of as many steps as the stream in resonance above is sampled, whose program this is.
    sampled = np.asarray(rx.Sinusoid(period=22.0).sample(jax.random.key(0), 2**14, 8))
    inputs = sampled[:4096, 0]
    features = np.c_[inputs, np.ones(len(inputs))].astype(float)
    curvature = choose_mode(0, inputs, features).modulation(1)
    assert modulation_depth(curvature, 22.0) == pytest.approx(0.5, rel=0.1)
    assert modulation_depth(curvature[:, :1, :1], 22.0) < 0.2


def test_the_sentence_and_the_sweep_agree():
    law = rx.Sinusoid(period=22.0, amplitude=0.5)
    how = {**QUICK, "sweep": [8, 22], "batch": 8}
    found = rx.response(rx.heavy_ball(0.01, 0.98), law, **how)
    assert found.rhythms[0].is_dangerous
    assert found.sentence.startswith("your data have a rhythm of 22 steps, in which")
    assert found.sentence.endswith("an error is predicted to grow")
    ratio = found.dataset.ratio.values
    assert ratio[0] < 1.2
    assert ratio[1] > 100
    assert found.to_dict()["sweep"]["period"] == [8.0, 22.0]


@pytest.mark.parametrize("kind", ["sinusoid", "switching"])
def test_rows_are_arranged_not_changed(kind):
    rng = np.random.default_rng(0)
    sizes = rng.exponential(size=4096)
    order = arrange(sizes, 24.0, kind, 2, rng)
    assert sorted(order) == list(range(4096))
    curvature = sizes[order].reshape(-1, 2).mean(axis=1)[:, None, None] / sizes.mean()
    # A signal that is drawn anew every 24 steps has no power at that very period.
    assert modulation_depth(curvature, 24.0 if kind == "sinusoid" else 48.0) > 0.1


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"length": 1000}, "power of 2"),
        ({"realisations": 2}, "realisations"),
        ({"realisations": 0}, "realisations must be at least 4"),
        ({"burn_in": 0}, "burn_in must be at least 1"),
        ({"realisations": 9999, "periods": 9999}, "realisations x batch must be at most 838"),
        ({"mode": 5}, "mode"),
        ({"sweep": [0.5]}, "sweep"),
        ({"sweep": [8], "kind": "saw"}, "unknown kind"),
        ({"confidence": 1.0}, "confidence"),
    ],
)
def test_what_cannot_be_is_told(given, words):
    with pytest.raises(ArgumentError, match=words):
        rx.response(rx.heavy_ball(0.01, 0.9), *rows(100), **given)


def test_progress_is_told_in_steps():
    told = []

    @contextlib.contextmanager
    def stage(name, steps):
        told.append([name, steps, 0])

        def advance(count):
            told[-1][2] += count

        yield advance

    rx.response(rx.heavy_ball(0.01, 0.9), *rows(100), stage=stage, **QUICK)
    assert [name for name, *_ in told] == ["settling", "exciting the labels", "looking for rhythms"]
    assert all(done >= steps for _, steps, done in told)


# The command.


def test_the_command_says_it_in_json_and_draws(tmp_path, capsys):
    inputs, target = rows(400)
    np.savetxt(tmp_path / "d.csv", np.c_[inputs, target], delimiter=",", header="x,y", comments="")
    words = [str(tmp_path / "d.csv"), *shlex.split("--target y --batch 8 --realisations 8 --json")]
    words += [*shlex.split("--lr 0.02 --momentum 0.9 --plot"), str(tmp_path / "r.png")]
    app(["response", *words], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    truth = momentum_poles(0.02, 0.9, found["curvature"])
    assert found["natural_period"] == pytest.approx(truth.natural_period, rel=0.03)
    assert found["damping_low"] < truth.damping < found["damping_high"]
    assert found["dangerous_periods"][0] == pytest.approx(found["natural_period"] / 2)
    assert re.search(r"resonates at period \d+\.?\d* if the swing exceeds \d+%", found["sentence"])
    assert (tmp_path / "r.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("iidd --lr 0.1 --momentum 0.9", "did you mean 'iid'"),
        ("missing.csv --lr 0.1 --momentum 0.9", "there is no file missing.csv"),
        ("missing.csv --period 9 --lr 0.1 --momentum 0.9", "--period is for a process"),
        ("iid --momentum 0.9", "--lr is missing"),
        ("iid --lr 0.1 --momentum 0.9 --beta1 0.9", "--beta1 is not a parameter of heavy_ball"),
        ("iid --lr 0.1 --optimizer river", "for river use check"),
        ("iid --lr 0.1 --momentum 0.9 --plot r.txt", "--plot must end in .png"),
    ],
)
def test_a_slip_is_one_sentence(words, told):
    with pytest.raises(ResonaxError, match=re.escape(told)) as caught:
        app(["response", *shlex.split(words)], standalone_mode=False)
    assert "\n" not in str(caught.value)
