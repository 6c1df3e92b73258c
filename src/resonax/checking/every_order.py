"""What holds for every order of the rows of a recording, whatever the loss and the batch.

The curvature of a batch, a mean, is at most that of its longest row, so that the bound is one for
all orders of rows and all batches. That of the logistic loss is at most a quarter of the squared
features at any weights.
"""

from __future__ import annotations

import numpy as np

from resonax.learners import Momentum
from resonax.recordings.recording import Recording
from resonax.rows.logistic import BOUND
from resonax.rows.subject import Subject
from resonax.theory.circle import OrderProof, judge_every_order
from resonax.theory.circle_criterion import holds, largest_momentum
from resonax.theory.curvature import longest_row

__all__ = ["in_every_order", "order_proof_line"]


def _curvature(subject: Subject, longest: float) -> float:
    return (BOUND if subject.is_logistic else 2.0) * longest


def in_every_order(subject: Subject, recording: Recording) -> OrderProof:
    """Return what holds in every order of all rows of a recording, those of every series."""
    longest = longest_row(subject.model, recording.inputs)
    return judge_every_order(
        subject.optimizer, _curvature(subject, longest), subject.model.intercept_lr
    )


def order_proof_line(subject: Subject, lrs: np.ndarray) -> np.ndarray:
    """Return the largest momentum that every order allows at each step size, NaN for none."""
    curvature = _curvature(subject, subject.model.largest**2)
    plain = subject.model.intercept_lr
    if plain and not holds(Momentum(plain), curvature):
        return np.full(len(lrs), np.nan)
    return largest_momentum(subject.optimizer.at({"lr": lrs}), curvature)
