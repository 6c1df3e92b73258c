"""The response of a learner over the period of its stream, against rows in random order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from resonax.core.errors import ArgumentError, as_array, check_number
from resonax.probing.copies import ERROR, Copies
from resonax.probing.excitation import Advance, Rows
from resonax.streams import Process, shuffled

__all__ = [
    "KINDS",
    "STEPS",
    "PeriodSweep",
    "arrange",
    "check_periods",
    "draw_law",
    "draw_rows",
    "sweep_periods",
]

KINDS = ("sinusoid", "switching")
STEPS, RUNS = 4096, 4

Draw = Callable[[np.random.Generator, float | None], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class PeriodSweep:
    """Mean squared error on rows in random order, over that of copies that learned such rows.

    The error is that of the second half of a run, averaged over runs; infinite where one diverged.
    """

    periods: np.ndarray  # (periods,), in steps
    ratio: np.ndarray  # (periods,)

    @property
    def worst(self) -> float:
        """The period with the largest ratio."""
        return float(self.periods[self.ratio.argmax()])


def check_periods(periods: Any) -> np.ndarray:
    """Return the periods of a sweep as an array; `ArgumentError` if they cannot be."""
    array = np.atleast_1d(as_array("sweep", periods))
    if array.ndim != 1 or not len(array):
        raise ArgumentError("sweep must be a list of periods, in steps")
    check_number("sweep", array, low=1, high=STEPS / 8)
    return array


def arrange(
    size: np.ndarray, period: float | None, kind: str, batch: int, rng: np.random.Generator
) -> np.ndarray:
    """Return an order of rows in which their size follows a rhythm; at random for no period.

    The steps are ranked by a signal, a sinusoid or one that is drawn anew every ``period`` steps,
    and the row of each rank in size goes to the step of the same rank: the rows stay what they are.

    Examples
    --------
    >>> sizes = np.arange(8.0)
    >>> arrange(sizes, 4.0, "sinusoid", 1, np.random.default_rng(0)).tolist()[1::4]  # the crests
    [6, 7]
    """
    steps = np.arange(len(size)) // batch
    if period is None:
        signal = rng.random(len(size))
    elif kind == "sinusoid":
        signal = np.sin(2 * np.pi * steps / period)
    else:
        signal = rng.normal(size=int(steps[-1] // period) + 1)[(steps // period).astype(int)]
    places = np.lexsort((rng.random(len(size)), signal.round(9)))
    order = np.empty(len(size), int)
    order[places] = np.argsort(size, kind="stable")
    return order


def draw_rows(rows: Rows, kind: str) -> Draw:
    """Return what draws given rows and arranges them in a rhythm."""

    def draw(rng: np.random.Generator, period: float | None) -> tuple[np.ndarray, np.ndarray]:
        chosen = rng.integers(len(rows.inputs), size=STEPS * rows.batch)
        order = chosen[arrange(rows.pattern[chosen] ** 2, period, kind, rows.batch, rng)]
        return rows.inputs[order], rows.target[order]

    return draw


def draw_law(process: Any, batch: int, label: Callable[..., np.ndarray]) -> Draw:
    """Return what draws rows of a law with another period, or of its stationary law."""
    import jax

    if not hasattr(process, "period"):
        raise ArgumentError(f"a sweep needs a law with a period, got {type(process).__name__}")

    def draw(rng: np.random.Generator, period: float | None) -> tuple[np.ndarray, np.ndarray]:
        law: Process = shuffled(process) if period is None else replace(process, period=period)
        key = jax.random.key(int(rng.integers(2**31)))
        inputs = np.asarray(law.sample(key, STEPS, batch), float).reshape(STEPS * batch, -1)
        return inputs, label(inputs, rng)

    return draw


def sweep_periods(
    copies: Copies,
    draw: Draw,
    periods: np.ndarray,
    batch: int,
    rng: np.random.Generator,
    advance: Advance,
) -> PeriodSweep:
    """Let copies of a learner learn streams of several periods, and rows in random order.

    Parameters
    ----------
    copies
        Its first copy is where all begin.
    draw
        Draws the rows of a run by its period, None for random order.
    periods
        In steps.
    batch
        Rows of one step.
    rng
        Of the rows.
    advance
        Called with the number of steps that were made.
    """
    wanted = [None, *map(float, periods)]
    late = []
    for period in wanted:  # one after the other: all of their rows at once may be too many
        streams = [draw(rng, period) for _ in range(RUNS)]
        inputs = np.stack([one[0].reshape(STEPS, batch, -1) for one in streams], axis=1)
        target = np.stack([one[1].reshape(STEPS, batch) for one in streams], axis=1)
        errors = copies.fork(RUNS).advance(inputs, target)[..., ERROR]
        late.append(errors[STEPS // 2 :].mean(axis=0))
        advance(STEPS)
    mean = np.where(np.isfinite(late), late, np.inf).mean(axis=1)
    if not np.isfinite(mean[0]):
        raise ArgumentError("the learner diverges in random order: nothing is left to compare with")
    return PeriodSweep(periods, mean[1:] / mean[0])
