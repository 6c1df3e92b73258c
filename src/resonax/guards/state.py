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
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError, suggest
from resonax.guards import history as histories
from resonax.guards.history import History, Snapshot, sampled
from resonax.guards.learner import Candidate, Replayable

__all__ = [
    "POLICIES",
    "Decision",
    "GuardConfig",
    "GuardState",
    "before_step",
    "checked_policy",
    "count_step",
    "has_judged",
    "has_risen",
    "init",
    "is_due",
    "is_marked",
    "marks",
    "may_return",
    "next_test",
    "trained_on",
    "with_batch",
    "with_snapshot",
]

POLICIES = ("safe", "watch", "fastest")
_MARKS = 4  # moments of a stretch at which a run is judged
_DRAWN = 16  # recent batches whose rows a mixed batch is drawn from


def checked_policy(name: object) -> str:
    """Return the name of a policy, or raise the error that lists them."""
    if name not in POLICIES:
        raise suggest("policy", str(name), POLICIES)
    return str(name)


@dataclass(frozen=True)
class GuardConfig:
    """What a guard may do, and its thresholds; see `resonax.torch.Guard`.

    ``explodes`` times the median reservoir loss of the snapshots is an alarm, and so is ``spoils``
    times that of the start of the run while it is among them; a mean loss of ``rises`` times the
    median before calls for a test. ``harm`` times the loss of mixed rows is worth a change, and
    ``reach`` times it is good enough for a candidate. ``mixes`` is how often rows are mixed before
    a change; a test that finds nothing stops earlier. A loss of ``beyond`` times the largest of
    these is harm whatever its p.
    """

    candidates: tuple[Candidate, ...]
    policy: str = "safe"
    spacing: int = 32
    doublings: int = 4
    reservoir: int = 16
    memory: int = 2**28
    budget: float = 0.01
    significance: float = 0.01
    beyond: float = 3.0
    explodes: float = 10.0
    spoils: float = 5.0
    rises: float = 3.0
    harm: float = 1.25
    reach: float = 1.1
    mixes: int = 12
    wait: int = 1024
    seed: int = 0

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

    ``rewound`` is the number of steps that were trained again. ``own`` is the loss of the run,
    ``mixed`` of the same rows in random order, ``tried`` of candidates on the batches as they came,
    ``p`` the probability of so large an ``own`` if the order did not matter.
    """

    step: int
    why: str
    before: Candidate
    after: Candidate
    rewound: int
    own: float
    mixed: tuple[float, ...] = ()
    tried: tuple[tuple[Candidate, float], ...] = ()
    p: float = math.nan


@dataclass(frozen=True)
class GuardState:
    """State of a guard between two steps; losses are on the reservoir but for the first three."""

    step: int = 0
    recent: tuple[float, ...] = ()  # mean losses of whole spacings
    partial: tuple[Any, ...] = ()  # losses of the spacing so far; None: not finite, and examined
    lost: tuple[int, ...] = ()  # steps whose loss is not finite and was not examined yet
    is_lost: bool = False  # a run that is only watched has no finite loss any more
    aside: tuple[int, ...] = ()  # steps whose batch was set aside, as far as the history goes back
    set_aside: int = 0  # all batches that were set aside
    history: History = histories.EMPTY
    reservoir: tuple[Any, ...] = ()
    places: tuple[int, ...] = (0,)  # of the candidates taken up and not left, the last in use
    next_test: int = 0
    tests: int = 0
    marked: tuple[float, ...] = ()  # losses of the run at the marks before the next test
    least: float = math.inf  # loss of the run in a test
    rose: int = 0  # step at which the loss last began to rise
    returned: int = 0  # step of the last return to a candidate before
    earlier: int = 0  # tests until then
    wait: int = 0  # steps from a change until the candidate before is tried again
    hold: int = 0  # step at which that is
    work: float = 0.0  # all extra work so far, in steps
    decisions: tuple[Decision, ...] = ()

    @property
    def place(self) -> int:
        """Place of the candidate in use."""
        return self.places[-1]


def init(config: GuardConfig) -> GuardState:
    """Return the state of a run that begins."""
    return GuardState(next_test=config.spacing, wait=config.wait)


def marks(test: int, spacing: int) -> range:
    """Return the steps after which a run is judged for a test at a step.

    Examples
    --------
    >>> list(marks(64, spacing=32))
    [16, 32, 48, 64]
    """
    apart = spacing // 2
    return range(test - (_MARKS - 1) * apart, test + 1, apart)


def is_marked(state: GuardState, config: GuardConfig) -> bool:
    """Return whether the run is judged after this step."""
    if config.candidates[state.place].is_mixed or not _can_judge(state):
        return False
    return state.step in marks(state.next_test, config.spacing)


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
    recent = (*state.recent, math.fsum(finite) / len(finite))[-(2**config.doublings) :]
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
    if not _can_judge(state):
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
    if not before or last <= config.rises * min(before):  # then it is below the median, too
        return False
    return last > config.rises * float(np.median(before))


def next_test(state: GuardState, config: GuardConfig, stretch: int) -> int:
    """Return the step of the next test: each twice as late, and later on within the budget."""
    cost = stretch + 2 * _MARKS * config.reservoir / 3
    gap = min(state.step - state.returned, math.ceil(cost / config.budget))
    return state.step + max(gap, config.spacing)
