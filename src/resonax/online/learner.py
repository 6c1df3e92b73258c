"""Any model that can be copied, as a learner that can be rewound and trained again."""

from __future__ import annotations

import contextlib
import copy
import math
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from resonax.guards.learner import MOST_COPIES, Candidate, mean_loss
from resonax.guards.phases import Phased, Phases, phases_of, projected
from resonax.online import calls
from resonax.online.calls import Call
from resonax.online.libraries import Library
from resonax.probing.adapters import is_overflow

__all__ = ["CopiedLearner", "RowGroup"]


_ROWS = 8192  # last rows in which a rhythm is looked for


class CopiedLearner(Phased):
    """A model and how it learns; copies are pickled, which is quicker than `copy.deepcopy`.

    A model that cannot be pickled is copied by `copy.deepcopy`. Going back gives the model the
    attributes of a copy, so that it stays the same object. ``error`` is what the library raised in
    the last step because its numbers overflowed, or None.
    """

    def __init__(self, model: Any, library: Library):
        self.model, self.library = model, library
        self.own = self.candidate = Candidate(library.knobs.largest_momentum(model))
        self.error: Exception | None = None
        self.is_pickled = _can_pickle(model)

    def call(self, batch: tuple[Any, ...], options: dict[str, Any]) -> Call:
        """Return a call as it is kept."""
        own = self.library.knobs.read(self.model)
        return Call(calls.copied(batch), options, own, self.random_state())

    def random_state(self) -> Any:
        """Return the state of NumPy's global random numbers; None for who does not use them."""
        return np.random.get_state(legacy=False) if self.library.has_random else None  # noqa: NPY002

    def set_random_state(self, state: Any) -> None:
        """Continue with earlier random numbers."""
        if state is not None:
            np.random.set_state(state)  # noqa: NPY002

    def save(self) -> Any:
        """Return a copy of the model."""
        return pickle.dumps(self.model, 5) if self.is_pickled else copy.deepcopy(self.model)

    def copy_of(self, saved: Any) -> Any:
        """Return the model as it was saved, an object of its own."""
        return pickle.loads(saved) if self.is_pickled else copy.deepcopy(saved)

    def load(self, saved: Any) -> None:
        """Become a copy."""
        made = self.copy_of(saved)
        if hasattr(self.model, "__dict__"):
            self.model.__dict__.clear()
            self.model.__dict__.update(made.__dict__)
        else:
            self.model = made

    def set(self, candidate: Candidate) -> None:
        """Train with this candidate from now on."""
        self.candidate = candidate

    def step(self, batch: Call) -> float:
        """Train on a batch; the loss before it, infinity where numbers overflow."""
        self.set_random_state(batch.random)
        losses = []
        with np.errstate(all="ignore"), self._in_force(batch.own):
            for part in batch.parts:
                losses.append(self.loss_of(part))
                self.error = _overflow(self.library.learn, self.model, *part, **batch.options)
                if self.error is not None:
                    return math.inf
        return sum(losses) / len(losses)

    def _in_force(self, own: dict[str, Any] | None) -> contextlib.AbstractContextManager[None]:
        knobs, used = self.library.knobs, self.candidate
        if own is None:
            if used.momentum >= self.own.momentum and used.lr == 1:
                return contextlib.nullcontext()
            own = knobs.read(self.model)
        return knobs.in_force(self.model, own, used)

    def loss(self, batches: Sequence[Call]) -> float:
        """Return the mean loss on batches."""
        return mean_loss(self.losses([calls.join(batches)]))

    def losses(self, batches: Sequence[Call]) -> list[float]:
        """Return the loss on each batch."""
        with np.errstate(all="ignore"):
            return [mean_loss([self.loss_of(part) for part in one.parts]) for one in batches]

    def loss_of(self, part: tuple[Any, ...]) -> float:
        """Return the loss on one call's batch; infinity if it is not finite."""
        try:
            found = float(self.library.loss(self.model, *part))
        except (ValueError, ArithmeticError) as error:
            if not is_overflow(error):
                raise
            return math.inf
        return found if math.isfinite(found) else math.inf

    def mix(
        self, batches: Sequence[Call], rng: np.random.Generator, like: Sequence[Call] | None = None
    ) -> Sequence[Call]:
        """Return the rows of batches in random order."""
        return calls.mix_rows(batches, rng, like)

    def size(self, batch: Call) -> int:
        """Return the bytes of a batch."""
        return calls.byte_size(batch)

    def sketches(self, batches: Sequence[Call]) -> np.ndarray:
        """Return random projections of the mean row of each step."""
        rows = [calls.numbers_of(one) for one in batches]
        if len({one.shape[1] for one in rows}) > 1:
            return np.zeros((len(rows), 1))
        return projected(np.stack([one.mean(axis=0) for one in rows]))

    def phases(self, batches: Sequence[Call]) -> Phases:
        """Return the rhythm of the rows, which may be shorter than a step, and parts of an order.

        Rows are looked at one by one: a rhythm of 24 rows in steps of 16 is none of 3 steps.
        """
        rows = [calls.numbers_of(one) for one in batches]
        if len({one.shape[1] for one in rows}) > 1:
            return Phases()
        found = phases_of(self.sketches(batches))
        counts = {len(one) for one in rows}
        series = projected(np.concatenate(rows)[-_ROWS:])
        within = phases_of(series, parts=0)  # rows that a step learns one by one have an order, too
        found = found._replace(p=min(found.p, within.p))
        period = within.period if len(counts) == 1 else None
        if period is None:
            return found._replace(period=None)
        return found._replace(period=period / counts.pop(), rows=period, p=0.0)

    rhythm = phases

    def saved_size(self, saved: Any) -> int:
        """Return the bytes of a copy; of one that cannot be pickled they are not known."""
        return len(saved) if self.is_pickled else 0

    def replay_size(self, saved: Sequence[Any], batches: Sequence[Any]) -> int:
        """Return the bytes of the copies that a replay holds at most."""
        return MOST_COPIES * max(map(self.saved_size, saved), default=0)


@dataclass
class RowGroup:
    """Rows that are learnt one by one, and that a guard counts together as one step.

    ``start`` holds the options and the random state with which the group began.
    """

    start: Call
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def learn(self, learner: CopiedLearner, row: tuple[Any, ...], used: Candidate) -> float:
        """Train on a row at once; where rows are mixed they are learnt at the end of the step."""
        row = calls.copied(row)
        if used.is_mixed:
            loss = learner.loss_of(row)
        else:
            learner.set(used)
            loss = learner.step(Call(row, self.start.options))
        self.rows.append(row)
        self.losses.append(loss)
        return loss

    def call(self) -> Call:
        """Return all rows as one call."""
        columns = tuple(list(column) for column in zip(*self.rows, strict=True))
        return self.start._replace(batch=columns, is_rows=True)

    def loss(self) -> float:
        """Return the mean loss of the rows."""
        return sum(self.losses) / len(self.losses)


def _can_pickle(model: Any) -> bool:
    try:
        pickle.loads(pickle.dumps(model, 5))
    except Exception:
        return False
    return True


def _overflow(function: Callable[..., object], *batch: Any, **options: Any) -> Exception | None:
    """Return the error of a call in which numbers overflowed; others are raised."""
    try:
        function(*batch, **options)
    except (ValueError, ArithmeticError) as error:
        if not is_overflow(error):
            raise
        return error
    return None
