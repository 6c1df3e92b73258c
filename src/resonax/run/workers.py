"""Processes that wait for jobs, each at the end of a pipe; one that is lost is replaced.

A process may be killed, run out of memory, or hang. Its job is told to be `Lost`, another process
takes its place, and all other jobs go on.

Some may own a device: these do the jobs that say ``on_device``, and the others do all others.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from multiprocessing.process import BaseProcess
from typing import Any

from resonax.core.errors import Interrupted
from resonax.run.executor import Advance, Do, Job, Lost, Tell, Then

__all__ = ["Worker", "Workers"]

_UNFIT = 3  # workers, for each place, that may end in a row before they say anything
_START = 60.0  # further seconds that it has to start
_PATIENCE = 10.0  # seconds that a worker has to end by itself


def _prepare(functions: Sequence[Callable[[], Any]], _: Advance) -> Any:
    """Call functions; return what the last one does."""
    return [function() for function in functions][-1]


@dataclass(eq=False)
class Worker:
    """A process, the pipe to it, and the job it is at."""

    process: BaseProcess
    pipe: Connection
    place: int  # which of the workers it is, or takes the place of
    job: Job = None
    is_busy: bool = False
    is_preparing: bool = False
    heard: float = 0.0  # when it last said something, or was given something
    has_begun: bool = False  # whether it has said anything yet
    silent: bool = False  # whether it was ended because it said nothing

    def give(self, function: Do, job: Job) -> None:
        self.job, self.is_busy, self.heard = job, True, time.monotonic()
        with suppress(ConnectionError):  # it has ended, as its pipe will say
            self.pipe.send((function, job))


class Workers:
    """An executor of processes that wait for jobs; make it with `worker_processes`.

    One that ends from outside, or says nothing for longer than ``limit`` seconds, is replaced by
    another, and its job is `Lost`. The first ``owners`` of them own a device.
    """

    gpus = 1  # that they share, if they use any

    def __init__(
        self,
        start: Callable[[int], Worker],
        count: int,
        limit: float | None = None,
        owners: int = 0,
    ) -> None:
        self._start, self.workers, self._limit, self.owners = start, count, limit, owners
        self._functions: tuple[Callable[[], Any], ...] = ()  # that prepare a worker
        self._describe: Callable[[], Any] | None = None  # that an owner calls last
        self._owned: list[Any] = []  # what it returned
        self._workers: dict[Any, Worker] = {}
        self._starting = 0  # workers that are being started beside the first jobs
        self._new: deque[Worker | Exception] = deque()  # those of them that are there
        self._starter = threading.Thread()
        self._started: Any = None  # the pipe that tells of them
        self._unfit = 0  # workers in a row that ended before they could begin

    def start(self, first: int = 0, last: int | None = None) -> None:
        """Start the workers of some places, all if none are named."""
        for place in range(first, self.workers if last is None else last):
            self._add(place)

    def _add(self, place: int) -> None:
        worker = self._start(place)
        self._workers[worker.pipe] = worker
        self._let_prepare(worker)

    def _let_prepare(self, worker: Worker) -> None:
        functions = self._functions
        if self._describe and worker.place < self.owners:
            functions = (*functions, self._describe)
        if functions:
            worker.give(_prepare, functions)
            worker.is_preparing = True

    def prepare(
        self, function: Callable[[], None], describe: Callable[[], Any] | None = None
    ) -> None:
        """Let each worker call a function first, such as one that loads libraries.

        Those that own a device call ``describe`` after it, and `owned` returns what that returns.
        """
        self._functions, self._describe = (function,), describe
        for worker in self._workers.values():
            self._let_prepare(worker)

    def owned(self) -> Any:
        """Return what the first owner of a device says of it."""
        while not self._owned:
            (worker,) = (one for one in self._workers.values() if one.place == 0)
            kind, content = self._take(worker)
            if kind == "failed":
                raise content
            if kind != "share":
                self._note_end(worker, kind, content)
        return self._owned[0]

    def _note_end(self, worker: Worker, kind: str, content: Any) -> None:
        """Note that a worker has done what it was given, or has ended, and replace it then."""
        if worker.is_preparing and kind == "done" and worker.place == 0:
            self._owned = [content]
        worker.is_busy = worker.is_preparing = False
        if kind == "ended":
            self._replace(worker)

    def _next(self, waiting: deque[Job], place: int) -> Job | None:
        """Return the first of the waiting jobs that the worker of a place does."""
        for job in waiting:
            if not self.owners or getattr(job, "on_device", False) == (place < self.owners):
                waiting.remove(job)
                return job
        return None

    def _start_others(self) -> None:
        """Start the workers that have not been started yet, beside the jobs of those that have."""
        places = range(len(self._workers), self.workers)
        if not places:
            return
        self._started, tell = Pipe(duplex=False)
        self._starting = len(places)

        def start() -> None:
            for place in places:
                try:
                    self._new.append(self._start(place))
                except Exception as error:  # which is raised where it is seen
                    self._new.append(error)
                tell.send_bytes(b"+")

        self._starter = threading.Thread(target=start, daemon=True)
        self._starter.start()

    def _take_started(self) -> None:
        """Take up the next of the workers that were started beside."""
        self._started.recv_bytes()
        self._starting -= 1
        worker = self._new.popleft()
        if isinstance(worker, Exception):
            raise worker
        self._workers[worker.pipe] = worker
        self._let_prepare(worker)

    def _hand_out(self, function: Do, waiting: deque[Job]) -> None:
        """Give jobs to the workers that have none."""
        for worker in self._workers.values():
            if not worker.is_busy and (job := self._next(waiting, worker.place)) is not None:
                worker.give(function, job)

    def run(self, function: Do, jobs: Sequence[Job], advance: Tell, then: Then) -> None:
        """Do some jobs, and those that follow from them; an error of a job is raised here."""
        waiting = deque(jobs)
        self._start_others()
        while True:
            self._hand_out(function, waiting)
            busy = [worker for worker in self._workers.values() if worker.is_busy]
            if not waiting and all(worker.is_preparing for worker in busy):
                return
            news = [self._started] if self._starting else []
            for pipe in wait([*news, *(one.pipe for one in busy)], self._patience(busy)):
                if pipe is self._started:
                    self._take_started()
                    continue
                worker = self._workers[pipe]
                kind, content = self._take(worker)
                if kind == "failed":
                    raise content
                if kind == "share":
                    if not worker.is_preparing:
                        advance(worker.job, content)
                    continue
                is_preparing, job = worker.is_preparing, worker.job
                self._note_end(worker, kind, content)
                if not is_preparing:
                    waiting.extendleft(reversed(then(job, content)))

    def _patience(self, busy: Sequence[Worker]) -> float | None:
        """End the workers that have been silent for too long; return when to look again."""
        if self._limit is None:
            return None
        now, left = time.monotonic(), []
        for worker in busy:
            limit = self._limit + (0.0 if worker.has_begun else _START)
            left.append(max(worker.heard + limit - now, 0.1))
            if now - worker.heard > limit and not worker.silent:
                worker.silent = True
                worker.process.kill()
        return min(left, default=None)

    def _take(self, worker: Worker) -> tuple[str, Any]:
        """Return what a worker says, or that it has ended."""
        try:
            kind, content = worker.pipe.recv()
        except (EOFError, ConnectionError):
            if worker.silent:
                return "ended", Lost(f"its worker said nothing for {self._limit:g} seconds")
            return "ended", Lost("its worker was ended from outside, perhaps for want of memory")
        worker.heard, worker.has_begun = time.monotonic(), True
        if kind == "done":
            self._unfit = 0
        return kind, content

    def _replace(self, worker: Worker) -> None:
        """Start another worker in the place of one that ended."""
        worker.process.join()
        del self._workers[worker.pipe]
        worker.pipe.close()
        self._unfit += 1
        if self._unfit > _UNFIT * self.workers:
            raise Interrupted(
                f"{self._unfit} workers in a row were ended from outside before they said "
                "anything, perhaps for want of memory: run the same command again with fewer "
                "--workers; what was stored is kept"
            )
        self._add(worker.place)

    def end(self) -> None:
        """End all workers now."""
        for worker in self._workers.values():
            worker.process.kill()  # as a process that is stopped hears nothing else

    def dismiss(self) -> None:
        """Let the workers end: there are no more jobs."""
        if self._starter.is_alive():
            self._starter.join(_PATIENCE)
        for worker in self._new:
            if isinstance(worker, Worker):
                self._workers[worker.pipe] = worker
        self._new.clear()
        for worker in self._workers.values():
            worker.pipe.close()

    def close(self) -> None:
        """Let the workers end, and wait for that."""
        self.dismiss()
        for worker in self._workers.values():
            worker.process.join(_PATIENCE)
            worker.process.kill()
            worker.process.join()
