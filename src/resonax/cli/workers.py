"""Processes that work side by side: jobs go out, progress and results come back.

jax compiles and runs most of a sweep on one core, and two threads of one process must not run it at
once. So experiments are shared out among processes, each with a jax of its own.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any

from resonax.checks import ArgumentError

__all__ = ["Workers", "processes", "working"]

_MOST = 16  # more would ask for more memory than they save time
_OFTEN = 0.2  # seconds between two looks at the progress

_progress: Any = None  # of a worker: where it tells of its progress

Job = Any
Advance = Callable[[float], None]


def processes(jobs: int) -> int:
    """Return how many processes to share some jobs among."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(jobs, cores or 1, _MOST)


def _begin(progress: Any) -> None:
    """Make a process a worker, which ends with the one that started it."""
    global _progress
    _progress = progress
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


def _work(function: Callable[[Job, Advance], Any], number: int, job: Job) -> Any:
    return function(job, lambda share: _progress.put((number, share)))


class Workers:
    """Processes that wait for jobs; make them with `working`."""

    def __init__(self, executor: ProcessPoolExecutor, progress: Any) -> None:
        self._executor, self._progress = executor, progress

    def wake(self, function: Callable[[], None], count: int) -> None:
        """Let some workers start and prepare themselves, while the caller does the same."""
        for _ in range(count):
            self._executor.submit(function)

    def run(
        self,
        function: Callable[[Job, Advance], Any],
        jobs: Sequence[Job],
        advance: Callable[[Job, float], None],
        then: Callable[[Job, Any], Sequence[Job]],
    ) -> None:
        """Let the workers do some jobs, and those that follow from them.

        ``advance`` is told a job and the share of it just finished, ``then`` a job and its result;
        the jobs that it returns are done as well.
        """
        numbered: list[Job] = []

        def submit(jobs: Sequence[Job]) -> dict[Future[Any], Job]:
            numbered.extend(jobs)
            first = len(numbered) - len(jobs)
            return {
                self._executor.submit(_work, function, first + place, job): job
                for place, job in enumerate(jobs)
            }

        left = submit(jobs)
        try:
            while left:
                done, _ = wait(left, timeout=_OFTEN, return_when=FIRST_COMPLETED)
                while not self._progress.empty():
                    number, share = self._progress.get()
                    advance(numbered[number], share)
                for future in done:
                    left |= submit(then(left.pop(future), future.result()))
        except BrokenProcessPool:
            raise ArgumentError(
                "a worker was ended from outside, perhaps for want of memory: run the same command "
                "again, for fewer figures at a time; what was stored is kept"
            ) from None


@contextmanager
def working(count: int) -> Iterator[Workers]:
    """Give some workers; whatever goes wrong ends them at once."""
    # Not forked: a process that has begun to use jax cannot be copied.
    context = multiprocessing.get_context("spawn")
    progress = context.SimpleQueue()
    executor = ProcessPoolExecutor(
        count, mp_context=context, initializer=_begin, initargs=(progress,)
    )
    try:
        yield Workers(executor, progress)
    except BaseException:
        for child in multiprocessing.active_children():
            child.terminate()
        raise
    finally:
        executor.shutdown(cancel_futures=True)
