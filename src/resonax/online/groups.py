"""Rows that are learnt one by one, and that a guard takes together as one step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from resonax.guards.learner import Candidate
from resonax.online.calls import Call, copied
from resonax.online.learner import CopiedLearner, Learnt

__all__ = ["Group"]


@dataclass
class Group:
    """Rows so far of a step; ``before`` is a copy of the model before the first of them."""

    start: Call
    before: Any
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    def learn(self, learner: CopiedLearner, row: tuple[Any, ...], used: Candidate) -> float:
        """Train on a row at once; where rows are mixed they are learnt at the end of the step."""
        row = copied(row)
        if used.is_mixed:
            loss = learner.loss_of(row)
        else:
            learner.set(used)
            loss = learner.step(Call(row, self.start.options))
        self.rows.append(row)
        self.losses.append(loss)
        return loss

    def learnt(self) -> Learnt:
        """Return all rows as one step that is done."""
        columns = tuple(list(column) for column in zip(*self.rows, strict=True))
        call = self.start._replace(batch=columns, is_rows=True)
        return Learnt(call, self.before, sum(self.losses) / len(self.losses))
