"""What was measured of a learner, and how it is said to someone who trains."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from resonax.checking.modulation import Modulation
from resonax.core.objects import Result, plain_values
from resonax.probing.oscillator import critical_depth, dangerous_periods
from resonax.probing.period_sweep import PeriodSweep
from resonax.probing.response import Poles

__all__ = ["Response"]

_DENSE = 400  # points of the fitted curve


@dataclass(frozen=True, eq=False, repr=False)
class Response(Result):
    """Natural period and damping of a learner, and what they mean for data with a rhythm.

    Periods are in steps. All numbers of the learner are None where ``reason`` says why.
    """

    natural_period: float | None  # undamped
    natural_period_low: float | None
    natural_period_high: float | None
    damped_period: float | None  # of the free oscillation
    damping: float | None
    damping_low: float | None
    damping_high: float | None
    dangerous_periods: tuple[float, ...]  # n/2 times the natural one, for n = 1, 2, 3
    depths: tuple[float | None, ...]  # of a rhythm from which on an error grows there; None: none
    rhythms: tuple[Modulation, ...]  # of the data, the most dangerous first
    reason: str | None  # why there are no numbers
    notes: tuple[str, ...]
    nonlinearity: float | None  # change of the response when the amplitude is doubled
    curvature: float | None  # the mean curvature that was excited
    dataset: xr.Dataset  # measured and fitted gains, and the sweep over periods

    figure: ClassVar[str] = "resonax.figures.response:plot_response"

    @classmethod
    def of(
        cls,
        poles: Poles,
        rhythms: list[tuple[float, float]],
        swept: PeriodSweep | None,
        curvature: float | None,
    ) -> Response:
        """Return the result of a measurement, held against the rhythms of the data."""
        pair = None if poles.reason else poles.pair
        at, depths, needed = (), (), [None] * len(rhythms)
        numbers: list[float | None] = [None] * 7
        if pair is not None:
            own = (pair.natural_period, pair.damping)
            assert poles.period_interval is not None
            assert poles.damping_interval is not None
            numbers = [own[0], *poles.period_interval, pair.damped_period]
            numbers += [own[1], *poles.damping_interval]
            at = tuple(dangerous_periods(own[0]))
            depths = tuple(critical_depth(period, *own) for period in at)
            needed = [critical_depth(period, *own) for period, _ in rhythms]
        found = [Modulation(*one, least) for one, least in zip(rhythms, needed, strict=True)]
        found.sort(key=lambda one: -one.depth / (one.critical_depth or np.inf))
        return cls(
            *numbers,
            dangerous_periods=at,
            depths=depths,
            rhythms=tuple(found),
            reason=poles.reason,
            notes=poles.notes,
            nonlinearity=None if poles.gains is None else _finite(poles.gains.nonlinearity),
            curvature=curvature,
            dataset=_dataset(poles, swept),
        )

    @property
    def depth(self) -> float | None:
        """Relative depth from which on a rhythm of half the natural period makes an error grow."""
        return self.depths[0] if self.depths else None

    @property
    def sentence(self) -> str:
        """The data held against the learner, in one sentence."""
        rhythm = self.rhythms[0] if self.rhythms else None
        data = "no rhythm of the curvature stands out in your data"
        if rhythm is not None:
            has = f"{rhythm.period:.3g} steps with {rhythm.depth:.0%} depth"
            data = f"your data have a rhythm of {has}"
        if self.reason is not None:
            return f"{data}; this learner has no natural period, as {self.reason}"
        assert self.damping is not None
        if self.depth is None:
            return (
                f"{data}; this learner is damped too much ({self.damping:.2g}) to resonate with any"
            )
        own = f"this learner resonates at {self.dangerous_periods[0]:.3g} from {self.depth:.0%} on"
        if rhythm is None or rhythm.critical_depth is None:
            return f"{data}; {own}"
        there = f"at {rhythm.period:.3g} from {rhythm.critical_depth:.0%} on"
        outcome = "an error grows" if rhythm.is_dangerous else "an error does not grow"
        return f"{data}; {own}, and {there}: {outcome}"

    def summary(self) -> dict[str, Any]:
        """Return period, damping and depth, or the reason why there are none."""
        names = ("natural_period", "damping", "depth", "curvature", "nonlinearity", "reason")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        swept = kept.pop("dataset")
        kept |= {"depth": self.depth, "sentence": self.sentence, "sweep": None}
        kept["rhythms"] = [
            {**asdict(one), "is_dangerous": one.is_dangerous} for one in self.rhythms
        ]
        if "ratio" in swept:
            kept["sweep"] = {"period": swept.period.values, "ratio": swept.ratio.values}
        return plain_values(kept)

    def __str__(self) -> str:
        """Return the numbers, or why there are none, in a line; and the sentence in the next."""
        if self.natural_period is None:
            return f"no natural period: {self.reason}.\n{self.sentence}."
        return (
            f"natural period {self.natural_period:.4g} steps ({self.natural_period_low:.4g} to "
            f"{self.natural_period_high:.4g}), damping {self.damping:.3g} ({self.damping_low:.3g} "
            f"to {self.damping_high:.3g}).\n{self.sentence}."
        )


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _dataset(poles: Poles, swept: PeriodSweep | None) -> xr.Dataset:
    found: dict[str, Any] = {}
    if poles.gains is not None:
        gains, frequency = poles.gains, poles.gains.frequency
        found = {
            "frequency": ("frequency", frequency),
            "gain": ("frequency", np.abs(gains.mean)),
            "phase": ("frequency", np.unwrap(np.angle(gains.mean))),
            "error": ("frequency", gains.error),
        }
        if poles.pair is not None:
            dense = np.geomspace(frequency[0], frequency[-1], _DENSE)
            fitted = poles.pair.gain(dense)
            found |= {
                "fitted_frequency": ("fitted_frequency", dense),
                "fitted_gain": ("fitted_frequency", np.abs(fitted)),
                "fitted_phase": ("fitted_frequency", np.unwrap(np.angle(fitted))),
            }
    if swept is not None:
        found |= {"period": ("period", swept.periods), "ratio": ("period", swept.ratio)}
    return xr.Dataset(found)
