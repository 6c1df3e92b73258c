"""Ctrl-C ends a command wherever it is, also where a library would lose it.

Python turns an interrupt into an exception in whatever code is running. While large libraries load,
that may be a callback whose exceptions are only printed, or the start of an extension, which makes
another error of it. So an interrupt is noted, an interrupt that was lost is sent again, and an
error that follows one counts as the interrupt.
"""

from __future__ import annotations

import _thread
import signal
import sys
import threading
from typing import Any

__all__ = ["SENTENCE", "STATUS", "listen", "was_interrupted"]

STATUS = 130
SENTENCE = "interrupted, nothing unfinished was written; what was finished is kept"
_SOON = 0.02  # seconds after which a lost interrupt is sent again

_noted = False


def was_interrupted() -> bool:
    """Return whether Ctrl-C was pressed."""
    return _noted


def listen() -> None:
    """Note interrupts from now on, unless this process is told to ignore them."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)
        sys.unraisablehook = _send_again


def _note(*_: Any) -> None:
    global _noted
    _noted = True
    raise KeyboardInterrupt


def _send_again(lost: Any) -> None:
    if issubclass(lost.exc_type, KeyboardInterrupt):
        timer = threading.Timer(_SOON, _thread.interrupt_main)
        timer.daemon = True
        timer.start()
    else:
        sys.__unraisablehook__(lost)
