"""Running checks: each in a process, with events that a page follows, also after a reload.

A process that has finished its check takes the next one; it is killed only with its check. From the
first sign of a check on one process waits, so that libraries load while nobody does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import shutil
import sys
import tempfile
import traceback
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resonax.explore.check_process import CheckProcess
from resonax.explore.check_worker import CheckRequest
from resonax.explore.errors import RequestError, describe_error

__all__ = ["CheckJob", "CheckJobs"]

_MAX_RUNNING = 2  # checks that run; others wait
_MAX_UNFINISHED = 16  # that are waiting or running
_MAX_FINISHED = 8  # whose results are kept
_ENDS = ("result", "failed", "cancelled")
_WORKER_KILLED = (
    "The worker process of this check was killed, perhaps for want of memory: check again, "
    "and if that ends in the same way use fewer rows."
)
_UPLOADS = "resonax-explore-"  # what folders of uploads are called, with the id of their process


@dataclass(eq=False)
class CheckJob:
    """One check: its events so far, and who waits for more."""

    id: str
    client: str
    request: CheckRequest
    folder: Path | None  # of an upload, to be removed
    state: str = "waiting"
    events: list[tuple[int, str, str]] = field(default_factory=list)  # number, name, JSON
    result: dict[str, Any] | None = None
    report: str | None = None
    process: CheckProcess | None = None  # while it works on this check
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)
    _count: int = 0

    async def add(self, name: str, content: Any) -> None:
        """Add an event; of progress only the last is kept."""
        async with self.changed:
            if self.events and self.events[-1][1] == name == "progress":
                self.events.pop()
            self._count += 1
            self.events.append((self._count, name, json.dumps(content, allow_nan=False)))
            self.changed.notify_all()

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come but the report."""
        return self.state in ("done", "failed", "cancelled")

    @property
    def is_under_way(self) -> bool:
        """Whether it has a process, or waits for one."""
        return self.process is not None or not self.is_over

    async def follow(self, after: int) -> AsyncIterator[str]:
        """Yield the events after a number, as server-sent events, until the last one."""
        while True:
            async with self.changed:
                new = [event for event in self.events if event[0] > after]
                if not new:
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self.changed.wait(), 15)
                    new = [event for event in self.events if event[0] > after]
            if not new:
                yield ": still here\n\n"  # so that a closed connection is noticed
            for number, name, content in new:
                after = number
                yield f"id: {number}\nevent: {name}\ndata: {content}\n\n"
                if name in _ENDS:
                    return

    def discard(self) -> None:
        """Remove the upload."""
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = None


class CheckJobs:
    """All checks of a server; make it inside the event loop that serves them."""

    def __init__(self, prepare: Callable[[], None] | None) -> None:
        self._prepare = prepare
        self._jobs: dict[str, CheckJob] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(_MAX_RUNNING)
        self._spare: CheckProcess | None = None
        self._is_closed = False
        _remove_stale()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_UPLOADS}{os.getpid()}-"))

    def new_folder(self) -> Path:
        """Return a new folder for an upload; only this user can look into it."""
        return Path(tempfile.mkdtemp(dir=self._folder))

    def start_spare(self) -> None:
        """Start a process for the next check, unless one waits already."""
        if self._spare is None or not self._spare.is_free:
            self._spare = CheckProcess.start(self._prepare)

    def start(self, request: CheckRequest, client: str, folder: Path | None) -> CheckJob:
        """Begin a check; an older one of the same client is given up."""
        for job in [job for job in self._jobs.values() if client and job.client == client]:
            self.cancel(job)
        if sum(not job.is_over for job in self._jobs.values()) >= _MAX_UNFINISHED:
            raise RequestError("Too many checks are under way: try again in a moment.", 503)
        job = CheckJob(secrets.token_urlsafe(12), client, request, folder)
        self._jobs[job.id] = job
        over = [old for old in self._jobs.values() if old.is_over]
        for old in over[: max(0, len(over) - _MAX_FINISHED)]:
            del self._jobs[old.id]
        task = asyncio.ensure_future(self._run(job))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return job

    def find(self, name: str) -> CheckJob:
        """Return a job by its id."""
        if name not in self._jobs:
            raise RequestError("There is no such check here: it may have been replaced.", 404)
        return self._jobs[name]

    def cancel(self, job: CheckJob) -> None:
        """End a check, wherever it is; one that is over stays as it is."""
        if job.is_over:
            return
        job.state = "cancelled"
        if job.process is not None:
            job.process.kill()
        job.discard()
        task = asyncio.ensure_future(job.add("cancelled", {}))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def close(self) -> None:
        """End all checks, and leave nothing behind."""
        self._is_closed = True
        for process in (self._spare, *(job.process for job in self._jobs.values())):
            if process is not None:
                process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    async def _run(self, job: CheckJob) -> None:
        await job.add("progress", {"stage": "waiting", "fraction": 0.0, "seconds_left": None})
        async with self._slots:
            if job.is_over:
                return
            job.state = "running"
            try:
                await self._work_on(job)
            except Exception as error:  # else the page would wait forever
                traceback.print_exception(error, file=sys.stderr)
                await self._fail(job, describe_error(error)[1])
            if not job.is_over:  # the process ended without a message
                await self._fail(job, {"error": _WORKER_KILLED})
            async with job.changed:  # wake who waits for its report
                job.changed.notify_all()
            if not self._is_closed and not any(other.is_under_way for other in self._jobs.values()):
                self.start_spare()  # else the process of another check will come back

    async def _work_on(self, job: CheckJob) -> None:
        process = job.process = self._take_spare()
        try:
            async for kind, content in process.check(job.request):
                await self._handle_message(job, kind, content)
        finally:
            job.process = None
            job.discard()
            self._give_back(process)

    def _take_spare(self) -> CheckProcess:
        self.start_spare()
        spare, self._spare = self._spare, None
        assert spare is not None
        return spare

    def _give_back(self, process: CheckProcess) -> None:
        """Let a process wait for the next check, if it can and none does."""
        if self._is_closed or not process.is_free or (self._spare and self._spare.is_free):
            process.kill()
        else:
            self._spare = process

    async def _handle_message(self, job: CheckJob, kind: str, content: Any) -> None:
        """Take what a worker sends; what comes after a cancel is not looked at."""
        if job.state == "cancelled":
            return
        if kind == "read":
            job.discard()
        elif kind == "report":
            job.report = content
            async with job.changed:
                job.changed.notify_all()
        elif kind == "failed":
            await self._fail(job, content)
        elif kind == "result":
            await job.add("result", content)
            job.result, job.state = content, "done"
        elif kind in ("progress", "partial"):
            await job.add(kind, content)

    async def _fail(self, job: CheckJob, content: dict[str, str]) -> None:
        if job.result is None:  # else only its report failed
            job.state = "failed"
            job.discard()
            await job.add("failed", content)


def _remove_stale() -> None:
    """Remove the uploads of servers that were killed before they could."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_UPLOADS}*-*"):
        number = folder.name.removeprefix(_UPLOADS).partition("-")[0]
        try:
            if number.isdecimal() and folder.stat().st_uid == os.getuid():
                os.kill(int(number), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (OSError, KeyError, OverflowError):
            continue
