"""What is done in place of waiting: by the main thread alone, one piece at a time."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

import resonax as rx
from resonax.executors.garbage import collect_rarely
from resonax.idle import do_when_idle, wait_for


def test_each_wait_does_the_next_piece_and_the_rest_is_forgotten():
    done = []
    with do_when_idle([partial(done.append, number) for number in range(3)]):
        wait_for(np.zeros(1))
        assert done == [0]
        wait_for(np.zeros(1))
    wait_for(np.zeros(1))
    assert done == [0, 1]


def test_other_threads_only_wait():
    done = []
    with do_when_idle([partial(done.append, 0)]), ThreadPoolExecutor(1) as threads:
        threads.submit(wait_for, np.zeros(1)).result()
        assert done == []


def test_a_simulation_waits_so():
    done = []
    training = rx.Training(rx.Sinusoid(period=22.0), rx.heavy_ball(0.01, 0.95), batch=20)
    axes = {"period": [22.0]}, {"momentum": [0.9, 0.98]}  # of the loop of tests/test_experiments.py
    with do_when_idle([partial(done.append, number) for number in range(9)]):
        rx.simulate(training, *axes, runs=1, steps=80, window=20)
    assert done == [0, 1, 2, 3]  # a segment before each of two windows, and these


def test_garbage_is_looked_for_rarely():
    before = gc.get_threshold()
    try:
        collect_rarely()
        assert gc.get_threshold() > before
    finally:
        gc.set_threshold(*before)
