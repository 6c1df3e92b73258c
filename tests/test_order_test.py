"""The test of the order of rows: its significance, by simulation under the null, and its power."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from resonax.guards.order_test import harm_of_order, significance_of, student_p
from resonax.guards.state import GuardConfig, marks

CONFIG = GuardConfig(())


def shared(test):
    return significance_of(test, CONFIG.significance)


def test_p_is_uniform_under_the_null_and_small_for_an_effect():
    rng = np.random.default_rng(0)
    draws = np.exp(0.2 * rng.standard_normal((4000, 5)))
    ps = np.array([student_p(row[0], row[1:].tolist()) for row in draws])
    assert stats.kstest(ps, "uniform").pvalue > 0.01
    assert np.mean([student_p(3 * row[0], row[1:].tolist()) < 0.05 for row in draws]) > 0.9
    assert student_p(math.inf, [1.0, 2.0]) == 0.0
    assert student_p(1.0, [1.0, math.inf]) == 1.0  # mixed runs that explode accuse no order


def test_a_test_that_stops_early_has_its_significance_exactly():
    """With normal logarithms; by Samuelson's inequality stopping changes no decision."""
    rng, count, significance, asked = np.random.default_rng(1), 20_000, 0.005, 0
    found = np.zeros(count, bool)
    for place, (own, *mixed) in enumerate(np.exp(rng.standard_normal((count, 13))).tolist()):
        left = iter(mixed)
        found[place] = harm_of_order(own, left, significance) is not None
        asked += 12 - len(list(left))
    assert stats.binomtest(int(found.sum()), count, significance).pvalue > 0.01
    # The run and k mixed runs: it is the worst with probability 1/(k + 1).
    assert asked / count == pytest.approx(sum(1 / (k + 1) for k in range(12)), rel=0.02)


def test_the_significances_of_a_run_leave_five_of_a_hundred_of_its_tests_nothing_to_find():
    """Losses with tails of Student's t, 5 degrees of freedom, which are longer than normal ones."""
    rng, runs, tests, left_alone = np.random.default_rng(2), 1500, 10, 0
    for logs in 0.1 * rng.standard_t(5, (runs, tests, 13)):
        left_alone += all(
            harm_of_order(own, mixed, shared(test), beyond=CONFIG.beyond) is None
            for test, (own, *mixed) in enumerate(np.exp(logs).tolist(), 1)
        )
    assert left_alone > 0.95 * runs


def losses_of_stretch(steps: int, runs: int, rng: np.random.Generator) -> np.ndarray:
    """Train on independent rows as they came and on 12 orders of them; losses, (runs, 13).

    The stream of Experiment 4 at period 1, momentum 0.95, from the start of a run: as a guard's
    first tests have it, and written without one. A loss is the geometric mean at the marks.
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
    velocity, run, logs = np.zeros_like(weights), np.arange(runs)[:, None], []
    for step in range(steps):
        rows = x[run, place[..., step]]
        error = np.sum(rows * weights, axis=2) - y[run, place[..., step]]
        velocity = 0.95 * velocity + 2 * error[..., None] * rows
        weights = weights - 0.01 * velocity
        if step + 1 in marks(steps, CONFIG.spacing):
            judged = np.einsum("rkd,rod->rok", kept_x, weights) - kept_y[:, None]
            logs.append(np.log(np.mean(judged**2, axis=2)))
    return np.exp(np.mean(logs, axis=0))


def test_at_least_95_percent_of_runs_on_independent_rows_pass_their_first_tests():
    rng, runs = np.random.default_rng(3), 400
    is_left_alone = np.ones(runs, bool)
    for test, steps in enumerate((32, 64, 128, 256), 1):
        for run, (own, *mixed) in enumerate(losses_of_stretch(steps, runs, rng).tolist()):
            found = harm_of_order(own, mixed, shared(test), harm=CONFIG.harm, beyond=CONFIG.beyond)
            is_left_alone[run] &= found is None
    # A guard that leaves 90% alone would fail in all but 2 of 10,000 cases.
    assert is_left_alone.mean() > 0.95
