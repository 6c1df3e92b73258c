"""A second process beside one that does jobs itself: for what comes after them, such as figures.

It is a copy of this process, made before jax or any thread is there, and loads libraries while this
one loads jax. What it is asked for, this process does itself where the other has ended.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from resonax.executors.executor import Advance
from resonax.executors.interrupts import defer_interrupts
from resonax.executors.workers import Worker

__all__ = ["Helper", "Start", "begin_in_copy", "start_helper"]

_PATIENCE = 30.0  # seconds that a copy has

J = TypeVar("J")
Start = Callable[[Any], Worker]


def _begin(first: Callable[[], Any], _: Advance) -> None:
    first()


def _call(asked: tuple[Callable[[Any], Any], Any], _: Advance) -> Any:
    function, given = asked
    return function(given)


class Helper:
    """Calls functions in another process, one at a time."""

    def __init__(self, worker: Worker, first: Callable[[], Any]) -> None:
        self._worker = worker
        worker.give(_begin, first)
        self._answers = 1  # that are to come

    def call(
        self, function: Callable[[J], Any], given: J, meanwhile: Callable[[], Any] | None = None
    ) -> Any:
        """Return what a function gives; both are sent to the other process.

        ``meanwhile`` is called in this one.
        """
        self._worker.give(_call, (function, given))
        self._answers += 1
        if meanwhile:
            meanwhile()
        while True:
            try:
                kind, content = self._worker.pipe.recv()
            except (EOFError, ConnectionError):  # it was ended from outside
                return function(given)
            if kind == "share":
                continue
            self._answers -= 1
            if self._answers:
                continue
            if kind == "failed":
                raise content
            return content


def begin_in_copy(function: Callable[[], Any]) -> Callable[[], bool]:
    """Let a copy of this process call a function; return what waits, and says if it was done.

    For a helper, in which no other thread holds anything; the function must not need one.
    """
    with warnings.catch_warnings():  # of the thread that waits for the end of the parent
        warnings.simplefilter("ignore", DeprecationWarning)
        copy = os.fork()
    if not copy:
        status = 1
        try:
            function()
            status = 0
        finally:
            os._exit(status)

    def is_done() -> bool:
        ended = os.pidfd_open(copy)
        try:
            if not select.select([ended], [], [], _PATIENCE)[0]:
                os.kill(copy, signal.SIGKILL)
        finally:
            os.close(ended)
        return os.waitpid(copy, 0)[1] == 0

    return is_done


@contextmanager
def start_helper(start: Start, first: Callable[[], Any]) -> Iterator[Helper | None]:
    """Give a helper that calls a function at once; None where a process cannot be copied.

    ``start`` starts a worker, given how processes are made.
    """
    if sys.platform != "linux" or "jax" in sys.modules:
        yield None
        return
    with defer_interrupts():
        # One from the keyboard reaches all processes: the helper inherits that it is blocked.
        old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            worker = start(multiprocessing.get_context("fork"))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, old)
    try:
        yield Helper(worker, first)
    finally:
        worker.process.kill()
        worker.process.join()
        worker.pipe.close()
