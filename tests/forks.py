"""Other processes for tests that need not see them start: forks of the one that collected.

To start Python and load jax takes longer than what most tests do in another process. A fork has
loaded what the tests have and has used none of it: it is made by a process that was itself forked
before the first test, when there were no threads.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Generator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NoReturn

import pytest

from copies import refuse_threads

_LOOK = 5.0  # seconds between two looks whether the tests have ended
_SOURCE: list[str] = []  # the address of the process that forks


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Keep a process that forks, if a test asks for one."""
    if not any("fork" in getattr(item, "fixturenames", ()) for item in session.items):
        return (yield)
    refuse_threads()
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        server.bind(str(Path(folder) / "source"))
        server.listen()
        tests = os.getpid()
        source = _fork()
        if not source:
            _fork_others(server, tests)
        _SOURCE[:] = [server.getsockname()]
        server.close()
        try:
            return (yield)
        finally:
            os.kill(source, signal.SIGKILL)
            os.waitpid(source, 0)


def _fork() -> int:
    with warnings.catch_warnings():  # jax warns of its threads: there are none
        warnings.simplefilter("ignore", RuntimeWarning)
        return os.fork()


def _fork_others(server: socket.socket, tests: int) -> NoReturn:
    """Fork for everyone who connects, until the tests have ended."""
    server.settimeout(_LOOK)
    warnings.filterwarnings("ignore", "os.fork", RuntimeWarning)  # here, and in forks of forks
    try:
        while os.getppid() == tests:
            try:
                asked, _ = server.accept()
            except TimeoutError:
                continue
            if not _fork():
                _answer(Connection(asked.detach()))
            asked.close()
    finally:
        os._exit(0)


def _answer(pipe: Connection) -> NoReturn:
    function, given, folder, environment = pipe.recv()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    try:
        answer = True, function(*given)
    except BaseException:
        answer = False, traceback.format_exc()
    pipe.send(answer)
    os._exit(0)


def run_command(
    arguments: Sequence[str],
    prepare: Callable[[], None] | None = None,
    closed: Sequence[int] = (),
    encoding: str = "utf-8",
) -> tuple[int, str, str]:
    """Run the command in a process of its own: its status, output and errors.

    To be called in a fork. All that it lacks of a command that a shell starts is the loading of
    what the tests have loaded: some tests start one of those.

    Parameters
    ----------
    arguments
        The words after `resonax`.
    prepare
        Called in the process before the command.
    closed
        Which of input, output and errors are closed.
    encoding
        Of output and errors.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        process = os.fork()
        if not process:
            for number, file in ((1, out), (2, errors)):
                os.dup2(file.fileno(), number)
            try:
                _become_command(arguments, prepare, closed, encoding)
            except BaseException:  # as Python does
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        for file in (out, errors):
            file.seek(0)
        return status, out.read().decode(), errors.read().decode()


def _become_command(
    arguments: Sequence[str],
    prepare: Callable[[], None] | None,
    closed: Sequence[int],
    encoding: str,
) -> NoReturn:
    from resonax.cli.start import main  # not above: jax reads its settings after this file

    # As Python has them at its start.
    sys.stdin = os.fdopen(0)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding=encoding) for number in (1, 2))
    for name in (("stdin", "stdout", "stderr")[number] for number in closed):
        getattr(sys, name).close()
        setattr(sys, name, None)
    atexit._clear()  # what the tests have to tidy up
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = ["resonax", *arguments]
    if prepare is not None:
        prepare()
    main()
    raise AssertionError("the command did not end the process")


def write_errors(name: str) -> None:
    """Let this process say what went wrong into a file."""
    os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT), 2)


@pytest.fixture
def fork() -> Callable[..., Callable[[], Any]]:
    """Call a function of a module in a fork, here and now; what is returned waits for its result.

    The fork has the folder and the environment of the test.
    """

    def start(function: Callable[..., Any], *given: Any) -> Callable[[], Any]:
        with socket.socket(socket.AF_UNIX) as own:
            own.connect(_SOURCE[0])
            pipe = Connection(own.detach())
        pipe.send((function, given, os.getcwd(), dict(os.environ)))

        def result() -> Any:
            with pipe:
                is_fine, answer = pipe.recv()
            if not is_fine:
                pytest.fail(answer)
            return answer

        return result

    return start
