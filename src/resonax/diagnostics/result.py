"""What a check found, and how it is said to someone who trains."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from resonax.diagnostics.confirm import Remedy
from resonax.diagnostics.intervals import BURST

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["REMEDIES", "Check", "pace", "sentence"]


def pace(rate: float) -> str:
    """Say in how many steps an error doubles or halves.

    Examples
    --------
    >>> pace(0.0114), pace(-0.1), pace(0.0)
    ('doubles every 61 steps', 'halves every 6.9 steps', 'hardly changes')
    """
    steps = math.log(2) / max(abs(rate), 1e-12)
    if steps > 1e6:
        return "hardly changes"
    count = f"{steps:.2g}" if steps < 10 else f"{steps:,.0f}"
    return f"{'doubles' if rate > 0 else 'halves'} every {count} steps"


@dataclass(frozen=True)
class Check:
    """What one optimizer does on one recording, why, and what would help."""

    verdict: str  # converges, diverges or marginal
    rate: float  # growth per step on these rows in this order
    low: float
    high: float
    rise: float  # largest logarithmic growth between any two moments
    cause: str  # order, generic or none
    period: float | None  # of the responsible rhythm, in steps
    rhythm: str | None  # "values" or "size" of the rows: what has the period
    shuffled_rate: float
    shuffled_low: float
    shuffled_high: float
    pass_radius: float | None  # what one pass over all rows multiplies an error by
    remedies: tuple[Remedy, ...]
    settings: dict[str, Any]  # lr, momentum, batch, optimizer and what else was asked for
    facts: tuple[tuple[str, str], ...]  # what was read and done, as name and text
    notes: tuple[str, ...]  # what a reader has to know before relying on it
    dataset: xr.Dataset  # the numbers behind the pictures

    @property
    def safe(self) -> dict[str, float | int | None]:
        """The safe values, None where there is none."""
        return {remedy.name: remedy.value for remedy in self.remedies}

    @property
    def learner_bounded(self) -> dict[str, bool] | None:
        """Whether the learner that was given stayed bounded, in each order."""
        if "learner_bounded" not in self.dataset:
            return None
        kept = self.dataset.learner_bounded
        return {str(order): bool(kept.sel(order=order)) for order in kept.order.values}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "verdict": self.verdict,
            "rate": self.rate,
            "low": self.low,
            "high": self.high,
            "cause": self.cause,
            "period": self.period,
            "rhythm": self.rhythm,
            "shuffled_rate": self.shuffled_rate,
            "shuffled_low": self.shuffled_low,
            "shuffled_high": self.shuffled_high,
            "pass_radius": self.pass_radius,
            "safe": self.safe,
            "soft": {remedy.name: remedy.soft for remedy in self.remedies},
            "confirmed": {remedy.name: remedy.confirmed for remedy in self.remedies},
            "learner_bounded": self.learner_bounded,
            "settings": self.settings,
            "facts": dict(self.facts),
            "notes": list(self.notes),
        }

    def meaning(self) -> str:
        """Return the verdict as a sentence."""
        if self.verdict == "diverges":
            comes = ", though growth comes and goes" if self.low <= 0 else ""
            return f"the error {pace(self.rate)}{comes}"
        if self.verdict == "converges":
            return f"a difference between two runs {pace(self.rate)}"
        fold = math.exp(min(self.rise, 300.0))
        if self.rise < math.log(BURST):
            return (
                "nothing grows by much, but some part of the error falls too slowly to be "
                "measured in so many steps"
            )
        if self.rate < 0:
            return f"an error falls on the whole, but grows {fold:.2g} fold in some stretch"
        return f"too close to the boundary to tell, though some stretch grows {fold:.2g} fold"

    def explanation(self) -> str:
        """Return the cause as a sentence."""
        if self.cause == "none":
            if self.verdict == "converges":
                return "it converges, so there is none to look for"
            return "it is not certain to diverge, so none was looked for"
        if self.cause == "generic" and self.shuffled_low <= 0:
            return (
                "not the order, as far as so many steps can tell: shuffled rows do about the same"
            )
        if self.cause == "generic":
            return (
                "the same rows in random order diverge as well: this step size with this momentum "
                "is too much for them, whatever their order"
            )
        random = f"in random order the error {pace(self.shuffled_rate)}"
        if self.period is None:
            return f"the order of the rows, though no single rhythm explains it; {random}"
        what = "a rhythm" if self.rhythm == "values" else "a rhythm in the size of the rows"
        return f"the order of the rows, {what} of {self.period:.3g} steps; {random}"

    def __str__(self) -> str:
        """Return verdict, cause and remedies, a line each."""
        lines = [f"{self.verdict}: {self.meaning()}."]
        if self.cause != "none":
            lines.append(f"cause: {self.explanation()}.")
        lines += [f"{sentence(remedy)}." for remedy in self.remedies]
        return "\n".join(lines)


REMEDIES = {
    "momentum": "largest safe momentum",
    "lr": "largest safe step size",
    "batch": "smallest safe batch",
    "shuffle_buffer": "smallest safe shuffle buffer",
    "fastest_momentum": "momentum that converges fastest",
}


def sentence(remedy: Remedy) -> str:
    """Return one remedy as a line."""
    word = REMEDIES[remedy.name]
    if remedy.value is None:
        return f"{word}: there is none"
    if remedy.name == "shuffle_buffer" and remedy.value <= 1:
        return f"{word}: none is needed"
    text = f"{word}: {'at least ' if remedy.least else ''}{remedy.value:.4g}"
    if remedy.name == "fastest_momentum" and remedy.rate is not None:
        text += f", with which a difference {pace(remedy.rate)}"
    if remedy.soft:
        text += " (a soft boundary: just beyond it the error need not grow)"
    return text
