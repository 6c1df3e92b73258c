"""End a command at once at Ctrl-C.

A KeyboardInterrupt would be raised in whatever code is running, for example in the import of a
library or in a callback, where it is lost or turned into another error. A command need not unwind:
it writes files atomically, and its workers exit when it does.
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

_TIMEOUT = 5.0  # seconds after which a command with workers is ended by force
_actions: list[Callable[[], object]] = []


def install_handler() -> None:
    """End this process at an interrupt from now on, unless interrupts are handled or ignored."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, exit_now)


@contextlib.contextmanager
def clean_up_on_exit(action: Callable[[], object]) -> Iterator[None]:
    """Register an action to run if an interrupt ends this process during the context."""
    _actions.append(action)
    try:
        yield
    finally:
        _actions.remove(action)


def exit_now(*_: object) -> NoReturn:
    """Print a sentence and end the process.

    If it has workers, it ends by an exception, so that `multiprocessing` can remove their locks.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(Exception):
        print(f"resonax: {SENTENCE}", file=sys.stderr, flush=True)
    if multiprocessing.active_children():
        timer = threading.Timer(_TIMEOUT, _end)
        timer.daemon = True
        timer.start()
        raise SystemExit(STATUS)
    _end()


def _end() -> NoReturn:
    for action in reversed(_actions):
        with contextlib.suppress(Exception):
            action()
    os._exit(STATUS)
