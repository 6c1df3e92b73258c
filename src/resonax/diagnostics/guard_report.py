"""What a guard says: events, the report of a run, and the warning."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from resonax.diagnostics.growth import estimates
from resonax.diagnostics.guard import Rules, Watched
from resonax.diagnostics.policy import decide

__all__ = [
    "Candidate",
    "Event",
    "GuardReport",
    "ResonanceWarning",
    "change",
    "loss_lost",
    "numbers_of",
    "report_of",
    "resonance",
]


class ResonanceWarning(UserWarning):
    """The momentum of a training run makes it grow on this stream, or the run was lost."""


@dataclass(frozen=True)
class Event:
    """Something that happened at a step: ``resonance``, ``momentum``, ``lost`` or ``blind``."""

    step: int
    kind: str
    text: str
    momentum: float | None = None
    period: float | None = None


@dataclass(frozen=True)
class Candidate:
    """What is known of one momentum; rates are per step, and None while little is known."""

    momentum: float
    rate: float | None
    low: float | None
    high: float | None
    verdict: str  # diverges, converges, marginal or unknown

    def __str__(self) -> str:
        if self.rate is None:
            return f"{self.momentum:8.4g}  not known yet"
        shown = f"{self.rate:+9.5f}  [{self.low:+.5f}, {self.high:+.5f}]  {self.verdict}"
        return f"{self.momentum:8.4g}  {shown}"


@dataclass(frozen=True)
class GuardReport:
    """State of a guarded run; `str` of it is readable, `to_dict` is for machines."""

    step: int
    policy: str
    momentum: float  # in use
    own_momentum: float  # the user's
    probed: int  # steps in which shadows were followed
    period: float | None
    candidates: tuple[Candidate, ...]
    events: tuple[Event, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, such as JSON can hold."""
        return asdict(self)

    def __str__(self) -> str:
        lowered = self.momentum < self.own_momentum
        what = f", lowered from {self.own_momentum:g}" if lowered else ""
        lines = [
            f"step {self.step}, policy {self.policy}: momentum {self.momentum:g}{what}",
            f"{self.probed} steps probed"
            + (f", resonant period about {self.period:.1f} steps" if self.period else ""),
            "momentum       rate  interval              verdict",
            *(str(candidate) for candidate in self.candidates),
            *(f"step {event.step}: {event.text}" for event in self.events),
        ]
        return "\n".join(lines)


def report_of(
    state: Watched,
    rules: Rules,
    *,
    momentum: float,
    own: float,
    probed: int = 0,
    period: float | None = None,
    events: tuple[Event, ...] = (),
) -> GuardReport:
    """Return the report of a run.

    Examples
    --------
    >>> from resonax.diagnostics.guard import begin
    >>> rules = Rules("safe", (0.9, 0.5))
    >>> print(report_of(begin(rules), rules, momentum=0.9, own=0.9))
    step 0, policy safe: momentum 0.9
    0 steps probed
    momentum       rate  interval              verdict
         0.9  not known yet
         0.5  not known yet
    """
    found = estimates(state.growth)
    made = []
    for place, candidate in enumerate(rules.candidates):
        if not found.known[place]:
            made.append(Candidate(candidate, None, None, None, "unknown"))
            continue
        word = "diverges" if found.grows[place] else "marginal"
        word = "converges" if found.falls[place] else word
        rate, low, high = (float(part[place]) for part in (found.rate, found.low, found.high))
        made.append(Candidate(candidate, rate, low, high, word))
    return GuardReport(
        int(state.step), rules.policy, momentum, own, probed, period, tuple(made), events
    )


def change(before: Watched, after: Watched, rules: Rules, period: float | None) -> Event:
    """Return the event of a momentum that was changed."""
    old, new = int(before.current), int(after.current)
    first, second = rules.candidates[old], rules.candidates[new]
    larger = min(old, new)
    rate = float(estimates(after.growth).rate[larger])
    period = period if new > old else None
    rhythm = f", period about {period:.1f} steps" if period else ""
    text = f"momentum {'lowered' if new > old else 'raised'} from {first:g} to {second:g}"
    text += f" (rate of {max(first, second):g}: {rate:+.4f} per step{rhythm})"
    return Event(int(after.step), "momentum", text, second, period)


def resonance(state: Watched, rules: Rules, period: float | None) -> Event | None:
    """Return the event of a momentum that a smaller one should replace, or None."""
    found, current = estimates(state.growth), int(state.current)
    momenta = np.asarray(rules.candidates)
    advised = int(decide("safe", found, momenta, current, bool(state.alarm)))
    if advised <= current or not found.falls[advised]:
        return None
    own, better = rules.candidates[current], rules.candidates[advised]
    rate = found.rate[current]
    what, then = ("grows by", "fall") if rate > 0 else ("falls by only", "fall more")
    text = f"momentum {own:g} {what} {rate:+.4f} per step on this stream"
    text += f", resonant period about {period:.1f} steps" if period else ""
    return Event(int(state.step), "resonance", f"{text}; {better:g} would {then}", better, period)


def loss_lost(state: Watched) -> Event:
    """Return the event of a loss that is infinite or not a number."""
    began = int(state.passive.began)
    text = f"the loss is not finite any more; the growth began at about step {began}"
    return Event(int(state.step), "lost", text)


def numbers_of(state: Watched, rules: Rules) -> dict[str, Any]:
    """Return what a log wants: the step, the momentum in use and the known rates."""
    found = estimates(state.growth)
    rates = {
        f"rate/{momentum:g}": float(rate)
        for momentum, rate, known in zip(rules.candidates, found.rate, found.known, strict=True)
        if known
    }
    return {"step": int(state.step), "momentum": rules.candidates[int(state.current)], **rates}
