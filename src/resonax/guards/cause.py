r"""Why an order of the rows harms: decided from runs on the same rows otherwise.

============  =================================================================================
step          the same rows mixed fail as well, and with a tenth of the step they do not
phase         the rows of a part of the order, alone, fail, and with a tenth of the step do not
resonance     mixed rows and each part alone train, and with less momentum at the same effective
              step the order costs at most a third of the loss that it costs now
forgetting    mixed rows and each part alone train, and with a tenfold 1 - momentum at the same
              effective step the order costs at least half as much (nine tenths, if mixed rows
              allow no more than a fourfold one), or there is no momentum
unclear       anything else
============  =================================================================================

A run *fails* if its loss at the end is not below that before its first step; on a part of the order
also if it exceeds that on the way by ten times what mixed rows gain, and ends less than half as far
down as with a tenth of the step. The effective step is
:math:`\eta / (1 - \mu)` for SGD, and the step size itself for an optimizer that takes a mean of
gradients, as Adam does. What an order costs is the loss above that of mixed rows with the same
setting, at most up to the loss before the first step. No choice changes if the loss is multiplied
or shifted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from resonax.guards.learner import Candidate
from resonax.guards.lost_steps import LostSteps, level_of
from resonax.guards.trials import Trials

__all__ = ["CAUSES", "Cause", "LessMomentum", "PhaseAlone", "decide", "find_cause", "most_work"]

CAUSES = ("resonance", "forgetting", "step", "phase", "unclear")

_GENTLE = 0.1  # of the step size: what fails with it too does not fail by its step
_GONE, _STAYS, _SURELY = 1 / 3, 1 / 2, 0.9  # shares of the harm that less momentum leaves
_PEAK = 10.0  # times what mixed rows gain, that a part of the order may rise on the way
_USABLE = 0.5  # of what mixed rows gain, that they gain at least with less momentum
_MIXED = 4  # runs on mixed rows with less momentum
_FOLDS = (4.0, 10.0)  # of 1 - momentum; if mixed rows fail with the first, 2


class PhaseAlone(NamedTuple):
    """A run on a part of the order alone: losses on its rows before, at the end and at most.

    ``gentle`` is the level with a tenth of the step; nan where that was not tried.
    """

    start: float
    level: float
    peak: float
    gentle: float = math.nan


class LessMomentum(NamedTuple):
    """What the order costs with another momentum at the same effective step."""

    candidate: Candidate
    lost: LostSteps


@dataclass(frozen=True)
class Cause:
    """Why an order harms, one of `CAUSES` or None, and the runs that it was decided from.

    ``gentle`` are levels of mixed rows with a tenth of the step.
    """

    word: str | None
    text: str
    gentle: tuple[float, ...] = ()
    phases: tuple[PhaseAlone, ...] = ()
    less: tuple[LessMomentum, ...] = ()


def _fails(level: float, start: float) -> bool:
    return not level < start


def _failing(own: LostSteps) -> int:
    return sum(_fails(level, own.start) for level in own.mixed)


def _gain(own: LostSteps) -> float:
    """Return what mixed rows gain; 0 if nothing."""
    mean = float(np.mean(own.mixed))
    return max(own.start - mean, 0.0) if math.isfinite(mean) else 0.0


def _is_wild(phase: PhaseAlone, own: LostSteps) -> bool:
    """Return whether the loss on a part of the order, alone, rose far on the way."""
    return not phase.peak <= max(phase.start, own.start) + _PEAK * _gain(own)


def _phase_fails(phase: PhaseAlone, own: LostSteps) -> bool:
    """Return whether a part of the order, alone, ends above its start, or is ruined on the way."""
    if not phase.level < phase.start + _gain(own) / 2:
        return True
    return _is_wild(phase, own) and phase.level > (phase.start + phase.gentle) / 2


def _gently(phase: PhaseAlone) -> PhaseAlone:
    return phase._replace(level=phase.gentle, peak=-math.inf)


def is_usable(less: LessMomentum, own: LostSteps) -> bool:
    """Return whether mixed rows train with less momentum about as well."""
    mean = float(np.mean(less.lost.mixed))
    return math.isfinite(mean) and less.lost.start - mean >= _USABLE * _gain(own)


def remaining(less: LessMomentum, own: LostSteps) -> float:
    """Return the share of what the order costs that is left with less momentum."""
    if not math.isfinite(less.lost.excess):
        return 1.0
    if not own.excess > 0:
        return math.nan
    return max(0.0, less.lost.excess / own.excess)


def decide(
    own: LostSteps,
    momentum: float,
    *,
    gentle: Sequence[float] = (),
    phases: Sequence[PhaseAlone] = (),
    less: Sequence[LessMomentum] = (),
    momentum_name: str = "momentum",
    needs_parts: bool = True,
) -> Cause:
    """Return why an order harms, from the runs that were made.

    Parameters
    ----------
    own
        What the order costs.
    momentum
        The momentum in use.
    gentle
        Levels of mixed rows with a tenth of the step, if they fail with all of it.
    phases
        Runs on parts of the order alone, if mixed rows do not fail.
    less
        What the order costs with less momentum at the same effective step, if no part fails.
    momentum_name
        What the optimizer calls its momentum.
    needs_parts
        Whether resonance is told only if parts of the order were tried alone.

    Examples
    --------
    >>> own = LostSteps(512, 400, 390, 410, 0.0, 2.3, 2.1, (1.0, 1.1, 1.0))
    >>> fine = PhaseAlone(2.3, 0.1, 2.5)
    >>> low = LostSteps(512, 10, 0, 40, 0.1, 2.3, 1.1, (1.0, 1.1, 1.1))
    >>> found = decide(own, 0.95, phases=[fine], less=[LessMomentum(Candidate(0.8, 4.0), low)])
    >>> found.word, found.text
    ('resonance', 'mixed rows and each part of the order alone train, and with momentum 0.8 at the
    same effective step the order costs 3% of that')
    >>> decide(own, 0.0, phases=[fine]).word
    'forgetting'
    """

    def because(word: str | None, text: str) -> Cause:
        return Cause(word, text, tuple(gentle), tuple(phases), tuple(less))

    count, failing = len(own.mixed), _failing(own)
    if 2 * failing >= count:
        text = f"{failing} of {count} runs on mixed rows end above the loss that they began with"
        if not gentle:
            return because("unclear", text)
        if _fails(float(np.median(gentle)), own.start):
            text += ", and with a tenth of the step as well"
            is_finite = bool(np.isfinite([*own.mixed, own.own]).all())
            return because(None if is_finite and not own.is_harm() else "unclear", text)
        return because("step", f"{text}, in random order; with a tenth of the step they do not")
    if not (own.is_harm() or (_fails(own.own, own.start) and failing)):
        return because(None, "the order of the rows is not found to harm")
    if failing:
        return because("unclear", f"{failing} of {count} runs on mixed rows fail as well")
    bad = [one for one in phases if _phase_fails(one, own)]
    if bad:
        text = "a part of the order fails alone"
        if any(_phase_fails(_gently(one), own) for one in bad):
            return because("unclear", f"{text}, and with a tenth of the step as well")
        text += ", and with a tenth of the step it does not; mixed rows train"
        return because("phase", text)
    usable = [one for one in less if is_usable(one, own)]
    fine = "mixed rows and each part of the order alone train" if phases else "mixed rows train"
    if momentum <= 0 and phases:
        return because("forgetting", f"{fine}, and there is no momentum that could resonate")
    if not phases and (needs_parts or not usable):
        return because("unclear", "the order has no parts that could be tried alone")
    if not usable:
        return because(
            "unclear", f"{fine}, but with less momentum at the same effective step mixed rows fail"
        )
    shares = [remaining(one, own) for one in usable]
    place = int(np.nanargmin(shares)) if not np.isnan(shares).all() else 0
    best, share = usable[place].candidate.momentum, shares[place]
    text = (
        f"with {momentum_name} {best:.3g} at the same effective step the order costs {share:.0%} "
        "of that"
    )
    if share <= _GONE:
        return because("resonance", f"{fine}, and {text}")
    if not phases:
        return because("unclear", f"{fine}, but {text}, and the order has no parts to try alone")
    is_deep = min(one.candidate.momentum for one in usable) <= less_momenta(momentum)[-1]
    if share >= (_STAYS if is_deep else _SURELY):
        return because("forgetting", f"{fine}, and even {text}")
    return because("unclear", f"{fine}, and {text}")


def less_momenta(momentum: float) -> list[float]:
    """Return the momenta that are tried at the same effective step.

    Examples
    --------
    >>> less_momenta(0.95), less_momenta(0.5), less_momenta(0.0)
    ([0.8, 0.5], [0.0], [])
    """
    made = [round(max(0.0, 1 - fold * (1 - momentum)), 4) for fold in _FOLDS]
    return [one for one in dict.fromkeys(made) if one < momentum]


def most_work(phases: int, steps: int) -> int:
    """Return the most steps that `find_cause` trains, of which fewer are likely."""
    return (2 * phases + (len(_FOLDS) + 1) * (1 + _MIXED)) * steps


def find_cause(
    trials: Trials,
    own: LostSteps,
    phases: Sequence[Sequence[int]],
    most: float = math.inf,
    momentum_name: str = "momentum",
    *,
    mixed: int = _MIXED,
    is_brief: bool = False,
) -> Cause:
    """Return why an order harms, by as few runs as tell it.

    Parameters
    ----------
    trials
        Runs from the state at which the order was tested.
    own
        What the order costs, of `Trials.measure`.
    phases
        Places of the batches of each part of the order.
    most
        Work of the trials at most, in steps.
    momentum_name
        What the optimizer calls its momentum.
    mixed
        Runs on mixed rows with less momentum.
    is_brief
        Whether less momentum is tried first, and parts of the order only if that does not tell: a
        part that fails alone is then not looked for where less momentum ends the harm.
    """
    used = trials.candidate
    momentum, gentle = used.momentum, used._replace(lr=_GENTLE * used.lr)
    if 2 * _failing(own) >= len(own.mixed):
        levels = level_of(trials.marks, trials.mixed(gentle, 2), trials.window or own.steps / 4)
        return decide(own, momentum, gentle=levels.tolist())
    found = decide(own, momentum)
    if found.word is None or _failing(own):
        return found
    less = less_momenta(momentum) if phases or is_brief else []

    def affords(runs: int) -> bool:
        return trials.work + 1.4 * runs * own.steps <= most

    def try_less(phases: Sequence[PhaseAlone]) -> tuple[Cause, list[LessMomentum]]:
        tried: list[LessMomentum] = []
        found, left = decide(own, momentum, phases=phases), list(less)
        while left and affords(1 + mixed):
            candidate = trials.with_momentum(left.pop(0))
            lost = replace(trials.measure(candidate, mixed), start=own.start)
            tried.append(LessMomentum(candidate, lost))
            found = decide(
                own, momentum, phases=phases, less=tried, momentum_name=momentum_name,
                needs_parts=not is_brief,
            )  # fmt: skip
            if found.word == "resonance":
                return found, tried
            if len(tried) == 1 and not is_usable(tried[0], own):  # larger steps fail all the more
                left = [2 * momentum - 1] if momentum > 0.5 else []
        return found, tried

    tried: list[LessMomentum] = []
    if is_brief:
        found, tried = try_less(())
        if found.word == "resonance":
            return found
    if not affords(len(phases)):
        return Cause("unclear", "the budget does not cover the runs that tell the cause")
    alone: list[PhaseAlone] = []
    for places in phases:
        phase = _run_alone(trials, places, used)
        if _phase_fails(phase, own) or _is_wild(phase, own):
            phase = phase._replace(gentle=_run_alone(trials, places, gentle).level)
        alone.append(phase)
        if _phase_fails(phase, own):
            return decide(own, momentum, phases=alone)
    if is_brief:
        return decide(own, momentum, phases=alone, less=tried, momentum_name=momentum_name)
    return try_less(alone)[0] if less else decide(own, momentum, phases=alone)


def _run_alone(trials: Trials, places: Sequence[int], candidate: Candidate) -> PhaseAlone:
    """Train on the batches of a part of the order, and judge on some of them."""
    some = np.asarray(places)[np.linspace(0, len(places) - 1, min(8, len(places))).astype(int)]
    judged = [trials.batches[place] for place in some]
    run = trials.run(candidate, trials.only(places), judged)
    level = level_of(trials.marks, run.losses, trials.marks[-1] / 4)
    return PhaseAlone(float(run.losses[0]), float(level), run.peak)
