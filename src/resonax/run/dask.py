"""Jobs on the workers of a Dask cluster: one at a time for each, and no more at once than those.

The scheduler holds only the jobs that are being done, however many there are, so that neither it
nor the caller grows with the work. Dask gives the job of a worker that ended to another by itself.
If the scheduler itself ends and is started again, the jobs that it had are given to it again.
"""

from __future__ import annotations

import contextlib
import logging
import math
import pickle
import queue
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from resonax.core.errors import ArgumentError, Interrupted, ResonaxError
from resonax.run.dask_worker import Call
from resonax.run.executor import Do, Job, Lost, Tell, Then

if TYPE_CHECKING:
    from distributed import Client, Future

__all__ = ["Dask"]

_LOG = logging.getLogger("resonax")
_LOOK = 0.5  # seconds between two looks at the workers and at what became of the jobs
_RETURN = 120.0  # seconds that a scheduler has to come back
_START = 60.0  # further seconds that a worker has to begin a job
_QUIET = 30.0  # seconds without any worker after which that is said
_FETCH = 30.0  # seconds that a worker has to hand over a result


def _nothing() -> None:
    """Prepare nothing."""


@dataclass(eq=False)
class _Sent:
    """A job that a worker has."""

    job: Job
    worker: str
    future: Future
    total: float = 0.0  # of the shares that it told
    heard: float = field(default_factory=time.monotonic)
    has_begun: bool = False
    is_stranded: bool = False  # its worker is gone, and no other has it

    def note(self, total: float, advance: Tell) -> None:
        """Tell what is new of its progress, less than nothing if it was begun anew."""
        if total != self.total:
            advance(self.job, total - self.total)
        self.total, self.heard, self.has_begun = total, time.monotonic(), True

    def is_silent(self, limit: float) -> bool:
        """Return whether it has said nothing for so long, after what a worker takes to start."""
        return time.monotonic() - self.heard > limit + (0.0 if self.has_begun else _START)


class Dask:
    """Does jobs on the workers of a Dask cluster.

    Parameters
    ----------
    client
        A client of `distributed`.
    prepare
        What each worker calls before its first job; it can be sent to them.
    workers
        How many workers there will be; those that are there now if None.
    begin
        Called before the first job, such as to ask a queue for workers.
    limit
        Seconds that a job may take without a sign of progress, before its worker is started anew.
        That needs workers with a nanny, as they have unless they were asked to have none.
    """

    is_remote = True

    def __init__(
        self,
        client: Client,
        prepare: Callable[[], None] = _nothing,
        *,
        workers: int | None = None,
        begin: Callable[[], None] = _nothing,
        limit: float | None = None,
    ) -> None:
        if client.asynchronous:
            raise ArgumentError("executor must be a Client that is not asynchronous")
        # Type checkers take the methods of a client for those of an asynchronous one.
        self._client: Any = client
        self._prepare, self._begin, self._limit = prepare, begin, limit
        self._own: Client | None = None  # one that took the place of the client
        self._address = client.scheduler.address if client.scheduler else ""
        self.workers = workers or max(len(self._client.nthreads()), 1)
        self._topic = f"resonax-{uuid.uuid4().hex}"
        self._news = queue.SimpleQueue[tuple[int, float | None]]()
        self._count = 0
        self._alone_since: float | None = None  # when the last worker was seen to be gone

    def run(self, function: Do, jobs: Sequence[Job], advance: Tell, then: Then) -> None:
        """Do some jobs, and those that follow from them; an error of a job is raised here."""
        waiting, sent = deque(jobs), dict[int, _Sent]()
        looked, free = 0.0, set[str]()
        if waiting:
            self._begin()
        self._listen()
        try:
            while waiting or sent:
                if time.monotonic() - looked > _LOOK:
                    looked, free = time.monotonic(), self._look(sent)
                while waiting and free:
                    number, one = self._send(function, waiting.popleft(), free.pop())
                    sent[number] = one
                for one in self._ended(sent, advance):
                    free.add(one.worker)
                    waiting.extendleft(reversed(then(one.job, self._result(one, advance))))
                # Only now: what was told while this process was busy has been heard.
                self._restart_silent(sent.values())
        finally:
            with contextlib.suppress(Exception):
                self._client.unsubscribe_topic(self._topic)
                self._client.cancel([one.future for one in sent.values()], force=True)
            if self._own is not None:
                self._own.close()

    def _listen(self) -> None:
        """Hear of the progress of the jobs."""
        self._client.subscribe_topic(self._topic, lambda event: self._news.put(event[1]))

    def _send(self, function: Do, job: Job, worker: str) -> tuple[int, _Sent]:
        """Give a job to a worker, or to another if that has ended."""
        self._count += 1
        number = self._count
        future = self._client.submit(
            pickle.loads,
            Call(function, job, self._prepare, self._topic, number).pack(),
            key=f"{self._topic}-{number}",
            workers=[worker],
            allow_other_workers=True,
            pure=False,
        )
        future.add_done_callback(lambda _: self._news.put((number, None)))
        return number, _Sent(job, worker, future)

    def _ended(self, sent: dict[int, _Sent], advance: Tell) -> Iterator[_Sent]:
        """Wait for news; tell of progress, and yield the jobs that are at an end."""
        with contextlib.suppress(queue.Empty):
            number, total = self._news.get(timeout=_LOOK)
            while True:
                if number in sent and total is not None:
                    sent[number].note(total, advance)
                elif number in sent:
                    yield sent.pop(number)
                number, total = self._news.get_nowait()

    def _result(self, one: _Sent, advance: Tell) -> Any:
        """Return the result of a job that is at an end, or that it is lost."""
        from distributed import KilledWorker
        from distributed.client import FutureCancelledError

        ended = Lost("its workers were ended from outside, perhaps for want of memory")
        if one.is_stranded:
            return ended
        try:
            result, total = one.future.result(timeout=_FETCH)
        except ResonaxError:
            raise
        except KilledWorker:
            return ended
        except (FutureCancelledError, OSError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and self._client.status == "running":
                raise
            return Lost("the connection to the scheduler was lost", is_suspect=False)
        except (ImportError, AttributeError) as error:
            raise ArgumentError(
                f"the workers at {self._address} cannot run this ({type(error).__name__}: "
                f"{error}): install the same version of resonax there as here"
            ) from None
        finally:
            with contextlib.suppress(Exception):
                one.future.release()
        one.note(total, advance)
        return result

    def _look(self, sent: dict[int, _Sent]) -> set[str]:
        """Return the workers without a job; see to jobs that ended unheard, or have no worker."""
        workers = self._workers()
        if workers:
            self._alone_since = None
        elif self._alone_since is None:
            self._alone_since = time.monotonic()
        elif time.monotonic() - self._alone_since > _QUIET:
            _LOG.warning("the scheduler %s has no workers: waiting for one", self._address)
            self._alone_since = math.inf
        for number, one in sent.items():
            if one.future.status not in ("pending", "lost"):
                self._news.put((number, None))
        if workers:
            self._end_stranded(sent, workers)
        return workers - {one.worker for one in sent.values()}

    def _end_stranded(self, sent: dict[int, _Sent], workers: set[str]) -> None:
        """End the jobs whose worker is gone and that no other has.

        Dask gives them to others, unless all workers went at once: then a job that was meant for
        one of them is not given to those that come later.
        """
        alone = {number: one for number, one in sent.items() if one.worker not in workers}
        if not any(one.future.status == "pending" for one in alone.values()):
            return
        with contextlib.suppress(OSError, RuntimeError):  # the scheduler ends: seen to next time
            held = {key for keys in self._client.processing().values() for key in keys}
            for number, one in alone.items():
                if one.future.status == "pending" and one.future.key not in held:
                    self._client.cancel([one.future], force=True)
                    one.is_stranded = True
                    self._news.put((number, None))

    def _workers(self) -> set[str]:
        """Return the addresses of the workers, after a scheduler that ended has come back."""
        deadline = time.monotonic() + _RETURN
        is_lost = False
        while time.monotonic() < deadline:
            try:
                if self._client.status == "closed":
                    self._reconnect()
                if self._client.status == "running":
                    found = set(self._client.nthreads())
                    if is_lost:
                        _LOG.warning("the scheduler %s is back", self._address)
                        self._listen()
                    return found
            except (OSError, RuntimeError):  # it has just ended, or has not come back
                pass
            if not is_lost:
                _LOG.warning("the scheduler %s is gone: waiting for it", self._address)
                is_lost = True
            time.sleep(_LOOK)
        raise Interrupted(
            f"the scheduler {self._address} ended and did not come back in {_RETURN:g} seconds: "
            "start it and run the same command again; what was stored is kept"
        )

    def _reconnect(self) -> None:
        """Take a new client in the place of one that has given up."""
        from distributed import Client

        security = self._client.security
        self._client = Client(self._address, timeout=2.0, set_as_default=False, security=security)
        if self._own is not None:
            self._own.close()
        self._own = self._client

    def _restart_silent(self, sent: Iterable[_Sent]) -> None:
        """Start the workers anew whose jobs say nothing; Dask then gives these to others."""
        limit = self._limit or math.inf
        silent = [one for one in sent if one.future.status == "pending" and one.is_silent(limit)]
        if not silent:
            return
        for one in silent:
            one.heard, one.has_begun = time.monotonic(), False
        keys, client = {one.future.key for one in silent}, self._client

        def restart() -> None:
            with contextlib.suppress(Exception):  # without a nanny it cannot be
                found = [name for name, has in client.processing().items() if keys & set(has)]
                words = ", ".join(found)
                _LOG.warning("started anew after %g seconds of silence: %s", limit, words)
                client.restart_workers(found, timeout=_FETCH, raise_for_error=False)

        # A nanny takes a while to end a worker that does not answer: the other jobs go on.
        threading.Thread(target=restart, daemon=True).start()
