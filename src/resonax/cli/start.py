"""The first lines of the command: what must be right before anything else is loaded."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

from resonax.cli.statuses import Status
from resonax.run.garbage import collect_rarely
from resonax.run.interrupts import exit_now, install_handler

__all__ = ["leave", "main"]


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    install_handler()
    collect_rarely()
    status = 0
    try:
        from resonax.cli.app import main

        main()
    except SystemExit as end:
        status = end.code
    except KeyboardInterrupt:  # before the command began, or after it ended
        exit_now()
    leave(status)


def leave(status: int | str | None) -> NoReturn:
    """End this process: nothing is left to do, and to unload libraries takes a second."""
    try:
        atexit._run_exitfuncs()  # as Python does first
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:  # the reader has seen enough
        os._exit(Status.BROKEN_PIPE)
    except BaseException:  # Python says what went wrong
        raise SystemExit(status) from None
    if not isinstance(status, int | None):
        raise SystemExit(status)
    os._exit(status or 0)


def _open_closed_streams() -> None:
    """Lead input, output and errors that were closed to nowhere.

    Otherwise the next file that is opened, perhaps one of results, would take their place.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    if sys.stdin is None:
        sys.stdin = os.fdopen(0)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w")
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w")
