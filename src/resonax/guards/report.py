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
from resonax.guards.phases import Phases
from resonax.guards.state import Decision, GuardState

__all__ = [
    "WARNED",
    "Event",
    "GuardReport",
    "GuardWarning",
    "announce",
    "aside_event",
    "event_of",
]

_CAUSES = {
    "resonance": "resonance",
    "forgetting": "forgetting",
    "step": "too large a step",
    "phase": "too large a step for a part of the data",
}
_LOGGER = logging.getLogger("resonax")
WARNED = ("order", "lost")  # kinds of events that a user should act on


class GuardWarning(UserWarning):
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
            warnings.warn(text, GuardWarning, stacklevel=stacklevel)
        else:
            _LOGGER.warning("step %d: %s", event.step, event.text)


@dataclass(frozen=True, repr=False)
class GuardReport(Result):
    """State of a guarded run; `str` of it is readable.

    ``work`` is the extra work for each step, in steps; ``spent`` are the steps that tests took
    which found nothing, and those of all that was done as something was found; ``allowed`` is what
    the budget allows of each so far. ``memory`` is the most that snapshots and batches took, in
    bytes. ``losses`` are mean losses, one for each ``spacing`` steps, of those that are finite.
    ``set_aside`` is the number of batches that were set aside as their loss is not
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
    rhythm: Phases | None
    spacing: int
    losses: tuple[float, ...]
    decisions: tuple[Decision, ...]
    events: tuple[Event, ...]
    log: DecisionLog | None = None
    set_aside: int = 0
    is_lost: bool = False
    first_test: int = 0  # step of the first test, while there was none
    spent: tuple[float, float] = (0.0, 0.0)
    allowed: tuple[float, float] = (0.0, 0.0)

    @property
    def period(self) -> float | None:
        """Steps after which the batches repeat, None if they surely do not."""
        return None if self.rhythm is None else self.rhythm.period

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
            f"{self.memory / 2**20:.1f} MiB, {self._tests()}",
            f"budget: {self.spent[0]:.0f} of {self.allowed[0]:.0f} steps for tests, "
            f"{self.spent[1]:.0f} of {self.allowed[1]:.0f} for what they find",
            *([_rhythm(self.rhythm)] if self.rhythm is not None and self.period else []),
            *self._not_finite(),
            *(f"step {event.step}: {event.text}" for event in self.events),
        ]
        return "\n".join(lines)

    def _tests(self) -> str:
        """Return how many tests there were, or when the first will be and what they will cost."""
        if self.tests or self.decisions or not self.first_test > self.step:
            return f"{self.tests} test{'' if self.tests == 1 else 's'} of the order"
        return f"no test of the order yet: the first is after step {self.first_test}"

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


def event_of(decision: Decision, policy: str) -> Event:
    """Return a decision in words.

    Examples
    --------
    >>> from resonax.guards.lost_steps import LostSteps
    >>> own, low = Candidate(0.95), Candidate(0.85)
    >>> harm = LostSteps(64, 44, 38, 49, 1e-4, 2.3, 1.9, (1.0, 1.1))
    >>> made = Decision(64, "order", own, low, 64, 1.9, harm.mixed, ((low, 1.1),), harm)
    >>> why = {"cause": "resonance", "reason": "mixed rows train", "period": 40.0, "rows": 640.0}
    >>> print(event_of(made._replace(**why), "safe").text)
    after 64 steps in this order the model is where mixed rows are after 20 (44 steps lost, interval
    38 to 49): resonance, as mixed rows train; rewound 64 steps, now momentum 0.85; the batches
    repeat about every 40.0 steps (640 rows)
    >>> print(event_of(made, "watch").text)
    after 64 steps in this order the model is where mixed rows are after 20 (44 steps lost, interval
    38 to 49); momentum 0.85 would help
    >>> made = Decision(1312, "alarm", own, low, 96, 12.0, (0.3,), ((low, 0.31),))
    >>> print(event_of(made, "safe").text)
    the loss on past data rose to 12; rewound 96 steps, now momentum 0.85, with which it is 0.31; it
    is 0.3 for the same rows mixed, so their order is to blame
    """
    if decision.why == "return":
        text = f"back to {decision.after}, which did as well on the last stretch"
        return Event(decision.step, "setting", text, decision.after.momentum)
    what = {"order": _order, "ask": _order, "alarm": _alarm, "fastest": _fastest}[decision.why]
    done = f"rewound {decision.rewound} steps, now {decision.after}"
    if policy == "watch" or decision.why == "ask":
        done = f"{decision.after} would help"
    if decision.why == "ask":
        done += ", which guard.allow_mixing() allows"
    text = what(decision, done)
    if decision.period:
        text += f"; {_rhythm(Phases(decision.period, decision.rows))}"
    kind = "order" if policy == "watch" or decision.why == "ask" else "setting"
    return Event(decision.step, kind, text, decision.after.momentum, decision.period)


def _rhythm(found: Phases) -> str:
    """Return a rhythm in words, in steps, and in rows if they are known."""
    rows = f" ({found.rows:.0f} rows)" if found.rows else ""
    return f"the batches repeat about every {found.period:.1f} steps{rows}"


def _order(decision: Decision, done: str) -> str:
    text = str(decision.harm)
    if decision.cause == "unclear":
        text += f": why is not clear, as {decision.reason}"
    elif decision.cause is not None:
        text += f": {_CAUSES[decision.cause]}, as {decision.reason}"
    tried = any(one.momentum < decision.before.momentum for one, _ in decision.tried)
    why = ", as no smaller momentum helps as much" if decision.after.is_mixed and tried else ""
    return f"{text}; {done}{why}"


def _alarm(decision: Decision, done: str) -> str:
    is_finite = math.isfinite(decision.own)
    text = "the loss on past data " + (
        f"rose to {decision.own:.3g}" if is_finite else "is not finite"
    )
    text += f"; {done}"
    level = dict(decision.tried).get(decision.after, math.inf)
    if math.isfinite(level):
        text += f", with which it is {level:.3g}"
    usual = max(decision.mixed, default=math.inf)
    if is_finite and usual < decision.own and usual < (level + decision.own) / 2:
        text += f"; it is {usual:.3g} for the same rows mixed, so their order is to blame"
    return text


def _fastest(decision: Decision, done: str) -> str:
    level = dict(decision.tried)[decision.after]
    return (
        f"{done}, in place of {decision.before}, as it ended lowest of all: at {level:.3g}, where "
        f"the run is at {decision.own:.3g}"
    )
