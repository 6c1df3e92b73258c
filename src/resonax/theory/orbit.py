"""The level of SGD with momentum: an orbit that the best weights drive, and noise around it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from resonax.core.algebra import double_precision, on_the_cpu
from resonax.core.errors import ArgumentError
from resonax.core.objects import Result
from resonax.dynamics import Setting
from resonax.streams import AR2, Recorded, Sinusoid, Switching
from resonax.streams.waves import Iid
from resonax.theory.period import Advance, Values
from resonax.theory.settling import Settled, in_random_order, settle

__all__ = ["Orbit", "find_orbit", "orbit_distances", "raised_band"]

RAISED = 1.5  # times the level of the shuffled inputs, from which a period belongs to the band
# Periods of the curve; fewer for ar2, where each takes longer.
_CURVE_PERIODS, _AR2_CURVE_PERIODS = 40, 12
_MAX_PERIOD = 1024
_MAX_CURVE_WEIGHTS = 6  # of more weights the setting alone is computed


@dataclass(frozen=True, repr=False)
class Orbit(Result):
    """Where training by SGD with momentum settles: on an orbit, if the best weights move.

    All is exact for a linear model, and taken over a whole cycle of the inputs, before each update.
    The best weights are those of the law of the inputs and targets at each step; the best fixed
    ones have the least loss over a cycle. ``verdict`` is ``settles``; ``diverges`` where the mean
    square error grows; and ``undecided`` where it rests on inputs so rare that it is not known.
    """

    rms: float | None = None  # root mean square distance from the best weights of each step
    over_iid: float | None = None  # that distance, over that with the same rows in random order
    excess_loss: float | None = None  # mean loss above the best fixed weights; below 0 if followed
    excess_iid: float | None = None  # the same with the rows in random order
    lag_loss: float | None = None  # mean loss above that of the best weights of each step
    orbit: float | None = None  # root mean square of how far the weights swing, without any noise
    gain: float | None = None  # the orbit over how far the best weights swing; None if those rest
    peak_period: float | None = None  # where the gain is largest, of those computed
    peak_gain: float | None = None
    period_low: float | None = None  # ends of the band of periods around the worst, in which the
    period_high: float | None = None  # distance is more than 1.5 times that in random order
    periods: tuple[float, ...] = ()  # a curve over other periods; nan where the error grows
    distances: tuple[float, ...] = ()  # root mean square distance
    orbits: tuple[float, ...] = ()
    excess_losses: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    verdict: str = "settles"
    growth: float | None = None  # of the root mean square error per step, where it diverges

    figure: ClassVar[str] = "resonax.figures.level:plot_orbit"

    def __str__(self) -> str:
        """Return the level in words."""
        if self.rms is None or self.over_iid is None:
            if self.growth is None:
                return f"{self.verdict}: no level is known"
            return (
                f"{self.verdict}: the root mean square error grows by {self.growth:.3g} in each "
                "step, on a logarithmic scale"
            )
        words = (
            f"settles {self.rms:.3g} (rms) from the best weights, {self.over_iid:.2f} times as far "
            f"as in random order, with a loss {self.excess_loss:+.3g} against the best fixed ones "
            f"({self.excess_iid:+.3g} in random order)"
        )
        more = []
        if self.gain is not None:
            more.append(f"the weights swing {self.gain:.2f} times as far as the best ones")
            if self.peak_period is not None:
                more[0] += f", at most {self.peak_gain:.2f} times, at period {self.peak_period:.3g}"
        if self.period_low is not None:
            more.append(
                f"periods from {self.period_low:.3g} to {self.period_high:.3g} steps are worst"
            )
        if more:
            words += f"\n{'; '.join(more)}"
        return words


def raised_band(
    periods: np.ndarray, distances: np.ndarray, iid: float
) -> tuple[float | None, float | None]:
    """Return the ends of the band around the worst period, read off between those computed."""
    ratio = distances / iid
    if not np.isfinite(ratio).any():
        return None, None
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


def _prepared(setting: Setting) -> Setting:
    """Return the setting by whole steps; raise `ArgumentError` where nothing settles."""
    process = setting.process
    if isinstance(process, Recorded):
        if not process.repeat:
            raise ArgumentError(
                "a level needs a law that repeats or is stationary, not recorded once: replay the "
                "rows with repeat=True, on the command line --repeat"
            )
        if setting.omitted is not None:
            raise ArgumentError("omitted needs inputs that are drawn, not a recording")
    return setting.grouped


def orbit_distances(setting: Setting, values: Values, advance: Advance | None = None) -> np.ndarray:
    """Return the root mean square distance of many cells; nan where the error grows."""
    found = settle(_prepared(setting), values, advance)
    return np.sqrt(np.where(found.is_settled, found.square, np.nan))


def _periods(setting: Setting) -> np.ndarray:
    """Return periods to compare: up to four times that in which the slowest weight swings."""
    if "period" not in setting.process.axes or setting.size > _MAX_CURVE_WEIGHTS:
        return np.zeros(0)
    with np.errstate(divide="ignore"):
        curvature = np.linalg.eigvalsh(_curvature(setting))
        slowest = 2 * np.pi / np.sqrt(np.maximum(curvature.min(), 1e-12))
    least = 1 if isinstance(setting.process, Switching) else 2
    if isinstance(setting.process, Sinusoid):
        least = 3  # one of period 2 is always 0
    count = _AR2_CURVE_PERIODS if isinstance(setting.process, AR2) else _CURVE_PERIODS
    return np.unique(np.geomspace(least, np.clip(4 * slowest, 64, _MAX_PERIOD), count).round())


@double_precision
def _curvature(setting: Setting) -> np.ndarray:
    """Return the step times the mean curvature."""
    found = setting.optimizer.lr * setting.curvature(in_random_order(setting))
    return np.asarray(found, dtype=float)


@on_the_cpu
def find_orbit(setting: Setting, advance: Advance | None = None, *, curve: bool = True) -> Orbit:
    """Return where SGD with momentum settles; without a ``curve``, at its own period alone."""
    setting = _prepared(setting)
    others = _periods(setting) if curve else np.zeros(0)
    own = {"lr": np.full(1, float(setting.optimizer.lr))}
    cells = own
    if len(others):  # the setting itself comes first
        periods = np.append(float(setting.process.period), others)  # pyrefly: ignore[missing-attribute]
        cells = {"lr": np.repeat(own["lr"], len(periods)), "period": periods}
    found = settle(setting, cells, advance)
    if not found.rate[0] < 0 or not found.is_settled[0] or not np.isfinite(found.square[0]):
        return _not_settled(float(found.rate[0]))
    at_random = replace(setting, process=Iid(law=in_random_order(setting), dim=setting.process.dim))
    iid = settle(at_random, own)
    distance, least = math.sqrt(found.square[0]), math.sqrt(iid.square[0])
    swing, target = math.sqrt(found.orbit[0]), math.sqrt(found.target[0])
    made = Orbit(
        rms=distance,
        over_iid=distance / least if least > 0 else None,
        excess_loss=float(found.excess[0]),
        excess_iid=float(iid.excess[0]),
        lag_loss=float(found.lag[0]),
        orbit=swing,
        gain=swing / target if target > 1e-9 else None,
    )
    if not len(others):
        return made
    return _with_curve(made, others, Settled(*(part[1:] for part in found)), least)


def _not_settled(rate: float) -> Orbit:
    if rate >= 0:
        note = (
            "the mean square error grows, which rare runs may carry alone: the criterion lyapunov "
            "says what becomes of almost every run"
        )
        return Orbit(verdict="diverges", growth=rate, notes=(note,))
    note = (
        "the mean square error rests on inputs that are so rare, or so slow to forget, that it is "
        "not known: simulate the setting"
    )
    return Orbit(verdict="undecided", notes=(note,))


def _with_curve(made: Orbit, periods: np.ndarray, line: Settled, least: float) -> Orbit:
    """Return the orbit with its curve over the period, the peak of that and the band."""
    distances, orbits, excess = (
        np.where(line.is_settled, numbers, np.nan)
        for numbers in (np.sqrt(line.square), np.sqrt(line.orbit), line.excess)
    )
    changes: dict[str, float | None] = {}
    if made.gain is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            gains = np.where(line.target > 1e-18, orbits / np.sqrt(line.target), np.nan)
        if np.isfinite(gains).any():
            peak = int(np.nanargmax(gains))
            changes = {"peak_period": float(periods[peak]), "peak_gain": float(gains[peak])}
    low, high = raised_band(periods, distances, least) if least > 0 else (None, None)
    return replace(
        made,
        period_low=low,
        period_high=high,
        periods=tuple(periods.tolist()),
        distances=tuple(distances.tolist()),
        orbits=tuple(orbits.tolist()),
        excess_losses=tuple(excess.tolist()),
        **changes,  # pyrefly: ignore[bad-argument-type]
    )
