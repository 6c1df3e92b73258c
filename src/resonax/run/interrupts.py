"""Ctrl-C ends a command at once, wherever it is.

An exception would come in whatever code is running, also in the start of a library or in a
callback, where it is lost or becomes another error. A command need not unwind: all that it writes
is whole or not there, and its workers exit when it does.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import NoReturn

__all__ = ["SENTENCE", "STATUS", "clean_up_on_exit", "exit_now", "install_handler"]

STATUS = 130
SENTENCE = "interrupted, nothing unfinished was written; what was finished is kept"

_PATIENCE = 5.0  # seconds that the command has to end where it has workers
_actions: list[Callable[[], object]] = []


def install_handler() -> None:
    """End this process at an interrupt from now on, unless it is told to ignore them."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_now)


@contextlib.contextmanager
def clean_up_on_exit(action: Callable[[], object]) -> Iterator[None]:
    """Name what is to be done if an interrupt ends this process."""
    _actions.append(action)
    try:
        yield
    finally:
        _actions.remove(action)


def exit_now(*_: object) -> NoReturn:
    """Say so and end the process; workers are left in order, as their locks have to be removed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(Exception):
        print(f"resonax: {SENTENCE}", file=sys.stderr, flush=True)
    if multiprocessing.active_children():
        late = threading.Timer(_PATIENCE, _end)
        late.daemon = True
        late.start()
        raise SystemExit(STATUS)
    _end()


def _end() -> NoReturn:
    for action in reversed(_actions):
        with contextlib.suppress(Exception):
            action()
    os._exit(STATUS)
