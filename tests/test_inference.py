"""Intervals keep their significance, with few runs, many cells and any dependence."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats
from scipy.stats import binom

from resonax.paper import inference
from resonax.paper.inference import (
    agreement,
    argmax_interval,
    count_bands,
    known_sides,
    largest_mean,
    largest_shift,
    mean_interval,
    ordered_share,
    shift_interval,
)


def within(wrong: np.ndarray, error: float) -> bool:
    """Return whether as many wrong intervals as that are to be expected of this significance."""
    return int(np.sum(wrong)) <= binom.isf(1e-4, len(wrong), error)


@pytest.mark.parametrize(("first", "second"), [(5, 5), (10, 10), (7, 12), (20, 20)])
def test_the_rank_sum_distribution_is_that_of_scipy(first, second):
    tail = inference._rank_sum_tail(first, second)
    low, high = np.arange(first) - 100.0, np.arange(second) * 1.0
    exact = scipy.stats.mannwhitneyu(low, high, alternative="less", method="exact").pvalue
    assert tail[0] == pytest.approx(exact, rel=1e-12)  # all of one below all of the other
    mixed = np.random.default_rng(0).normal(size=first + second)
    found = scipy.stats.mannwhitneyu(
        mixed[:first], mixed[first:], alternative="less", method="exact"
    )
    assert tail[int(found.statistic)] == pytest.approx(found.pvalue, rel=1e-10)
    assert tail[-1] == 1.0


def test_a_shift_is_found_and_too_few_runs_bound_nothing():
    random = np.random.default_rng(0)
    samples = random.gumbel(size=(2, 400, 10))
    value, low, high = shift_interval(samples[0] + 2.0, samples[1, 0], 0.05)
    assert np.median(value - np.median(value)) == pytest.approx(0, abs=1e-12)
    assert np.all(low <= value)
    assert np.all(value <= high)
    few = shift_interval(samples[0, :, :3], samples[1, 0, :3], 0.01)
    assert np.isneginf(few[1]).all()
    assert np.isposinf(few[2]).all()


def test_intervals_keep_their_significance():
    random, error = np.random.default_rng(1), 0.05
    shifts, means, order, places = [], [], [], []
    for _ in range(400):
        # One baseline for all periods, and skewed runs that are the same in law.
        logs, baseline = random.gumbel(size=(15, 10)), random.gumbel(size=10)
        shifts.append(largest_shift(logs, baseline, error))
        # Neighbours that share most of their random numbers.
        rates = random.normal(size=(15, 10)) + 2 * random.normal(size=10)
        means.append(largest_mean(rates, error))
        order.append(ordered_share(rates[:5], error))
        curve = -0.1 * np.abs(np.arange(15.0) - 4)
        places.append(argmax_interval(np.arange(15.0), rates + curve[:, None], error))
    shifts, means, order, places = map(np.array, (shifts, means, order, places))
    for found, truth in ((shifts, 0.0), (means, 0.0), (places, 4.0)):
        assert within(found[:, 1] > truth, error)
        assert within(found[:, 2] < truth, error)
    # All groups are equal: no pair may be called rising, and none falling.
    assert within(order[:, 1] > 0, error)
    assert within(order[:, 2] < 1, error)
    # What the old rule did: the largest of many estimates is nearly always above the baseline.
    assert np.mean(shifts[:, 0] > 0) > 0.9


def test_sides_are_all_right_at_once():
    random, error = np.random.default_rng(2), 0.05
    truth = np.repeat([-1e-9, 1e-9], 10)
    wrong = []
    for _ in range(400):
        found = known_sides(truth[:, None] + random.normal(size=(20, 8)), 0.0, error)
        wrong.append(np.any(found * np.sign(truth) < 0))
    assert within(np.array(wrong), error)
    assert (known_sides(truth[:, None] * 1e12 + random.normal(size=(20, 8)), 0, error) != 0).all()


@pytest.mark.parametrize(
    ("signs", "counts"),
    [
        ([-1, 1, 1, -1, 1, -1], (2, 2)),
        ([1, 0, 1], (1, 1)),  # a gap of one unknown period is not resolved
        ([1, 0, 0, 1], (1, 2)),
        ([0, 0, -1, 0], (0, 1)),
        ([-1, -1], (0, 0)),
        ([1, -1, 0, -1, 1, 0], (2, 2)),
        ([0] * 10, (0, 3)),
    ],
)
def test_bands_are_counted(signs, counts):
    assert count_bands(signs) == counts


def test_bands_are_those_of_all_ways_to_fill_the_row():
    """The same by trying every way, for random rows."""
    random = np.random.default_rng(9)
    for _ in range(60):
        signs = random.choice([-1, 0, 0, 0, 1], size=9)
        found = []
        for filled in itertools.product((-1, 1), repeat=9):
            if any(given * made < 0 for given, made in zip(signs, filled, strict=True)):
                continue
            parts = [list(part) for _, part in itertools.groupby(range(9), filled.__getitem__)]
            wide = [bool(signs[part].any()) or len(part) > 1 for part in parts]
            edge = [filled[part[0]] < 0 and {0, 8} & {*part} for part in parts]
            if all(one or other for one, other in zip(wide, edge, strict=True)):
                found.append(sum(filled[part[0]] > 0 for part in parts))
        assert count_bands(signs) == (min(found), max(found)), signs


@pytest.mark.parametrize("law", ["normal", "skewed"])
def test_agreement_with_an_exact_theory_is_not_called_less(law):
    """Rates cross 0 along a map; the cells of a column share their random numbers."""
    random, error = np.random.default_rng(3), 0.01
    truth = np.linspace(-1, 1, 40)[:, None] * np.ones(30)  # momentum, period
    wrong, decided = [], []
    for _ in range(200):
        noise = random.normal(size=(30, 10))
        if law == "skewed":  # as that of an amplitude that wanders
            noise = (random.chisquare(4, size=(30, 10)) - 4) / np.sqrt(8)
        rates = truth[..., None] + 0.5 * noise
        found = agreement(rates.reshape(-1, 10), np.sign(truth).ravel(), error)
        wrong.append(found.share.high < 1)
        decided.append(found.decided / found.cells)
    assert within(np.array(wrong), error)
    assert 0.1 < np.mean(decided) < 0.9


def test_agreement_sees_a_line_in_the_wrong_place():
    random = np.random.default_rng(4)
    truth = np.linspace(-1, 1, 40)[:, None] * np.ones(30)
    rates = truth[..., None] + 0.05 * random.normal(size=(40, 30, 10))
    found = agreement(rates.reshape(-1, 10), np.sign(truth - 0.2).ravel(), 0.01)
    assert found.share.high < 0.95
    unknown = agreement(rates.reshape(-1, 10), np.zeros(1200), 0.01)
    assert unknown.cells == unknown.decided == 0
    assert np.isnan(unknown.share.value)


def test_a_mean_of_one_run_has_no_bounds():
    assert mean_interval([3.0], 0.01) == (3.0, -np.inf, np.inf)
