"""Every process against NumPy formulas, its own sample paths and a table of wrong arguments."""

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import hypothesis
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.signal

import resonax as rx
from resonax.core.moments import Moments
from resonax.spec.kinds import KINDS
from resonax.streams.base import walk_on

MATRIX = np.array([[2.0, 0.6], [0.6, 0.5]])
SLOPE = np.array([3.0, 4.0])  # a direction that is not of unit length
ROWS = np.random.default_rng(0).normal(size=(12, 2))
FULL = {"amplitude": 0.7, "variance": MATRIX, "dim": 2}
MEMBERS = {
    "iid": rx.Iid(direction=SLOPE, **FULL),
    "sinusoid": rx.Sinusoid(period=7.2, swing=0.8, phase=0.4, direction=SLOPE, **FULL),
    "square": rx.Square(period=7.2, swing=0.8, phase=0.4, direction=SLOPE, **FULL),
    "ar2": rx.AR2(period=9.0, swing=0.5, innovation=0.05, direction=SLOPE, **FULL),
    "switching": rx.Switching(period=3.6, swing=0.5, **FULL),
    "recorded": rx.Recorded.of(ROWS, repeat=True),
}
EVERY = MEMBERS | {
    "fields given as tuples": rx.Square(
        period=6.0, variance=(1.0, 2.0), direction=(3.0, 4.0), dim=2
    )
}
member = pytest.mark.parametrize("process", MEMBERS.values(), ids=MEMBERS)


@pytest.fixture(autouse=True, scope="module")
def double():
    with jax.enable_x64(True):
        yield


def numpy_wave(process, index):
    turns = np.asarray(index) / process.period + process.phase / (2 * np.pi)
    return np.sin(2 * np.pi * turns) if process.name == "sinusoid" else np.sign(0.5 - turns % 1)


def numpy_law(process, latent):
    """Return mean and covariance for one value of the wave or of the latent variable."""
    along = np.array([1.0, 0.0] if process.direction is None else process.direction)
    variance = np.asarray(process.variance)
    spread = variance * np.eye(2) if variance.ndim < 2 else variance
    mean = process.amplitude * latent * along / np.linalg.norm(along)
    return mean, np.exp(process.swing * latent) * spread


def monomials(inputs):
    """Return x, y, x^2, xy, y^2: all that a mean and a covariance are made of."""
    x, y = np.moveaxis(np.asarray(inputs), -1, 0)
    return np.stack([x, y, x**2, x * y, y**2], axis=-1)


# One program each in place of one for every operation.


@jax.jit
def moments_of(process, index):
    """Return the law at an index, its covariances, and its mean and covariance as a whole."""
    moments = process.moments(index)
    return moments, moments.covariance, moments.merged()


class Laws(NamedTuple):
    stationary: Any  # mean and covariance
    shuffled: rx.Iid  # the process in random order
    shuffled_law: Any
    shuffled_merged: Any  # mean and covariance of it
    step: Any  # of a law fixed in advance, mean and covariance at step 2
    begun: Any  # else the state at the first step, and mean and covariance given it


def law_of_step(process, step_key, begin_key):
    """Return what is drawn at a step of a fixed law, and at the first one of a random mean."""
    if not process.random_mean:
        return process.draw_step(step_key, (), 2)[1].merged(), None
    state, given = process.draw_step(begin_key, process.draw_init(begin_key), 0)
    return None, (state, given.mean[0], given.covariance[0])


KEYS = (0, 6)
TRACED: list[str] = []  # one name for each time that `laws` is traced


@jax.jit
def laws(processes, keys):
    """Return `Laws` by name, in one program for all of them."""

    def laws_of(name, process):
        TRACED.append(name)
        shuffled = rx.shuffled(process)
        law, drawn = shuffled.moments(7), law_of_step(process, *keys)
        return Laws(process.stationary().merged(), shuffled, law, law.merged(), *drawn)

    return {name: laws_of(name, process) for name, process in processes.items()}


@functools.cache
def laws_of_members() -> dict[str, Laws]:
    return laws(EVERY, [jax.random.key(seed) for seed in KEYS])


sample_of = jax.jit(lambda moments, key: moments.sample(key, (20_000,)))


def filled_up(law):
    """Return a mixture with parts of no weight, up to the largest: all share a program."""
    most = max(len(laws.shuffled_law.weight) for laws in laws_of_members().values())
    parts = law.mean, law.root, law.weight
    more = most - len(law.weight) if len(law.weight) > 1 else 0
    padded = [np.pad(part, [(0, more)] + [(0, 0)] * (np.ndim(part) - 1)) for part in parts]
    return Moments(*padded, is_sampled=law.is_sampled)


INDICES = np.array([-2.6, 0.0, 3.0, 11.7])
WAVES = {
    f"{kind.name}, {variance}, {direction}": kind(
        period=7, variance=number, swing=1.3, phase=0.4, direction=direction, dim=2
    )
    for kind in (rx.Sinusoid, rx.Square)
    for direction in (None, (-1.0, 2.0))
    for variance, number in {"number": 0.3, "diagonal": (0.3, 2.0), "full": MATRIX}.items()
}


@functools.cache
def laws_of_waves() -> dict[str, Any]:
    """Return mean and covariance of the one part at each index, and the stationary law."""

    def law_of(process):
        moments = jax.vmap(process.moments)(INDICES)
        covariance = jax.vmap(lambda one: one.covariance)(moments)
        return moments.mean[:, 0], covariance[:, 0], process.stationary().merged()

    laws = jax.jit(lambda waves: {name: law_of(process) for name, process in waves.items()})
    return jax.tree.map(np.asarray, laws(WAVES))


def merged_monomials(merged):
    mean, spread = (np.asarray(part) for part in merged)
    second = spread + np.outer(mean, mean)
    return np.array([*mean, second[0, 0], second[0, 1], second[1, 1]])


def assert_within_error(draws, expected, sigmas=5.0, floor=1e-12):
    """Compare the mean over independent draws (first axis) with what it should be."""
    error = draws.std(0) / np.sqrt(len(draws))
    assert np.all(np.abs(draws.mean(0) - expected) <= sigmas * error + floor)


def test_the_battery_holds_every_process():
    assert set(MEMBERS) == set(KINDS["process"])


PATHS, AGAIN = 360, 40


@jax.jit
def walks(process, key):
    """Return inputs, and random means, over 180 steps: whole cycles of all processes in this file.

    The last paths are the first ones in reverse order.
    """
    keys = jax.random.split(key, PATHS)
    keys = jnp.concatenate([keys, keys[:AGAIN][::-1]])
    inputs = jax.vmap(lambda key: process.sample(key, 180)[:, 0])(keys)
    if not process.random_mean:
        return (inputs,)
    return inputs, jax.vmap(lambda key: process.path(key, 180))(keys)


@functools.cache
def walks_of_fixed_laws():
    """Return those of the members without a random mean, by name, in one program."""
    fixed = {name: process for name, process in MEMBERS.items() if not process.random_mean}
    together = jax.jit(lambda every, key: {name: walks(one, key) for name, one in every.items()})
    return together(fixed, jax.random.key(3))


@member
def test_stationary_law_is_the_time_average_of_sample_paths(process):
    found = None if process.random_mean else walks_of_fixed_laws()[process.name]
    inputs, *means = map(np.asarray, found or walks(process, jax.random.key(3)))
    for path in (inputs, *means):  # each depends on its own key alone
        assert np.array_equal(path[PATHS:], path[:AGAIN][::-1])
    assert np.array_equal(inputs[PATHS:], inputs[:AGAIN]) == (process.name == "recorded")
    # Steps of one path depend on each other, so the error comes from independent paths.
    draws = monomials(inputs[:PATHS]).mean(1)
    law = laws_of_members()[process.name].stationary
    assert_within_error(draws, merged_monomials(law))


@member
def test_shuffled_draws_have_the_stationary_law(process):
    found = laws_of_members()[process.name]
    baseline = found.shuffled
    assert (baseline.name, baseline.dim, baseline.cycle) == ("iid", 2, 1.0)
    law = merged_monomials(found.stationary)
    np.testing.assert_allclose(merged_monomials(found.shuffled_merged), law, rtol=1e-14)
    draws = sample_of(filled_up(found.shuffled_law), jax.random.key(4))
    assert_within_error(monomials(draws), law)


@functools.cache
def laws_nearby():
    """Return every process of slightly larger numbers, and its law by the program of `laws`."""
    laws_of_members()
    near = jax.tree.map(lambda number: number * 1.01, EVERY)
    return near, laws(near, [jax.random.key(seed) for seed in KEYS])


@functools.cache
def laws_side_by_side():
    """Return what every process and its neighbour draw, mapped over the two of them."""
    stacked = jax.tree.map(lambda *numbers: np.asarray(numbers), EVERY, laws_nearby()[0])
    keys = [jax.random.key(seed) for seed in KEYS]
    each = jax.vmap(law_of_step, in_axes=(0, None, None))
    return jax.jit(lambda all_: {name: each(pair, *keys) for name, pair in all_.items()})(stacked)


@pytest.mark.parametrize("name", EVERY)
def test_a_process_goes_through_jit_and_vmap_and_compiles_once(name):
    alone = [found[name] for found in (laws_of_members(), laws_nearby()[1])]
    assert TRACED.count(name) == 1
    together = laws_side_by_side()[name]
    for place, (_, _, _, _, *drawn) in enumerate(alone):
        parts = zip(jax.tree.leaves(drawn), jax.tree.leaves(together), strict=True)
        for part, mapped in parts:
            np.testing.assert_allclose(mapped[place], part, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["iid", "sinusoid", "square", "recorded"])
def test_a_fixed_law_repeats_after_a_cycle_and_is_what_step_gives(name):
    process = MEMBERS[name]
    assert process.periodic
    for index in (0.3, 2.0, 5.9):
        law = merged_monomials(moments_of(process, index)[-1])
        later = merged_monomials(moments_of(process, index + process.cycle)[-1])
        np.testing.assert_allclose(later, law, rtol=1e-12, atol=1e-13)
    step = laws_of_members()[name].step
    np.testing.assert_allclose(
        merged_monomials(step), merged_monomials(moments_of(process, 2.0)[-1]), rtol=1e-14
    )


@pytest.mark.parametrize("name", WAVES)
def test_moments_of_a_wave(name):
    process = WAVES[name]
    found_means, found_spreads, (mean, spread) = laws_of_waves()[name]
    for index, *found in zip(INDICES, found_means, found_spreads, strict=True):
        wanted = numpy_law(process, numpy_wave(process, index))
        np.testing.assert_allclose(found[0], wanted[0], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(found[1], wanted[1], rtol=1e-12)
    # Equal parts of a period, as many in each half of it: of smooth laws 70 are exact.
    fine = [numpy_law(process, w) for w in numpy_wave(process, np.arange(0.5, 70) / 10)]
    means, spreads = (np.array(part) for part in zip(*fine, strict=True))
    np.testing.assert_allclose(mean, means.mean(0), atol=1e-14)
    np.testing.assert_allclose(spread, spreads.mean(0) + np.cov(means.T, bias=True), rtol=1e-12)


@pytest.mark.parametrize("period", [22, 49])
def test_jumps_fall_on_the_step(period):
    # 49 * (1 / 49) < 1 in floating point: a compiler may divide so, and must not move the jump.
    index = np.arange(200)  # of one length, so that both periods share a program
    sign = np.asarray(rx.Square(period=period).path(jax.random.key(0), len(index)))[:, 0]
    np.testing.assert_array_equal(sign, np.where(2 * index // period % 2 == 0, 0.5, -0.5))
    held = np.asarray(rx.Switching(period=period, dim=2).path(jax.random.key(0), len(index)))[:, 0]
    np.testing.assert_array_equal(np.flatnonzero(np.diff(held)) + 1, index[period::period])


@pytest.mark.parametrize("name", ["ar2", "switching"])
def test_law_given_the_state_and_stationary_law_of_a_random_mean(name):
    process, laws = MEMBERS[name], laws_of_members()[name]
    state, mean, spread = jax.tree.map(np.asarray, laws.begun)
    unit = SLOPE / 5
    if name == "ar2":
        want_mean, want_spread = numpy_law(process, float(state[0]))
        moving = np.outer(unit, unit)
    else:
        want_mean, want_spread = 0.7 * state[:2], np.exp(0.5 * state[2]) * MATRIX
        moving = np.eye(2)
    np.testing.assert_allclose(mean, want_mean, rtol=1e-12)
    np.testing.assert_allclose(spread, want_spread, rtol=1e-12)
    mean, spread = laws.stationary
    np.testing.assert_allclose(mean, 0, atol=1e-14)
    # A log-normal factor exp(s z) has mean exp(s^2 / 2).
    np.testing.assert_allclose(spread, np.exp(0.125) * MATRIX + 0.49 * moving, rtol=1e-12)


@jax.jit
def coefficients(period, innovation):
    return rx.AR2(period=period, innovation=innovation).coefficients()


walk_of = jax.jit(walk_on, static_argnums=3)


@pytest.mark.parametrize("process", [rx.AR2(period=22.0), rx.Switching(period=7.0, dim=2)])
def test_a_path_goes_on_from_the_state_that_its_first_steps_left(process):
    key = jax.random.key(3)
    shapes = jax.eval_shape(process.draw_init, key)
    unused = jax.tree.map(lambda leaf: np.full(leaf.shape, np.nan, leaf.dtype), shapes)
    state, first = walk_of(process, key, np.arange(100), 1, unused)  # before step 0 none counts
    _, second = walk_of(process, key, np.arange(100, 200), 1, state)
    _, whole = walk_of(process, key, np.arange(200), 1, unused)
    for parts in zip(first, second, whole, strict=True):
        np.testing.assert_allclose(np.concatenate(parts[:2]), parts[2], rtol=1e-6)
    np.testing.assert_allclose(process.path(key, 200), whole[1], rtol=1e-6)


def test_coefficients_of_the_paper():
    phi1, phi2 = coefficients(1 / 0.045, 1e-4)
    assert (f"{phi1:.5f}", f"{phi2:.6f}") == ("1.91997", "-0.999357")


@hypothesis.given(st.floats(2, 500), st.floats(-8, -0.31))
@hypothesis.settings(deadline=None)
def test_ar2_has_variance_one_and_its_peak_where_it_is_asked(period, log_innovation):
    innovation = 10**log_innovation
    phi1, phi2 = (float(phi) for phi in coefficients(period, innovation))
    assert np.all(np.abs(np.roots([1, -phi1, -phi2])) < 1)
    variance = innovation * (1 - phi2) / ((1 + phi2) * ((1 - phi2) ** 2 - phi1**2))
    assert variance == pytest.approx(1, rel=1e-6)  # 1 + phi2 loses up to 9 digits
    # One over the density is a parabola in cos(w), least at phi1 (phi2 - 1) / (4 phi2).
    assert phi1 * (phi2 - 1) / (4 * phi2) == pytest.approx(np.cos(2 * np.pi / period), abs=1e-12)


@pytest.mark.parametrize(("period", "innovation"), [(1 / 0.045, 1e-4), (9, 0.05), (2.5, 0.3)])
def test_ar2_density_peaks_at_one_over_the_period(period, innovation):
    frequency = np.minimum(np.linspace(0.5, 1.5, 2001) / period, 0.5)
    density = rx.AR2(period=period, innovation=innovation).spectrum(frequency).mean_density
    assert np.argmax(density) == 1000


def test_ar2_starts_with_a_stationary_pair():
    @jax.jit
    def start(key):
        return jax.vmap(rx.AR2(period=1 / 0.045).draw_init)(jax.random.split(key, 20_000))

    last, before, phi1, phi2 = map(np.asarray, start(jax.random.key(7)))
    lag1 = phi1[0] / (1 - phi2[0])
    for draws, variance in ((last, 1), (before, 1), (last - before, 2 - 2 * lag1)):
        assert_within_error(draws**2, variance)


def fejer(density, steps):
    """Return the expected periodogram of a stationary path, from its density on a full grid."""
    lags = np.arange(steps)
    taper = np.fft.ifft(density).real[:steps] * (1 - lags / steps) * np.where(lags, 2, 1)
    return np.cos(2 * np.pi * np.outer(lags, lags) / steps) @ taper


@pytest.mark.parametrize(
    "process",
    [replace(MEMBERS["ar2"], period=1 / f, innovation=s) for f, s in ((0.11, 0.05), (0.045, 1e-4))]
    + [replace(MEMBERS["switching"], period=period) for period in (1.0, 6.0, 2.5)],
    ids=["broad ar2", "narrow ar2", "switching 1", "switching 6", "switching 2.5"],
)
def test_spectrum_is_the_mean_periodogram(process):
    # Whole blocks of a switching mean fit into the path: nothing leaks, and no taper.
    exact = process.name == "switching"
    count = 180 if exact else 2**16
    density = process.spectrum(np.arange(count) / count)
    paths = (np.asarray(path)[:PATHS] for path in walks(process, jax.random.key(8)))
    for name, path in zip(("input_density", "mean_density"), paths, strict=True):
        _, power = scipy.signal.periodogram(path, axis=1, detrend=False, return_onesided=False)
        want = getattr(density, name)
        want = want if exact else fejer(want, 180)
        assert_within_error(power.sum(-1), want)


# Harmonics above the 199th of a square wave are left out when the period is not whole; together
# they hold 8 / pi^2 * sum 1 / m^2 = 0.002 of the power.
TAIL = 2.1e-3


@pytest.mark.parametrize("phase", [0.0, 0.7])
@pytest.mark.parametrize(
    ("kind", "period", "steps"),
    [(kind, period, period) for kind in (rx.Sinusoid, rx.Square) for period in (2, 3, 7, 8)]
    + [(rx.Sinusoid, 1.5, 3), (rx.Sinusoid, 2.5, 5), (rx.Square, 2.5, 5), (rx.Square, 7.5, 15)],
)
def test_lines_of_a_wave_are_its_discrete_fourier_transform(kind, period, steps, phase):
    process = kind(period=period, amplitude=1.0, phase=phase)
    index = np.arange(steps) + 1e-9  # a jump belongs to the step on which it falls
    want = np.abs(np.fft.rfft(numpy_wave(process, index)) / steps) ** 2
    frequency, power = process.lines()
    found = np.zeros_like(want)
    np.add.at(found, np.rint(frequency * steps).astype(int), power)
    folded = kind is rx.Square and period != steps
    np.testing.assert_allclose(found, want, atol=TAIL if folded else 1e-8)


@pytest.mark.parametrize("name", sorted(set(MEMBERS) - {"recorded"}))
def test_spectrum_holds_all_of_the_variance(name):
    process = MEMBERS[name]
    spectrum = process.spectrum(np.arange(2**14) / 2**14)
    total = spectrum.input_density.mean()
    once = np.isin(spectrum.line_frequency, [0.0, 0.5])
    total += np.sum(np.where(once, 1, 2) * spectrum.line_power)
    variance = float(np.trace(laws_of_members()[name].stationary[1]))
    tolerance = TAIL * 0.49 if name == "square" else 1e-12
    assert total == pytest.approx(variance, abs=tolerance, rel=1e-12)


def test_recording_groups_rows_and_interpolates_between_steps():
    process = MEMBERS["recorded"].grouped(3)
    assert (process.steps, process.cycle, process.dim) == (4, 4.0, 2)
    assert rx.Recorded.of(ROWS).grouped(5).steps == 2  # two rows are left out
    batches = ROWS.reshape(4, 3, 2)
    drawn, path = jax.jit(lambda one: (one.sample(None, 6, batch=3), one.path(None, 4)))(process)
    np.testing.assert_array_equal(drawn, batches[[0, 1, 2, 3, 0, 1]])
    np.testing.assert_allclose(path, batches.mean(1), rtol=1e-14)
    second = np.einsum("kbi,kbj->kij", batches, batches) / 3
    for index, want in ((1, second[1]), (3.25, 0.75 * second[3] + 0.25 * second[0])):
        moments = moments_of(process, index)[0]
        assert not moments.is_sampled
        found = np.einsum("c,ci,cj->ij", moments.weight, moments.mean, moments.mean)
        np.testing.assert_allclose(found, want, rtol=1e-12)
    assert not rx.Recorded.of(ROWS).periodic


SINE = MEMBERS["sinusoid"]
WRONG = {
    "period must be at least 1": lambda: rx.Sinusoid(period=0.5),
    "period must be finite, at least 1": lambda: rx.Square(period=np.inf),
    "period must be a number": lambda: rx.Switching(period="20"),
    "period must be at least 2": lambda: rx.AR2(period=1.5),
    "innovation must be .* at most 0.5": lambda: rx.AR2(period=5, innovation=0.9),
    "amplitude must be at least 0": lambda: rx.Iid(amplitude=-1.0),
    "swing must be at least 0": lambda: rx.Switching(period=5, swing=-1.0),
    "phase must be finite": lambda: replace(SINE, phase=np.nan),
    "dim must be at least 1 and at most 1000, got 0": lambda: rx.Iid(dim=0),
    "dim must be a whole number of at least 1, got 2.0": lambda: rx.Iid(dim=2.0),
    "variance must be at least 0": lambda: rx.Iid(variance=-1.0),
    "variance must be at least 0 ": lambda: rx.Iid(variance=(1.0, -1.0), dim=2),
    "variance must be symmetric": lambda: rx.Iid(variance=[[1, 2], [0, 1]], dim=2),
    "variance must have 2 numbers": lambda: rx.Iid(variance=(1, 2, 3), dim=2),
    "variance must be": lambda: rx.Iid(variance=("large",)),
    "direction must not be the zero": lambda: replace(SINE, direction=(0, 0)),
    "direction must have 2 numbers": lambda: replace(SINE, direction=(1, 2, 3)),
    "direction must be finite": lambda: replace(SINE, direction=(1, np.nan)),
    "direction must be": lambda: replace(SINE, direction="up"),
    "data must have at least 2 rows": lambda: rx.Recorded.of([[1.0]]),
    "data must be real numbers": lambda: rx.Recorded.of("rows"),
    r"data must be finite, got nan at index \(1, 0\)": lambda: rx.Recorded.of([1.0, np.nan]),
    "batch must be at most 6": lambda: rx.Recorded.of(ROWS).grouped(7),
    "batch must be": lambda: rx.Recorded.of(ROWS).grouped(0),
    "mean of ar2 is random": lambda: MEMBERS["ar2"].moments(0),
    "switching never repeats": lambda: MEMBERS["switching"].cycle,
    "recorded never repeats": lambda: rx.Recorded.of(ROWS).cycle,
    "recorded has no power spectral density": lambda: rx.Recorded.of(ROWS).spectrum([0.1]),
}


@pytest.mark.parametrize(("message", "call"), WRONG.items(), ids=WRONG)
def test_a_wrong_argument_is_named_with_what_is_allowed(message, call):
    with pytest.raises(rx.ArgumentError, match=message):
        call()
