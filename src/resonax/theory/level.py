r"""The level at which an error settles, if it does.

That of SGD with momentum is exact (`orbit`). Of an adaptive optimizer:

With the second moment :math:`v` of Adam at rest the weights follow heavy ball with the steps
:math:`a_i = \eta(1-\beta_1)/(\sqrt{v_i}+\epsilon)`. Their second moment at rest is :math:`S(v)`,
exact, and with it the mean square of each weight's gradient. The level is where both agree,

.. math:: v_i = G_i(v) = \overline{E[g_i^2]} = \overline{\bigl(\bar BS\bar B
          + \tfrac1n(4F(S)-\bar BS\bar B) + \tfrac4n\sigma^2R\bigr)_{ii}} ,

with the average over a cycle of the law. Growth raises :math:`v`, which shortens the steps until
the growth stops: there is a level in place of a rate. A solution is found for each crossing of
:math:`\log G - \log v` along :math:`\log v`, the ratios of the weights being solved for on the
way; it is stable where it crosses downwards.

All this takes :math:`v` as constant. Where its memory :math:`1/(1-\beta_2)` is below 3 periods no
level is predicted, and where rows that repeat let a large error grow (`far_field`), the answer is
that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from resonax.core.algebra import double_precision, on_the_cpu
from resonax.core.errors import ArgumentError
from resonax.core.objects import Result
from resonax.dynamics import Problem, Setting, check_problem
from resonax.learners import Features, Momentum
from resonax.learners.adaptive import Adaptive, adaptive_form
from resonax.streams import Recorded, Switching, shuffled
from resonax.theory.closure import plan, solve
from resonax.theory.far_field import find_escape
from resonax.theory.orbit import Orbit, find_orbit, orbit_distances, raised_band
from resonax.theory.period import Advance, Values

__all__ = ["Branch", "Level", "check_level", "level", "levels"]

# Over a memory of 3 periods and more the simulated rms of 60 settings lay within 16% of the
# prediction; over a shorter one it was up to 5 times as large (docs/adam.md), and held rows let an
# error grow without bound (docs/adam-divergence.md).
PERIODS_IN_MEMORY = 3.0
_POINTS, _MAP_POINTS = 96, 32  # along the logarithm of v
_MAX_PERIOD, _CURVE_PERIODS = 1024, 50  # of the curve over periods


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

    With several stable branches the numbers are those of the uppermost, and long runs lie between
    it and the lowest. ``verdict`` is
    ``settles``; ``diverges`` where rows that repeat let a large error grow without bound; and
    ``undecided`` where the mean square is taken over less than 3 periods, for which there is no
    prediction. Only where it settles is there a distance.
    """

    distance: float | None  # mean distance from the best weights
    rms: float | None  # root mean square of that distance
    over_iid: float | None  # the distance, over that with the same inputs in random order
    period_low: float | None  # ends of the band of periods around the worst, in which the distance
    period_high: float | None  # is more than 1.5 times that in random order; None if none is
    periods: tuple[float, ...]  # a curve: the distance at other periods
    distances: tuple[float, ...]
    branches: tuple[Branch, ...]  # all solutions, from the uppermost down
    notes: tuple[str, ...] = ()  # where the assumptions do not hold
    verdict: str = "settles"
    growth: float | None = None  # of a large error per step, where it diverges

    figure: ClassVar[str] = "resonax.figures.level:plot_level"

    def __str__(self) -> str:
        """Return the level in words."""
        if self.distance is None or self.over_iid is None:
            if self.growth is None:
                return f"{self.verdict}: no level is predicted"
            return (
                f"{self.verdict}: an error that is large against the step size grows by "
                f"{self.growth:.3g} in each step, without bound"
            )
        where, least = f"{self.distance:.3g}", min(_stable_distances(self.branches), default=None)
        if least is not None and least < self.distance:
            where = f"between {least:.3g} and {where}"
        times = f"{'up to ' if where[0] == 'b' else ''}{self.over_iid:.2f} times"
        words = f"settles {where} from the best weights, {times} as far as with the same inputs in "
        words += "random order"
        if self.period_low is None:
            if not self.periods:
                return words
            ends = f"{min(self.periods):.3g} to {max(self.periods):.3g}"
            return f"{words}; no period from {ends} steps raises the distance by half"
        return (
            f"{words}; periods from {self.period_low:.3g} to {self.period_high:.3g} steps are worst"
        )

    def scoped(self, problem: Problem) -> str:
        """Return the level in words with the training that it is about."""
        known = "" if self.verdict == "undecided" else "predicted "
        return f"{self} ({known}for {problem.scope()})"


def _stable_distances(branches: tuple[Branch, ...]) -> list[float]:
    return [branch.distance for branch in branches if branch.is_stable]


def check_adaptive(problem: Problem) -> Adaptive:
    """Return the form of the optimizer; raise `ArgumentError` where no level can be predicted."""
    _check_linear(problem)
    if problem.is_driven:
        raise ArgumentError(
            "drift and omitted are for SGD with momentum: simulate an adaptive optimizer"
        )
    return adaptive_form(problem.optimizer)


def _check_linear(problem: Problem) -> None:
    check_problem(problem, Problem)
    if not isinstance(problem.model, Features):
        raise ArgumentError("a level is predicted for linear models: simulate a network")


def check_level(problem: Problem) -> None:
    """Raise `ArgumentError` where no level can be predicted."""
    _check_linear(problem)
    if not isinstance(problem.optimizer, Momentum):
        check_adaptive(problem)


def levels(problem: Problem, values: Values, advance: Advance | None = None) -> np.ndarray:
    """Return the distance of many cells; nan where none is found.

    That is also where `level` says ``diverges`` or ``undecided``. The distance is the mean, on the
    uppermost branch, or the root mean square for SGD with momentum.
    """
    if isinstance(problem.optimizer, Momentum):
        return orbit_distances(Setting.of(problem), values, advance)
    found = solve(problem, values, points=_MAP_POINTS, advance=advance)
    result = np.full(len(next(iter(values.values()))), np.nan)
    result[found.cell] = found.distance
    form = adaptive_form(problem.optimizer)
    own = np.full(len(result), _cycle(problem))
    result[_is_short(form, np.asarray(values.get("period", own)))] = np.nan
    if isinstance(problem.process, Recorded):
        of_drift = {name: line for name, line in values.items() if name not in ("lr", "noise")}
        table = np.stack([np.zeros(len(result)), *map(np.asarray, of_drift.values())], axis=1)
        cells, place = np.unique(table, axis=0, return_inverse=True)
        escapes = [
            find_escape(problem.at(dict(zip(of_drift, cell[1:].tolist(), strict=True)))) is not None
            for cell in cells
        ]
        result[np.array(escapes)[place.ravel()]] = np.nan
    return result


def _cycle(problem: Problem) -> float:
    """Return the steps after which the law repeats, or of a block of one that switches."""
    process = problem.process
    if "period" in process.axes:
        return float(process.period)  # pyrefly: ignore[missing-attribute]
    return float(process.cycle) if process.periodic else 1.0


def _is_short(form: Adaptive, period: np.ndarray) -> np.ndarray:
    """Return whether the mean square follows the period: AMSGrad's, which never falls, does not."""
    is_short = form.memory < PERIODS_IN_MEMORY * period * (1 - 1e-9)
    return np.zeros_like(is_short) if form.keeps_largest else is_short


def _notes(form: Adaptive, branches: tuple[Branch, ...]) -> tuple[str, ...]:
    notes = []
    if form.keeps_largest:
        notes.append(
            "AMSGrad divides by the largest mean square so far, which is at least the one assumed: "
            "the level is an upper bound"
        )
    if (stable := len(_stable_distances(branches))) > 1:
        notes.append(
            f"the theory has {stable} stable levels and does not say which of them a run is near; "
            "where it was simulated, the start was forgotten in the long run"
        )
    return tuple(notes)


def _without_level(problem: Problem, form: Adaptive, period: float) -> Level | None:
    """Return the answer where there is no level: the error grows, or nothing is known."""
    none = Level(None, None, None, None, None, (), (), (), verdict="undecided")
    least = 1 - 1 / (PERIODS_IN_MEMORY * period)
    is_short = bool(_is_short(form, np.array(period)))
    needed = (
        f"beta2 would have to be at least {least:.4g}, for a mean square over 3 periods of "
        f"{period:.3g} steps"
    )
    if escape := find_escape(problem):
        follows = (
            f"the mean square, taken over {form.memory:.3g} steps, follows the rows and turns the "
            "mean step away from the best weights"
        )
        advice = needed if is_short else "beta2 would have to be larger"
        if decay := float(form.weight_decay) * float(form.lr):
            stops = f"{follows}: only the weight decay stops the error, near a distance of "
            stops += f"{escape.growth / decay:.3g}; {advice}"
            return replace(none, notes=(stops,))
        notes = (f"{follows}; {advice}",)
        return replace(none, notes=notes, verdict="diverges", growth=escape.growth)
    if is_short:
        note = (
            f"the mean square is taken over {form.memory:.3g} steps, where Adam may settle or "
            f"diverge; {needed}"
        )
        return replace(none, notes=(note,))
    return None


@on_the_cpu
def level(problem: Problem, advance: Advance | None = None) -> Level | Orbit:
    """Predict whether training settles, and where.

    Parameters
    ----------
    problem
        A linear model trained by SGD with momentum, Adam, AdamW, Nadam, RMSprop or AMSGrad on a
        process that repeats or switches; SGD with momentum also on AR(2), and on targets that move
        (``drift``, ``omitted``). Weight decay pulls the weights as well to a point that depends on
        the unknown target; the distance between the two is not counted.
    advance
        Called while it computes; what it raises ends the work.

    Returns
    -------
    Level or Orbit
        An `Orbit`, which is exact, for SGD with momentum.

    Examples
    --------
    >>> from resonax import Linear, Problem, Recorded, adam
    >>> rows = Recorded.of([[1.0], [-1.0]], repeat=True)  # an order that changes nothing
    >>> found = level(Problem(rows, adam(lr=0.05), Linear(bias=False), noise=0.3))
    >>> print(f"{found.distance:.4f} {found.over_iid:.2f}")
    0.0925 1.00

    A slope that follows a sine of period 24: the weights swing 2.3 times as far as it does.

    >>> from resonax import Setting, Sinusoid, heavy_ball
    >>> stream = Sinusoid(period=24, amplitude=0.0)
    >>> setting = Setting(stream, heavy_ball(0.05, 0.9), Linear(bias=False), 8, drift=0.5)
    >>> found = level(setting)
    >>> print(f"{found.gain:.2f} {found.peak_gain:.2f} {found.peak_period:.0f}")
    2.29 3.07 19
    """
    check_level(problem)
    if isinstance(problem.optimizer, Momentum):
        return find_orbit(Setting.of(problem), advance)
    form = check_adaptive(problem)
    problem = replace(problem, process=problem.process.grouped(int(problem.batch)))
    given = plan(problem)  # which refuses what has none, before anything is computed
    if refused := _without_level(problem, form, _cycle(problem)):
        return refused
    values = _cells(problem, form)
    found = solve(problem, values, points=_POINTS, is_all=True, advance=advance)
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
        # What may be turned at each step of a cycle may be in their mixture.
        own = {"lr": values["lr"][:1]}
        found_iid = solve(shuffled_problem, own, points=_MAP_POINTS, given=given, advance=advance)
        iid = float(found_iid.distance[0])
    low, high = raised_band(periods, distances, iid) if len(periods) else (None, None)
    return Level(
        branches[0].distance,
        branches[0].rms,
        branches[0].distance / iid,
        low,
        high,
        tuple(periods.tolist()),
        tuple(distances.tolist()),
        branches,
        _notes(form, branches),
    )


def _cells(problem: Problem, form: Adaptive) -> dict[str, np.ndarray]:
    """Return the problem itself and, where it has a period, others to compare."""
    process = problem.process
    if "period" not in process.axes:
        return {"lr": np.array([float(form.lr)])}
    least = 1 if isinstance(process, Switching) else 2
    longest = max(min(form.memory / PERIODS_IN_MEMORY, _MAX_PERIOD), 4 * least)
    others = np.unique(np.geomspace(least, longest, _CURVE_PERIODS).round())
    periods = np.append(_cycle(problem), others)
    return {"lr": np.full(len(periods), float(form.lr)), "period": periods}
