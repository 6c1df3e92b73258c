"""The pole pair of a learner: settle, excite, fit; and the reasons for which there is none."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from resonax.core.errors import ArgumentError, check_range, check_whole
from resonax.probing.copies import Copies
from resonax.probing.excitation import Advance, Gains, Rows, measure_gains, settle
from resonax.probing.oscillator import (
    PolePair,
    fit_pole_pair,
    is_single_decay,
    jackknife_interval,
)

__all__ = ["Poles", "ResponsePlan", "measure_poles"]

HIGHEST_DAMPING = 0.9
LONGEST = 2**14  # steps of a period of the excitation
_FIRST, _SHORTEST = 2**10, 2**6
_MAX_LEARNED = 2**33  # rows of all copies, above which it would take hours
_PERIODS_SEEN = 8  # natural periods, and times of decay, that one of the excitation must hold
_FAR, _NEAR = 100.0, 0.01  # error of a learner that has diverged, and of one that has none
_MAX_GROWTH = 10.0  # of the response from period to period
_MAX_NONLINEAR = 0.1
_WIDEST = 3.0  # factor between the ends of an interval and the number
_UNEXPLAINED = 0.02  # of the power of the response, and so many times what noise explains
_TIMES_NOISE = 4.0

Stage = Callable[[str, int], AbstractContextManager[Advance]]


@dataclass(frozen=True)
class ResponsePlan:
    """How a response is measured; see `resonax.response`."""

    realisations: int = 8
    periods: int = 4
    length: int | None = None  # None: as long as the natural period turns out to need
    excitation: float | None = None  # relative to the learner's error; None: small
    burn_in: int = 4096
    confidence: float = 0.95

    def check(self, batch: int) -> None:
        """Raise `ArgumentError` for a plan that cannot be, or would take hours."""
        check_whole("realisations", self.realisations, low=4, high=10_000)
        check_whole("periods", self.periods, low=1, high=10_000)
        check_whole("burn_in", self.burn_in, low=1, high=10**8)
        if self.excitation is not None:
            check_range("excitation", self.excitation)
        if self.length is not None:
            check_whole("length", self.length, low=_SHORTEST, high=LONGEST)
            if self.length & (self.length - 1):
                raise ArgumentError(f"length must be a power of 2, got {self.length}")
        length = self.length or _FIRST
        most = _MAX_LEARNED // ((self.periods + 1) * length)
        if self.realisations * batch > most:
            raise ArgumentError(
                f"realisations x batch must be at most {most} for {self.periods} periods of "
                f"{length} steps, got {self.realisations} x {batch}"
            )


@dataclass(frozen=True, eq=False)
class Poles:
    """A fitted pole pair with intervals, or the reason why there is none."""

    pair: PolePair | None
    period_interval: tuple[float, float] | None = None
    damping_interval: tuple[float, float] | None = None
    gains: Gains | None = None
    reason: str | None = None
    notes: tuple[str, ...] = ()


def measure_poles(
    copies: Copies, rows: Rows, plan: ResponsePlan, rng: np.random.Generator, stage: Stage
) -> Poles:
    """Let a learner settle, excite its labels, and fit a pole pair to what its predictions do."""
    with stage("settling", plan.burn_in) as advance:
        error = settle(copies, rows, plan.burn_in, rng, advance)
    size = float(np.sqrt((rows.target**2).mean())) or 1.0
    if not error < _FAR * size:
        return Poles(None, reason="the learner diverges on these rows, even without excitation")
    # As in `probe`: small enough for the learner to be linear, and large against its rounding.
    epsilon = (plan.excitation or copies.eps() ** 0.4) * max(error, _NEAR * size)
    length = plan.length or _FIRST
    while True:
        with stage("exciting the labels", (plan.periods + 1) * length) as advance:
            gains = measure_gains(
                copies,
                rows,
                length=length,
                periods=plan.periods,
                realisations=plan.realisations,
                epsilon=epsilon,
                rng=rng,
                advance=advance,
            )
        unsteady = _unsteady(gains)
        if unsteady:
            return Poles(None, gains=gains, reason=unsteady)
        pair = fit_pole_pair(gains.frequency, gains.mean, gains.error)
        needed = length if plan.length else _length_for(pair, length)
        if needed <= length:
            return _judge(pair, gains, length, plan.confidence)
        length = needed


def _unsteady(gains: Gains) -> str | None:
    """Return why there is no response to fit a pole pair to, if so."""
    if not gains.is_finite or gains.growth > _MAX_GROWTH:
        return (
            "the response to the labels grows without bound: the learner is unstable on these "
            "rows, and an unstable learner has no frequency response"
        )
    if gains.nonlinearity > _MAX_NONLINEAR:
        return (
            "the learner is not linear in its labels: with twice the amplitude the response "
            f"changes by {gains.nonlinearity:.0%}; give a smaller excitation, or a shorter "
            "length if nearby copies part by themselves"
        )
    return None


def _length_for(pair: PolePair, length: int) -> int:
    """Return the period of the excitation that a pole pair needs, a power of 2."""
    period, decay = pair.natural_period, pair.time_constant
    if not math.isfinite(period + decay):
        return min(4 * length, LONGEST)
    if pair.damping > HIGHEST_DAMPING and period < length / 4:
        return length  # it will be refused, and a longer look does not change that
    return min(LONGEST, 2 ** math.ceil(math.log2(_PERIODS_SEEN * max(period, decay, 1.0))))


def _judge(pair: PolePair, gains: Gains, length: int, confidence: float) -> Poles:
    """Return a fitted pair with its intervals, or the reason why it means nothing."""
    kept = np.arange(len(gains.gain))
    others = [
        fit_pole_pair(gains.frequency, gains.gain[kept != out].mean(axis=0), gains.error, pair)
        for out in kept
    ]
    table = np.array([[one.natural_period, one.damping] for one in [pair, *others]])
    period, damping = table[0]
    single = is_single_decay(gains.frequency, gains.mean, gains.error, pair)
    if single or not np.isfinite(period) or damping > HIGHEST_DAMPING:
        reason = (
            f"the damping is above {HIGHEST_DAMPING:g}: the response has no resonance, and its "
            "poles cannot be told from those of two decays"
        )
    elif max(abs(pole) for pole in pair.poles) >= 1:
        reason = "a fitted pole is not inside the unit circle: the learner is about to diverge"
    elif period > length / 2:
        reason = (
            f"the natural period is longer than {length // 2:,} steps, the longest that was seen"
        )
    elif not (np.isfinite(table).all() and (table > 0).all()):
        reason = _noisy()
    else:
        periods = jackknife_interval(period, table[1:, 0], confidence)
        dampings = jackknife_interval(damping, table[1:, 1], confidence)
        if periods[1] < _WIDEST * period and dampings[1] < _WIDEST * damping:
            return Poles(pair, periods, dampings, gains, notes=_notes(pair, gains))
        reason = _noisy()
    return Poles(pair, gains=gains, reason=reason)


def _noisy() -> str:
    return (
        "the response is lost in the noise of the rows: give more realisations, more "
        "periods or a larger batch"
    )


def _notes(pair: PolePair, gains: Gains) -> tuple[str, ...]:
    """Say whether one pole pair is all that there is."""
    total = float((np.abs(gains.mean) ** 2).sum())
    left = float((np.abs(gains.mean - pair.gain(gains.frequency)) ** 2).sum())
    noise = float((gains.error**2).sum())
    if left > _UNEXPLAINED * total and left > _TIMES_NOISE * noise:
        return (
            f"one pole pair leaves {left / total:.0%} of the response: several curvatures "
            "answer, and the dominant pair is given",
        )
    return ()
