"""Work for requests: threads beside the event loop, where a newer request replaces an older one.

Each lane is one thread. What waits there and is no longer wanted costs nothing; what runs is asked
between its slices (`Ticket.check`) whether to go on. So ten clients that drag at once leave at most
one request each, and the event loop never computes.
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

__all__ = ["Desk", "Ticket"]

_LANES = ("map", "verdict", "beside")
_MOST = 64  # requests that may wait in a lane
_KEPT = 64  # answers that are given again
_LOADING = threading.Lock()


class Ticket:
    """A request that is wanted until it is dropped, from any thread."""

    def __init__(self) -> None:
        self._dropped = threading.Event()
        self._future: Future[Any] | None = None

    def drop(self) -> None:
        """Give the request up: it ends before it starts, or at its next slice."""
        self._dropped.set()
        if self._future is not None:
            self._future.cancel()

    def check(self, *_: Any) -> None:
        """Raise `Superseded` if nobody wants the answer any more; called between slices."""
        if self._dropped.is_set():
            raise Superseded

    def start(self, pool: ThreadPoolExecutor, function: Callable[[], bytes]) -> Future[bytes]:
        """Hand the work to a thread."""
        self._future = pool.submit(function)
        return self._future

    def call(
        self, prepare: Callable[[], None], name: str, given: tuple[Any, ...], asked: Any = None
    ) -> bytes:
        """Do the work; the answer says what was ``asked``, unless that is None."""
        self.check()
        # One thread loads at a time: of two that load parts of one library, one may find it half
        # loaded.
        with _LOADING:
            prepare()
            function = resolve_name(name)
        found = function(self.check, *given)
        self.check()
        told = found if asked is None else {"asked": asked, **found}
        return json.dumps(told, allow_nan=False, separators=(",", ":")).encode()


class Desk:
    """Where requests are handed in; make it inside the event loop that serves them.

    ``prepare()`` is called once, before all work.
    """

    def __init__(self, prepare: Callable[[], None]) -> None:
        self._prepare = functools.cache(prepare)
        self._pools: dict[str, ThreadPoolExecutor] = {
            lane: ThreadPoolExecutor(1, f"explore-{lane}") for lane in _LANES
        }
        self._wanted: dict[str, set[Ticket]] = {lane: set() for lane in _LANES}
        self._latest: dict[tuple[str, str], Ticket] = {}
        self._answers: dict[tuple[str, str], bytes] = {}  # the one that was last asked for last

    async def do(
        self,
        lane: str,
        name: str,
        *given: Any,
        client: str = "",
        gone: Callable[[], Awaitable[None]] | None = None,
        keeps: bool = False,
        asked: Any = None,
    ) -> bytes:
        """Return what ``name(check, *given)`` returns, as JSON.

        Parameters
        ----------
        lane
            The thread that does it.
        name
            A function, as ``module:function``: it is imported by that thread.
        given
            Its arguments.
        client
            Who asks: a newer request of the same client for the same function replaces this one.
        gone
            Returns when nobody waits for the answer any more.
        keeps
            Whether the answer depends on nothing but what is given: it is then given again.
        asked
            The question as it was put, which goes back with its answer: who asks one after the
            other knows by it what an answer is about.
        """
        ticket, key, wanted = Ticket(), (client, name), self._wanted[lane]
        if client and (older := self._latest.pop(key, None)) is not None:
            older.drop()
            wanted.discard(older)
        question = (name, json.dumps([asked, given])) if keeps else None
        if question in self._answers:
            return self._keep(question, self._answers[question])
        if len(wanted) >= _MOST:
            raise RequestError("Too many requests wait: try again in a moment.", 503)
        wanted.add(ticket)
        if client:
            self._latest[key] = ticket
        call = functools.partial(ticket.call, self._prepare, name, given, asked)
        work = asyncio.wrap_future(ticket.start(self._pools[lane], call))
        leaving = asyncio.ensure_future(gone()) if gone else None
        try:
            if leaving is not None:
                await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
                if not work.done():
                    raise Superseded
            return self._keep(question, await work)
        except asyncio.CancelledError:
            if work.cancelled() and not _is_cancelling():
                raise Superseded from None
            raise
        finally:
            ticket.drop()
            wanted.discard(ticket)
            work.add_done_callback(_forget)
            if leaving is not None:
                leaving.cancel()
            if self._latest.get(key) is ticket:
                del self._latest[key]

    def _keep(self, question: tuple[str, str] | None, answer: bytes) -> bytes:
        """Keep the answer to a question, if it is one to be kept; the oldest goes for it."""
        if question is not None:
            self._answers.pop(question, None)
            self._answers[question] = answer
            if len(self._answers) > _KEPT:
                del self._answers[next(iter(self._answers))]
        return answer

    def warm_up(self, lane: str, name: str) -> None:
        """Let a lane call ``name(check)`` when it is free, for what it loads and compiles."""
        call = functools.partial(Ticket().call, self._prepare, name, ())
        self._pools[lane].submit(call).add_done_callback(_forget)

    def close(self) -> None:
        """Start nothing more; what runs is left to end."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)


def _forget(work: Any) -> None:
    """Look at what came of work that nobody waits for, so that it is not told as lost."""
    if not work.cancelled():
        work.exception()


def _is_cancelling() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
