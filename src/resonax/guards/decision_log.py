r"""A log from which every decision of a guard can be made again, without the run.

All that a guard decides follows from its configuration, from the mean losses of the run and from
the losses on the reservoir that were judged, in their order. The log holds these. To check it, the
guard is run again with a learner that trains nothing and answers each question for a loss with the
next one of the log: if the decisions come out as they were logged, they follow from what was seen.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, cast

from resonax.core.errors import ArgumentError
from resonax.guards.decide import act, look
from resonax.guards.learner import Candidate, Replayable
from resonax.guards.lost_steps import LostSteps
from resonax.guards.phases import Phases
from resonax.guards.state import Decision, GuardConfig, GuardState, before_step, count_step, init

__all__ = [
    "DecisionLog",
    "Judged",
    "as_decision",
    "as_judged",
    "check_log",
    "plain_decision",
    "record",
]

_FORMAT = "resonax guard log 3"


class Judged(NamedTuple):
    """The losses on the reservoir that were asked for after a step, in their order.

    ``oldest`` is the step of the oldest snapshot, as far back as the guard could go. ``lost`` are
    the steps with a loss that is not finite, where that is why losses were asked for. ``phases``
    are what was found of the order of the batches, each time that it was looked for.
    """

    step: int
    oldest: int
    losses: tuple[float, ...]
    lost: tuple[int, ...] = ()
    phases: tuple[Phases, ...] = ()


class _Recording:
    """A learner whose answers are written down."""

    def __init__(self, learner: Replayable):
        self._learner = learner
        self.losses: list[float] = []
        self.found: list[Phases] = []

    def rhythm(self, batches: Sequence[Any]) -> Phases:
        self.found.append(self._learner.rhythm(batches))
        return self.found[-1]

    def phases(self, batches: Sequence[Any]) -> Phases:
        self.found.append(self._learner.phases(batches))
        return self.found[-1]

    def loss(self, batches: Sequence[Any]) -> float:
        self.losses.append(self._learner.loss(batches))
        return self.losses[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._learner, name)


def record(
    state: GuardState, config: GuardConfig, learner: Replayable
) -> tuple[GuardState, tuple[Judged, ...]]:
    """Look at a run after a step and do what is due; the state, and what was judged if anything."""
    recording = _Recording(learner)
    asked = cast(Replayable, recording)
    made, is_due = look(state, config, asked)
    if is_due:
        made = act(made, config, asked)
    if not recording.losses and not recording.found:
        return made, ()
    oldest = state.history.oldest
    losses = tuple(recording.losses)
    seen = Judged(state.step, oldest, losses, state.lost, tuple(recording.found))
    return made, (seen,)


@dataclass(frozen=True)
class DecisionLog:
    """What a guard saw and decided up to a step; ``losses`` are means of whole spacings.

    `save` writes a file with one line of JSON for the configuration, for each mean loss, for each
    step at which losses were judged, and for each decision; `load` reads it. `check` makes the
    decisions again and returns in words where they differ, nothing if they agree.
    """

    config: GuardConfig
    step: int
    losses: tuple[float, ...]
    judged: tuple[Judged, ...]
    decisions: tuple[Decision, ...]
    early: float = 1e-300  # range of the first losses

    def check(self) -> tuple[str, ...]:
        """Return where the decisions do not follow from the losses, in words."""
        return check_log(self)

    def save(self, path: str | Path) -> Path:
        """Write the log to a file."""
        candidates = [one._asdict() for one in self.config.candidates]
        config = asdict(self.config) | {"candidates": candidates}
        head = {"format": _FORMAT, "step": self.step, "config": config, "early": self.early}
        lines = [head, {"losses": self.losses}]
        lines += [{"judged": one._asdict()} for one in self.judged]
        lines += [{"decision": plain_decision(one)} for one in self.decisions]
        path = Path(path)
        path.write_text("".join(json.dumps(_words(line)) + "\n" for line in lines))
        return path

    @classmethod
    def load(cls, path: str | Path) -> DecisionLog:
        """Read what `save` wrote."""
        try:
            head, losses, *lines = map(json.loads, Path(path).read_text().splitlines())
            if head["format"] != _FORMAT:
                raise KeyError("format")
            config = {**_numbers(head["config"])}
            config["candidates"] = tuple(Candidate(**one) for one in config["candidates"])
            judged = [Judged(**_numbers(one["judged"])) for one in lines if "judged" in one]
            made = [as_decision(_numbers(one["decision"])) for one in lines if "decision" in one]
            return cls(
                GuardConfig(**config),
                head["step"],
                tuple(_numbers(losses["losses"])),
                tuple(map(as_judged, judged)),
                tuple(made),
                head["early"],
            )
        except (ValueError, KeyError, TypeError):
            raise ArgumentError(f"{path} is not the log of a guard") from None


def as_judged(one: Judged) -> Judged:
    """Return what was judged, from lists."""
    phases = tuple(
        Phases(period, rows, tuple(map(tuple, parts)), p) for period, rows, parts, p in one.phases
    )
    return one._replace(losses=tuple(one.losses), lost=tuple(one.lost), phases=phases)


def _words(value: Any) -> Any:
    """Return a value with words for the numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {name: _words(one) for name, one in value.items()}
    return [_words(one) for one in value] if isinstance(value, (list, tuple)) else value


def _numbers(value: Any) -> Any:
    if value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, dict):
        return {name: _numbers(one) for name, one in value.items()}
    return [_numbers(one) for one in value] if isinstance(value, list) else value


def plain_decision(one: Decision) -> dict[str, Any]:
    """Return a decision as plain values."""
    made = one._asdict() | {"before": one.before._asdict(), "after": one.after._asdict()}
    tried = [(candidate._asdict(), loss) for candidate, loss in one.tried]
    harm = None if one.harm is None else asdict(one.harm)
    return made | {"mixed": list(one.mixed), "tried": tried, "harm": harm}


def as_decision(plain: dict[str, Any]) -> Decision:
    """Return what `plain_decision` took apart."""
    tried = tuple((Candidate(**candidate), loss) for candidate, loss in plain["tried"])
    ends = {name: Candidate(**plain[name]) for name in ("before", "after")}
    made: dict[str, Any] = {**plain, **ends, "tried": tried, "mixed": tuple(plain["mixed"])}
    harm: dict[str, Any] | None = plain["harm"]
    if harm is not None:
        made["harm"] = LostSteps(**(harm | {"mixed": tuple(harm["mixed"])}))
    return Decision(**made)


class _DisagreementError(Exception):
    """A log has other losses than its guard would ask for."""


class _Logged:
    """A learner that trains nothing; its losses are those of a log. A batch is its step."""

    def __init__(self, log: DecisionLog):
        self._means, self._spacing = log.losses, log.config.spacing
        self.answers: list[float] = []
        self.found: list[Phases] = []

    def step(self, batch: int) -> float:
        place = batch // self._spacing
        return self._means[place] if place < len(self._means) else 0.0

    def loss(self, batches: Sequence[Any]) -> float:
        if not self.answers:
            raise _DisagreementError("more losses were asked for than are logged")
        return self.answers.pop(0)

    def phases(self, batches: Sequence[Any]) -> Phases:
        del batches
        if not self.found:
            raise _DisagreementError("the order of the batches is not logged")
        return self.found.pop(0)

    rhythm = phases

    def mix(self, batches: Sequence[int], rng: Any, like: Sequence[int] | None = None) -> Any:
        return batches if like is None else like

    def size(self, batch: Any) -> int:
        return 0

    def save(self) -> None:
        pass

    def load(self, saved: Any) -> None:
        pass

    def set(self, candidate: Candidate) -> None:
        pass


def check_log(log: DecisionLog) -> tuple[str, ...]:
    """Make the decisions of a log again; where they differ, in words."""
    learner = _Logged(log)
    asked, config = cast(Replayable, learner), log.config
    judged = {one.step: one for one in log.judged}
    state = init(config)
    for step in range(log.step):
        is_lost = state.is_lost
        state = before_step(state, config, asked, step)
        state = replace(count_step(state, config, learner.step(step)), early=log.early)
        entry = judged.get(step + 1)
        if entry is None:
            state = replace(state, lost=(), is_lost=is_lost)
        else:
            state = replace(state, lost=entry.lost)
        if entry is not None:
            learner.answers, learner.found = list(entry.losses), list(entry.phases)
            state = replace(state, history=state.history.from_step(entry.oldest))
        try:
            state, _ = record(state, config, asked)
            if learner.answers:
                raise _DisagreementError(f"{len(learner.answers)} of the losses were not asked for")
        except _DisagreementError as error:
            return (*_differences(log, state), f"step {step + 1}: {error}")
    return _differences(log, state)


def _differences(log: DecisionLog, state: GuardState) -> tuple[str, ...]:
    logged = [one for one in log.decisions if one.step <= state.step]
    found: Iterable[str] = (
        f"step {one.step}: {name} is {getattr(one, name)} in the log, and "
        f"{getattr(two, name)} follows from its losses"
        for one, two in zip(logged, state.decisions, strict=False)
        for name in Decision._fields
        if not _is_equal(getattr(one, name), getattr(two, name))
    )
    count = (
        [f"{len(logged)} decisions are logged, and {len(state.decisions)} follow from the losses"]
        if len(logged) != len(state.decisions)
        else []
    )
    return (*found, *count)


def _is_equal(one: Any, two: Any) -> bool:
    return one == two or (one != one and two != two)
