"""Processes side by side: progress, results, mistakes, and what is left when they are killed."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing import resource_tracker, synchronize
from pathlib import Path
from unittest.mock import Mock

import pytest

from resonax.core.errors import ArgumentError, Interrupted
from resonax.run.executor import Lost
from resonax.run.gpus import GRAPHS
from resonax.run.processes import count_workers, worker_processes
from worker_jobs import (
    DeviceJob,
    end_worker,
    nothing,
    see_devices,
    see_process,
    see_threads,
    square,
    stop_at_first,
    unsendable,
)


def test_workers_tell_of_their_progress_and_give_results():
    shares, found = {}, {}

    def then(job, result):
        found[job] = result
        return [10 * job] if job in (2, 3) else []  # and these give no more

    with worker_processes(2) as workers:
        workers.run(
            square, range(4), lambda n, part: shares.update({n: shares.get(n, 0.0) + part}), then
        )
    assert {job: result[0] for job, result in found.items()} == {
        job: job**2 for job in (0, 1, 2, 3, 20, 30)
    }
    assert os.getpid() not in {process for _, process in found.values()}
    assert shares == dict.fromkeys(found, 1.0)


def test_a_mistake_in_a_worker_is_said_by_the_caller():
    with (
        worker_processes(1) as workers,
        pytest.raises(ArgumentError, match="-1 must be at least 0"),
    ):
        workers.run(square, [1, -1], lambda *_: None, lambda *_: [])


@pytest.mark.parametrize(
    ("stop", "limit", "words"),
    [(signal.SIGKILL, None, "ended from outside"), (signal.SIGSTOP, 1.0, "said nothing")],
)
def test_a_worker_that_ends_or_hangs_is_replaced_and_its_job_told_to_be_lost(
    tmp_path, stop, limit, words
):
    found, lost = [], []

    def then(job, result):
        if isinstance(result, Lost):
            lost.append((job[0], result.reason))
            return [job]
        found.append(result)
        return []

    jobs = [(number, str(tmp_path)) for number in range(4)]
    with worker_processes(2, limit=limit) as workers:
        workers.run(functools.partial(stop_at_first, stop), jobs, lambda *_: None, then)
    assert sorted(found) == [0, 1, 2, 3]
    ((number, reason),) = lost
    assert number == 2
    assert words in reason
    assert not multiprocessing.active_children()


def test_a_worker_that_ends_before_its_first_job_is_replaced():
    found = []
    with worker_processes(2) as workers:
        child = multiprocessing.active_children()[0]
        child.kill()
        child.join()
        workers.prepare(nothing)
        workers.run(square, range(4), lambda *_: None, lambda job, _: found.append(job) or [])
    assert sorted(found) == [0, 1, 2, 3]


def test_workers_that_never_begin_are_a_sentence():
    with worker_processes(1) as workers:
        workers.prepare(end_worker)
        with pytest.raises(Interrupted, match="run the same command again with fewer --workers"):
            workers.run(square, [1], lambda *_: None, lambda *_: [])


def test_each_worker_sees_one_gpu():
    seen = []
    with worker_processes(2, devices=["3", "GPU-5a"]) as workers:
        workers.run(see_devices, range(4), lambda *_: None, lambda _, name: seen.append(name) or [])
    assert set(seen) == {"3", "GPU-5a"}


def test_processes_share_the_cores(monkeypatch):
    monkeypatch.setattr("resonax.run.processes.count_cores", lambda: 6)
    for name in ("OMP", "OPENBLAS"):
        monkeypatch.delenv(f"{name}_NUM_THREADS", raising=False)
    seen = []
    with worker_processes(2) as workers:
        workers.run(see_threads, [1], lambda *_: None, lambda _, found: seen.append(found) or [])
    assert seen == [(3, ["3", "3"])]


def test_one_worker_owns_the_device_and_the_others_see_none(monkeypatch):
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    found = []
    with worker_processes(2, owners=1) as workers:
        assert len(multiprocessing.active_children()) == 1  # the others begin when there are jobs
        workers.prepare(nothing, os.getpid)
        owner = workers.owned()
        workers.run(
            see_process,
            [DeviceJob(number % 3 == 0) for number in range(6)],
            lambda *_: None,
            lambda job, seen: found.append((job.on_device, *seen)) or [],
        )
    assert len(found) == 6
    for on_device, platforms, flags, process in found:
        assert (process == owner) == on_device
        assert platforms == (None if on_device else "cpu")
        assert flags == (GRAPHS if on_device else None)


def test_what_a_worker_cannot_send_is_an_error_with_its_reason():
    with worker_processes(1) as workers, pytest.raises(RuntimeError, match="pickle"):
        workers.run(unsendable, [1], lambda *_: None, lambda *_: [])


def test_workers_leave_nothing_that_a_kill_would_leave_behind(monkeypatch):
    """No semaphore, no shared memory: nothing is registered to be removed later."""
    register = Mock()
    monkeypatch.setattr(resource_tracker, "register", register)
    monkeypatch.setattr(synchronize, "register", register, raising=False)
    with worker_processes(1) as workers:
        workers.prepare(nothing)
        workers.run(square, [1], lambda *_: None, lambda *_: [])
    register.assert_not_called()


def test_as_many_processes_as_jobs_or_cores():
    assert count_workers(1) == 1
    assert 1 <= count_workers(100) <= 16


CALLER = """
import sys
from worker_jobs import sleep
from resonax.run.executor import Lost
from resonax.run.processes import worker_processes
if __name__ == "__main__":
    with worker_processes(1) as workers:
        workers.run(sleep, [sys.argv[1]], lambda *_: None, lambda *_: [])
"""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_the_process_that_started_them(tmp_path, how):
    script, told = tmp_path / "caller.py", tmp_path / "worker"
    script.write_text(CALLER)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path]),
    }
    caller = subprocess.Popen(
        [sys.executable, script, told],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    while not (told.exists() and told.read_text()):
        assert caller.poll() is None
        time.sleep(0.05)
    worker = int(told.read_text())
    caller.send_signal(how)
    assert caller.wait(20) != 0
    for _ in range(400):
        stat = Path(f"/proc/{worker}/stat")
        if not stat.exists() or stat.read_text().split()[2] == "Z":
            break
        time.sleep(0.05)
    else:
        pytest.fail("the worker lives on")


@pytest.mark.slow
def test_figures_made_side_by_side_are_those_made_in_turn(tmp_path):
    from resonax.cli.app import _run
    from test_experiments import tree

    names = ("problem-setting", "spectra")
    assert _run(["reproduce", *names, "--out", "both"]) == (0, "")
    for name in names:
        assert _run(["reproduce", name, "--out", "turns"]) == (0, "")
    assert tree(tmp_path / "both" / "results") == tree(tmp_path / "turns" / "results")
    assert {path.name for path in (tmp_path / "both" / "figures").iterdir()} == {
        f"{name}{ending}" for name in names for ending in (".png", ".svg", "-dark.png")
    }
    status, words = _run(["reproduce", *names, "--out", "both", "--seed", "1"])
    assert status == 2
    assert "seed = 0, not 1" in words
