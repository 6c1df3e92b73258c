"""A target that moves: closed forms, rows drawn one by one in plain NumPy, invariances."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import resonax as rx
from driven_learner import Moving, settle
from resonax.learners import Omitted
from resonax.theory.mean_square import noise_floor
from resonax.theory.orbit import find_orbit
from resonax.theory.settling import Settled
from resonax.theory.settling import settle as exact

WAVES: dict[str, Any] = {
    "sinusoid": rx.Sinusoid,
    "square": rx.Square,
    "switching": rx.Switching,
    "ar2": rx.AR2,
}


def setting_of(case: Moving) -> rx.Setting:
    numbers = {name: getattr(case, name) for name in ("period", "amplitude", "variance", "swing")}
    if case.kind == "ar2":
        numbers["innovation"] = case.innovation
    make = rx.nesterov if case.nesterov else rx.heavy_ball
    drift = np.array(case.drift[: 1 + case.bias])
    size = float(np.linalg.norm(drift))
    omitted = Omitted.of(rx.Polynomial(2), [0.0, 0.0, case.square]) if case.square else None
    return rx.Setting(
        WAVES[case.kind](**numbers),
        make(case.lr, case.momentum, weight_decay=case.decay),
        rx.Linear(bias=case.bias),
        batch=case.batch,
        noise=case.noise,
        drift=size,
        drift_direction=drift if size else None,
        omitted=omitted,
    )


def settled(setting: rx.Setting, **values: list[float]) -> Settled:
    return exact(setting, values or {"lr": [float(setting.optimizer.lr)]})


def response(lr: float, momentum: float, period: np.ndarray, lookahead: bool = False) -> np.ndarray:
    """|H(e^iw)| of theta_k over theta*_k, for a loss of curvature 2, by hand."""
    z, step = np.exp(2j * np.pi / period), 2 * lr
    moved = step * z / (z - momentum)  # the velocity, over the gap
    gain = momentum * moved + step if lookahead else moved
    return np.abs(gain / (z - 1 + gain))


PERIODS = np.array([3.0, 8.0, 16.0, 22.5, 45.0, 300.0])


@pytest.mark.parametrize("lookahead", [False, True])
def test_the_gain_is_the_frequency_response_of_the_optimizer(lookahead):
    make = rx.nesterov if lookahead else rx.heavy_ball
    stream = rx.Sinusoid(period=8.0, amplitude=0.0)  # a curvature that is constant
    setting = rx.Setting(stream, make(0.05, 0.9), rx.Linear(bias=False), batch=3, drift=0.7)
    found = settled(setting, period=list(PERIODS))
    gain = np.sqrt(found.orbit / found.target)
    np.testing.assert_allclose(gain, response(0.05, 0.9, PERIODS, lookahead), rtol=1e-9)
    np.testing.assert_allclose(found.target, 0.7**2 / 2, rtol=1e-9)


def test_without_sampling_noise_the_lag_is_that_of_the_response():
    """The loss above the moving best is |H - 1|^2 / 2 of the drift's square."""
    rows = 10**8
    stream = rx.Sinusoid(period=8.0, amplitude=0.0)
    setting = rx.Setting(
        stream, rx.heavy_ball(0.05, 0.9), rx.Linear(bias=False), rows, noise=0.0, drift=0.7
    )
    found = settled(setting, period=list(PERIODS))
    z = np.exp(2j * np.pi / PERIODS)
    gain = 0.1 * z / (z - 0.9)
    miss = np.abs(gain / (z - 1 + gain) - 1) ** 2 * 0.7**2 / 2
    np.testing.assert_allclose(found.lag, miss, rtol=1e-5)
    np.testing.assert_allclose(found.excess, miss - 0.7**2 / 2, rtol=1e-5, atol=1e-7)


def test_a_switching_target_is_followed_by_known_shares():
    """SGD on a constant curvature: the gap of a block decays by 1 - 2 lr a step, by hand."""
    period, keep = 5, 1 - 2 * 0.05
    setting = rx.Setting(
        rx.Switching(period=period, amplitude=0.0, variance=1.0),
        rx.sgd(0.05),
        rx.Linear(bias=False),
        10**9,
        noise=0.0,
        drift=0.7,
    )
    found = settled(setting)
    # With w at the start of a block and target t, independent, the gap is keep^j (w - t).
    start = (1 - keep**period) ** 2 / (1 - keep ** (2 * period))  # E w^2 over E t^2
    shares = keep ** (2 * np.arange(period))
    assert found.lag[0] == pytest.approx(0.7**2 * (1 + start) * shares.mean(), rel=1e-6)


@functools.cache
def simulated(case: Moving) -> Any:
    runs = 2500 if case.kind == "ar2" else 1500
    whole = case.period * np.ceil(200 / case.period)
    return settle(case, 400 + int(whole), int(whole), runs, seed=3)


CASES = {
    "resonance": Moving("sinusoid", 22.0),
    "nesterov": Moving("sinusoid", 40.0, bias=False, batch=1, nesterov=True),
    "decay": Moving("sinusoid", 16.0, drift=(0.5, 1.0), decay=0.1),
    "swing": Moving("square", 30.0, swing=0.5, momentum=0.8),
    "omitted": Moving("sinusoid", 25.0, drift=(0.0, 0.0), square=0.5, batch=8),
    "omitted, no bias": Moving("square", 12.0, drift=(0.0, 0.0), square=1.0, bias=False, swing=0.3),
    "drift and omitted": Moving("square", 20.0, square=0.3, momentum=0.7),
    "random order": Moving("sinusoid", 22.0, is_shuffled=True),
    "switching": Moving("switching", 20.0),
    "switching, broken": Moving("switching", 7.5, drift=(0.0, 1.0), swing=0.4),
    "switching, omitted": Moving("switching", 60.0, bias=False, square=0.3),
    "ar2": Moving("ar2", 22.0),
    "ar2, swing": Moving("ar2", 40.0, swing=0.3, bias=False),
    "ar2, bias": Moving("ar2", 22.0, drift=(0.0, 1.0), momentum=0.8),
}


FAST = {"resonance", "omitted", "random order", "switching", "ar2"}


@pytest.mark.parametrize(
    "name", [one if one in FAST else pytest.param(one, marks=pytest.mark.slow) for one in CASES]
)
def test_rows_drawn_one_by_one_settle_within_two_percent(name):
    case = CASES[name]
    setting = setting_of(case)
    if case.is_shuffled:
        law = setting.process.mixture()
        setting = rx.Setting.of(setting, process=rx.Iid(law=law))
    found, seen = settled(setting), simulated(case)
    assert found.is_settled[0]
    assert np.sqrt(found.square[0]) == pytest.approx(seen.rms, rel=0.02)
    assert found.lag[0] == pytest.approx(seen.lag, rel=0.04)  # a square
    if case.kind in ("sinusoid", "square") and not case.is_shuffled:
        assert np.sqrt(found.orbit[0]) == pytest.approx(seen.orbit, rel=0.02)


BASE = setting_of(CASES["resonance"])


def test_where_the_weights_are_measured_from_does_not_depend_on_the_phase():
    shifted = [
        settled(rx.Setting.of(BASE, process=rx.Sinusoid(period=22.0, phase=phase)))
        for phase in (0.0, 2 * np.pi / 22 * 5)
    ]
    for one, other in zip(*shifted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8)


def test_the_level_scales_with_drift_and_noise():
    large = rx.Setting.of(BASE, drift=2.0 * BASE.drift, noise=4.0 * BASE.noise)
    one, two = settled(BASE), settled(large)
    for name in ("square", "excess", "lag", "orbit", "target"):
        np.testing.assert_allclose(getattr(two, name), 4 * getattr(one, name), rtol=1e-9)


def test_a_target_at_rest_has_the_noise_floor_and_no_orbit():
    still = rx.Setting.of(BASE, drift=0.0, drift_direction=None)
    found = settled(still)
    # The floor is measured after each step, and a cycle has all of them.
    assert np.sqrt(found.square[0]) == pytest.approx(noise_floor(still), rel=1e-9)
    assert found.orbit[0] == pytest.approx(0.0, abs=1e-12)
    assert found.excess[0] == pytest.approx(found.lag[0], rel=1e-9)


def test_an_omitted_part_that_the_features_hold_changes_nothing():
    held = Omitted.of(rx.Polynomial(1), [0.7, -0.4])
    still = rx.Setting.of(BASE, drift=0.0, drift_direction=None)
    one, other = settled(still), settled(rx.Setting.of(still, omitted=held))
    np.testing.assert_allclose(other.square, one.square, rtol=1e-6)
    np.testing.assert_allclose(other.lag, one.lag, rtol=1e-6)
    assert other.target[0] == pytest.approx(0.0, abs=1e-9)


def test_a_summed_loss_is_a_longer_step():
    summed = rx.Setting.of(BASE, reduction="sum", optimizer=rx.heavy_ball(0.02 / 4, 0.9))
    for one, other in zip(settled(BASE), settled(summed), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_the_answer_names_the_peak_and_the_band():
    stream = rx.Sinusoid(period=24, amplitude=0.0)
    setting = rx.Setting(stream, rx.heavy_ball(0.05, 0.9), rx.Linear(bias=False), 8, drift=0.5)
    found = rx.level(setting)
    gains = response(0.05, 0.9, np.array(found.periods))
    assert found.peak_gain == pytest.approx(gains.max(), rel=1e-6)
    assert found.peak_period == found.periods[int(gains.argmax())]
    assert found.period_low < found.peak_period < found.period_high
    assert found.gain == pytest.approx(float(response(0.05, 0.9, np.array(24.0))), rel=1e-9)
    assert "the weights swing 2.29 times as far" in str(found)
    assert found.plot().axes[0].get_xlabel() == "period (steps)"


def test_a_slow_target_is_followed_and_a_fast_one_is_not():
    setting = rx.Setting.of(BASE, noise=0.01, batch=50)
    slow, fast = settled(setting, period=[2000.0, 4.0]).excess
    assert slow < 0 < fast


def test_growth_is_no_level():
    found = rx.level(rx.Setting.of(BASE, optimizer=rx.heavy_ball(0.01, 0.99)))
    assert (found.verdict, found.rms) == ("diverges", None)
    assert found.growth == pytest.approx(
        float(
            rx.rates(
                rx.Setting.of(BASE, optimizer=rx.heavy_ball(0.01, 0.99)),
                {"lr": [0.01]},
                "mean_square",
            )[0]
        ),
        rel=1e-6,
    )


def test_a_map_of_levels_is_cell_by_cell_that_of_single_settings():
    found = rx.stability_map(BASE, "level", momentum=[0.8, 0.9], period=[16.0, 22.0])
    for momentum in (0.8, 0.9):
        one = BASE.at({"momentum": momentum, "period": 16.0})
        expected = float(np.sqrt(settled(one).square[0]))
        assert found.distance.sel(momentum=momentum, period=16.0).item() == pytest.approx(expected)


@functools.cache
def training(kind: str) -> rx.Training:
    return rx.Training.of(setting_of(Moving(kind, 18.0, batch=3)))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sinusoid", "switching"])
def test_trajectories_settle_at_the_level_in_order_and_shuffled(kind):
    # Every seventh step is measured, which meets all phases of a period of 18.
    found = rx.trajectories(training(kind), runs=200, steps=1400, seed=1)
    level = find_orbit(rx.Setting.of(training(kind)), curve=False)
    at_random = level.rms / level.over_iid
    for part, expected in ((found.in_order, level.rms), (found.shuffled, at_random)):
        seen = np.sqrt((10 ** (2 * part[:, 60:])).mean())
        assert seen == pytest.approx(expected, rel=0.02)


def test_a_simulated_grid_follows_the_response():
    """A batch so large that only the orbit is left: the mean of |theta - theta*| by hand."""
    stream = rx.Sinusoid(period=20.0, amplitude=0.0)
    made = rx.Training(
        stream, rx.heavy_ball(0.01, 0.9), rx.Linear(bias=False), batch=10**6, drift=0.5
    )
    shared = {"momentum": [0.9, 0.95]}
    found = rx.simulate(
        made, {"period": [20.0, 40.0]}, shared, runs=1, steps=3200, window=400, double=True
    )
    for i, period in enumerate((20.0, 40.0)):
        for j, momentum in enumerate((0.9, 0.95)):
            z = np.exp(2j * np.pi / period)
            gain = 0.02 * z / (z - momentum)
            miss = np.imag((gain / (z - 1 + gain) - 1) * z ** np.arange(400))
            expected = 0.5 * np.abs(miss).mean()
            assert np.exp(found.log_response[i, j, 0]) == pytest.approx(expected, rel=2e-3)


MISTAKES: dict[str, tuple[Any, str]] = {
    "inputs at rest": (
        lambda: rx.Setting.of(BASE, process=rx.Iid()),
        "drift needs inputs that move",
    ),
    "a direction for other weights": (
        lambda: rx.Setting.of(BASE, drift_direction=[1.0]),
        "drift_direction must be 2 numbers",
    ),
    "weights of other features": (
        lambda: rx.Setting.of(BASE, omitted=Omitted.of(rx.Polynomial(2), [1.0])),
        "omitted must have 3 weights",
    ),
    "no features": (lambda: Omitted.of(3, [1.0]), "omitted needs features"),
    "a table of weights": (
        lambda: Omitted.of(rx.Polynomial(1), [[1.0]]),
        "weights must be a list",
    ),
    "adam": (
        lambda: rx.level(rx.Problem.of(BASE, optimizer=rx.adam(0.01))),
        "drift and omitted are for SGD with momentum",
    ),
    "a network": (
        lambda: rx.Training.of(BASE, model=rx.Network()),
        "a network has a fixed target",
    ),
    "too many weights": (
        lambda: rx.level(rx.Setting(rx.Sinusoid(period=9, dim=13), rx.sgd(0.01))),
        "a level takes at most 12 weights",
    ),
    "rows once": (
        lambda: rx.level(rx.Setting(rx.Recorded.of([[1.0], [2.0]]), rx.sgd(0.01))),
        "replay the rows with repeat=True",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_what_cannot_be_answered_is_refused_in_one_sentence(name):
    make, sentence = MISTAKES[name]
    with pytest.raises(rx.ArgumentError, match=sentence):
        make()
