r"""The level at which an adaptive optimizer settles, where SGD with momentum would diverge.

With the second moment :math:`v` of Adam at rest the weights follow heavy ball with the steps
:math:`a_i = \eta(1-\beta_1)/(\sqrt{v_i}+\epsilon)`. Their second moment at rest is :math:`S(v)`,
exact, and with it the mean square of each weight's gradient. The level is where both agree,

.. math:: v_i = G_i(v) = \overline{E[g_i^2]} = \overline{\bigl(\bar BS\bar B
          + \tfrac1n(4F(S)-\bar BS\bar B) + \tfrac4n\sigma^2R\bigr)_{ii}} ,

with the average over a cycle of the law. Growth raises :math:`v`, which shortens the steps until
the growth stops: there is a level in place of a rate. A solution is found for each crossing of
:math:`\log G - \log v` along :math:`\log v`, the ratios of the weights being solved for on the
way; it is stable where it crosses downwards.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from resonax.algebra import double_precision, on_the_cpu
from resonax.checks import ArgumentError
from resonax.dynamics import Problem, check_problem
from resonax.learners import Features
from resonax.learners.adaptive import Adaptive, adaptive_form
from resonax.objects import Result
from resonax.processes import Switching, shuffled
from resonax.stability.cells import Advance, Values
from resonax.stability.closure import solve

__all__ = ["Branch", "Level", "check_adaptive", "level", "levels"]

RAISED = 1.5  # times the level of the shuffled inputs, from which a period belongs to the band
# Over a memory of 3 periods and more the simulated rms of 60 settings lay within 16% of the
# prediction; over a shorter one it was up to 5 times as large (docs/adam.md).
PERIODS_IN_MEMORY = 3.0
_POINTS, _MAP_POINTS = 96, 32  # along the logarithm of v
_LONGEST, _PERIODS = 1024, 50  # of the curve over periods


@dataclass(frozen=True)
class Branch:
    """One solution for the level."""

    distance: float  # mean distance from the best weights
    rms: float  # root mean square of that distance
    square: tuple[float, ...]  # mean square of the gradient of each weight
    is_stable: bool


@dataclass(frozen=True, repr=False)
class Level(Result):
    """Where training settles: its distance from the best weights, and the periods that raise it.

    With several stable branches the numbers are those of the uppermost.
    """

    distance: float  # mean distance from the best weights
    rms: float  # root mean square of that distance
    over_iid: float  # the distance, over that with the same inputs in random order
    period_low: float | None  # ends of the band of periods around the worst, in which the distance
    period_high: float | None  # is more than 1.5 times that in random order; None if none is
    periods: tuple[float, ...]  # a curve: the distance at other periods
    distances: tuple[float, ...]
    branches: tuple[Branch, ...]  # all solutions, from the uppermost down
    notes: tuple[str, ...] = ()  # where the assumptions do not hold

    figure: ClassVar[str] = "resonax.figures.level:plot_level"

    def __str__(self) -> str:
        """Return the level in words."""
        words = f"settles {self.distance:.3g} from the best weights, {self.over_iid:.2f} times "
        words += "as far as with the same inputs in random order"
        if self.period_low is None:
            return f"{words}; no period raises that by half"
        return f"{words}; periods from {self.period_low:.3g} to {self.period_high:.3g} are worst"


def check_adaptive(problem: Problem) -> Adaptive:
    """Return the form of the optimizer; raise `ArgumentError` where no level can be predicted."""
    check_problem(problem, Problem)
    if not isinstance(problem.model, Features):
        raise ArgumentError("a level is predicted for linear models: simulate a network")
    return adaptive_form(problem.optimizer)


def levels(problem: Problem, values: Values, advance: Advance | None = None) -> np.ndarray:
    """Return the mean distance of many cells, on the uppermost branch; nan where none is found."""
    found = solve(problem, values, points=_MAP_POINTS, advance=advance)
    result = np.full(len(next(iter(values.values()))), np.nan)
    result[found.cell] = found.distance
    return result


def _band(
    periods: np.ndarray, distances: np.ndarray, iid: float
) -> tuple[float | None, float | None]:
    """Return the ends of the band around the worst period, read off between those computed."""
    ratio = distances / iid
    peak = int(np.nanargmax(ratio))
    if not ratio[peak] > RAISED:
        return None, None
    is_low = ~(ratio > RAISED)

    def edge(inside: int, outside: int) -> float:
        span = (ratio[inside] - RAISED) / (ratio[inside] - ratio[outside])
        logs = np.log(periods[[inside, outside]])
        return float(np.exp(logs[0] + span * (logs[1] - logs[0])))

    before, after = np.flatnonzero(is_low[:peak]), np.flatnonzero(is_low[peak:])
    low = edge(before[-1] + 1, before[-1]) if len(before) else float(periods[0])
    end = peak + int(after[0]) if len(after) else None
    return low, float(periods[-1]) if end is None else edge(end - 1, end)


def _notes(form: Adaptive, period: float, branches: tuple[Branch, ...]) -> tuple[str, ...]:
    notes = []
    if form.memory < PERIODS_IN_MEMORY * period:
        notes.append(
            f"the mean square is taken over {form.memory:.3g} steps, fewer than 3 periods of "
            f"{period:.3g}: it follows the period, and the level may be several times off"
        )
    if form.keeps_largest:
        notes.append(
            "AMSGrad divides by the largest mean square so far, which is at least the one assumed: "
            "the level is an upper bound"
        )
    stable = sum(branch.is_stable for branch in branches)
    if stable > 1:
        notes.append(f"there are {stable} stable levels: the start decides between them")
    return tuple(notes)


@on_the_cpu
def level(problem: Problem) -> Level:
    """Predict where an adaptive optimizer settles.

    Parameters
    ----------
    problem
        A linear model trained by Adam, AdamW, Nadam, RMSprop or AMSGrad on a process that repeats
        or switches. Weight decay pulls the weights as well to a point that depends on the unknown
        target; the distance between the two is not counted.

    Examples
    --------
    >>> from resonax import Linear, Problem, Recorded, adam
    >>> rows = Recorded.of([[1.0], [-1.0]], repeat=True)  # an order that changes nothing
    >>> found = level(Problem(rows, adam(lr=0.05), Linear(bias=False), noise=0.3))
    >>> print(f"{found.distance:.4f} {found.over_iid:.2f}")
    0.0925 1.00
    """
    form = check_adaptive(problem)
    values, cycle = _cells(problem, form)
    found = solve(problem, values, points=_POINTS, is_all=True)
    branches = tuple(
        Branch(float(distance), float(rms), tuple(square.tolist()), bool(stable))
        for cell, stable, rms, distance, square in zip(*found, strict=True)
        if cell == 0
    )
    if not branches:
        raise ArgumentError("no level was found: lower the lr or the inputs")
    first = np.full(len(values["lr"]), np.nan)
    first[found.cell[::-1]] = found.distance[::-1]  # the uppermost, which comes first, stays
    periods, distances = values.get("period", np.zeros(1))[1:], first[1:]
    if isinstance(problem.process, Switching):
        iid = float(distances[0])  # a mean for each step is no order at all
    else:
        shuffled_problem = replace(problem, process=double_precision(shuffled)(problem.process))
        iid = float(levels(shuffled_problem, {"lr": values["lr"][:1]})[0])
    low, high = _band(periods, distances, iid) if len(periods) else (None, None)
    return Level(
        branches[0].distance,
        branches[0].rms,
        branches[0].distance / iid,
        low,
        high,
        tuple(periods.tolist()),
        tuple(distances.tolist()),
        branches,
        _notes(form, cycle, branches),
    )


def _cells(problem: Problem, form: Adaptive) -> tuple[dict[str, np.ndarray], float]:
    """Return the problem itself and, where it has a period, others to compare; and its cycle."""
    process = problem.process
    if "period" not in process.axes:
        cycle = float(process.cycle) if process.periodic else 1.0
        return {"lr": np.array([float(form.lr)])}, cycle
    cycle = float(process.period)  # pyrefly: ignore[missing-attribute]
    least = 1 if isinstance(process, Switching) else 2
    longest = max(min(form.memory / PERIODS_IN_MEMORY, _LONGEST), 4 * least)
    others = np.unique(np.geomspace(least, longest, _PERIODS).round())
    periods = np.append(cycle, others)
    return {"lr": np.full(len(periods), float(form.lr)), "period": periods}, cycle
