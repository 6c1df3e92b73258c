"""The searches of the circle criterion: many step sizes at once, both sides of what is found."""

from __future__ import annotations

import numpy as np
import pytest

import resonax as rx
from resonax.theory.circle_criterion import (
    holds,
    largest_curvature,
    largest_lr,
    largest_momentum,
)
from resonax.theory.order_proof import order_proof

OPTIMIZERS = {"heavy_ball": rx.heavy_ball, "nesterov": rx.nesterov}

both = pytest.mark.parametrize("name", OPTIMIZERS)
decays = pytest.mark.parametrize("decay", [0.0, 0.02])


@both
@decays
def test_many_step_sizes_together_are_searched_as_each_alone(name, decay):
    lrs = np.geomspace(1e-4, 1.0, 9)  # without weight decay up to lr L = 2
    make = OPTIMIZERS[name]
    found = largest_momentum(make(lrs, 0.9, weight_decay=decay), 4.0)
    alone = [order_proof(make(lr, 0.9, weight_decay=decay), 4.0).momentum for lr in lrs.tolist()]
    expected = [np.nan if momentum is None else momentum for momentum in alone]
    assert found.tolist() == pytest.approx(expected, rel=1e-13, nan_ok=True)
    assert np.isnan(found).any()
    assert np.nanmax(found) > 0.9


@both
@decays
def test_the_criterion_holds_up_to_what_is_found_and_not_beyond(name, decay):
    optimizer = OPTIMIZERS[name](0.02, 0.7, weight_decay=decay)
    searched = {
        "momentum": float(largest_momentum(optimizer, 3.0)),
        "lr": largest_lr(optimizer, 3.0),
    }
    for number, value in searched.items():
        for factor, expected in ((0.0, True), (1 - 1e-9, True), (1 + 1e-9, False)):
            if number == "lr" and not factor:
                continue  # a step size is above 0
            assert holds(optimizer.at({number: factor * value}), 3.0) == expected
    tolerated = largest_curvature(optimizer)
    assert holds(optimizer, tolerated * (1 - 1e-9))
    assert not holds(optimizer, tolerated * (1 + 1e-9))
