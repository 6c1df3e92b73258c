"""The first lines of the command: what must be right before anything else is loaded."""

from __future__ import annotations

import os
import sys

from resonax.cli.statuses import Status
from resonax.run.interrupts import exit_now, install_handler

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    _open_closed_streams()
    install_handler()
    try:
        from resonax.cli.app import main

        main()
    except KeyboardInterrupt:
        exit_now()
    finally:
        _flush()


def _flush() -> None:
    """Write what is printed; where nobody reads it to the end, say so by the exit status."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except BrokenPipeError:
        os._exit(Status.BROKEN_PIPE)


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
