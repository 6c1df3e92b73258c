"""The average of the weights, and what is offered."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from resonax.guards.averaging import preferred, share


@pytest.mark.parametrize("power", [0, 1, 8])
def test_the_average_weighs_later_weights_by_a_power_of_their_step(power):
    """With a whole power p the weight of step k is k (k+1) ... (k+p-1), up to a factor."""
    count, average = 40, np.zeros(40)
    for step in range(1, count + 1):
        newest = np.eye(count)[step - 1]
        average = average + share(step, power, least=1) * (newest - average)
    expected = np.array([math.prod(range(k, k + power)) for k in range(1, count + 1)], float)
    np.testing.assert_allclose(average, expected / expected.sum(), rtol=1e-12)


def test_the_average_spans_a_least_number_of_steps_from_the_start():
    """A plain mean up to that number, then an exponential one, then a power of the step."""
    shares = [share(count, power=8, least=64) for count in range(1, 2001)]
    np.testing.assert_allclose(shares[:64], 1 / np.arange(1, 65))
    assert set(shares[64:567]) == {1 / 64}
    np.testing.assert_allclose(shares[568:], 9 / (np.arange(569, 2001) + 8))


@pytest.mark.parametrize("count", [16, 128])
def test_what_was_offered_before_stays_only_if_it_is_better_by_more_than_chance(count):
    """Of two that are alike the older one wins in 16% of the draws; one that is better, always."""
    rng, kept = np.random.default_rng(count), 0
    for _ in range(1000):
        usual = rng.exponential(size=count)  # much noise, in both of them
        new, old = usual + 0.1 * rng.standard_normal((2, count))
        kept += preferred([new, old])
        assert preferred([new, old - 0.2]) == 1
        assert preferred([new, new, old + 0.2]) == 0
    expected = stats.t.sf(1, count - 1)
    assert abs(kept / 1000 - expected) < 4 * math.sqrt(expected * (1 - expected) / 1000)


def test_what_is_not_finite_is_never_offered():
    assert preferred([[math.inf, 1.0], [2.0, 2.0]]) == 1
    assert preferred([[2.0, 2.0], [math.nan, 1.0]]) == 0
    assert preferred([[1e300] * 5, [1e299] * 5]) == 1
