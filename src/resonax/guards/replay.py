r"""A guard by replay, without a framework: rewind a run, train it again, and compare.

It needs copies of the learner, no derivatives and no linearity. Kept are snapshots (`ladder`), the
batches since the oldest of them, and a reservoir, a uniform sample of all batches so far. A state
is judged by its loss on the reservoir: the next batch of ordered data prefers what forgets most.

A loss that is not finite has one of two causes. Either the batch has no finite loss even at the
weights of a snapshot that gives others one: then the *batch is set aside*, and the run is trained
again from the snapshot as if it had not come. Or the run has diverged: that is an alarm.

An *alarm* is a run that has diverged, or a reservoir loss far above that of the snapshots: the
run goes back to the best snapshot and on from there with a safer candidate. A *test* comes from
time to time, and after a rise of the loss: is it the order? See `order_test`. If so, the candidates
are trained again on the batches as they came, and the run goes on from the state of the mildest
that does as well as mixed rows do with the setting in use; if none does, from the mixed run, and
recent rows stay mixed. So harm is undone, and smaller steps are not preferred for what they win in
a short look. After a waiting time, which doubles with each change, the candidate before is tried
again; if it is kept, it is tested as from the start of a run.

The policy ``fastest`` tests nothing: it takes whatever candidate ends lowest on the reservoir.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError, suggest
from resonax.guards import ladder as ladders
from resonax.guards.ladder import Ladder, Snapshot
from resonax.guards.learner import Candidate, Learner
from resonax.guards.reservoir import sampled

__all__ = [
    "Decision",
    "ReplayConfig",
    "ReplayState",
    "after_step",
    "before_step",
    "count_steps",
    "has_judged",
    "init",
    "is_due",
    "is_marked",
    "look",
    "marks",
    "needs_snapshot",
    "trained_on",
    "with_batches",
    "with_snapshot",
]

POLICIES = ("safe", "watch", "fastest")
_MARKS = 4  # moments of a stretch at which a run is judged
_DRAWN = 16  # recent batches whose rows a mixed batch is drawn from


@dataclass(frozen=True)
class ReplayConfig:
    """What a guard by replay may do; see `resonax.torch.Guard`.

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
    rungs: int = 4
    reservoir: int = 16
    memory: int = 2**28
    budget: float = 0.01
    level: float = 0.01
    beyond: float = 3.0
    explodes: float = 10.0
    spoils: float = 5.0
    rises: float = 3.0
    harm: float = 1.25
    reach: float = 1.1
    mixes: int = 12
    wait: int = 1024
    seed: int = 0

    def checked(self) -> ReplayConfig:
        """Return it, or raise `ArgumentError` for what cannot be."""
        if self.policy not in POLICIES:
            raise suggest("policy", str(self.policy), POLICIES)
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
class ReplayState:
    """State of a guard by replay between two steps.

    ``places`` are those of the candidates taken up so far and not left, the one in use last.
    ``recent`` are mean losses of whole spacings, ``partial`` are the losses of the one that
    goes on, None for those that are not finite and were looked into. ``lost`` are the steps
    whose loss is not finite and was not looked into yet, ``aside`` those whose batch was set
    aside, as far as the ladder reaches, and ``set_aside`` is the number of all such batches.
    ``is_lost`` says that a run which is only watched has no finite loss any more. ``marked``
    are reservoir losses of the run at the marks before ``next_test``. ``rose`` is the step at
    which the loss last began to rise, ``least`` the least loss of the run in a test.
    ``returned`` is the step of the last return, ``earlier`` the tests until then. ``work`` is
    all extra work so far, in steps.
    """

    step: int = 0
    places: tuple[int, ...] = (0,)
    ladder: Ladder = ladders.EMPTY
    reservoir: tuple[Any, ...] = ()
    recent: tuple[float, ...] = ()
    partial: tuple[Any, ...] = ()
    lost: tuple[int, ...] = ()
    aside: tuple[int, ...] = ()
    set_aside: int = 0
    is_lost: bool = False
    marked: tuple[float, ...] = ()
    next_test: int = 0
    rose: int = 0
    least: float = math.inf
    tests: int = 0
    returned: int = 0
    earlier: int = 0
    wait: int = 0
    hold: int = 0
    work: float = 0.0
    decisions: tuple[Decision, ...] = ()

    @property
    def place(self) -> int:
        """Place of the candidate in use."""
        return self.places[-1]


def init(config: ReplayConfig) -> ReplayState:
    """Return the state of a run that begins."""
    return ReplayState(next_test=config.spacing, wait=config.wait)


def marks(test: int, spacing: int) -> range:
    """Return the steps after which a run is judged for a test at a step.

    Examples
    --------
    >>> list(marks(64, spacing=32))
    [16, 32, 48, 64]
    """
    apart = spacing // 2
    return range(test - (_MARKS - 1) * apart, test + 1, apart)


def is_marked(state: ReplayState, config: ReplayConfig) -> bool:
    """Return whether the run is judged after this step."""
    if config.candidates[state.place].is_mixed or not _can_judge(state):
        return False
    return state.step in marks(state.next_test, config.spacing)


def _can_judge(state: ReplayState) -> bool:
    """Return whether the loss of the run on the reservoir says something."""
    return bool(state.reservoir) and not state.lost and not state.is_lost


def needs_snapshot(state: ReplayState, config: ReplayConfig) -> bool:
    """Return whether a copy of the learner is made before the next step."""
    return state.step % config.spacing == 0 or not state.ladder.snapshots


def before_step(
    state: ReplayState, config: ReplayConfig, learner: Learner, batch: Any
) -> ReplayState:
    """Return the state with the batch of the next step, and a snapshot if it is time for one."""
    return with_batches(with_snapshot(state, config, learner), config, learner, (batch,))


def with_snapshot(state: ReplayState, config: ReplayConfig, learner: Learner) -> ReplayState:
    """Return the state with a snapshot of the learner, if it is time for one."""
    if not needs_snapshot(state, config):
        return state
    snapshot = Snapshot(state.step, learner.save())
    ladder = ladders.push(state.ladder, snapshot, config.spacing, config.rungs)
    return replace(state, ladder=ladder)


def with_batches(
    state: ReplayState, config: ReplayConfig, learner: Learner, batches: Sequence[Any]
) -> ReplayState:
    """Return the state with the batches of the next steps, after `with_snapshot`."""
    sizes = [learner.size(one) for one in batches]
    ladder = ladders.with_batches(state.ladder, batches, sizes, config.memory)
    # From the first mark to the test none is replaced: losses are compared on the same batches.
    seed = None if state.marked else config.seed
    kept = sampled(state.reservoir, config.reservoir, batches, state.step, seed)
    return replace(state, ladder=ladder, reservoir=kept)


def trained_on(
    state: ReplayState, config: ReplayConfig, learner: Learner, candidate: Candidate, count: int
) -> Any:
    """Return what a candidate trains on when ``count`` batches of the ladder have come."""
    batches, first = state.ladder.batches, state.ladder.snapshots[0].step
    usable = [place for place in range(count) if place + first not in state.aside]
    if not candidate.is_mixed or not usable:
        return batches[count - 1]
    rng = np.random.default_rng([config.seed, 2, first + count])
    drawn = rng.integers(len(usable), size=min(_DRAWN, len(usable))).tolist()
    chosen = [usable[place] for place in drawn]
    return learner.mix([batches[place] for place in chosen], rng, [batches[count - 1]])[0]


def after_step(
    state: ReplayState, config: ReplayConfig, learner: Learner, loss: Any
) -> tuple[ReplayState, bool]:
    """Return the state after a step with its loss, and whether something is to be done now.

    The loss may be lazy, such as a tensor on a device: it is looked at in the first step, and then
    once in a spacing.
    """
    return look(count_steps(state, config, (loss,)), config, learner)


def count_steps(state: ReplayState, config: ReplayConfig, losses: Sequence[Any]) -> ReplayState:
    """Return the state after steps with their losses, not looked at yet.

    Only the last of them may complete a spacing.
    """
    step, partial = state.step + len(losses), (*state.partial, *losses)
    state = replace(state, step=step, partial=partial)
    is_full = step % config.spacing == 0
    if is_full or step == 1 or isinstance(partial[-1], float):
        state = _with_lost(state)
    if not is_full:
        return state
    finite = [one for one in state.partial if one is not None and math.isfinite(one)]
    if not finite:
        return replace(state, partial=())
    recent = (*state.recent, math.fsum(finite) / len(finite))[-(2**config.rungs) :]
    return replace(state, partial=(), recent=recent)


def _with_lost(state: ReplayState) -> ReplayState:
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


def look(state: ReplayState, config: ReplayConfig, learner: Learner) -> tuple[ReplayState, bool]:
    """Judge a run where that is due; the state, and whether something is to be done now."""
    if is_marked(state, config):
        judged = learner.loss(state.reservoir)
        work = state.work + len(state.reservoir) / 3
        state = replace(state, marked=(*state.marked, judged), work=work)
    return state, is_due(state, config)


def is_due(state: ReplayState, config: ReplayConfig) -> bool:
    """Return whether something is to be done after this step."""
    if state.lost:
        return True
    if not _can_judge(state):
        return False
    returns = may_return(state, config)
    tests = state.step >= state.next_test and not config.candidates[state.place].is_mixed
    return returns or tests or has_risen(state, config)


def has_judged(before: ReplayState, after: ReplayState) -> bool:
    """Return whether there was a test or a change between two states."""
    return (before.tests, len(before.decisions)) != (after.tests, len(after.decisions))


def may_return(state: ReplayState, config: ReplayConfig) -> bool:
    """Return whether it is time to try the candidate before; ``fastest`` always tries them all."""
    return config.policy != "fastest" and state.place > 0 and state.step >= state.hold


def has_risen(state: ReplayState, config: ReplayConfig) -> bool:
    """Return whether the mean loss of the last spacing is far above those before."""
    if state.step % config.spacing or not state.recent:
        return False
    *before, last = state.recent
    if not before or last <= config.rises * min(before):  # then it is below the median, too
        return False
    return last > config.rises * float(np.median(before))


def next_test(state: ReplayState, config: ReplayConfig, stretch: int) -> int:
    """Return the step of the next test: twice as late, and then within the budget."""
    cost = stretch + 2 * _MARKS * config.reservoir / 3
    gap = min(state.step - state.returned, math.ceil(cost / config.budget))
    return state.step + max(gap, config.spacing)
