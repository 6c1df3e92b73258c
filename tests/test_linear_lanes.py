"""Linear models of many weights in lanes: the bits of jax's loop, whatever the cells are."""

from __future__ import annotations

import platform

import jax.numpy as jnp
import numpy as np
import pytest

import resonax as rx
from resonax.simulation import linear_lanes
from resonax.simulation.walk import Grid, Loop

PERIODS, MOMENTA = {"period": [3.0, 22.0, 400.0]}, {"momentum": np.linspace(0.9, 0.999, 19)}
SINUSOID = rx.Sinusoid(period=22.0, dim=8)


def run(training, columns, shared, lanes):
    return rx.simulate(training, columns, shared, runs=2, steps=200, window=40, lanes=lanes)


@pytest.fixture
def taken(monkeypatch):
    """A list of the numbers of blocks that are taken in lanes."""
    blocks, step = [], linear_lanes.step_in_lanes

    def noting(training, grid, state, first, number, *, loop):
        blocks.append(number)
        return step(training, grid, state, first, number, loop=loop)

    monkeypatch.setattr(linear_lanes, "step_in_lanes", noting)
    return blocks


HEAVY_BALL = rx.Training(SINUSOID, rx.heavy_ball(0.05, 0.9), batch=20)
SUMMED = rx.Training(
    rx.Switching(period=6.0, dim=11), rx.heavy_ball(0.01, 0.95), batch=9, reduction="sum"
)
GRIDS = [
    (HEAVY_BALL, PERIODS, MOMENTA),
    # With the largest step size errors leave the range of numbers within a block.
    (HEAVY_BALL, {"period": [4.0, 22.0, 30.0], "lr": [3.0, 0.01, 1e6]}, MOMENTA),
    (SUMMED, PERIODS, {"lr": [1e-4, 1e-3, 0.01]}),
]


def test_lanes_agree_with_jax(taken):
    found, expected = (run(*GRIDS[1], lanes=lanes) for lanes in (None, False))
    assert np.isinf(found.log_response[2]).all()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    # Two halves of 5 blocks, of which the last two are recorded.
    assert taken == ([3, 3] if platform.machine() in ("x86_64", "AMD64") else [])


@pytest.mark.slow  # whose programs are compiled as users have them, and not to be compiled quickly
@pytest.mark.parametrize("grid", GRIDS)
def test_lanes_give_the_bits_of_jax(grid):
    found, expected = (run(*grid, lanes=lanes) for lanes in (None, False))
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


LOOP = Loop(
    law_varies=False,
    batch_varies=False,
    dim_varies=False,
    gram=True,
    wide=True,
    rows=20,
    scatter=True,
    ordered=True,
    mixed=False,
    noisy=False,
    decays=False,
)


@pytest.mark.parametrize(
    ("optimizer", "changes", "fits"),
    [
        (rx.heavy_ball(0.01, 0.9), {}, platform.machine() in ("x86_64", "AMD64")),
        (rx.nesterov(0.01, 0.9), {}, False),
        (rx.heavy_ball(0.01, 0.9), {"decays": True}, False),
        (rx.heavy_ball(0.01, 0.9), {"noisy": True}, False),
        (rx.heavy_ball(0.01, 0.9), {"ordered": False}, False),
        (rx.heavy_ball(0.01, 0.9), {"wide": False}, False),
        (rx.adam(0.01), {}, False),
    ],
)
def test_what_lanes_do_not_do_is_left_to_jax(optimizer, changes, fits):
    training = rx.Training(SINUSOID, optimizer, batch=20)
    grid = Grid({}, {}, jnp.zeros((64, 2), jnp.uint32), jnp.zeros((), jnp.float32))
    assert linear_lanes.fits_lanes(training, grid, LOOP._replace(**changes)) == fits
    double = grid._replace(summed=np.zeros((), np.float64))
    assert not linear_lanes.fits_lanes(training, double, LOOP._replace(**changes))
