"""Computations for requests, in threads beside the event loop.

Each kind of question has one thread. A newer request of the same client replaces an older one: one
that waits is dropped, and one that runs ends between its slices (`CancellableCall.check`). So ten
clients that drag at once leave at most one request each.
"""

from __future__ import annotations

import asyncio
import functools
import json
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pkgutil import resolve_name
from typing import Any

from resonax.explore.errors import RequestError, Superseded

__all__ = ["Threads"]

_THREADS = ("map", "verdict", "details")
_MAX_WAITING = 64  # requests of a thread
_MAX_CACHED = 64  # answers
_LOADING = threading.Lock()


class CancellableCall:
    """A computation that can be cancelled from any thread."""

    def __init__(self) -> None:
        self._is_cancelled = threading.Event()
        self._future: Future[Any] | None = None

    def cancel(self) -> None:
        """End it before it starts, or at its next slice."""
        self._is_cancelled.set()
        if self._future is not None:
            self._future.cancel()

    def check(self, *_: Any) -> None:
        """Raise `Superseded` if it was cancelled; called between slices."""
        if self._is_cancelled.is_set():
            raise Superseded

    def start(self, pool: ThreadPoolExecutor, function: Callable[[], bytes]) -> Future[bytes]:
        """Submit it to a thread."""
        self._future = pool.submit(function)
        return self._future

    def run(
        self, prepare: Callable[[], None], name: str, given: tuple[Any, ...], question: Any = None
    ) -> bytes:
        """Return the answer as JSON; with the question that was sent, unless that is None."""
        self.check()
        # One thread imports at a time: of two that import parts of one library, one may find it
        # half loaded.
        with _LOADING:
            prepare()
            function = resolve_name(name)
        found = function(self.check, *given)
        self.check()
        answer = found if question is None else {"asked": question, **found}
        return json.dumps(answer, allow_nan=False, separators=(",", ":")).encode()


class Threads:
    """The threads of a server; make it inside the event loop that serves them.

    ``prepare()`` is called once, before any computation.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = functools.cache(prepare)
        self._pools: dict[str, ThreadPoolExecutor] = {
            name: ThreadPoolExecutor(1, f"explore-{name}") for name in _THREADS
        }
        self._wanted: dict[str, set[CancellableCall]] = {name: set() for name in _THREADS}
        self._latest: dict[tuple[str, str], CancellableCall] = {}
        self._answers: dict[tuple[str, str], bytes] = {}  # the least recently used first

    async def compute(
        self,
        thread: str,
        name: str,
        *given: Any,
        client: str = "",
        disconnected: Callable[[], Awaitable[None]] | None = None,
        is_cached: bool = False,
        question: Any = None,
    ) -> bytes:
        """Return what ``name(check, *given)`` returns, as JSON.

        Parameters
        ----------
        thread
            The thread that computes it.
        name
            A function, as ``module:function``: it is imported by that thread.
        given
            Its arguments.
        client
            Who asks: a newer request of the same client for the same function replaces this one.
        disconnected
            Returns when nobody waits for the answer any more.
        is_cached
            Whether the answer depends on nothing but what is given: then it is computed once.
        question
            The JSON that was sent, which is sent back with its answer.
        """
        computation, key, wanted = CancellableCall(), (client, name), self._wanted[thread]
        if client and (older := self._latest.pop(key, None)) is not None:
            older.cancel()
            wanted.discard(older)
        key_of_answer = (name, json.dumps([question, given])) if is_cached else None
        if key_of_answer in self._answers:
            return self._cache(key_of_answer, self._answers[key_of_answer])
        if len(wanted) >= _MAX_WAITING:
            raise RequestError("Too many requests wait: try again in a moment.", 503)
        wanted.add(computation)
        if client:
            self._latest[key] = computation
        run = functools.partial(computation.run, self._prepare, name, given, question)
        future = asyncio.wrap_future(computation.start(self._pools[thread], run))
        leaving = asyncio.ensure_future(disconnected()) if disconnected else None
        try:
            if leaving is not None:
                await asyncio.wait({future, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not future.done():
                    raise Superseded
            return self._cache(key_of_answer, await future)
        except asyncio.CancelledError:
            if future.cancelled() and not _is_cancelling():
                raise Superseded from None
            raise
        finally:
            computation.cancel()
            wanted.discard(computation)
            future.add_done_callback(_retrieve_exception)
            if leaving is not None:
                leaving.cancel()
            if self._latest.get(key) is computation:
                del self._latest[key]

    def _cache(self, key: tuple[str, str] | None, answer: bytes) -> bytes:
        """Keep an answer under a key, if it has one; drop the least recently used answer."""
        if key is not None:
            self._answers.pop(key, None)
            self._answers[key] = answer
            if len(self._answers) > _MAX_CACHED:
                del self._answers[next(iter(self._answers))]
        return answer

    def warm_up(self, thread: str, name: str) -> None:
        """Call ``name(check)`` when a thread is free, for what it imports and compiles."""
        run = functools.partial(CancellableCall().run, self._prepare, name, ())
        self._pools[thread].submit(run).add_done_callback(_retrieve_exception)

    def close(self) -> None:
        """Start nothing more; what runs is left to end."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


def _retrieve_exception(future: Any) -> None:
    """Retrieve the exception, so that asyncio does not warn."""
    if not future.cancelled():
        future.exception()


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
