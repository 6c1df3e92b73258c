r"""How many steps an order of the rows costs: progress on the path of the same rows mixed.

A ratio of losses says nothing where a loss has a floor, as a cross-entropy has: 2.54 against 2.05
is only 1.24 times, and is hundreds of steps. So a run is placed on the path that runs on the same
rows in random order take: their median loss at each step, made to fall by isotonic regression.
After :math:`n` steps the run is where they are after

.. math:: n - \text{lost}.

A *level* is the mean of a loss over the last steps, a whole period at least, as the loss of a run
on ordered rows swings. If the order did not matter, the level :math:`L` of the run and those of
the :math:`m` mixed runs, with mean :math:`\bar L` and deviation :math:`s`, would be draws of one
distribution; the ends of the interval are the places of

.. math:: L \pm t_{m-1}\, s \sqrt{1 + 1/m} .

All of it is the same for a loss, three times that loss, and that loss and five.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from resonax.core.intervals import student_quantile, tail_of

__all__ = ["LEAST_SHARE", "LostSteps", "level_of", "lost_steps"]

LEAST_SHARE = 0.05  # of the steps, that are lost at least where an order is called harmful
_LEAST = 1e-9  # least spread of levels, of the way that the mixed runs went


@dataclass(frozen=True)
class LostSteps:
    """Steps that a run has lost against runs on the same rows in random order.

    ``low`` and ``high`` are the ends of the interval; ``p`` is the probability of so high a level
    if the order did not matter. ``own`` and ``mixed`` are the levels, ``start`` is the loss before
    the first step.
    """

    steps: int
    lost: float
    low: float
    high: float
    p: float
    start: float
    own: float
    mixed: tuple[float, ...]

    @property
    def position(self) -> float:
        """The step at which mixed runs are where the run is at its end."""
        return self.steps - self.lost

    @property
    def excess(self) -> float:
        """Loss above the mean of the mixed runs, at most up to the loss before the first step."""
        mean = float(np.mean(self.mixed))
        worst = self.start if self.start > mean else math.inf
        return min(self.own, worst) - mean if math.isfinite(mean) else math.nan

    def is_harm(self, least: float = LEAST_SHARE) -> bool:
        """Whether even the lower end of the interval is a share of the steps that counts."""
        return self.low >= least * self.steps

    def __str__(self) -> str:
        """Return it in words.

        Examples
        --------
        >>> print(LostSteps(512, 322, 290, 341, 0.0001, 2.3, 1.9, (1.0, 1.1)))
        after 512 steps in this order the model is where mixed rows are after 190 (322 steps lost,
        interval 290 to 341)
        """
        if self.low <= 0:
            return (
                f"after {self.steps} steps in this order the model cannot be told from those on "
                f"mixed rows (at most {self.high:.0f} steps lost)"
            )
        return (
            f"after {self.steps} steps in this order the model is where mixed rows are after "
            f"{self.position:.0f} ({self.lost:.0f} steps lost, interval {self.low:.0f} to "
            f"{self.high:.0f})"
        )


def level_of(marks: Sequence[int] | np.ndarray, losses: Any, window: float) -> Any:
    """Return the mean loss over the last steps: infinite, if one of them is not finite.

    Parameters
    ----------
    marks
        (k,) the steps at which a run was judged, from 0 to the last.
    losses
        (..., k) its losses there.
    window
        Steps before the last one that are looked at.

    Examples
    --------
    >>> float(level_of([0, 10, 20, 30], [9.0, 4.0, 2.0, 1.0], 15))
    1.5
    """
    marks, losses = np.asarray(marks), np.asarray(losses, float)
    late = losses[..., marks > marks[-1] - window]
    return np.where(np.isfinite(late).all(axis=-1), late.mean(axis=-1), np.inf)


def lost_steps(
    marks: Sequence[int] | np.ndarray,
    own: Sequence[float] | np.ndarray,
    mixed: Sequence[Sequence[float]] | np.ndarray,
    *,
    window: float | None = None,
    confidence: float = 0.99,
) -> LostSteps:
    """Return the steps that a run has lost against runs on the same rows in random order.

    Parameters
    ----------
    marks
        (k,) the steps at which all runs were judged on the same rows, from 0 to the last.
    own
        (k,) losses of the run.
    mixed
        (m, k) losses of the mixed runs, two at least.
    window
        Steps at the end over which levels are taken, a period of the run at least; a quarter of
        all steps if it is left out.
    confidence
        Of the interval.

    Examples
    --------
    >>> marks = np.arange(0, 101, 10)
    >>> mixed = np.stack([2.0**(-marks / 20), 1.02 * 2.0**(-marks / 20)])
    >>> own = 2.0**(-marks / 50)  # falls at two fifths of their pace
    >>> found = lost_steps(marks, own, mixed, window=20)
    >>> other = lost_steps(marks, 3 * own + 5, 3 * mixed + 5, window=20)
    >>> round(found.lost), round(other.lost), found.is_harm()
    (60, 60, True)
    """
    marks, own, mixed = np.asarray(marks), np.asarray(own, float), np.asarray(mixed, float)
    steps = int(marks[-1])
    window = steps / 4 if window is None else min(window, steps)
    own, mixed = (np.where(np.isfinite(one), one, np.inf) for one in (own, mixed))
    level, levels = float(level_of(marks, own, window)), level_of(marks, mixed, window)
    start = float(np.median(mixed[:, 0]))
    path = np.median(mixed, axis=0)
    # Where the path itself has its level: its late losses are not spread evenly.
    end = _place(marks, path, float(level_of(marks, path, window))) or float(steps)

    def lost(at: float) -> float:
        return max(0.0, steps * (1 - _place(marks, path, at) / end))

    if not np.isfinite(levels).all():
        return LostSteps(steps, lost(level), 0.0, steps, 1.0, start, level, tuple(levels.tolist()))
    count = len(levels)
    spread = max(float(np.std(levels, ddof=1)), _LEAST * float(np.ptp(path)), 1e-300)
    spread *= math.sqrt(1 + 1 / count)
    half = spread * float(student_quantile(count - 1, tail_of(confidence)))
    p = float(scipy.special.stdtr(count - 1, (float(levels.mean()) - level) / spread))
    return LostSteps(
        steps, lost(level), lost(level - half), lost(level + half), p, start, level,
        tuple(levels.tolist()),
    )  # fmt: skip


def _place(marks: np.ndarray, path: np.ndarray, level: float) -> float:
    """Return the step at which a path has come down to a level; at most the last."""
    usable = np.isfinite(path)
    if not math.isfinite(level) or not usable.any():
        return 0.0
    fitted = scipy.optimize.isotonic_regression(path[usable], increasing=False)
    values = fitted.x[fitted.blocks[:-1]]
    # A stretch without progress counts as one place, its middle.
    sums = np.add.reduceat(marks[usable].astype(float), fitted.blocks[:-1])
    places = sums / np.diff(fitted.blocks)
    if level <= values[-1]:
        return float(marks[-1])
    return float(np.interp(-level, -values, places)) if level < values[0] else 0.0
