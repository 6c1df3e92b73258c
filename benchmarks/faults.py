"""Faults at random moments: is anything lost, computed twice after its marker, or other bits?

    python benchmarks/faults.py --trials 10
    python benchmarks/faults.py --only worker-killed s3-errors

Each trial runs 24 short tasks with two workers, disturbs them, and starts the command again until
it is through. Every task writes down when it begins; a begin later than the first marker of its
task counts as computed twice. The store must equal byte by byte that of an undisturbed serial run.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import fault_work
import flaky_s3
import psutil
from fault_trial import HERE, Cluster, Trial, cluster
from fault_work import ID, TASKS, experiment

from resonax.store import Place, as_place, read_files
from resonax.sweeps.runner import run_experiments


def worker_killed(trial: Trial) -> None:
    number = trial.start()
    trial.begun(number)
    for _ in range(3):
        trial.strike(signal.SIGKILL)
    trial.finish(number)


def worker_hangs(trial: Trial) -> None:
    trial.limit = 2.0
    number = trial.start()
    trial.begun(number)
    stopped = trial.strike(signal.SIGSTOP)
    trial.finish(number)
    if stopped is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)


def client_killed(trial: Trial) -> None:
    for _ in range(2):
        before, number = trial.count_begun(), trial.start()
        trial.begun(number, before)
        time.sleep(trial.moments.uniform(0.0, 0.8))
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        trial.faults["client SIGKILL"] += 1
    trial.finish(trial.start())


def scheduler_killed(trial: Trial, found: Cluster) -> None:
    number = trial.start()
    trial.begun(number)
    time.sleep(trial.moments.uniform(0.1, 1.0))
    found.children["scheduler"].kill()
    found.children["scheduler"].wait()
    trial.faults["scheduler SIGKILL"] += 1
    time.sleep(trial.moments.uniform(0.0, 2.0))
    trial.finish(number)  # which starts it again, and its workers, that end without it


def markers(trial: Trial) -> dict[int, float]:
    """Return when the first marker of each task was there, as its process wrote it down.

    One that was killed before it could is told by the time of the file.
    """
    folder = trial.folder / "out" / "results" / f"{ID}.zarr" / "tasks"
    times = {int(file.stem): file.stat().st_mtime for file in folder.glob("[0-9]*.json")}
    for moment, word, *rest in trial.log:
        if word == "marker":
            times[int(rest[0])] = min(float(moment), times.get(int(rest[0]), float("inf")))
    return times


def verdict(trial: Trial, wanted: dict[str, bytes]) -> str:
    """Return what came of a trial."""
    store = trial.out / "results" / f"{ID}.zarr"
    found = read_files(store, wanted)
    if lost := wanted.keys() - found.keys():
        return f"lost {len(lost)} files"
    if found != wanted:
        return "other bits"
    first = markers(trial)
    begins = [(float(m), int(rest[0])) for m, word, *rest in trial.log if word == "begin"]
    twice = [task for moment, task in begins if moment > first.get(task, float("inf"))]
    trial.faults["computed"] += len(begins)
    return f"computed twice: {twice}" if twice else "right"


PLAIN: dict[str, Callable[[Trial], None]] = {
    "worker-killed": worker_killed,
    "worker-hangs": worker_hangs,
    "client-killed": client_killed,
}
KINDS = (
    *PLAIN,
    *(f"dask-{name}" for name in PLAIN),
    "dask-scheduler-killed",
    "s3-errors",
    "s3-stalls",
)


def place(kind: str, folder: Path, number: int) -> Place:
    """Return where a trial writes."""
    s3 = f"s3://bucket/{number}/out"
    return as_place(s3) if kind.startswith("s3") else folder / str(number) / "out"


@contextlib.contextmanager
def surroundings(kind: str) -> Iterator[Callable[[Trial], None]]:
    """Give what disturbs a trial of a kind, with the services that it needs."""
    with contextlib.ExitStack() as stack:
        if kind.startswith("dask"):
            found = stack.enter_context(cluster())

            def disturb(trial: Trial) -> None:
                trial.scheduler, trial.keep = found.address, found.keep
                try:
                    if kind == "dask-scheduler-killed":
                        scheduler_killed(trial, found)
                    else:
                        PLAIN[kind.removeprefix("dask-")](trial)
                except AssertionError:  # the next trial must not meet what this one left
                    found.stop()
                    raise

            yield disturb
        elif kind.startswith("s3"):
            server = stack.enter_context(s3_server(0.15 if kind == "s3-errors" else 0.0))

            def stall(trial: Trial) -> None:
                number = trial.start()
                for _ in range(3 if kind == "s3-stalls" else 0):
                    time.sleep(trial.moments.uniform(0.2, 1.0))
                    server.suspend()
                    time.sleep(trial.moments.uniform(0.5, 3.0))
                    server.resume()
                    trial.faults["server SIGSTOP"] += 1
                trial.finish(number)

            yield stall
        else:
            yield PLAIN[kind]


@contextlib.contextmanager
def s3_server(share: float) -> Iterator[psutil.Process]:
    """Run an S3 server as a process of its own."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, HERE / "flaky_s3.py", "--share", str(share), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        os.environ.update(flaky_s3.environment(f"http://127.0.0.1:{port}"))
        try:
            yield psutil.Process(child.pid)
        finally:
            child.kill()


def run(kind: str, trials: int, seed: int = 0) -> tuple[Counter[str], Counter[str]]:
    """Return how often each outcome was seen, and what was done."""
    outcomes: Counter[str] = Counter()
    done: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as base:
        os.environ[fault_work.LOG] = f"{base}/log"
        run_serial(Path(base) / "calm")
        store = Path(base) / "calm" / "results" / f"{ID}.zarr"
        files = (file for file in store.rglob("*") if file.is_file())
        wanted = {str(file.relative_to(store)): file.read_bytes() for file in files}
        with surroundings(kind) as disturb:
            for number in range(trials):
                Path(base, "log").unlink(missing_ok=True)
                out = place(kind, Path(base), number)
                trial = Trial(Path(base) / str(number), out, random.Random(seed + number))
                try:
                    disturb(trial)
                    outcomes[verdict(trial, wanted)] += 1
                except AssertionError as error:
                    outcomes[str(error)] += 1
                faults = (line for line in trial.log if line[1] == "fault")
                done += trial.faults + Counter(f"{line[2]} on {line[3]}" for line in faults)
    return outcomes, done


def run_serial(folder: Path) -> None:
    """Make the store with nothing to disturb it, in a copy of this process."""
    number = os.fork()
    if not number:
        run_experiments([experiment()], folder, device="cpu")
        os._exit(0)
    os.waitpid(number, 0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--only", nargs="*", choices=KINDS, default=KINDS)
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    print(f"{TASKS} tasks, 2 workers, {given.trials} trials of each fault")
    is_right = True
    for name in given.only:
        began = time.perf_counter()
        outcomes, done = run(name, given.trials)
        is_right &= set(outcomes) == {"right"}
        words = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        faults = ", ".join(f"{count} {what}" for what, count in sorted(done.items()))
        print(f"{name:22s} {words}; {faults}; {time.perf_counter() - began:.0f} s", flush=True)
    sys.exit(0 if is_right else 1)
