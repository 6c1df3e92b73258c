"""The events of a guarded run: warned of, and written to the logs."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from resonax.guards.report import Event, GuardWarning

__all__ = ["EventLog"]

_LOGGER = logging.getLogger("resonax")
_INSIDE = tuple(str(Path(str(one)).parent) for one in (__file__, torch.__file__))


class EventLog:
    """Reports events to the user and to the user's own log.

    What the user should act on is a `GuardWarning`; what the guard did itself, such as lowering
    the momentum, is a line of the logger ``resonax``, which Python prints by default.

    Parameters
    ----------
    log
        The user's log: called with a dictionary of numbers at each event.
    """

    def __init__(self, log: Callable[[dict[str, Any]], object] | None):
        self._log = log
        self._has_failed = False

    def inform(self, event: Event, numbers: dict[str, Any]) -> None:
        """Write a line to the logger."""
        self._record(event, numbers)
        _LOGGER.warning("step %d: %s", event.step, event.text)

    def warn(self, event: Event, numbers: dict[str, Any], *, step: bool = True) -> None:
        """Warn of an event, with its step or without."""
        self._record(event, numbers)
        text = f"step {event.step}: {event.text}" if step else event.text
        warnings.warn(text, GuardWarning, stacklevel=_level())

    def _record(self, event: Event, numbers: dict[str, Any]) -> None:
        if self._log is None:
            return
        try:
            self._log({**numbers, "event": event.text})
        except Exception as error:  # a log that is broken must not end the training
            if not self._has_failed:
                _LOGGER.warning(
                    "step %d: the log of the guard raised %s: %s; the training goes on",
                    numbers["step"], type(error).__name__, error,
                )  # fmt: skip
            self._has_failed = True


def _level() -> int:
    """Return the stack level of the first frame outside of torch and this package."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    return level
