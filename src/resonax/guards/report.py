"""Events, report and warning of a guarded run."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from resonax.core.objects import Result
from resonax.guards.growth import BLOCK, MIN_BLOCKS, estimates
from resonax.guards.guard import GuardConfig, GuardState, usual_count
from resonax.guards.schedule import first_burst

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = [
    "WARNED",
    "Candidate",
    "Event",
    "GuardReport",
    "ResonanceWarning",
    "RunReport",
    "change",
    "loss_lost",
    "numbers_of",
    "report_of",
    "resonance",
]


WARNED = ("order", "resonance", "lost")  # kinds of events that a user should act on


class ResonanceWarning(UserWarning):
    """The order of the batches harms a training run, its momentum makes it grow, or it is lost."""


@dataclass(frozen=True)
class Event:
    """Something that happened at a step.

    Its kind is ``order``, ``setting`` or ``lost`` of a guard by replay, ``resonance``,
    ``momentum``, ``lost``, ``blind`` or ``crowded`` of one by tangent dynamics, ``unseen`` of both.
    """

    step: int
    kind: str
    text: str
    momentum: float | None = None
    period: float | None = None


class RunReport(Protocol):
    """What the report of a guarded run tells, whatever its method; `str` of it is readable.

    That of ``tangent`` is a `GuardReport`, with growth rates; that of ``replay`` a
    `resonax.guards.replay_report.ReplayReport`, with decisions, work and memory.
    """

    @property
    def step(self) -> int:
        """Steps so far."""
        ...

    @property
    def policy(self) -> str:
        """The policy of the guard."""
        ...

    @property
    def momentum(self) -> float:
        """The momentum in use."""
        ...

    @property
    def period(self) -> float | None:
        """The rhythm that was found, in steps."""
        ...

    @property
    def events(self) -> tuple[Event, ...]:
        """What happened, in words."""
        ...

    def plot(self) -> Figure:
        """Return a picture of it."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        ...

    def save(self, path: str | Path) -> Path:
        """Write it to a file."""
        ...


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


@dataclass(frozen=True, repr=False)
class GuardReport(Result):
    """State of a guarded run; `str` of it is readable, `to_dict` is for machines."""

    step: int
    policy: str
    momentum: float  # in use
    own_momentum: float  # the user's
    probed: int  # steps in which shadows were followed
    period: float | None
    candidates: tuple[Candidate, ...]
    events: tuple[Event, ...]
    unseen: str | None = None  # why nothing is known of the run, if nothing is
    largest_curvature: float | None = None  # of the batches, along the shadows
    unwatched: float | None = None  # momentum safe in every order of batches up to that curvature

    def _has(self, kind: str) -> bool:
        return any(event.kind == kind for event in self.events)

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return the known growth rate of each momentum with its interval."""
        return {
            f"momentum {one.momentum:g}": (one.rate, one.low, one.high)
            for one in self.candidates
            if one.rate is not None and one.low is not None and one.high is not None
        }

    def _every_order(self) -> list[str]:
        if self.unwatched is None:
            return []
        return [
            f"below momentum {self.unwatched:.3g} a model linear in its weights needs no watching "
            f"while no batch has a curvature above {self.largest_curvature:.3g}, the largest met"
        ]

    def __str__(self) -> str:
        lowered = self.momentum < self.own_momentum
        what = f", lowered from {self.own_momentum:g}" if lowered else ""
        lines = [
            f"step {self.step}, policy {self.policy}: momentum {self.momentum:g}{what}",
            f"{self.probed} steps probed"
            + (f", resonant period about {self.period:.1f} steps" if self.period else ""),
            *([self.unseen] if self.unseen and not self._has("unseen") else []),
            "momentum       rate  interval              verdict",
            *(str(candidate) for candidate in self.candidates),
            *self._every_order(),
            *(f"step {event.step}: {event.text}" for event in self.events),
        ]
        return "\n".join(lines)


def report_of(
    state: GuardState,
    config: GuardConfig,
    *,
    momentum: float,
    own: float,
    probed: int = 0,
    period: float | None = None,
    events: tuple[Event, ...] = (),
    missed: int = 0,
    largest_curvature: float | None = None,
    unwatched: float | None = None,
) -> GuardReport:
    """Return the report of a run; ``missed`` are steps of bursts without a loss.

    Examples
    --------
    >>> from resonax.guards.guard import init as init_guard
    >>> config = GuardConfig("safe", (0.9, 0.5))
    >>> print(report_of(init_guard(config), config, momentum=0.9, own=0.9))
    step 0, policy safe: momentum 0.9
    0 steps probed
    momentum       rate  interval              verdict
         0.9  not known yet
         0.5  not known yet
    """
    found = estimates(state.growth)
    made = []
    for place, candidate in enumerate(config.candidates):
        if not found.is_known[place]:
            made.append(Candidate(candidate, None, None, None, "unknown"))
            continue
        word = "diverges" if found.is_growing[place] else "marginal"
        word = "converges" if found.is_decaying[place] else word
        rate, low, high = (float(part[place]) for part in (found.rate, found.low, found.high))
        made.append(Candidate(candidate, rate, low, high, word))
    unseen = None if found.is_known.any() else _unseen(state, config, probed, missed, events)
    return GuardReport(
        int(state.step),
        config.policy,
        momentum,
        own,
        probed,
        period,
        tuple(made),
        events,
        unseen,
        largest_curvature,
        unwatched,
    )


def _unseen(
    state: GuardState, config: GuardConfig, probed: int, missed: int, events: tuple[Event, ...]
) -> str | None:
    """Return why no rate is known after the first step."""
    step = int(state.step)
    if step == 0 or any(event.kind == "blind" for event in events):  # which has said so
        return None
    if missed > probed:
        return (
            f"the guard never saw this run: it wanted to follow {missed} steps and was shown no "
            "loss; train with guard.step(closure), or call guard.observe(loss) before backward"
        )
    if probed:
        return (
            f"the guard followed {probed} of {step} steps and knows no rate yet, which takes "
            f"{int(BLOCK * (MIN_BLOCKS + 1))} steps in a row; give it a longer run, warmup or burst"
        )
    first = first_burst(config.plan, usual_count(config))
    when = f"comes after {first} steps" if math.isfinite(first) else "never comes with budget 0"
    return (
        f"the guard never looked at this run of {step} steps: nothing alarmed it, and a first look "
        f"without an alarm {when}; give it a warmup or a larger budget"
    )


def change(
    before: GuardState, after: GuardState, config: GuardConfig, period: float | None
) -> Event:
    """Return the event of a momentum that was changed."""
    old, new = int(before.current), int(after.current)
    first, second = config.candidates[old], config.candidates[new]
    larger = min(old, new)
    rate = float(estimates(after.growth).rate[larger])
    period = period if new > old else None
    rhythm = f", period about {period:.1f} steps" if period else ""
    text = f"momentum {'lowered' if new > old else 'raised'} from {first:g} to {second:g}"
    text += f" (rate of {max(first, second):g}: {rate:+.4f} per step{rhythm})"
    return Event(int(after.step), "momentum", text, second, period)


def resonance(
    before: GuardState, after: GuardState, config: GuardConfig, period: float | None
) -> Event | None:
    """Return the event of an action that ``safe`` would take now and ``watch`` does not, or None.

    It is reported once, and again after the momentum in use has decayed in between.
    """
    current, advised = int(after.current), int(after.advised)
    if advised == current or int(before.advised) != int(before.current):
        return None
    found = estimates(after.growth)
    own, better = config.candidates[current], config.candidates[advised]
    rate, other = float(found.rate[current]), float(found.rate[advised])
    seems = "" if found.is_growing[current] else "seems to "
    what = f"{seems}grow{'' if seems else 's'} by" if rate > 0 else "falls by only"
    then = "grow less" if other > 0 else "fall" if rate > 0 else "fall more"
    then = f"would {then}" if found.is_decaying[advised] else f"seems to {then}"
    text = f"momentum {own:g} {what} {rate:+.4f} per step on this stream"
    text += f", resonant period about {period:.1f} steps" if period else ""
    return Event(int(after.step), "resonance", f"{text}; {better:g} {then}", better, period)


def loss_lost(state: GuardState) -> Event:
    """Return the event of a loss that is infinite or not a number."""
    began = int(state.alarm.began)
    text = f"the loss is not finite any more; the growth began at about step {began}"
    return Event(int(state.step), "lost", text)


def numbers_of(state: GuardState, config: GuardConfig) -> dict[str, Any]:
    """Return what a log wants: the step, the momentum in use and the known rates."""
    found = estimates(state.growth)
    rates = {
        f"rate/{momentum:g}": float(rate)
        for momentum, rate, known in zip(config.candidates, found.rate, found.is_known, strict=True)
        if known
    }
    return {"step": int(state.step), "momentum": config.candidates[int(state.current)], **rates}
