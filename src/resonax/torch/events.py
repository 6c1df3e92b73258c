"""The events of a guarded run: kept, logged, and warned of."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from resonax.guards.report import Event, ResonanceWarning

__all__ = ["EventLog"]

_LOGGER = logging.getLogger("resonax")
_INSIDE = tuple(str(Path(str(one)).parent) for one in (__file__, torch.__file__))


class EventLog:
    """Events so far, each reported once, with numbers for the log of the user.

    What the user should act on is a `ResonanceWarning`; what the guard did itself, such as lowering
    the momentum, is a line of the logger ``resonax``, which Python prints by default.
    """

    def __init__(self, log: Callable[[dict[str, Any]], object] | None):
        self.log = log
        self._failed = False
        self.events: list[Event] = []

    def tell(self, event: Event, numbers: dict[str, Any]) -> None:
        """Add an event and write a line to the logger."""
        self.add(event, numbers)
        _LOGGER.warning("step %d: %s", event.step, event.text)

    def warn(self, event: Event, numbers: dict[str, Any], *, step: bool = True) -> None:
        """Add an event and warn of it, with its step or without."""
        self.add(event, numbers)
        text = f"step {event.step}: {event.text}" if step else event.text
        warnings.warn(text, ResonanceWarning, stacklevel=_level())

    def add(self, event: Event, numbers: dict[str, Any]) -> None:
        """Keep an event and put it into the log."""
        self.events.append(event)
        self.record({**numbers, "event": event.text})

    def record(self, numbers: dict[str, Any]) -> None:
        """Put numbers into the log."""
        if self.log is None:
            return
        try:
            self.log(numbers)
        except Exception as error:  # a log that is broken must not end the training
            if not self._failed:
                _LOGGER.warning(
                    "step %d: the log of the guard raised %s: %s; the training goes on",
                    numbers["step"], type(error).__name__, error,
                )  # fmt: skip
            self._failed = True


def _level() -> int:
    """Return how far above `EventLog.warn` the user's line is, outside of torch and this room."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        frame, level = frame.f_back, level + 1
    return level
