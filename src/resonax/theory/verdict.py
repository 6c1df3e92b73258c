"""The verdict: four criteria side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from resonax.core.algebra import on_the_cpu
from resonax.core.errors import ArgumentError, as_array, suggest
from resonax.core.labels import CRITERIA
from resonax.core.objects import Result
from resonax.dynamics import Problem, Setting, check_problem
from resonax.rows.answers import OnTheseRows
from resonax.streams import Recorded
from resonax.theory.flow import flow_rates, why_missing
from resonax.theory.lyapunov import (
    Interval,
    check_reach,
    judge_recording,
    lyapunov,
    lyapunov_rates,
)
from resonax.theory.map import map_rates
from resonax.theory.mean_square import mean_square_rates, noise_floor
from resonax.theory.order_proof import OrderProof, order_proof
from resonax.theory.period import Advance, Values, check_values, own_values

__all__ = ["Growth", "MeanSquare", "Verdict", "check_criterion", "rates", "verdict"]

_EXCEEDANCE_DRAWS = 2048  # batches for the chance that one exceeds the curvature that is tolerated
MARGIN = 1e-7  # rates closer to 0 than this are called marginal


@dataclass(frozen=True)
class Growth:
    """Growth by one criterion: rate per step, and spectral radius per period."""

    rate: float
    radius: float


@dataclass(frozen=True)
class MeanSquare(Growth):
    """Growth of the root mean square error; where it falls, the level at which it settles.

    Where the best weights move there is no floor here: `resonax.level` has the orbit.
    """

    noise_floor: float | None


@dataclass(frozen=True, repr=False)
class Verdict(Result):
    """What four criteria say of one setting; None where a criterion does not apply.

    The word is ``converges`` where the strongest criterion that applies converges (mean square,
    else the interval of lyapunov), ``diverges`` where almost every run does (the interval lies
    above 0), and ``marginal`` in between: single runs converge but their mean square grows, or
    the interval is too wide to tell. Of a recording that is trained on once, the word is that of
    `resonax.check`: what becomes of an error on these very rows.
    """

    verdict: str
    flow: Growth | None
    map: Growth | None
    mean_square: MeanSquare | None
    lyapunov: Interval
    order_proof: OrderProof
    notes: tuple[str, ...] = ()  # why a criterion that should apply is missing
    on_these_rows: OnTheseRows | None = None  # of a recording that is trained on once

    def summary(self) -> dict[str, Any]:
        """Return the verdict, and the rate by each criterion that applies."""
        rates = {name: rate for name, (rate, _, _) in self.intervals().items()}
        low, high = self.lyapunov[1:]
        return {"verdict": self.verdict, **rates, "low": low, "high": high}

    def intervals(self) -> dict[str, tuple[float, float, float]]:
        """Return the rate per step by each criterion; that of lyapunov alone has an interval."""
        exact = {"flow": self.flow, "map": self.map, "mean_square": self.mean_square}
        rates = {name: growth.rate for name, growth in exact.items() if growth}
        return {**{name: (rate,) * 3 for name, rate in rates.items()}, "lyapunov": self.lyapunov}

    def __str__(self) -> str:
        """Return the verdict in words."""
        return f"{self.verdict}: {self.meaning()}"

    def meaning(self) -> str:
        """Return one sentence that says what the rate means to someone who trains.

        Examples
        --------
        >>> from resonax import Setting, Sinusoid, heavy_ball
        >>> verdict(Setting(Sinusoid(period=22), heavy_ball(0.01, 0.99))).meaning()
        'the error of almost every run doubles every ... steps'
        """
        if self.on_these_rows is not None:
            return self.on_these_rows.meaning()
        rate = self.lyapunov.rate
        if self.verdict == "diverges":
            return f"the error of almost every run doubles every {_steps_text(rate)} steps"
        if self.verdict == "converges":
            halves = f"the error halves every {_steps_text(min(rate, -1e-12))} steps"
            floor = self.mean_square.noise_floor if self.mean_square else None
            return f"{halves}, until the noise holds it near {floor:.2g}" if floor else halves
        if self.lyapunov.high < 0:
            return "single runs converge, but rare ones grow so large that the mean square diverges"
        return "too close to the boundary to tell"

    def evidence(self) -> str:
        """Return how the word and the rate in `meaning` are known.

        Examples
        --------
        >>> from resonax import Setting, Sinusoid, heavy_ball
        >>> verdict(Setting(Sinusoid(period=22), heavy_ball(0.01, 0.99))).evidence()
        'measured on sampled batches'
        """
        if self.on_these_rows is not None:
            return "computed on these rows"
        exact = self.mean_square is not None and self.mean_square.rate < -MARGIN
        return (
            "the verdict is exact, the rate is measured" if exact else "measured on sampled batches"
        )

    def scoped(self, problem: Problem) -> str:
        """Return `meaning` with the training that it is about and the `evidence` for it."""
        return f"for {problem.scope()}, {self.meaning()} ({self.evidence()})"


def _steps_text(rate: float) -> str:
    steps = math.log(2) / max(abs(rate), 1e-12)
    return f"{steps:,.0f}" if steps >= 100 else f"{steps:.3g}"


def check_criterion(setting: Setting, criterion: str) -> None:
    """Raise unless a criterion exists and applies to the process of a setting."""
    check_problem(setting, Setting)
    if criterion not in CRITERIA:
        raise suggest("criterion", criterion, CRITERIA)
    if criterion != "lyapunov" and not setting.process.periodic:
        raise ArgumentError(
            f"criterion must be lyapunov for the process {setting.process.name}, which never "
            f"repeats, got {criterion}"
        )


def rates(
    setting: Setting, values: Values, criterion: str = "map", advance: Advance | None = None
) -> np.ndarray:
    """Return the rate per step of many cells by one criterion; NaN where it cannot be computed."""
    check_criterion(setting, criterion)
    given = values.items() if isinstance(values, Mapping) else ()
    arrays = {name: as_array(name, array) for name, array in given}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) != 1 or len(shape := shapes.pop()) != 1 or not shape[0]:
        raise ArgumentError("values must be lists of one length, as {'lr': [0.01, 0.1]}")
    check_values(setting, arrays)
    if criterion == "lyapunov":
        return np.array([interval.rate for interval in lyapunov_rates(setting, values, advance)])
    every = {"flow": flow_rates, "map": map_rates, "mean_square": mean_square_rates}
    return every[criterion](setting.grouped, values, advance)


def radius(rate: float, cycle: float) -> float:
    """Return the radius per period, the largest or least double where it would not fit in one."""
    return math.exp(min(max(rate * cycle, -700.0), 700.0))


def _verdict_word(mean_square: MeanSquare | None, lyapunov: Interval) -> str:
    # The mean square is exact and bounds every run (Jensen): where it falls, nothing else counts.
    if mean_square is not None and mean_square.rate < -MARGIN:
        return "converges"
    if lyapunov.low > 0:
        return "diverges"
    return "converges" if mean_square is None and lyapunov.high < 0 else "marginal"


def _exact_rates(setting: Setting) -> tuple[dict[str, float], list[str]]:
    """Return the rate by each criterion that has one, and why others have none."""
    own = own_values(setting)
    found: dict[str, float] = {}
    notes = []
    for criterion in ("flow", "map", "mean_square"):
        try:
            rate = rates(setting, own, criterion)
        except ArgumentError as error:  # the other criteria are still computed
            notes.append(f"{criterion}: {error}")
            continue
        if reason := why_missing(setting, own, criterion, rate):
            notes.append(f"{criterion}: {reason}")
        else:
            found[criterion] = float(rate[0])
    return found, notes


@on_the_cpu
def _prove_and_judge(setting: Setting) -> tuple[OrderProof, dict[str, float], list[str]]:
    """Return the proof for every order, and `_exact_rates` where the law repeats."""
    proof = order_proof(setting, draws=_EXCEEDANCE_DRAWS)
    if not setting.grouped.process.periodic:
        return proof, {}, []
    found, notes = _exact_rates(setting)
    return proof, found, notes


@on_the_cpu
def verdict(
    setting: Setting,
    *,
    paths: int = 64,
    steps: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Verdict:
    """Judge one setting by four criteria.

    Parameters
    ----------
    setting
        What is trained on what.
    paths, steps, confidence, seed
        Of the `lyapunov` criterion.

    Examples
    --------
    >>> from resonax import Setting, Sinusoid, heavy_ball
    >>> found = verdict(Setting(Sinusoid(period=22), heavy_ball(lr=0.01, momentum=0.97)))
    >>> found.verdict, round(found.flow.rate, 4), round(found.map.rate, 4)
    ('diverges', 0.0022, 0.002)
    """
    check_problem(setting, Setting)
    if isinstance(setting.process, Recorded) and not setting.process.repeat:
        on_rows, more = judge_recording(setting, confidence, seed)
        proof = order_proof(setting, draws=_EXCEEDANCE_DRAWS)
        return Verdict(on_rows.verdict, None, None, None, more, proof, on_these_rows=on_rows)
    check_reach(setting, paths, steps, confidence, seed)
    with ThreadPoolExecutor(1) as pool:  # what compiles longest has a thread of its own
        others = pool.submit(_prove_and_judge, setting)
        almost_sure = lyapunov(setting, paths=paths, steps=steps, confidence=confidence, seed=seed)
    proof, found, notes = others.result()
    grouped = setting.grouped
    if not grouped.process.periodic:
        return Verdict(_verdict_word(None, almost_sure), None, None, None, almost_sure, proof)
    cycle = float(grouped.process.cycle)
    mean_square = None
    if "mean_square" in found:
        square = found["mean_square"]
        rests = square < -MARGIN and not grouped.is_driven  # where it is driven, `level` says
        floor = noise_floor(grouped) if rests else None
        mean_square = MeanSquare(square, radius(2 * square, cycle), floor)
    flow, exact = (
        Growth(found[name], radius(found[name], cycle)) if name in found else None
        for name in ("flow", "map")
    )
    word = _verdict_word(mean_square, almost_sure)
    return Verdict(word, flow, exact, mean_square, almost_sure, proof, tuple(notes))
