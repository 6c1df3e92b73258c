r"""The state of a guard between two steps, and when something is to be done.

A guard needs copies of a learner, no derivatives and no linearity: it goes back to a snapshot,
trains again from there, and compares. It keeps snapshots, the batches since the oldest of them, and
a reservoir, a uniform sample of all batches so far (`history`). A state is judged by its loss on
the reservoir, not on the next batch: on ordered data that prefers what forgets most.

A loss that is not finite has one of two causes. Either the batch has no finite loss even at the
weights of a snapshot that gives others one: then the *batch is set aside*, and the run is trained
again from the snapshot as if it had not come. Or the run has diverged: that is an alarm.

An *alarm* is a run that has diverged, or a reservoir loss far above that of the snapshots: the
run goes back to the best snapshot and on from there with a safer candidate. A *test* is made at
growing intervals, and after a rise of the loss: does the order of the rows harm? See `order_test`.
If so, the candidates are trained again on the batches as they came, and the run continues from the
state of the mildest that does as well as mixed rows do with the setting in use; if none does, from
the mixed run, and recent rows stay mixed. So harm is undone, and smaller steps are not preferred
for what they win in a short look. After a waiting time, which doubles with each change, the
candidate before is tried again; if it is kept, it is tested as from the start of a run.

The policy ``fastest`` tests nothing: it takes whatever candidate ends lowest on the reservoir.

This module holds what is decided without training; `decide` trains and chooses.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError, suggest
from resonax.guards import history as histories
from resonax.guards.history import History, Snapshot, sampled
from resonax.guards.learner import Candidate, Replayable
from resonax.guards.lost_steps import LostSteps

__all__ = [
    "POLICIES",
    "Decision",
    "GuardConfig",
    "GuardState",
    "affords_test",
    "before_step",
    "checked_policy",
    "count_step",
    "early_spread",
    "has_judged",
    "has_risen",
    "init",
    "is_due",
    "is_marked",
    "judging_cost",
    "look_allowance",
    "marks",
    "may_return",
    "next_test",
    "repair_allowance",
    "spread_of",
    "trained_on",
    "with_batch",
    "with_snapshot",
]

POLICIES = ("safe", "watch", "fastest")
_MARKS = (19, 30, 45, 64)  # of 64, of a stretch, where a run is judged: at phases of any rhythm
_MOST_JUDGING = 4.0  # steps that judging a reservoir costs at most
_LOOK, _FIRST, _EARLY_LOOK = 6000, 1000, 4  # budgets of a run that begins, and of its steps
_REPAIR = 60_000  # steps whose budget may be spent in advance on what was found
_SHARE = 8  # of a run, of which the last is tested, once that is longer than two spacings
_KNOWN = 3  # means of spacings from which on their range is known
_EARLY = 8  # first losses whose range is used before
_RECENT = 16  # mean losses that are kept
_DRAWN = 16  # recent batches whose rows a mixed batch is drawn from


def checked_policy(name: object) -> str:
    """Return the name of a policy, or raise the error that lists them."""
    if name not in POLICIES:
        raise suggest("policy", str(name), POLICIES)
    return str(name)


@dataclass(frozen=True)
class GuardConfig:
    """What a guard may do, and its thresholds; see `resonax.torch.Guard`.

    A mean loss above the median of those before by ``rises`` times the range below it calls for a
    test; a reservoir loss above the median of the snapshots by ``explodes`` times that is an
    alarm. ``harm`` is the share of the steps of a stretch that an order costs at least where it is
    worth a change. ``mixes`` is how often rows are mixed before a change; a test that finds nothing
    stops earlier. ``is_averaging`` says that the momentum is that of a mean of gradients. No
    decision changes if all losses are multiplied, or shifted.

    ``budget`` bounds the extra work in steps: of tests that find nothing ``10,000 * budget`` in the
    first thousand and ``budget`` for each later one, and ``budget * (60,000 + n)`` more up to step
    n for what is done once something is found or suspected. A test that has begun is finished.
    With ``asks`` the guard mixes rows only if it was allowed to.
    """

    candidates: tuple[Candidate, ...]
    policy: str = "safe"
    spacing: int = 32
    doublings: int = 4
    reservoir: int = 8
    memory: int = 2**28
    budget: float = 0.05
    significance: float = 0.01
    explodes: float = 10.0
    rises: float = 3.0
    harm: float = 0.1
    mixes: int = 12
    wait: int = 1024
    seed: int = 0
    is_averaging: bool = False
    asks: bool = False

    def checked(self) -> GuardConfig:
        """Return it, or raise `ArgumentError` for what cannot be."""
        checked_policy(self.policy)
        if not self.spacing >= 8:
            raise ArgumentError(f"spacing must be at least 8 steps, got {self.spacing}")
        if not self.budget > 0:
            raise ArgumentError(f"budget must be above 0, got {self.budget}")
        for one in self.candidates:
            if not (0 <= one.momentum < 1 and 0 < one.lr <= 1):
                raise ArgumentError(f"a candidate needs a momentum in [0, 1), got {one}")
        return self


class Decision(NamedTuple):
    """What a guard did at a step, and the reservoir losses that it saw.

    ``rewound`` is the number of steps that were trained again. ``own`` is the level of the run, its
    mean loss over the last steps, ``mixed`` of the same rows in random order, ``tried`` of
    candidates on the batches as they came. ``harm`` is what the order cost, where it was tested,
    ``cause`` why, one of `resonax.guards.cause.CAUSES`, with the ``reason``; ``period`` and
    ``rows`` are the steps and the rows after which the batches repeat, if they surely do.
    """

    step: int
    why: str
    before: Candidate
    after: Candidate
    rewound: int
    own: float
    mixed: tuple[float, ...] = ()
    tried: tuple[tuple[Candidate, float], ...] = ()
    harm: LostSteps | None = None
    cause: str | None = None
    reason: str = ""
    period: float | None = None
    rows: float | None = None


@dataclass(frozen=True)
class GuardState:
    """State of a guard between two steps; losses are on the reservoir but for the first three."""

    step: int = 0
    recent: tuple[float, ...] = ()  # mean losses of whole spacings
    partial: tuple[Any, ...] = ()  # losses of the spacing so far; None: not finite, and examined
    lost: tuple[int, ...] = ()  # steps whose loss is not finite and was not examined yet
    early: float = 1e-300  # range of the first losses
    is_lost: bool = False  # a run that is only watched has no finite loss any more
    aside: tuple[int, ...] = ()  # steps whose batch was set aside, as far as the history goes back
    set_aside: int = 0  # all batches that were set aside
    history: History = histories.EMPTY
    reservoir: tuple[Any, ...] = ()
    places: tuple[int, ...] = (0,)  # of the candidates taken up and not left, the last in use
    next_test: int = 0
    length: int = 0  # of the stretch of that test, in steps
    tests: int = 0
    marked: tuple[float, ...] = ()  # losses of the run at the marks before the next test
    rose: int = 0  # step at which the loss last began to rise
    returned: int = 0  # step of the last return to a candidate before
    earlier: int = 0  # tests until then
    wait: int = 0  # steps from a change until the candidate before is tried again
    hold: int = 0  # step at which that is
    quiet: int = 0  # step until which a run that is only watched is not tested again
    work: float = 0.0  # all extra work so far, in steps
    looked: float = 0.0  # of that, tests that found nothing
    is_allowed: bool = False  # to mix rows, where the guard asks
    suspicion: float = 1.0  # p of the last test, if that was small and not significant
    decisions: tuple[Decision, ...] = ()

    @property
    def place(self) -> int:
        """Place of the candidate in use."""
        return self.places[-1]


def init(config: GuardConfig) -> GuardState:
    """Return the state of a run that begins."""
    return GuardState(next_test=config.spacing, length=config.spacing, wait=config.wait)


def marks(test: int, length: int) -> tuple[int, ...]:
    """Return the steps after which a run is judged for a test of its last steps.

    They are not evenly apart, so that a rhythm is not always judged at the same phase.

    Examples
    --------
    >>> marks(64, length=64), marks(512, length=128)
    ((19, 30, 45, 64), (422, 444, 474, 512))
    """
    return tuple(test - length + one * length // 64 for one in _MARKS)


def is_marked(state: GuardState, config: GuardConfig) -> bool:
    """Return whether the run is judged after this step."""
    if config.candidates[state.place].is_mixed or not _can_judge(state):
        return False
    return state.step in marks(state.next_test, state.length)


def _can_judge(state: GuardState) -> bool:
    """Return whether the loss of the run on the reservoir says something."""
    return bool(state.reservoir) and not state.lost and not state.is_lost


def before_step(
    state: GuardState, config: GuardConfig, learner: Replayable, batch: Any
) -> GuardState:
    """Return the state with the batch of the next step, and a snapshot if it is time for one."""
    return with_batch(with_snapshot(state, config, learner), config, learner, batch)


def with_snapshot(state: GuardState, config: GuardConfig, learner: Replayable) -> GuardState:
    """Return the state with a snapshot of the learner, if it is time for one."""
    if state.step % config.spacing and state.history.snapshots:
        return state
    snapshot = Snapshot(state.step, learner.save())
    history = state.history.with_snapshot(snapshot, config.spacing, config.doublings)
    return replace(state, history=history)


def with_batch(
    state: GuardState, config: GuardConfig, learner: Replayable, batch: Any
) -> GuardState:
    """Return the state with the batch of the next step, after `with_snapshot`."""
    history = state.history.with_batch(batch, learner.size(batch), config.memory)
    # From the first mark to the test none is replaced: losses are compared on the same batches.
    seed = None if state.marked else config.seed
    reservoir = sampled(state.reservoir, config.reservoir, batch, state.step, seed)
    return replace(state, history=history, reservoir=reservoir)


def trained_on(
    state: GuardState, config: GuardConfig, learner: Replayable, candidate: Candidate, count: int
) -> Any:
    """Return what a candidate trains on when ``count`` batches of the history have come."""
    batches, first = state.history.batches, state.history.oldest
    usable = [place for place in range(count) if place + first not in state.aside]
    if not candidate.is_mixed or not usable:
        return batches[count - 1]
    rng = np.random.default_rng([config.seed, 2, first + count])
    drawn = rng.integers(len(usable), size=min(_DRAWN, len(usable))).tolist()
    chosen = [usable[place] for place in drawn]
    return learner.mix([batches[place] for place in chosen], rng, [batches[count - 1]])[0]


def count_step(state: GuardState, config: GuardConfig, loss: Any) -> GuardState:
    """Return the state after a step with its loss, which may be lazy.

    A loss such as a tensor on a device is read in the first step, and then once in a spacing.
    """
    step, partial = state.step + 1, (*state.partial, loss)
    state = replace(state, step=step, partial=partial)
    is_full = step % config.spacing == 0
    if is_full or step == 1 or isinstance(partial[-1], float):
        state = _with_lost(state)
    if not is_full:
        return state
    finite = [one for one in state.partial if one is not None and math.isfinite(one)]
    if not finite:
        return replace(state, partial=())
    if step == config.spacing:
        first = finite[:_EARLY]
        state = replace(state, early=max(max(first) - min(first), 1e-300))
    recent = (*state.recent, math.fsum(finite) / len(finite))[-_RECENT:]
    return replace(state, partial=(), recent=recent)


def _with_lost(state: GuardState) -> GuardState:
    """Return the state with its losses as numbers, and the steps at which they are not finite."""
    partial = tuple(None if one is None else float(one) for one in state.partial)
    first = state.step - len(partial)
    lost = tuple(
        step
        for step, loss in enumerate(partial, first)
        if loss is not None and not math.isfinite(loss)
    )
    is_lost = state.is_lost and state.step - 1 in lost
    return replace(state, partial=partial, lost=() if is_lost else lost, is_lost=is_lost)


def is_due(state: GuardState, config: GuardConfig) -> bool:
    """Return whether something is to be done after this step."""
    if state.lost:
        return True
    if not _can_judge(state) or state.step < state.quiet:
        return False
    returns = may_return(state, config)
    tests = state.step >= state.next_test and not config.candidates[state.place].is_mixed
    return returns or tests or has_risen(state, config)


def has_judged(before: GuardState, after: GuardState) -> bool:
    """Return whether there was a test or a change between two states."""
    return (before.tests, len(before.decisions)) != (after.tests, len(after.decisions))


def may_return(state: GuardState, config: GuardConfig) -> bool:
    """Return whether it is time to try the candidate before; ``fastest`` always tries them all."""
    return config.policy != "fastest" and state.place > 0 and state.step >= state.hold


def has_risen(state: GuardState, config: GuardConfig) -> bool:
    """Return whether the mean loss of the last spacing is far above those before."""
    if state.step % config.spacing or not state.recent:
        return False
    *before, last = state.recent
    if not before:
        return False
    scale = max(spread_of(before), early_spread(state))
    return last - float(np.median(before)) > config.rises * scale


def spread_of(losses: Sequence[float]) -> float:
    """Return the range of losses below their median, as those above may have risen.

    Examples
    --------
    >>> spread_of([2.0, 1.0, 0.5, 1.0, 90.0]), spread_of([])
    (0.5, 0.0)
    """
    finite = [one for one in losses if math.isfinite(one)]
    return float(np.median(finite)) - min(finite) if finite else 0.0


def early_spread(state: GuardState) -> float:
    """Return the range of the first losses while few means are known, and else next to nothing."""
    return state.early if len(state.recent) <= _KNOWN else 1e-300


def next_test(
    state: GuardState, config: GuardConfig, cost: float, period: float | None = None
) -> tuple[int, int]:
    """Return the step of the next test, and the length of the stretch that it is of.

    Each test comes twice as late, and later on within the budget; one that left a suspicion is
    followed by another at once. Its stretch is a power of two of spacings, two at least, an eighth
    of the run or a period where these are longer. A test that the budget does not allow yet is made
    later.
    """
    length = _length(state.step, config, period)
    work = max(cost, _run_cost(length, config))
    gap = max(config.spacing, min(state.step - state.returned, math.ceil(work / config.budget)))
    if state.suspicion < 1:
        gap = config.spacing
    length = _length(state.step + gap, config, period)
    while True:
        step = -(-(state.step + gap) // length) * length
        # Of a stretch that began before this step the run itself is replayed as well.
        runs = 2 if length <= gap else 3
        needed = cost + runs * _run_cost(length, config)
        if runs == 2 or affords_test(state, config, needed, step) or length <= config.spacing:
            break
        length //= 2
    steps = range(step, sys.maxsize, length)  # what the budget allows grows with the step
    later = bisect_left(steps, True, key=lambda one: affords_test(state, config, needed, one))
    return step + later * length, length


def affords_test(
    state: GuardState, config: GuardConfig, cost: float, step: int, share: float = 1.0
) -> bool:
    """Return whether the budget allows a test at a step.

    Tests of a run in which something was found or is suspected count as work about a harm; of what
    is for the others a share may be used.
    """
    if is_suspect(state):
        return state.work - state.looked + cost <= repair_allowance(step, config)
    return state.looked + cost <= share * look_allowance(step, config)


def is_suspect(state: GuardState) -> bool:
    """Return whether something was found in this run, or is suspected after its last test."""
    return state.suspicion < 1 or bool(state.decisions)


def _run_cost(length: int, config: GuardConfig) -> float:
    return length + 1.5 * len(_MARKS) * judging_cost(config.reservoir)


def _length(step: int, config: GuardConfig, period: float | None) -> int:
    wanted = max(2 * config.spacing, step / _SHARE, 0.95 * (period or 0.0))
    length = config.spacing
    while length < wanted and length < config.spacing << config.doublings - 1:
        length *= 2
    return length


def look_allowance(step: int, config: GuardConfig) -> float:
    """Return the steps that tests which find nothing may have cost up to a step.

    Examples
    --------
    >>> [round(look_allowance(step, GuardConfig(()))) for step in (32, 1000, 100_000)]
    [306, 500, 5450]
    """
    first, later = min(step, _FIRST), max(0, step - _FIRST)
    return config.budget * (_LOOK + _EARLY_LOOK * first + later)


def repair_allowance(step: int, config: GuardConfig) -> float:
    """Return the steps that all may have cost that was done as something was found."""
    return config.budget * (_REPAIR + step)


def judging_cost(batches: int) -> float:
    """Return what it costs to judge batches, in steps: small ones are judged all at once."""
    return min(batches / 3, _MOST_JUDGING)
