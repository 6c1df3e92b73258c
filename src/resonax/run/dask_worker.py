"""What a worker of Dask does with a job that it is sent.

A job travels as bytes, and `pickle.loads` does it: Dask itself need not know more. So a scheduler
needs no resonax. A worker without it, or with another version, answers that it cannot load the job;
if Dask had to load it, the worker would end, and so would the next one.
"""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from resonax.run.executor import ALONE, Do, Job
from resonax.run.processes import THREADS

__all__ = ["Call"]

_TELL = 1.0  # seconds between two words of progress of a job
_prepared: set[str] = set()  # the runs for which this process is prepared


@dataclass(frozen=True)
class Call:
    """A job to be done where it is unpickled, with what that gives in its place.

    Attributes
    ----------
    function, job
        What is done, and with what.
    prepare
        Called before the first job of a run.
    topic
        The name of the run, and of the topic of Dask to which progress is told.
    number
        That of the job.
    """

    function: Do
    job: Job
    prepare: Callable[[], None]
    topic: str
    number: int

    def __reduce__(self) -> Any:
        return _work, (self.function, self.job, self.prepare, self.topic, self.number)

    def pack(self) -> bytes:
        """Return the bytes that a worker loads."""
        return pickle.dumps(self)


def _work(function: Do, job: Job, prepare: Callable[[], None], topic: str, number: int) -> Any:
    """Do a job on a worker; tell now and then how much of it is done."""
    from distributed import get_worker

    worker, told, total = get_worker(), time.monotonic(), 0.0

    def tell(share: float) -> None:
        nonlocal told, total
        total += share
        if time.monotonic() - told > _TELL:
            worker.log_event(topic, (number, total))
            told = time.monotonic()

    with ALONE:
        if topic not in _prepared:
            # Dask has its workers compute in a thread; here one job has all that are given to it.
            os.environ.update(dict.fromkeys(THREADS, str(worker.state.nthreads)))
            prepare()
            _prepared.add(topic)
        worker.log_event(topic, (number, 0.0))  # it has begun
        return function(job, tell), total
