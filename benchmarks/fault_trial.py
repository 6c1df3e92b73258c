"""A disturbed run of `faults.py`: started, struck, and started again until it is through."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import fault_work
import psutil
from fault_work import experiment

from resonax.core.errors import ResonaxError
from resonax.run.dask import Dask
from resonax.run.processes import start_executor
from resonax.store import Place
from resonax.sweeps.runner import run_experiments

HERE = Path(__file__).parent
LIMIT = 150.0  # seconds without a line in the log after which a trial hangs


@dataclass
class Trial:
    """One disturbed run: where it writes, who works, and what was done to it."""

    folder: Path
    out: Place
    moments: random.Random
    scheduler: str = ""
    limit: float | None = None
    keep: Callable[[], None] = lambda: None  # starts services that have ended
    faults: Counter[str] = field(default_factory=Counter)

    @property
    def log(self) -> list[list[str]]:
        path = Path(os.environ[fault_work.LOG])
        return [line.split() for line in path.read_text().splitlines()] if path.exists() else []

    def workers(self) -> list[int]:
        """Return the processes that began the last tasks, and are there."""
        last = [int(line[3]) for line in self.log[-4:] if line[1] == "begin"]
        return [number for number in last if psutil.pid_exists(number)]

    def strike(self, sign: signal.Signals) -> int | None:
        """Send a signal to a worker at a random moment of its work."""
        time.sleep(self.moments.uniform(0.05, 0.6))
        for number in self.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, sign)
                self.faults[f"worker {sign.name}"] += 1
                return number
        return None

    def run(self) -> None:
        """Do what is left, in this process."""
        if self.scheduler:
            from distributed import Client

            with Client(self.scheduler, timeout=30, set_as_default=False) as client:
                run_experiments([experiment()], self.out, executor=Dask(client, limit=self.limit))
            return
        with start_executor(2, libraries=["fault_work"], limit=self.limit) as executor:
            run_experiments([experiment()], self.out, device="cpu", executor=executor)

    def start(self) -> int:
        """Start the command in a copy of this process; return its number."""
        number, status = os.fork(), 1
        if number:
            return number
        try:
            os.setsid()
            self.run()
            status = 0
        except ResonaxError as error:
            print(f"  {error}", file=sys.stderr)
            status = 2
        except BaseException as error:
            print(f"  {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(status)

    def count_begun(self) -> int:
        """Return how many tasks were begun."""
        return sum(line[1] == "begin" for line in self.log)

    def begun(self, number: int, after: int = 0) -> None:
        """Wait until tasks were begun, or the command has ended."""
        deadline = time.monotonic() + LIMIT
        while self.count_begun() <= after:
            if psutil.Process(number).status() == psutil.STATUS_ZOMBIE:
                return
            if time.monotonic() > deadline:
                return
            self.keep()
            time.sleep(0.05)

    def finish(self, number: int) -> None:
        """Wait for the command, and start it again until it is through."""
        for _ in range(8):
            lines, heard = 0, time.monotonic()
            while (ended := os.waitpid(number, os.WNOHANG))[0] == 0:
                if len(self.log) > lines:
                    lines, heard = len(self.log), time.monotonic()
                if time.monotonic() - heard > LIMIT:
                    self.faults["hung"] += 1
                    os.killpg(number, signal.SIGKILL)
                    os.waitpid(number, 0)
                    raise AssertionError("the command hung")
                self.keep()
                time.sleep(0.05)
            if ended[1] == 0:
                return
            self.faults["started again"] += 1
            number = self.start()
        raise AssertionError("the command never came through")


@dataclass
class Cluster:
    """A Dask scheduler and two workers of their own, kept alive as a service would."""

    port: int
    children: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"tcp://127.0.0.1:{self.port}"

    def keep(self) -> None:
        """Start what is not there."""
        dask = [sys.executable, "-m", "distributed.cli"]
        own = {
            "scheduler": ["dask_scheduler", "--host", "127.0.0.1", "--port", str(self.port)],
            "one": ["dask_worker", self.address, "--nthreads", "1"],
            "two": ["dask_worker", self.address, "--nthreads", "1"],
        }
        for name, (module, *options) in own.items():
            child = self.children.get(name)
            if child is None or child.poll() is not None:
                command = [*dask[:2], f"distributed.cli.{module}", *options, "--no-dashboard"]
                self.children[name] = subprocess.Popen(
                    command, cwd=HERE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )

    def stop(self) -> None:
        for child in reversed(self.children.values()):
            child.terminate()
        for child in self.children.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
            child.kill()


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        found = Cluster(free.getsockname()[1])
    try:
        found.keep()
        yield found
    finally:
        found.stop()
