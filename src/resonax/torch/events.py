"""The events of a guarded run: kept, logged, and warned of."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

from resonax.guards.guard import GuardConfig, GuardState, is_probing
from resonax.guards.report import (
    Event,
    ResonanceWarning,
    change,
    numbers_of,
    resonance,
)

__all__ = ["EventLog"]

_LOGGER = logging.getLogger("resonax")


class EventLog:
    """Events so far, each reported once.

    What the user should act on is a `ResonanceWarning`; what the guard did itself, such as lowering
    the momentum, is a line of the logger ``resonax``, which Python prints by default.
    """

    def __init__(self, config: GuardConfig, log: Callable[[dict[str, Any]], object] | None):
        self._config, self.log = config, log
        self._failed = False
        self.events: list[Event] = []

    def load(self, config: GuardConfig, events: list[Event]) -> None:
        """Continue after the events of a checkpoint."""
        self._config, self.events = config, events

    def report_step(
        self, before: GuardState, after: GuardState, period: Callable[[], float | None]
    ) -> None:
        """Report what changed in a step."""
        if int(after.current) != int(before.current):
            event = change(before, after, self._config, period())
            self.add(event, after)
            _LOGGER.warning("step %d: %s", event.step, event.text)
        elif int(after.advised) != int(before.advised):
            event = resonance(before, after, self._config, period())
            if event is not None:
                self.warn(event, after)
        if is_probing(before) and not is_probing(after):
            self._record(after)

    def warn_blind(self, reason: str, state: GuardState) -> None:
        """Warn that the model has no second derivatives."""
        text = (
            f"this model has no second derivatives ({reason}): the guard sees only whether the "
            "run itself grows, and leaves the momentum alone"
        )
        self.add(Event(int(state.step), "blind", text), state)
        warnings.warn(text, ResonanceWarning, stacklevel=3)  # where `observe` is called

    def warn_unseen(self, text: str, state: GuardState) -> None:
        """Warn that a run ends of which no rate is known."""
        self.add(Event(int(state.step), "unseen", text), state)
        warnings.warn(text, ResonanceWarning, stacklevel=4)  # where the guard is closed

    def warn(self, event: Event, state: GuardState) -> None:
        """Add an event and warn of it."""
        self.add(event, state)
        # From here through the guard, the hooks of torch and `Guard.step` to the user's line.
        warnings.warn(f"step {event.step}: {event.text}", ResonanceWarning, stacklevel=6)

    def add(self, event: Event, state: GuardState) -> None:
        """Keep an event and put it into the log."""
        self.events.append(event)
        self._record(state, {"event": event.text})

    def _record(self, state: GuardState, extra: dict[str, Any] | None = None) -> None:
        if self.log is None:
            return
        try:
            self.log(numbers_of(state, self._config) | (extra or {}))
        except Exception as error:  # a log that is broken must not end the training
            if not self._failed:
                _LOGGER.warning(
                    "step %d: the log of the guard raised %s: %s; the training goes on",
                    int(state.step), type(error).__name__, error,
                )  # fmt: skip
            self._failed = True
