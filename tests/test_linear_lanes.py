"""Linear models of many weights in lanes: the bits of jax's loop, whatever the cells are."""

from __future__ import annotations

import platform
import time
from dataclasses import replace
from threading import Lock

import jax
import numpy as np
import pytest

import resonax as rx
from resonax.simulation import linear_lanes
from resonax.simulation.walk import Grid, Loop

IS_X86 = platform.machine() in ("x86_64", "AMD64")
IS_ARM = platform.machine() in ("aarch64", "arm64")
PERIODS, MOMENTA = {"period": [3.0, 22.0, 400.0]}, {"momentum": np.linspace(0.9, 0.999, 19)}
WHOLE = {"momentum": np.linspace(0.9, 0.999, 20)}  # fill the registers of either machine's lanes
SINUSOID = rx.Sinusoid(period=22.0, dim=8)


def run(training, columns, shared, lanes):
    return rx.simulate(training, columns, shared, runs=2, steps=200, window=40, lanes=lanes)


@pytest.fixture
def taken(monkeypatch):
    """A list of the numbers of blocks that are taken in lanes, and whether they are recorded."""
    blocks, step = [], linear_lanes.step_in_lanes

    def noting(training, grid, state, first, number, record, *, loop):
        blocks.append((number, record))
        return step(training, grid, state, first, number, record, loop=loop)

    monkeypatch.setattr(linear_lanes, "step_in_lanes", noting)
    return blocks


HEAVY_BALL = rx.Training(SINUSOID, rx.heavy_ball(0.05, 0.9), batch=20)
SUMMED = rx.Training(
    rx.Switching(period=6.0, dim=11), rx.heavy_ball(0.01, 0.95), batch=9, reduction="sum"
)
# With the largest step size errors leave the range of numbers within a block.
RATES = {"period": [4.0, 22.0, 30.0], "lr": [3.0, 0.01, 1e6]}
GRIDS = [  # those whose cells fill no register are left to jax on ARM
    (HEAVY_BALL, PERIODS, MOMENTA),
    (HEAVY_BALL, PERIODS, WHOLE),
    (HEAVY_BALL, RATES, MOMENTA),
    (HEAVY_BALL, RATES, WHOLE),
    (SUMMED, PERIODS, {"lr": [1e-4, 1e-3, 0.01]}),
    (SUMMED, PERIODS, {"lr": np.geomspace(1e-4, 0.01, 24)}),
    # The factor of H has a row more than there are weights.
    (replace(HEAVY_BALL, model=rx.Linear(bias=False)), PERIODS, WHOLE),
]


FEW = replace(HEAVY_BALL, process=replace(SINUSOID, dim=6), batch=8)  # compiled sooner


def test_lanes_agree_with_jax(taken):
    found, expected = (run(FEW, RATES, WHOLE, lanes=lanes) for lanes in (None, False))
    assert np.isinf(found.log_response[2]).all()
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    # Two halves of 5 blocks, of which the last two are recorded.
    half = [(3, False), (2, True)] if IS_ARM else [(3, False)] if IS_X86 else []
    assert taken == 2 * half


def test_a_path_is_taken_by_one_thread_at_a_time(monkeypatch):
    """The first paths take long: the next block begins meanwhile, and theirs must wait."""
    compiled, lock = linear_lanes._compiled, Lock()
    running, others_meanwhile = set(), []

    def slowly(*given):
        take_block = compiled(*given)

        def take(first, *rest):
            with lock:
                assert first not in running
                running.add(first)
                others_meanwhile.append(running - {first})
            time.sleep(0.0 if first else 0.03)
            take_block(first, *rest)
            with lock:
                running.remove(first)

        return take

    expected = run(FEW, RATES, WHOLE, lanes=None)
    monkeypatch.setattr(linear_lanes, "_compiled", slowly)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = run(FEW, RATES, WHOLE, lanes=None)
    assert any(others_meanwhile) == (IS_X86 or IS_ARM)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


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


def make_grid(cells, **columns):
    # Arrays of the host, moved: jax would compile a program for zeros of each shape.
    keys, summed = jax.device_put((np.zeros((64, 2), np.uint32), np.zeros((), np.float32)))
    return Grid(columns, {"momentum": np.zeros(cells, np.float32)}, keys, summed)


@pytest.mark.parametrize(
    ("cells", "columns", "fits"),
    [
        (12, {}, IS_X86 or IS_ARM),
        (8, {}, IS_X86),
        (19, {}, IS_X86),
        (20, {"batch": 20.0}, False),
        (20, {"summed": 1.0}, False),
    ],
)
def test_cells_that_xla_computes_otherwise_are_left_to_it(cells, columns, fits):
    grid = make_grid(cells, **{name: np.full(64, value) for name, value in columns.items()})
    assert linear_lanes.fits_lanes(HEAVY_BALL, grid, LOOP) == fits


@pytest.mark.parametrize(
    ("optimizer", "changes", "fits"),
    [
        (rx.heavy_ball(0.01, 0.9), {}, IS_X86 or IS_ARM),
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
    grid = make_grid(20)
    assert linear_lanes.fits_lanes(training, grid, LOOP._replace(**changes)) == fits
    double = grid._replace(summed=np.zeros((), np.float64))
    assert not linear_lanes.fits_lanes(training, double, LOOP._replace(**changes))
