"""Processes that hear Ctrl-C, also where the tests run in the background and do not."""

from __future__ import annotations

import signal

__all__ = ["hear_interrupts"]


def hear_interrupts() -> None:
    """Undo that interrupts are ignored, as under ``nohup make test &``; for ``preexec_fn``."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
