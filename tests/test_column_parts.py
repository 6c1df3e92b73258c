"""Columns that threads share: the same bits in any part, errors and interrupts end all of them."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest

import resonax as rx
from resonax.simulation.column_parts import Stopped, cut_columns, map_parts

TRAINING = rx.Training(rx.Sinusoid(period=22.0), rx.heavy_ball(0.01, 0.95), batch=2)


@pytest.mark.parametrize("most", [1, 2, 3, 16])
@pytest.mark.parametrize("count", [1, 2, 13, 64, 100, 101])
def test_parts_hold_every_column_once_and_are_filled_up_alike(count, most):
    parts, paths = cut_columns(np.arange(count), 10, most)
    assert np.concatenate(parts).tolist() == list(range(count))
    assert len(parts) <= most
    assert all(10 * len(part) <= paths for part in parts)
    assert paths % 64 == 0
    assert len(parts) * paths <= 1.25 * (10 * count + 63)


@pytest.mark.parametrize("double", [False, True])
def test_threads_give_the_bits_of_one(monkeypatch, double):
    periods = np.linspace(20, 60, 13)
    assert len(cut_columns(periods, 5, 2)[0]) == 2  # there are enough of them
    # Those in random order are columns of their own, whatever the precision.
    columns = periods if double else [0.0, *periods]
    axes = {"period": columns}, {"momentum": np.linspace(0.9, 0.99, 5)}
    found = []
    for threads in ("1", "2"):
        monkeypatch.setenv("PJRT_NPROC", threads)
        shares: list[float] = []
        settings = {"runs": 5, "steps": 40, "window": 20, "double": double}
        found.append(rx.simulate(TRAINING, *axes, **settings, advance=shares.append))
        assert sum(shares) == pytest.approx(1.0)
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_parts_run_at_once():
    both, done = threading.Barrier(2, timeout=60), []

    def part(number, go_on):
        both.wait()  # or it would not pass
        go_on()
        done.append(number)

    map_parts(part, [1, 2])
    assert sorted(done) == [1, 2]


def test_an_error_of_a_part_ends_the_others():
    failed = threading.Event()
    ended = []

    def part(number, go_on):
        if number == 2:
            failed.set()
            raise ValueError("broken")
        failed.wait(60)
        try:
            for _ in range(10**6):
                go_on()
                threading.Event().wait(0.001)
        except Stopped:
            ended.append(number)
            raise

    with pytest.raises(ValueError, match="broken"):
        map_parts(part, [1, 2])
    assert ended == [1]


def test_an_interrupt_of_the_caller_ends_all_parts():
    ended = threading.Barrier(3, timeout=60)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    caller = threading.get_ident()

    def part(number, go_on):
        try:
            if number == 2:
                signal.pthread_kill(caller, signal.SIGINT)
            while True:
                go_on()
                threading.Event().wait(0.001)
        except Stopped:
            threading.Thread(target=ended.wait, daemon=True).start()
            raise

    try:
        with pytest.raises(KeyboardInterrupt):
            map_parts(part, [1, 2])
    finally:
        signal.signal(signal.SIGINT, before)
    ended.wait()  # both are told to end, wherever the interrupt came
