"""Processes of checks: kept while they are sound, killed with their check, and never mixed up."""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from check_processes import Missing, obey
from resonax.core.errors import DataError
from resonax.explore import check_process, check_worker
from resonax.explore.check_worker import CheckRequest
from resonax.explore.jobs import CheckJob, CheckJobs

LOST = (
    "The worker process of this check was killed, perhaps for want of memory: check again, "
    "and if that ends in the same way use fewer rows."
)
DEFECT = "The server failed at this request, which is a defect of resonax."


def request(name: str) -> CheckRequest:
    return CheckRequest(Path(name), name, {})


@pytest.fixture
def attend(tmp_path, monkeypatch):
    """Run a scene with jobs whose processes obey; the jobs are closed after it."""

    def attend(scene: Callable[[CheckJobs], Awaitable[None]]) -> None:
        async def main() -> None:
            jobs = CheckJobs(None)
            try:
                await asyncio.wait_for(scene(jobs), 60)
            finally:
                jobs.close()

        asyncio.run(main())

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(check_process, "work", obey)
    return attend


def lives() -> set[int | None]:
    """Return the processes that this one has started."""
    return {one.pid for one in multiprocessing.active_children()}


async def reach(wanted: Callable[[], bool]) -> None:
    """Wait until something holds: a process that was killed lives for another moment."""
    while not wanted():
        await asyncio.sleep(0.005)


async def told(job: CheckJob) -> list[tuple[str, dict[str, Any]]]:
    """Return what a page hears of a job, but for its progress."""
    events = [event.strip().split("\n") async for event in job.follow(0)]
    found = [(name[7:], json.loads(content[6:])) for _, name, content in events]
    return [one for one in found if one[0] != "progress"]


async def started(job: CheckJob) -> int:
    """Return the process of a job, once it works on it."""
    await reach(lambda: any(name == "partial" for _, name, _ in job.events))
    return next(json.loads(each) for _, name, each in job.events if name == "partial")["process"]


async def left(job: CheckJob) -> None:
    """Wait until the process of a job has left it."""
    async with job.changed:
        await job.changed.wait_for(lambda: job.is_over and job.process is None)


def test_a_process_that_finished_takes_the_next_check_and_tells_of_nothing_else(attend):
    async def scene(jobs: CheckJobs) -> None:
        places = set()
        for name in ("one", "refuse", "two"):
            job = jobs.start(request(name), "", None)
            heard = await told(job)
            assert heard[0][1]["name"] == name
            end = ("failed", {"error": "No."}) if name == "refuse" else ("result", {"name": name})
            assert heard[1:] == [end]
            await left(job)
            assert job.report == (None if name == "refuse" else f"<p>{name}")
            places.add(heard[0][1]["process"])
        assert len(places) == 1
        assert places <= lives()
        spare = jobs._spare
        assert spare is not None
        assert spare.is_free
        spare.kill()
        assert not spare.is_free  # at once, also where its last words are still to be read

    attend(scene)


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("last", ("result", {"name": "last"})),
        ("no report", ("result", {"name": "no report"})),
        ("die", ("failed", {"error": LOST})),
        ("unreadable", ("failed", {"error": LOST})),
        ("not a number", ("failed", {"error": DEFECT})),
    ],
)
def test_a_process_that_ends_is_replaced_before_the_next_check(attend, name, end):
    others = lives()

    async def scene(jobs: CheckJobs) -> None:
        first = jobs.start(request(name), "", None)
        assert (await told(first))[1:] == [end]
        gone = await started(first)
        await reach(lambda: gone not in lives() and len(lives() - others) == 1)
        (waits,) = lives() - others
        second = jobs.start(request("one"), "", None)
        assert (await told(second))[-1] == ("result", {"name": "one"})
        assert await started(second) == waits

    attend(scene)


def test_a_check_that_is_given_up_takes_its_process_along(attend, tmp_path):
    async def scene(jobs: CheckJobs) -> None:
        folder = jobs.new_folder()
        first = jobs.start(request("hang"), "me", folder)
        process = await started(first)
        second = jobs.start(request("one"), "me", None)  # of the same client
        assert (await told(first))[-1] == ("cancelled", {})
        assert not folder.exists()
        assert (await told(second))[-1] == ("result", {"name": "one"})
        other = await started(second)
        await left(first)
        await left(second)
        jobs.cancel(second)  # it is over: its process, which waits, stays
        third = jobs.start(request("two"), "me", None)
        assert (await told(third))[-1] == ("result", {"name": "two"})
        assert await started(third) == other != process
        await reach(lambda: lives() - others == {other})

    others = lives()
    attend(scene)
    assert list(tmp_path.iterdir()) == []
    asyncio.run(asyncio.wait_for(reach(lambda: lives() <= others), 60))  # closed jobs leave none


def test_two_checks_at_once_have_a_process_each_and_one_waits_afterwards(attend):
    async def scene(jobs: CheckJobs) -> None:
        hangs = [jobs.start(request("hang"), client, None) for client in ("a", "b")]
        assert len({await started(job) for job in hangs}) == 2
        third = jobs.start(request("one"), "c", None)
        await asyncio.sleep(0.05)
        assert third.state == "waiting"
        jobs.cancel(hangs[0])
        assert (await told(third))[-1] == ("result", {"name": "one"})
        jobs.cancel(hangs[1])
        for job in (*hangs, third):
            await left(job)
        kept = await started(third)
        await reach(lambda: lives() - others == {kept})

    others = lives()
    attend(scene)


@pytest.mark.parametrize("is_started", [False, True])
def test_a_process_that_cannot_start_or_load_ends_its_check_with_a_sentence(
    attend, monkeypatch, is_started
):
    async def scene(jobs: CheckJobs) -> None:
        assert (await told(jobs.start(request("one"), "", None)))[-1][0] == "failed"
        monkeypatch.undo()  # and the next one has another

    if is_started:
        monkeypatch.setattr(check_process, "work", Missing())
    else:
        monkeypatch.setattr(check_process, "_listen", lambda *_: 1 / 0)
    attend(scene)


def work(monkeypatch, checks: dict[str, Exception | None]) -> list[tuple[str, Any]]:
    """Return what a worker sends that is asked for these checks, each with what it raises."""

    def check(asked: CheckRequest, send: Callable[[str, Any], None]) -> None:
        send("result", asked.name)
        if (error := checks[asked.name]) is not None:
            raise error

    monkeypatch.setattr(check_worker, "_check", check)
    monkeypatch.setattr(check_worker, "_follow_parent", lambda: None)
    monkeypatch.setattr(check_worker, "_MAX_CHECKS", 3)
    ours, theirs = multiprocessing.Pipe()
    for name in checks:
        ours.send(request(name))
    old = signal.getsignal(signal.SIGINT)
    try:
        check_worker.work(theirs, None)
    finally:
        signal.signal(signal.SIGINT, old)
        theirs.close()
    with contextlib.suppress(EOFError):
        sent: list[tuple[str, Any]] = []
        while True:
            sent.append(ours.recv())
    return sent


def test_a_worker_goes_on_after_a_bad_file_and_ends_after_a_defect(monkeypatch, capsys):
    refused = DataError("the file is empty")
    sent = work(monkeypatch, {"a": None, "b": refused, "c": None})
    assert sent == [
        ("result", "a"),
        ("done", True),
        ("result", "b"),
        ("failed", {"error": "the file is empty."}),
        ("done", True),
        ("result", "c"),
        ("done", False),  # the last that it takes
    ]
    assert capsys.readouterr().err == ""
    sent = work(monkeypatch, {"a": ZeroDivisionError("ours")})
    assert [kind for kind, _ in sent] == ["result", "failed"]
    assert "defect" in sent[1][1]["error"]
    assert "ZeroDivisionError" in capsys.readouterr().err
