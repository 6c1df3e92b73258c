"""The test of the order of rows: its significance, by simulation under the null, and its power."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from resonax.guards.order_test import harm_of_order, order_p, significance_of, student_p
from resonax.guards.state import GuardConfig, marks

CONFIG = GuardConfig(())
MARKS = (0, 100, 200, 300, 400)  # where runs are judged below; levels are the losses at the last


def shared(test):
    return significance_of(test, CONFIG.significance)


def found(own, mixed, significance=0.005, start=5.6, least=0.1, scale=1.0, shift=0.0):
    """Return what the test finds of last losses, on the way from the same start."""

    def path(last):
        return scale * np.array([start, 4.0, 3.0, 2.5, last]) + shift

    given = map(path, mixed)
    return harm_of_order(MARKS, path(own), given, significance, window=50, least=least)


def test_a_cross_entropy_far_above_mixed_rows_is_harm_whatever_its_floor():
    """A transformer in alternating domains: a ratio of 1.24, and hundreds of steps."""
    mixed = np.linspace(2.00, 2.13, 12)
    losses = [found(2.54, mixed, scale=scale, shift=shift)
              for scale, shift in ((1, 0), (1, 5), (3, 0))]  # fmt: skip
    assert all(one is not None and one.low > 60 for one in losses)


def test_p_is_uniform_under_the_null_and_small_for_an_effect():
    rng = np.random.default_rng(0)
    draws = 0.2 * rng.standard_normal((4000, 5))
    ps = np.array([student_p(row[0], row[1:].tolist()) for row in draws])
    assert stats.kstest(ps, "uniform").pvalue > 0.01
    assert np.mean([student_p(1.1 + row[0], row[1:].tolist()) < 0.05 for row in draws]) > 0.9
    assert student_p(math.inf, [1.0, 2.0]) == 0.0
    assert student_p(1.0, [1.0, math.inf]) == 1.0  # mixed runs that explode accuse no order


def test_a_test_that_stops_early_keeps_its_level():
    """Levels whose height above a floor is log-normal, or normal with small deviations."""
    rng, count, level, asked = np.random.default_rng(1), 600, 0.05, 0
    harms = 0
    for own, *mixed in np.exp(0.5 * rng.standard_normal((count, 13))).tolist():
        left = iter(mixed)
        harms += found(own, left, level, start=1.0, least=0.0) is not None
        asked += 12 - len(list(left))
    assert harms <= stats.binom.ppf(0.999, count, level)
    assert asked / count < 3.0  # of 12


def test_small_p_are_rare_for_levels_above_a_floor():
    rng = np.random.default_rng(0)
    for draws in (rng.standard_normal((3000, 13)), np.exp(rng.standard_normal((3000, 13)))):
        for shift in (0.0, 5.0):
            ps = np.array([order_p(one, rest) for one, *rest in (draws + shift).tolist()])
            assert np.mean(ps < 0.05) < 0.1
            assert np.mean(ps < 0.002) < 0.02


def losses_of_stretch(steps: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Train on independent rows as they came and on 12 orders of them; losses, (runs, 13, marks).

    The stream of Experiment 4 at period 1, momentum 0.95, from the start of a run: as a guard's
    first tests have it, and written without one.
    """
    orders = 1 + CONFIG.mixes
    x = np.sqrt(0.5) * rng.standard_normal((runs, steps, 6))
    x[..., 5] = 1
    y = np.sqrt(0.1) * rng.standard_normal((runs, steps))
    place = np.tile(np.arange(steps), (runs, orders, 1))
    place[:, 1:] = rng.permuted(place[:, 1:], axis=2)
    kept = rng.permuted(np.tile(np.arange(steps), (runs, 1)), axis=1)[:, :128]
    kept_x, kept_y = np.take_along_axis(x, kept[..., None], 1), np.take_along_axis(y, kept, 1)
    weights = np.repeat(0.5 * rng.standard_normal((runs, 1, 6)), orders, axis=1)
    velocity, run, losses = np.zeros_like(weights), np.arange(runs)[:, None], []
    for step in range(steps + 1):
        if step in (0, *marks(steps, CONFIG.spacing)):
            judged = np.einsum("rkd,rod->rok", kept_x, weights) - kept_y[:, None]
            losses.append(np.mean(judged**2, axis=2))
        if step == steps:
            break
        rows = x[run, place[..., step]]
        error = np.sum(rows * weights, axis=2) - y[run, place[..., step]]
        velocity = 0.95 * velocity + 2 * error[..., None] * rows
        weights = weights - 0.01 * velocity
    return np.stack(losses, axis=2)


@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_at_least_97_percent_of_runs_on_independent_rows_pass_their_first_tests(shift):
    rng, runs = np.random.default_rng(3), 300
    is_left_alone = np.ones(runs, bool)
    for test, steps in enumerate((64, 128, 256), 1):
        judged = [one for one in marks(steps, CONFIG.spacing) if one > 0]
        window = judged[-1] - judged[0] + 0.5
        for run, (own, *mixed) in enumerate(losses_of_stretch(steps, runs, rng) + shift):
            harm = harm_of_order(
                (0, *judged), own, mixed, shared(test), window=window, least=CONFIG.harm
            )
            is_left_alone[run] &= harm is None
    # A guard that leaves 94% alone would fail in all but 3 of 1,000 cases.
    assert is_left_alone.mean() >= 0.97


def test_a_run_that_is_lost_is_harm_and_mixed_runs_that_are_lost_accuse_no_order():
    mixed = np.linspace(2.0, 2.1, 12).tolist()
    assert found(math.inf, mixed).lost == 400
    assert found(9.0, [math.inf, *mixed]) is None
