"""Processes side by side: progress, results, mistakes, and what is left when they are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from made_up_experiment import made_up
from resonax.core.errors import ArgumentError, Interrupted
from resonax.run.executors import count_workers, local_processes, run_jobs
from resonax.sweeps.runner import run_experiments
from test_experiments import tree
from worker_jobs import compute_killed, see_devices, see_threads, sleep, square, unsendable


def ignore(*_):
    return []


def test_workers_tell_of_their_progress_and_give_results():
    shares, found = {}, {}

    def then(job, result):
        found[job] = result
        return [10 * job] if job in (2, 3) else []  # and these give no more

    with local_processes(2) as pool:
        run_jobs(
            pool,
            square,
            range(4),
            lambda n, part: shares.update({n: shares.get(n, 0.0) + part}),
            then,
        )
    assert {job: result[0] for job, result in found.items()} == {
        job: job**2 for job in (0, 1, 2, 3, 20, 30)
    }
    assert os.getpid() not in {process for _, process in found.values()}
    assert shares == dict.fromkeys(found, 1.0)
    assert not multiprocessing.active_children()


def test_progress_of_a_job_is_told_while_it_runs(tmp_path):
    class SeenError(Exception):
        pass

    def advance(job, share):
        assert share == 0.25
        raise SeenError

    with local_processes(1) as pool:
        began = time.monotonic()
        with pytest.raises(SeenError):
            run_jobs(pool, sleep, [str(tmp_path / "worker")], advance, ignore)
    assert time.monotonic() - began < 60  # the job itself takes two minutes
    assert not multiprocessing.active_children()


def test_a_mistake_in_a_worker_is_said_by_the_caller():
    with local_processes(1) as pool:
        with pytest.raises(ArgumentError, match="-1 must be at least 0"):
            run_jobs(pool, square, [1, -1], ignore, ignore)
        with pytest.raises(AttributeError, match="pickle"):
            run_jobs(pool, unsendable, [1], ignore, ignore)


def test_a_killed_worker_is_a_sentence_and_costs_no_result(tmp_path):
    (calm,) = run_experiments([made_up("smoke")], tmp_path / "calm")
    dying = replace(made_up("smoke"), compute=partial(compute_killed, str(tmp_path)))
    with (
        local_processes(2) as pool,
        pytest.raises(Interrupted, match=r"ended from outside.*run the same command again"),
    ):
        run_experiments([dying], tmp_path / "hard", executor=pool)
    assert not multiprocessing.active_children()
    (found,) = run_experiments([made_up("smoke")], tmp_path / "hard")
    assert found.dataset.identical(calm.dataset)
    assert tree(tmp_path / "hard") == tree(tmp_path / "calm")


def test_each_worker_sees_one_gpu():
    seen = []
    with local_processes(2, devices=["3", "GPU-5a"]) as pool:
        run_jobs(pool, see_devices, range(4), ignore, lambda _, name: seen.append(name) or [])
    assert set(seen) == {"3", "GPU-5a"}


def test_processes_share_the_cores(monkeypatch):
    monkeypatch.setattr("resonax.run.executors.count_cores", lambda: 6)
    for name in ("OMP", "OPENBLAS"):
        monkeypatch.delenv(f"{name}_NUM_THREADS", raising=False)
    seen = []
    with local_processes(2) as pool:
        run_jobs(pool, see_threads, [1], ignore, lambda _, found: seen.append(found) or [])
    assert seen == [(3, ["3", "3"])]


def test_as_many_processes_as_jobs_or_cores():
    assert count_workers(1) == 1
    assert 1 <= count_workers(100) <= 16


# Interrupts are ignored in what runs in the background, as the tests may.
COMMAND = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
import sys
from dataclasses import replace
from functools import partial
from made_up_experiment import made_up
from resonax.cli.start import main
from resonax.paper.catalogue import EXPERIMENTS
from worker_jobs import compute_slowly
if __name__ == "__main__":
    slow = replace(made_up("smoke"), compute=partial(compute_slowly, sys.argv.pop()), draw=None)
    EXPERIMENTS["made-up"] = lambda scale: slow
    main()
"""


def processes_of(group: int) -> list[int]:
    """Return the living processes of a group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, own = (folder / "stat").read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(own) == group and state != "Z":
            found.append(int(folder.name))
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").exists(), reason="processes are counted in /proc")
@pytest.mark.parametrize("case", ["Ctrl-C", "the command is killed", "a worker is killed"])
def test_a_command_that_is_ended_leaves_no_process_and_says_why(tmp_path, case):
    script, told = tmp_path / "command.py", tmp_path / "worker"
    script.write_text(COMMAND)
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    line = ["reproduce", "made-up", "--workers", "2", "--out", str(tmp_path / "out"), str(tmp_path)]
    command = subprocess.Popen(
        [sys.executable, script, *line],
        env={**os.environ, "PYTHONPATH": path},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    while not (told.exists() and told.read_text()):
        assert command.poll() is None
        time.sleep(0.05)
    if case == "Ctrl-C":
        os.killpg(command.pid, signal.SIGINT)  # as a terminal does
    elif case == "a worker is killed":
        os.kill(int(told.read_text()), signal.SIGKILL)
    else:
        command.kill()
    _, errors = command.communicate(timeout=60)
    first, *said = errors.strip().splitlines()
    assert "1 of the paper's 15 figures" in first
    status, words = {
        "Ctrl-C": (130, "resonax: interrupted, nothing unfinished was written"),
        "a worker is killed": (2, "resonax: a worker was ended from outside"),
        "the command is killed": (-signal.SIGKILL, None),
    }[case]
    assert command.returncode == status
    if words:
        (sentence,) = said
        assert sentence.startswith(words)
    assert "Traceback" not in errors
    deadline = time.monotonic() + 20
    while processes_of(command.pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_of(command.pid) == []


@pytest.mark.slow
def test_figures_made_side_by_side_are_those_made_in_turn(tmp_path):
    from resonax.cli.app import _run

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
