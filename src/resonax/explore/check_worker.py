"""A check in a process of its own, which can be ended at any moment; a pipe returns its results.

A worker is started before it is needed. It loads what checks need, then takes one request after the
other; what it has compiled for one serves the next.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from resonax.core.errors import ResonaxError
from resonax.explore.code import check_code
from resonax.explore.errors import describe_error, explain_unreadable
from resonax.spec.checks import check_options

__all__ = ["CheckRequest", "work"]

_REPORT_INTERVAL = 0.1  # seconds between two reports of progress
_MAX_CHECKS = 20  # checks of one process: what it compiles for them stays in its memory
# The share of a usual check that is done when each stage begins.
_STAGE_STARTS = {
    "reading": 0.0,
    "following the rows": 0.05,
    "multiplying the updates": 0.3,
    "shuffling": 0.35,
    "looking for the rhythm": 0.45,
    "looking for what would help": 0.6,
    "drawing the map": 0.8,
    "drawing": 0.92,
}


@dataclass(frozen=True)
class CheckRequest:
    """A file and the options of its check."""

    path: Path
    name: str  # of the file, as its owner calls it
    asked: dict[str, Any]
    example: bool = False


def work(pipe: Connection, prepare: Callable[[], None] | None) -> None:
    """Load, and for each request send what comes of it: (kind, content) each.

    The last is ``done``, with whether another request may follow. What is wrong with a file or an
    option is a message of its check; any other error ends the process.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles it
    threading.Thread(target=_follow_parent, daemon=True).start()

    def send(kind: str, content: Any) -> None:
        pipe.send((kind, content))

    with contextlib.suppress(OSError):  # the server has gone
        try:
            if prepare is not None:
                prepare()
            import resonax.checking.check
            import resonax.explore.check_result  # noqa: F401

            for left, request in zip(reversed(range(_MAX_CHECKS)), _requests(pipe), strict=False):
                try:
                    _check(request, send)
                except ResonaxError as error:
                    send("failed", describe_error(error)[1])
                send("done", left > 0)
        except Exception as error:
            if not isinstance(error, MemoryError):
                traceback.print_exception(error, file=sys.stderr)
            send("failed", describe_error(error)[1])


def _requests(pipe: Connection) -> Iterator[CheckRequest]:
    """Yield requests until the server has gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            yield pipe.recv()


def _follow_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _check(request: CheckRequest, send: Callable[[str, Any], None]) -> None:
    from resonax.checking.check import check
    from resonax.dynamics.build import build_basis
    from resonax.explore.check_result import describe_check, describe_finding
    from resonax.recordings.recording import read_recording
    from resonax.reports.check import render_check

    stage = _stages(send)
    how, asked = check_options(request.asked)
    with stage("reading", 0), explain_unreadable(request.name):
        recording = read_recording(request.path, **how)
    send("read", None)  # the file is not needed any more
    code = check_code(request.asked, request.name, request.example)

    def on_finding(name: str, finding: Any) -> None:
        send("partial", describe_finding(name, finding))

    asked["basis"] = functools.partial(build_basis, asked["basis"])
    found = check(recording, stage=stage, on_finding=on_finding, **asked)
    send("partial", describe_check(found, request.name, code, whole=False))
    send("result", describe_check(found, request.name, code))
    send("report", render_check(found, code["command"] or ""))


def _stages(send: Callable[[str, Any], None]) -> Callable[[str, int], Any]:
    """Return the ``stage`` of a check, which tells how far it is and how long it may take."""
    began = time.monotonic()

    @contextlib.contextmanager
    def stage(name: str, total: int) -> Iterator[Callable[[int], None]]:
        begin = _STAGE_STARTS.get(name, 0.95)
        end = min((share for share in _STAGE_STARTS.values() if share > begin), default=1.0)
        done, reported = 0, 0.0

        def report() -> None:
            nonlocal reported
            reported = time.monotonic()
            share = min(done / total, 1.0) if total else 0.0
            fraction = begin + share * (end - begin)
            left = (reported - began) * (1 - fraction) / fraction if fraction > 0.1 else None
            progress = {"stage": name, "fraction": fraction, "seconds_left": left}
            send("progress", progress | {"done": done, "total": total or None})

        def advance(count: int) -> None:
            nonlocal done
            done += int(count)
            if time.monotonic() - reported > _REPORT_INTERVAL:
                report()

        report()
        yield advance

    return stage
