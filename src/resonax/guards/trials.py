"""Runs on recorded batches from one state: in their order, mixed, by phases, with other settings.

They all begin at the same weights, and are judged on the same rows at the same steps, so that what
differs between two of them is what was changed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from resonax.guards.learner import Candidate, Replayable
from resonax.guards.lost_steps import LostSteps, lost_steps

__all__ = ["Run", "Trials", "judged_marks"]


class Run(NamedTuple):
    """A run: its losses at the marks, and the largest loss of a batch on the way."""

    losses: np.ndarray
    peak: float


def judged_marks(steps: int) -> tuple[int, ...]:
    """Return the steps after which runs are judged: up to 33 evenly apart, more at the start.

    Examples
    --------
    >>> judged_marks(128)[:6], judged_marks(128)[-2:]
    ((0, 1, 2, 4, 8, 16), (120, 128))
    """
    count = min(32, max(8, steps // 8))
    even = np.linspace(0, steps, count + 1).round().astype(int).tolist()
    early = [2**power for power in range(10) if 2**power <= steps / count]
    return tuple(sorted({*even, *early}))


@dataclass
class Trials:
    """Runs of a learner from one state on the same batches.

    Parameters
    ----------
    learner
        It is left wherever the last run ended.
    start
        The state that all runs begin at, of `Replayable.save`.
    batches
        In the order in which they came.
    judged
        Batches on which runs are judged.
    marks
        Steps after which they are, from 0 to the number of batches; see `judged_marks`.
    candidate
        The setting that is in use.
    is_averaging
        Whether the momentum is that of a mean of gradients, as ``beta1`` of Adam is: then the step
        does not grow with it.
    by_rows
        Whether rows can be mixed; if not, whole batches come in another order.
    window
        Steps at the end over which levels are taken, a period at least.
    advance
        Called with the steps that were done.
    """

    learner: Replayable
    start: Any
    batches: Sequence[Any]
    judged: Sequence[Any]
    marks: Sequence[int]
    candidate: Candidate
    is_averaging: bool = False
    by_rows: bool = True
    window: float | None = None
    seed: int = 0
    advance: Callable[[float], object] | None = None
    work: float = field(default=0.0, init=False)  # of all runs, in steps

    def run(
        self,
        candidate: Candidate,
        batches: Iterable[Any],
        judged: Sequence[Any] | None = None,
    ) -> Run:
        """Train on batches; what comes after a loss that is not finite is infinite."""
        judged = self.judged if judged is None else judged
        learner, losses, peak = self.learner, [], -math.inf
        learner.load(self.start)
        learner.set(candidate)
        coming, last = iter(batches), 0
        for mark in self.marks:
            held = [learner.step(next(coming)) for _ in range(mark - last)]
            seen = [float(one) for one in held]  # lazy ones are read once in a while
            peak = max([peak, *(one if math.isfinite(one) else math.inf for one in seen)])
            losses.append(learner.loss(judged) if math.isfinite(peak) or not seen else math.inf)
            self._count(mark - last + len(judged) / 3)
            last = mark
            if not math.isfinite(losses[-1]):
                peak = math.inf
                break
        losses += [math.inf] * (len(self.marks) - len(losses))
        return Run(np.array(losses), peak)

    def _count(self, work: float) -> None:
        self.work += work
        if self.advance is not None:
            self.advance(work)

    def shuffled(self, number: int) -> Sequence[Any]:
        """Return the rows of all batches in one of many random orders."""
        rng = np.random.default_rng([self.seed, 5, number])
        if self.by_rows:
            return self.learner.mix(self.batches, rng)
        return [self.batches[place] for place in rng.permutation(len(self.batches))]

    def buffered(self, size: int) -> Sequence[Any]:
        """Return the batches after a shuffle buffer, which is filled with so many and used up."""
        rng, made = np.random.default_rng([self.seed, 6, size]), []
        for first in range(0, len(self.batches), size):
            block = self.batches[first : first + size]
            if self.by_rows:
                made += list(self.learner.mix(block, rng))
            else:
                made += [block[place] for place in rng.permutation(len(block))]
        return made

    def only(self, places: Sequence[int]) -> Sequence[Any]:
        """Return as many batches as there are, of rows of these places alone, in random order."""
        rng, count = np.random.default_rng([self.seed, 7]), len(self.batches)
        rounds = [rng.permutation(places) for _ in range(math.ceil(count / len(places)))]
        chosen = [self.batches[place] for place in np.concatenate(rounds)[:count]]
        return self.learner.mix(chosen, rng) if self.by_rows else chosen

    def alternating(self, phases: Sequence[Sequence[int]]) -> Sequence[Any]:
        """Return the batches of some phases in turn, those of each as far apart as can be.

        They are as many as all batches: where the phases have fewer, they come again.

        Examples
        --------
        >>> Trials(None, None, "aaaabb", (), (), Candidate(0)).alternating([range(4), [4, 5]])
        ['a', 'b', 'a', 'a', 'b', 'a']
        >>> Trials(None, None, "aaaabb", (), (), Candidate(0)).alternating([[0, 1], [4]])
        ['a', 'b', 'a', 'a', 'b', 'a']
        """
        spread = [
            ((rank + 0.5) / len(places), number, place)
            for number, places in enumerate(phases)
            for rank, place in enumerate(places)
        ]
        places = itertools.cycle(place for *_, place in sorted(spread))
        return [self.batches[next(places)] for _ in self.batches]

    def mixed(self, candidate: Candidate, count: int) -> np.ndarray:
        """Return the losses of runs on the same rows in random order, (count, marks)."""
        return np.stack([self.run(candidate, self.shuffled(one)).losses for one in range(count)])

    def measure(self, candidate: Candidate, count: int) -> LostSteps:
        """Return the steps that a setting loses in this order, against ``count`` mixed runs."""
        own = self.run(candidate, self.batches).losses
        return lost_steps(self.marks, own, self.mixed(candidate, count), window=self.window)

    def with_momentum(self, momentum: float) -> Candidate:
        """Return the setting in use with another momentum, at the same effective step.

        That is the same lr / (1 - momentum), or the same lr for a mean of gradients.
        """
        scale = 1.0 if self.is_averaging else (1 - momentum) / (1 - self.candidate.momentum)
        return Candidate(momentum, self.candidate.lr * scale)
