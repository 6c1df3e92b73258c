"""Ctrl-C ends a command wherever it is, also where a library would lose it.

Python turns an interrupt into an exception in whatever code is running. While a library loads that
is not safe: the exception may come in a callback, where it is only printed and the command goes on,
or in the start of an extension, which makes another error of it or crashes. So an interrupt waits a
moment for what is being loaded. If that takes longer, the command ends without an exception: while
libraries load, little is to be tidied up. An interrupt that was lost all the same is sent again.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

__all__ = [
    "SENTENCE",
    "STATUS",
    "clean_up_on_exit",
    "defer_interrupts",
    "exit_now",
    "ignore_further",
    "install_handler",
    "was_interrupted",
]

STATUS = 130
SENTENCE = "interrupted, nothing unfinished was written; what was finished is kept"
_SOON = 0.02  # seconds after which an interrupt that could not be raised is sent again
_PATIENCE = 0.5  # seconds that a library has to load before the command ends at once
_LOADER = "<frozen importlib._bootstrap>"

_noted: float | None = None  # when Ctrl-C was pressed
_raised: float | None = None  # when the exception was raised
_is_held = _is_told = False
_tidy: list[Callable[[], None]] = []


def was_interrupted() -> bool:
    """Return whether Ctrl-C was pressed."""
    return _noted is not None


def install_handler() -> None:
    """Note interrupts from now on, unless this process is told to ignore them."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _note)
        sys.unraisablehook = _find_lost
        sys.excepthook = _print


@contextlib.contextmanager
def defer_interrupts() -> Iterator[None]:
    """Let interrupts wait until something is done that must not be left half done."""
    global _is_held
    _is_held = True
    try:
        yield
    finally:
        _is_held = False


@contextlib.contextmanager
def clean_up_on_exit(tidy: Callable[[], None]) -> Iterator[None]:
    """Name what is to be tidied up if the command ends at once."""
    _tidy.append(tidy)
    try:
        yield
    finally:
        _tidy.remove(tidy)


def ignore_further() -> None:
    """Ignore further interrupts: the command ends already, and says so."""
    global _is_told
    if signal.getsignal(signal.SIGINT) is _note:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    _is_told = True


def exit_now() -> None:
    """End the process now."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for tidy in reversed(_tidy):
        with contextlib.suppress(Exception):
            tidy()
    if not _is_told:
        with contextlib.suppress(Exception):
            print(f"resonax: {SENTENCE}", file=sys.stderr, flush=True)
    os._exit(STATUS)


def _note(_: int, frame: FrameType | None) -> None:
    global _noted, _raised
    now = time.monotonic()
    _noted = _noted or now
    if _raised is not None and now - _raised < 1.0:
        return  # it is on its way
    if _is_held:
        _thread.start_new_thread(_send_soon, ())
    elif _is_loading(frame):
        if now - _noted > _PATIENCE:
            exit_now()
        _thread.start_new_thread(_send_soon, ())
    else:
        _raised = now
        raise KeyboardInterrupt


def _is_loading(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _LOADER:
            return True
        frame = frame.f_back
    return False


def _send_soon() -> None:
    time.sleep(_SOON)
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)  # wakes a sleeping one


def _find_lost(lost: Any) -> None:
    """Send an interrupt again that came where nothing can be raised."""
    global _raised
    if issubclass(lost.exc_type, KeyboardInterrupt):
        _raised = None
        _thread.start_new_thread(_send_soon, ())
    else:
        sys.__unraisablehook__(lost)


def _print(kind: type[BaseException], *rest: Any) -> None:
    """Print what an extension could not raise, unless that is what it made of the interrupt."""
    if _noted is None:
        sys.__excepthook__(kind, *rest)
