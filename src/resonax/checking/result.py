"""The result of a check, as values and in words."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from resonax.checking.remedies import Remedy
from resonax.core.objects import Result, deferred, is_deferred
from resonax.rows.answers import OnMore, OnTheseRows, factor, number, pace
from resonax.rows.intervals import BURST
from resonax.theory.order_proof import OrderProof

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["REMEDIES", "Check", "sentence"]


@dataclass(frozen=True, eq=False, repr=False)
class Check(Result):
    """What one optimizer does on one recording, why, and what would help."""

    on_these_rows: OnTheseRows  # exact: the verdict
    on_more: OnMore  # as far as these rows can tell
    cause: str  # order, generic or none: of a growth at the end, or of a rise on the way
    period: float | None  # of the responsible rhythm, in steps
    rhythm: str | None  # "values" or "size" of the rows: what has the period
    shuffled_rate: float
    shuffled_low: float
    shuffled_high: float
    log_shuffled_rise: float  # the largest growth between two moments in any random order
    remedies: tuple[Remedy, ...]
    order_proof: OrderProof  # what holds in every order of the rows
    model: str  # what is judged: the model, the optimizer and the rows of a step, in words
    question: str  # what was assumed and matters; empty if nothing
    settings: dict[str, Any]  # lr, momentum, batch, optimizer and what else was asked for
    facts: tuple[tuple[str, str], ...]  # what was read and done, as name and text
    notes: tuple[str, ...]  # what a reader has to know before relying on it
    dataset: xr.Dataset = deferred()  # noqa: RUF009 - the numbers behind the pictures

    figure: ClassVar[str] = "resonax.figures.check:plot_check"

    def summary(self) -> dict[str, Any]:
        """Return verdict, cause, the growth on more such rows and the safe values."""
        names = ("verdict", "cause", "period", "rate", "low", "high", "safe")
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}

    @property
    def verdict(self) -> str:
        """What happens on these rows: converges, diverges or rises."""
        return self.on_these_rows.verdict

    @property
    def rate(self) -> float:
        """Growth of the distance from the best weights per step, along one pass."""
        return self.on_more.rate

    @property
    def low(self) -> float:
        """Lower end of the interval of the rate on further data like this."""
        return self.on_more.low

    @property
    def high(self) -> float:
        """Upper end of the interval of the rate on further data like this."""
        return self.on_more.high

    @property
    def pass_radius(self) -> float | None:
        """What each further pass multiplies the distance by; None if unknown or no number."""
        return number(self.on_these_rows.log_pass_radius)

    @property
    def shuffling_helps(self) -> bool:
        """Whether the same rows train well in random order: they converge, without such a rise."""
        return self.shuffled_high < 0 and self.log_shuffled_rise < math.log(BURST)

    @property
    def safe(self) -> dict[str, float | int | None]:
        """The safe values, None where there is none."""
        return {remedy.name: remedy.value for remedy in self.remedies}

    @property
    def learner_bounded(self) -> dict[str, bool] | None:
        """Whether the learner that was given stayed bounded, in each order."""
        # The curves of a learner are not put off.
        if is_deferred(self, "dataset") or "learner_bounded" not in self.dataset:
            return None
        kept = self.dataset.learner_bounded
        return {str(order): bool(kept.sel(order=order)) for order in kept.order.values}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return {
            "verdict": self.verdict,
            "on_these_rows": asdict(self.on_these_rows),
            "on_more": asdict(self.on_more),
            "rate": self.rate,
            "low": self.low,
            "high": self.high,
            "cause": self.cause,
            "period": self.period,
            "rhythm": self.rhythm,
            "shuffled_rate": self.shuffled_rate,
            "shuffled_low": self.shuffled_low,
            "shuffled_high": self.shuffled_high,
            "log_shuffled_rise": self.log_shuffled_rise,
            "pass_radius": self.pass_radius,
            "safe": self.safe,
            "order_proof": self.order_proof.to_dict(),
            "is_lower_bound": {remedy.name: remedy.is_lower_bound for remedy in self.remedies},
            "is_conservative": {remedy.name: remedy.is_conservative for remedy in self.remedies},
            "confirmed": {remedy.name: remedy.confirmed for remedy in self.remedies},
            "reasons": {one.name: one.reason for one in self.remedies if one.value is None},
            "learner_bounded": self.learner_bounded,
            "model": self.model,
            "question": self.question,
            "settings": self.settings,
            "facts": dict(self.facts),
            "notes": list(self.notes),
        }

    def meaning(self) -> str:
        """Return the verdict as two sentences: what is judged, and what happens on these rows."""
        found = self.on_these_rows.meaning()
        return f"{self.model}. {found[0].upper()}{found[1:]}"

    def explanation(self) -> str:
        """Return the cause as a sentence."""
        if self.cause == "none":
            return "none was looked for, as it converges"
        random = f"in random order the distance {pace(self.shuffled_rate)}"
        if self.shuffled_low <= 0 <= self.shuffled_high:
            random = "in random order it is undecided whether the distance grows"
        bursts = self.log_shuffled_rise > math.log(BURST)
        if self.cause == "order" and bursts:
            random += f", after rises of up to {factor(self.log_shuffled_rise)}-fold on the way"
        if self.cause == "order" and self.verdict == "rises":
            most = factor(self.log_shuffled_rise)
            return f"the order of the rows; in random order the distance rises at most {most}-fold"
        if self.cause == "order" and self.period is None:
            return f"the order of the rows (no single rhythm was found); {random}"
        if self.cause == "order":
            what = "a rhythm" if self.rhythm == "values" else "a rhythm in the size of the rows"
            return f"the order of the rows, {what} of {self.period:.3g} steps; {random}"
        if self.verdict == "rises" and not bursts:
            return (
                "not the order, as far as these rows can tell: in random order the distance rises "
                f"up to {factor(self.log_shuffled_rise)}-fold"
            )
        if self.verdict == "rises":
            what = f"rises up to {factor(self.log_shuffled_rise)}-fold as well"
        elif self.shuffled_low <= 0:
            return (
                "undecided: so few steps cannot tell the growth in this order from that in "
                "random order"
            )
        else:
            what = "grows as well"
        return (
            f"in random order the distance {what}: this step size with this momentum is too much "
            "for these rows, whatever their order"
        )

    @property
    def explained(self) -> list[str]:
        """Words of the remedies that need a line: each begins with the word and a colon."""
        smaller = any(
            one.value is not None and one.value < self.settings.get(one.name, -math.inf)
            for one in self.remedies
            if one.name in ("momentum", "lr")
        )
        is_stricter = smaller and not self.on_these_rows.is_harmful
        return [STRICTER] * is_stricter + [CONSERVATIVE] * any(
            one.is_conservative for one in self.remedies
        )

    def __str__(self) -> str:
        """Return verdict, cause and remedies, a line each."""
        meanings = self.on_these_rows.meaning(), self.on_more.meaning()
        lines = [f"{self.verdict}: {self.model}."]
        lines += [f"{text[0].upper()}{text[1:]}." for text in meanings]
        lines += [self.question] if self.question else []
        if self.cause != "none":
            lines.append(f"cause: {self.explanation()}.")
        lines += [f"{sentence(remedy)}." for remedy in self.remedies]
        lines += [f"{text}." for text in self.explained]
        lines.append(f"{self.order_proof.meaning('rows')}.")
        return "\n".join(lines)


REMEDIES = {
    "momentum": "largest safe momentum",
    "lr": "largest safe step size",
    "batch": "smallest safe batch",
    "shuffle_buffer": "smallest safe shuffle buffer",
    "fastest_momentum": "momentum that converges fastest",
}
STRICTER = (
    "safe: asks for more than converges: after twenty passes the distance is smaller too, and as "
    "many further rows like these would not double it"
)
CONSERVATIVE = "conservative: the value is safe, and values just beyond it may be safe too"


def sentence(remedy: Remedy) -> str:
    """Return one remedy as a line."""
    word = REMEDIES[remedy.name]
    if remedy.value is None:
        return f"{word}: none found, as {remedy.reason}"
    if remedy.name == "shuffle_buffer" and remedy.value <= 1:
        return f"{word}: none is needed"
    text = f"{word}: {'at least ' if remedy.is_lower_bound else ''}{remedy.value:.4g}"
    if remedy.name == "fastest_momentum" and remedy.rate is not None:
        text += f", with which the distance {pace(remedy.rate)}"
    words = ["conservative"] * remedy.is_conservative + ["confirmed by training"] * (
        remedy.confirmed is True
    )
    return f"{text} ({', '.join(words)})" if words else text
