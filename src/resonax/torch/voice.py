"""What a guard says while the run goes on: events, warnings and records for a log."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from resonax.diagnostics.guard import Rules, Watched, is_probing
from resonax.diagnostics.guard_report import (
    Event,
    ResonanceWarning,
    change,
    numbers_of,
    resonance,
)

__all__ = ["Voice"]


class Voice:
    """Events so far, each told once."""

    def __init__(self, rules: Rules, log: Callable[[dict[str, Any]], object] | None):
        self._rules, self._log = rules, log
        self.events: list[Event] = []

    def tell(self, before: Watched, after: Watched, period: Callable[[], float | None]) -> None:
        """Speak of what changed in a step."""
        if int(after.current) != int(before.current):
            self.add(change(before, after, self._rules, period()), after)
        elif self._rules.policy == "watch" and is_probing(before):
            known = any(event.kind == "resonance" for event in self.events)
            event = None if known else resonance(after, self._rules, period())
            if event is not None:
                self.warn(event, after)
        if is_probing(before) and not is_probing(after):
            self._record(after)

    def tell_blind(self, reason: str, state: Watched) -> None:
        """Speak of a model that has no second derivatives."""
        text = (
            f"this model has no second derivatives ({reason}): the guard sees only whether the "
            "run itself grows, and leaves the momentum alone"
        )
        self.add(Event(int(state.step), "blind", text), state)
        warnings.warn(text, ResonanceWarning, stacklevel=3)  # where `observe` is called

    def warn(self, event: Event, state: Watched) -> None:
        """Add an event and warn of it."""
        self.add(event, state)
        # From here through the guard, the hooks of torch and `Guard.step` to the user's line.
        warnings.warn(f"step {event.step}: {event.text}", ResonanceWarning, stacklevel=6)

    def add(self, event: Event, state: Watched) -> None:
        """Keep an event and put it into the log."""
        self.events.append(event)
        self._record(state, {"event": event.text})

    def _record(self, state: Watched, extra: dict[str, Any] | None = None) -> None:
        if self._log is not None:
            self._log(numbers_of(state, self._rules) | (extra or {}))
