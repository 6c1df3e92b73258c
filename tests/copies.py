"""Run tests in copies of the process that collected them: `pytest --copies 3`.

Workers that start by themselves import every library and collect every test anew, each for as long
as half a minute of tests takes. A copy (`os.fork`) has all that. So nothing may have started a
thread by then, jax above all: no test module computes while it is imported.

Copies are given files one by one, each the next when it has run one: fixtures of a module are set
up once, and no copy waits while files are left.
"""

from __future__ import annotations

import itertools
import os
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest

_OVER = True  # what a copy says of a test that is over


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--copies", type=int, default=0, help="run tests in this many processes")


@dataclass
class Copy:
    """A copy as its parent sees it."""

    process: int
    pipe: Connection
    left: list[pytest.Item] = field(default_factory=list)  # of the file that it was given
    end: str = "the process ended that was to run this test"


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Share the files among copies of this process, and report what they report."""
    options = session.config.option
    if not options.copies or options.collectonly or session.testsfailed:
        return None  # pytest's own loop tells of what could not be collected
    refuse_threads()
    files = [list(items) for _, items in itertools.groupby(session.items, lambda item: item.path)]
    copies: list[Copy] = []
    for _ in range(options.copies):
        copies.append(_start_copy(session, files, copies))
    _collect_reports(session, copies, enumerate(files))
    return True


def refuse_threads() -> None:
    """Raise an error if there are threads that copies would lose, where the system tells."""
    main = str(os.getpid())
    tasks = [task for task in Path("/proc/self/task").glob("*") if task.name != main]
    names = [(task / "comm").read_text().strip() for task in tasks]
    # That of jemalloc, which pyarrow brings on x86-64, begins anew in a copy by itself.
    if lost := [name for name in names if name != "jemalloc_bg_thd"]:
        raise pytest.UsageError(
            f"a test module starts threads ({', '.join(lost)}) while it is imported: copies "
            "would lose them"
        )


def _start_copy(
    session: pytest.Session, files: list[list[pytest.Item]], others: list[Copy]
) -> Copy:
    here, there = Pipe()
    with warnings.catch_warnings():  # jax warns of its threads: there are none yet
        warnings.simplefilter("ignore", RuntimeWarning)
        process = os.fork()
    if process:
        there.close()
        return Copy(process, here)
    status = 1
    try:
        for pipe in (here, *(other.pipe for other in others)):
            pipe.close()  # so that the parent hears when their own copies end
        _run_files(session, files, there)
        status = 0
    except BaseException:  # a defect of a plugin, or Ctrl-C
        there.send(traceback.format_exc())
    finally:
        os._exit(status)  # what runs at the end of pytest is its parent's


def _run_files(session: pytest.Session, files: list[list[pytest.Item]], parent: Connection) -> None:
    """Run the files that the parent names, in a copy, and send it what pytest would print."""
    plugins = session.config.pluginmanager
    plugins.unregister(plugins.getplugin("terminalreporter"))
    plugins.register(Forward(session.config, parent))
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()  # it writes into files that all copies share
    capture.start_global_capturing()
    while True:
        parent.send(None)  # ready
        number = parent.recv()
        if number is None:
            return
        items = files[number]
        for item, following in zip(items, [*items[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)


@dataclass(eq=False)  # pytest keeps plugins in sets
class Forward:
    """In a copy: sends reports to the parent, and of what comes after a test that it is over.

    That something before or after a test went well need not be told: two reports of three.
    """

    config: pytest.Config
    parent: Connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or not report.passed:
            hook = self.config.hook
            self.parent.send(hook.pytest_report_to_serializable(config=self.config, report=report))
        if report.when == "teardown":
            self.parent.send(_OVER)


def _collect_reports(
    session: pytest.Session, copies: list[Copy], files: Iterator[tuple[int, list[pytest.Item]]]
) -> None:
    """Give files to copies that are ready, until all are done, and pass on what they report."""
    hook = session.config.hook
    working = {copy.pipe: copy for copy in copies}
    while working:
        for pipe in wait(list(working)):
            copy = working[pipe]
            try:
                message = pipe.recv()
            except (EOFError, ConnectionError):  # it ended: well, if nothing was left to do
                del working[pipe]
                os.waitpid(copy.process, 0)
                for item in copy.left:
                    hook.pytest_runtest_logreport(report=_failed(item, copy.end))
                continue
            if message is None:
                number, copy.left = next(files, (None, []))
                pipe.send(number)
            elif message == _OVER:
                copy.left = copy.left[1:]
            elif isinstance(message, str):
                copy.end = message
            else:
                report = hook.pytest_report_from_serializable(config=session.config, data=message)
                hook.pytest_runtest_logreport(report=report)
            if session.shouldfail:
                raise session.Failed(session.shouldfail)
            if session.shouldstop:
                raise session.Interrupted(session.shouldstop)
    for item in itertools.chain.from_iterable(items for _, items in files):
        hook.pytest_runtest_logreport(report=_failed(item, "all copies have ended"))


def _failed(item: pytest.Item, why: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
