"""Faults at random moments: is anything lost, or are numbers others?

    python benchmarks/faults.py [worker command s3] [--trials 10]

Each trial runs a sweep of 24 tasks with two workers, disturbs it, and starts the same command again
until it is through. Then its store must hold the numbers of an undisturbed run, bit for bit.

worker   A worker process is killed (SIGKILL), three times.
command  The command is killed with all its workers, twice.
s3       The store lies on an S3 server of which 15% of the requests go wrong (`tests/flaky_s3.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import xarray as xr

from resonax.store import as_location, open_store

SWEEP = """
id = "faults"
process = { kind = "square", amplitude = 0.5, variance = 0.5 }
optimizer = { kind = "nesterov", lr = 0.02 }
run = { runs = 16, steps = 20000, window = 500 }
chunk = 1
[axes]
momentum = { first = 0.8, last = 0.98, count = 8 }
period = { first = 10, last = 50, count = 24 }
"""
TIMES = 10  # a command is started at most


def start(folder: Path, out: str) -> psutil.Popen:
    words = ["sweep", "faults.toml", "--yes", "--workers", "2", "--out", out]
    with (folder / "said").open("ab") as said:
        command = [sys.executable, "-m", "resonax", *words]
        return psutil.Popen(command, cwd=folder, stdout=said, stderr=said, start_new_session=True)


def busy(process: psutil.Process) -> list[psutil.Process]:
    """Return the workers: the processes below the command that have computed for a while."""
    found = []
    for child in process.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            found += [child] * (sum(child.cpu_times()[:2]) > 1)
    return found


def wait_for_work(process: psutil.Process) -> list[psutil.Process]:
    """Return the workers as soon as there are some; none if the command ended before."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if workers := busy(process):
            return workers
        time.sleep(0.05)
    return []


def kill_workers(process: psutil.Popen, moments: random.Random) -> int:
    killed = 0
    for _ in range(3):
        workers = wait_for_work(process)
        time.sleep(moments.uniform(0, 1))
        with contextlib.suppress(psutil.Error, IndexError):
            moments.choice(workers).kill()
            killed += 1
    return killed


def kill_command(process: psutil.Popen, moments: random.Random) -> int:
    workers = wait_for_work(process)
    time.sleep(moments.uniform(0, 2))
    if not workers:
        return 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return 1


DISTURB: dict[str, list[Callable[[psutil.Popen, random.Random], int]]] = {
    "worker": [kill_workers],  # the first command of a trial
    "command": [kill_command, kill_command],  # the first two
    "s3": [],
}


def trial(kind: str, folder: Path, wanted: xr.Dataset, seed: int) -> tuple[str, Counter[str]]:
    """Return what came of a trial, and what was done."""
    out = f"s3://bucket/{seed}" if kind == "s3" else f"out-{seed}"
    moments, done = random.Random(seed), Counter[str]()
    for number in range(TIMES):
        process = start(folder, out)
        if number < len(DISTURB[kind]):
            done["faults"] += DISTURB[kind][number](process, moments)
        done["commands"] += 1
        if process.wait() == 0:
            break
    else:
        return "never came through", done
    where = f"{out}/results/faults.zarr"
    found = open_store(as_location(where) if kind == "s3" else folder / where)
    is_right = all(wanted[name].equals(found[name]) for name in wanted.data_vars)
    return "right" if is_right else "other numbers", done


def run(kind: str, trials: int) -> tuple[Counter[str], Counter[str]]:
    outcomes: Counter[str] = Counter()
    done: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        (folder / "faults.toml").write_text(SWEEP)
        assert start(folder, "calm").wait() == 0, (folder / "said").read_text()
        wanted = open_store(folder / "calm/results/faults.zarr").load()
        if kind == "s3":
            sys.path.append(str(Path(__file__).parents[1] / "tests"))
            import flaky_s3

            address, faults = stack.enter_context(flaky_s3.serving())
            faults.share = 0.15
            os.environ.update(flaky_s3.environment(address))
        for seed in range(trials):
            outcome, counts = trial(kind, folder, wanted, seed)
            outcomes[outcome] += 1
            done += counts
    return outcomes, done


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("kinds", nargs="*", default=list(DISTURB))
    parser.add_argument("--trials", type=int, default=10)
    given = parser.parse_args()
    is_right = True
    for kind in given.kinds:
        outcomes, done = run(kind, given.trials)
        is_right &= set(outcomes) == {"right"}
        words = ", ".join(f"{count} {word}" for word, count in (outcomes + done).items())
        print(f"{kind:8s} {words}", flush=True)
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
