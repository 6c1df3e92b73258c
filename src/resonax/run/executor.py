"""What an executor is: it does jobs, and those that follow from them, and tells of their progress.

All executors give the same results, as a job decides by itself what it computes. A store may be
filled by any number of processes, on several machines with a common file system: an executor of a
cluster needs no more than a class with this method, or one of `concurrent.futures` for `Futures`.
"""

from __future__ import annotations

import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from resonax.core.errors import Interrupted

__all__ = [
    "ALONE",
    "Advance",
    "Do",
    "Executor",
    "Futures",
    "Job",
    "Lost",
    "Serial",
    "Tell",
    "Then",
]

ALONE = threading.Lock()  # two threads of one process must not compute at once

Job = Any
Advance = Callable[[float], None]  # told the share of the work just finished
Do = Callable[[Job, Advance], Any]
Tell = Callable[[Job, float], None]
Then = Callable[[Job, Any], Sequence[Job]]


@dataclass(frozen=True)
class Lost:
    """Stands for the result of a job whose worker ended or fell silent; says what is known of it.

    Whoever gave the job knows what of it is done, and gives the rest again, or gives it up.
    ``is_suspect`` says whether the job itself may have been the cause.
    """

    reason: str
    is_suspect: bool = True


class Executor(Protocol):
    """Does jobs.

    Attributes
    ----------
    workers
        How many of them at once.
    """

    workers: int

    def run(self, function: Do, jobs: Sequence[Job], advance: Tell, then: Then) -> None:
        """Do some jobs, and those that follow from them.

        Parameters
        ----------
        function
            Does a job: told the job, and a function that it tells the share just finished.
        jobs
            The jobs, in the order in which they are begun.
        advance
            Told a job and the share of it just finished.
        then
            Told a job and its result, or `Lost`, in the caller's process; the jobs that it returns
            are next.
        """
        ...


class Serial:
    """Does jobs one after the other, in this process.

    Examples
    --------
    >>> found = []
    >>> Serial().run(lambda job, _: job**2, [3, 4], print, lambda *pair: found.append(pair) or [])
    >>> found
    [(3, 9), (4, 16)]
    """

    workers = 1

    def run(self, function: Do, jobs: Sequence[Job], advance: Tell, then: Then) -> None:
        """Do some jobs, and those that follow from them."""
        waiting = deque(jobs)
        while waiting:
            job = waiting.popleft()
            result = function(job, lambda share, job=job: advance(job, share))
            waiting.extendleft(reversed(then(job, result)))


class Futures:
    """Does jobs with an executor of `concurrent.futures`, or of a cluster with its interface.

    Function, jobs and results are sent as its workers need them. Progress is told job by job.
    """

    def __init__(self, executor: concurrent.futures.Executor, workers: int) -> None:
        self._executor, self.workers = executor, workers

    def run(self, function: Do, jobs: Sequence[Job], advance: Tell, then: Then) -> None:
        """Do some jobs, and those that follow from them; an error takes back what has not begun."""
        running: dict[concurrent.futures.Future, Job] = {}

        def submit(some: Sequence[Job]) -> None:
            running.update({self._executor.submit(_count, function, job): job for job in some})

        try:
            submit(jobs)
            while running:
                first = concurrent.futures.FIRST_COMPLETED
                for future in concurrent.futures.wait(running, return_when=first).done:
                    job = running.pop(future)
                    result, share = future.result()
                    advance(job, share)
                    submit(then(job, result))
        except concurrent.futures.BrokenExecutor as error:  # it takes no more jobs
            raise Interrupted(
                f"the executor {type(self._executor).__name__} is broken ({error}): run it again "
                "with a new one; what was stored is kept"
            ) from None
        finally:
            for future in running:
                future.cancel()


def _count(function: Do, job: Job) -> tuple[Any, float]:
    """Return the result of a job, and the sum of the shares that it told."""
    shares: list[float] = []
    with ALONE:
        return function(job, shares.append), sum(shares)
