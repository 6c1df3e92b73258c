"""What a guard did, in words and numbers."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from resonax.core.objects import Result
from resonax.guards.decision_log import DecisionLog
from resonax.guards.learner import Candidate
from resonax.guards.order_test import geometric_mean
from resonax.guards.state import Decision, GuardState

__all__ = [
    "WARNED",
    "Event",
    "GuardReport",
    "ResonanceWarning",
    "announce",
    "aside_event",
    "event_of",
]

_LOGGER = logging.getLogger("resonax")
WARNED = ("order", "lost")  # kinds of events that a user should act on


class ResonanceWarning(UserWarning):
    """The order of the batches harms a training run, or it is lost."""


@dataclass(frozen=True)
class Event:
    """Something that happened at a step, of kind ``order``, ``setting``, ``lost`` or ``unseen``."""

    step: int
    kind: str
    text: str
    momentum: float | None = None
    period: float | None = None


def announce(events: Sequence[Event], stacklevel: int = 3) -> None:
    """Warn of what the user should act on; log what was changed."""
    for event in events:
        if event.kind in WARNED:
            text = f"step {event.step}: {event.text}"
            warnings.warn(text, ResonanceWarning, stacklevel=stacklevel)
        else:
            _LOGGER.warning("step %d: %s", event.step, event.text)


@dataclass(frozen=True, repr=False)
class GuardReport(Result):
    """State of a guarded run; `str` of it is readable.

    ``work`` is the extra work for each step, in steps; ``memory`` the most that snapshots and
    batches took, in bytes. ``losses`` are mean losses, one for each ``spacing`` steps, of those
    that are finite. ``set_aside`` is the number of batches that were set aside as their loss is not
    finite; ``is_lost`` says that a run which is only watched has no finite loss any more. ``log``
    holds all that the decisions were made from: ``log.save(path)`` writes it, and ``log.check()``
    makes the decisions again.
    """

    figure: ClassVar[str] = "resonax.figures.guarded_run:plot_guarded_run"

    step: int
    policy: str
    setting: str  # in use
    own: str  # the user's
    candidate: Candidate  # in use
    work: float
    memory: int
    tests: int
    period: float | None
    spacing: int
    losses: tuple[float, ...]
    decisions: tuple[Decision, ...]
    events: tuple[Event, ...]
    log: DecisionLog | None = None
    set_aside: int = 0
    is_lost: bool = False

    @property
    def momentum(self) -> float:
        """The momentum in use."""
        return self.candidate.momentum

    def __str__(self) -> str:
        """Return the report in words."""
        what = "" if self.setting == self.own else f", changed from {self.own}"
        lines = [
            f"step {self.step}, policy {self.policy}: {self.setting}{what}",
            f"extra work {self.work:.2f} steps for each step, memory up to "
            f"{self.memory / 2**20:.1f} MiB, {self.tests} tests of the order",
            *([f"the inputs repeat about every {self.period:.1f} steps"] if self.period else []),
            *self._not_finite(),
            *(f"step {event.step}: {event.text}" for event in self.events),
        ]
        return "\n".join(lines)

    def _not_finite(self) -> list[str]:
        if 0 < self.set_aside == self.step:
            return ["no loss of this run was finite"]
        batches = "1 batch" if self.set_aside == 1 else f"{self.set_aside} batches"
        aside = [f"{batches} set aside, as their loss is not finite"] if self.set_aside else []
        return [*aside, *(["the loss of this run is not finite any more"] if self.is_lost else [])]


def aside_event(state: GuardState, policy: str) -> Event:
    """Return the first batch that was set aside, in words.

    Examples
    --------
    >>> state = GuardState(step=101, aside=(100,), set_aside=1)
    >>> print(aside_event(state, "safe").text)
    the loss of the batch of step 101 is not finite, at weights at which that of others is: it is
    set aside, and the run goes on as if it had not come; the report counts further ones
    """
    if state.set_aside == state.step:
        text = (
            "the loss of the first step is not finite: look at the inputs, the loss function and "
            "the weights at the start; the report counts further ones"
        )
        return Event(state.step, "lost", text)
    text = (
        f"the loss of the batch of step {state.aside[0] + 1} is not finite, at weights at which "
        "that of others is: it is set aside, and the run goes on as if it had not come"
    )
    if policy == "watch":
        text = text.partition(": it is")[0] + ": the guard compares runs without it"
    return Event(state.step, "lost", f"{text}; the report counts further ones")


def event_of(decision: Decision, policy: str, period: float | None) -> Event:
    """Return a decision in words.

    Examples
    --------
    >>> own, low = Candidate(0.95), Candidate(0.85)
    >>> made = Decision(96, "order", own, low, 64, 1.2, (0.2, 0.2), ((low, 0.24),))
    >>> print(event_of(made, "safe", 40.0).text)
    rewound 64 steps: with momentum 0.95 the order of the rows made the loss on past data 6 times
    that of the same rows mixed, with momentum 0.85 1.2 times; the inputs repeat about every 40.0
    steps
    >>> made = Decision(1312, "alarm", own, low, 96, 12.0, (0.3,), ((low, 0.31),))
    >>> print(event_of(made, "safe", None).text)
    rewound 96 steps: with momentum 0.95 the loss on past data rose to 12, 39 times what it is with
    momentum 0.85; it is 0.3 for the same rows mixed, so their order is to blame
    """
    words = {"order": _order, "alarm": _alarm, "return": _return, "fastest": _fastest}[decision.why]
    text = words(decision)
    if policy == "watch":
        text = text.replace("rewound ", "it would help to rewind ", 1).replace(
            "; now ", "; try ", 1
        )
    if period and decision.why != "return":
        text += f"; the inputs repeat about every {period:.1f} steps"
    kind = "order" if policy == "watch" else "setting"
    return Event(decision.step, kind, text, decision.after.momentum, period)


def _order(decision: Decision) -> str:
    usual = geometric_mean(decision.mixed)
    text = (
        f"rewound {decision.rewound} steps: with {decision.before} the order of the rows made the "
        f"loss on past data {_fold(decision.own / usual)} that of the same rows mixed"
    )
    loss = dict(decision.tried).get(decision.after)
    if loss is not None:
        return text + f", with {decision.after} {_fold(loss / usual)}"
    why = ", as no smaller momentum helps as much" if decision.tried else ""
    return text + f"; now {decision.after}{why}"


def _alarm(decision: Decision) -> str:
    text = f"rewound {decision.rewound} steps: with {decision.before} the loss on past data "
    loss = dict(decision.tried).get(decision.after, math.inf)
    if math.isinf(decision.own):
        text += "is not finite"
        text += f"; now {decision.after}"
        text += f", with which it is {loss:.3g}" if math.isfinite(loss) else ""
    else:
        text += f"rose to {decision.own:.3g}"
        fold = f", {_fold(decision.own / loss)} what it is with {decision.after}"
        text += fold if math.isfinite(loss) else f"; now {decision.after}"
    usual = geometric_mean(decision.mixed)
    if usual * 3 < decision.own:
        text += f"; it is {usual:.3g} for the same rows mixed, so their order is to blame"
    return text


def _return(decision: Decision) -> str:
    return f"back to {decision.after}, which did as well on the last stretch"


def _fastest(decision: Decision) -> str:
    loss = dict(decision.tried)[decision.after]
    return (
        f"rewound {decision.rewound} steps: {decision.after} in place of {decision.before}, as it "
        f"ended lowest of all, at {_fold(loss / decision.own)} the loss on past data"
    )


def _fold(ratio: float) -> str:
    return "many times" if ratio > 1e4 else f"{ratio:.2g} times"
