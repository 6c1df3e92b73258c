"""Processes that work side by side: jobs go out, progress and results come back.

jax compiles and runs most of a sweep on one core, and two threads of one process must not run it at
once. So experiments are shared out among processes, each with a jax of its own. Each talks with the
caller through a pipe of its own: there is no lock that a killed process could keep, and nothing
that would be left behind.

Libraries take seconds to load. Where processes can be forked, one that does nothing else loads them
once, and all workers are copies of it: jax is loaded there, but not yet used, which is safe. The
cores are shared out too: each process has as many threads as there are cores for it, and one where
others own a GPU.

Processes that share a GPU take turns on it, and each takes a while to begin to use it. So some may
own one: they are started at once, by themselves, and load only what they need. The others see
no GPU.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import Connection
from typing import Any

from resonax.core.errors import ResonaxError
from resonax.core.threads import count_cores
from resonax.run.executor import Serial
from resonax.run.garbage import collect_rarely
from resonax.run.gpus import GRAPHS
from resonax.run.interrupts import defer_interrupts
from resonax.run.workers import Worker, Workers

__all__ = [
    "THREADS",
    "Workers",
    "count_workers",
    "start_executor",
    "worker_processes",
]

_MOST = 16  # more would ask for more memory than they save time
THREADS = ("PJRT_NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # of jax, NumPy and SciPy
# NumPy and SciPy start as many threads as there are cores when they are loaded, and these spin for
# a while: those of several processes would keep all cores from loading anything.
_QUIET: dict[str, str] = dict.fromkeys(THREADS[1:], "1")


def count_workers(jobs: int | None = None) -> int:
    """Return how many processes to share some jobs among, or a number that is not known yet."""
    return min(_MOST if jobs is None else jobs, count_cores(), _MOST)


def _serve(pipe: Connection, environment: Mapping[str, str]) -> None:
    """Do what comes through the pipe until it is closed, or until the caller has ended."""
    collect_rarely()
    os.environ.update(environment)  # jax looks at it when it is first used
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides
    threading.Thread(target=follow, daemon=True).start()
    with suppress(EOFError, OSError):
        while True:
            data = pipe.recv_bytes()
            try:
                function, job = pickle.loads(data)
                pipe.send(("share", 0.0))  # all that it needs is loaded
                answer = "done", function(job, lambda share: pipe.send(("share", share)))
            except Exception as error:
                if not isinstance(error, ResonaxError):  # where it happened is lost on the way
                    error.add_note(traceback.format_exc())
                answer = "failed", error
            try:
                pipe.send(answer)
            except Exception:  # it cannot be sent
                pipe.send(("failed", RuntimeError(traceback.format_exc())))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):
            stream.flush()
    os._exit(0)  # nothing is left to do, and to unload libraries takes a while


@contextmanager
def worker_processes(
    count: int,
    libraries: Sequence[str] = (),
    *,
    devices: Sequence[str] = (),
    limit: float | None = None,
    owners: int = 0,
) -> Iterator[Workers]:
    """Give an executor of so many processes; whatever goes wrong ends them at once.

    Parameters
    ----------
    count
        How many.
    libraries
        Names modules that they need, and that start no threads when they are loaded.
    devices
        The names of GPUs, which are given to the processes in turn: each sees one of them.
    limit
        Seconds that one may work without a sign of progress, before another takes its place.
    owners
        How many of them own a GPU, and do the jobs that say ``on_device``; if any, the others see
        none, do all other jobs, and are started when there are jobs.
    """
    # Not forked from this process: one that has begun to use jax cannot be copied.
    alone: Any = multiprocessing.get_context("spawn")
    copied: Any = alone
    if libraries and sys.platform == "linux":
        copied = multiprocessing.get_context("forkserver")
        copied.set_forkserver_preload(["resonax.run.copied", *libraries])
    few: dict[str, str] = {name: str(max(count_cores() // count, 1)) for name in THREADS}
    if owners:  # one thread each, however many there are: programs are kept by their threads
        few = {**dict.fromkeys(THREADS, "1"), "JAX_PLATFORMS": "cpu"}

    def start(place: int) -> Worker:
        is_owner, own = place < owners, {}
        if owners and not is_owner and copied is not alone:  # a copy of what runs already
            return _start(copied, place, own)
        if devices and is_owner == bool(owners):
            own = {"CUDA_VISIBLE_DEVICES": devices[place % len(devices)]}
        # A worker that is half started would complain.
        given = {"XLA_FLAGS": GRAPHS, **_QUIET} if is_owner else few
        with defer_interrupts(), _environment(given), _blocked_interrupts():
            return _start(alone if is_owner else copied, place, own)

    workers = Workers(start, count, limit, owners)
    workers.gpus = len(devices) or 1
    try:
        workers.start(last=owners or count)
        if owners and copied is not alone:  # it loads libraries while this process goes on
            with defer_interrupts(), _environment(few), _blocked_interrupts():
                forkserver.ensure_running()
        with _environment(_QUIET if owners else {}):  # this process does not compute either
            yield workers
    except BaseException:
        workers.end()
        raise
    finally:
        workers.close()


@contextmanager
def _environment(given: Mapping[str, str]) -> Iterator[None]:
    """Set variables for processes that are started now, unless the user has set them."""
    ours = {name: text for name, text in given.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]


def _nothing() -> None:
    """Prepare nothing: a name, as it is sent to other processes."""


@contextmanager
def start_executor(
    processes: int,
    prepare: Callable[[], None] = _nothing,
    libraries: Sequence[str] = (),
    *,
    devices: Sequence[str] = (),
    limit: float | None = None,
    owners: int = 0,
    describe: Callable[[], Any] | None = None,
) -> Iterator[Workers | Serial]:
    """Give an executor of so many processes, or of this one; all that work call ``prepare`` first.

    The caller does so too, at the same time. Those that own a device call ``describe`` as well,
    which begins to use it. The rest is that of `worker_processes`.
    """
    if processes < 2 and limit is None:
        prepare()
        yield Serial()
        return
    # On a GPU every process takes the memory it needs, and not three quarters of all.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    with worker_processes(
        processes, libraries, devices=devices, limit=limit, owners=owners
    ) as workers:
        workers.prepare(prepare, describe)
        prepare()
        yield workers


def _start(context: Any, place: int, environment: Mapping[str, str]) -> Worker:
    """Start a worker."""
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, environment), daemon=True)
    process.start()
    theirs.close()
    return Worker(process, ours, place)


@contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Block interrupts, which from the keyboard reach all processes, where one is started.

    A process cannot ignore them before its first line, but it inherits what is blocked.
    """
    resource_tracker.ensure_running()
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)
