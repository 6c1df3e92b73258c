"""Claims and their cases: measured numbers with intervals, thresholds, and outcomes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = [
    "DEPENDS",
    "OUTCOMES",
    "Case",
    "Claim",
    "deciding_case",
    "interval_text",
    "measured_text",
    "readings_text",
]

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
    "==": operator.eq,
}
OUTCOMES: dict[bool | None, str] = {
    True: "holds",
    False: "does not hold",
    None: "not decided",
}
DEPENDS = (
    "depends on the reading"  # of a claim alone: it holds under one reading, not under another
)


@dataclass(frozen=True)
class Case:
    """One measured number of a claim, for example that of one panel, and its threshold.

    Attributes
    ----------
    case
        What was measured, and where.
    measured, comparison, threshold
        The estimate, and the inequality of the true value that is claimed.
    interval
        Confidence interval of the true value, which may have infinite ends; None if the measured
        number is exact.
    decides
        Whether the case counts for the claim; otherwise it is shown for comparison.
    reading
        Name of the reading of the paper that the case belongs to, if there are several.

    Examples
    --------
    >>> [Case("a", 1.2, ">", 1.0, interval=ends).outcome for ends in ((1.1, 1.3), (0.9, 1.5))]
    ['holds', 'not decided']
    """

    case: str
    measured: float
    comparison: str
    threshold: float
    decides: bool = True
    interval: tuple[float, float] | None = None
    reading: str = ""

    @property
    def holds(self) -> bool | None:
        """Whether the true value is on the claimed side; None if the interval has both sides."""
        low, high = self.interval or (self.measured, self.measured)
        if math.isnan(low) or math.isnan(high):
            return None
        if self.comparison == "==":
            inside = low <= self.threshold <= high
            return (True if low == high else None) if inside else False
        sides = {_COMPARISONS[self.comparison](end, self.threshold) for end in (low, high)}
        return sides.pop() if len(sides) == 1 else None

    @property
    def outcome(self) -> str:
        """Outcome in words."""
        return OUTCOMES[self.holds]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "case": self.case,
            "measured": self.measured,
            "interval": list(self.interval) if self.interval else None,
            "threshold": f"{self.comparison} {self.threshold:g}",
            "holds": self.holds,
            "outcome": self.outcome,
            "decides": self.decides,
            "reading": self.reading,
        }

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Case:
        """Return the case of a table made by `to_dict`, in which JSON has null for inf and nan."""
        comparison, threshold = table["threshold"].split()
        interval = table["interval"]
        if interval is not None:
            low, high = interval
            interval = (-math.inf if low is None else low, math.inf if high is None else high)
        return cls(
            table["case"],
            math.nan if table["measured"] is None else table["measured"],
            comparison,
            float(threshold),
            table["decides"],
            interval,
            table.get("reading", ""),
        )


def _all_hold(cases: Iterable[Case]) -> bool | None:
    """Return whether all cases hold: False if one fails, else None if one is not decided."""
    outcomes = {case.holds for case in cases}
    if False in outcomes:
        return False
    return None if None in outcomes else True


def deciding_case(cases: Iterable[Case], holds: bool | None) -> Case:
    """Return the case that stands for a claim: the first deciding one with its outcome.

    Where the outcome depends on the reading, this is the first that fails.
    """
    deciding = [case for case in cases if case.decides]
    same = [case for case in deciding if case.holds is holds]
    return (same or [case for case in deciding if case.holds is False] or deciding)[0]


@dataclass(frozen=True)
class Claim:
    """A claim, judged: it holds if all deciding cases pass, and fails if one fails.

    Where the paper allows several readings, each has its own cases and its own outcome. A claim
    that holds under one and fails under another depends on the reading.

    Attributes
    ----------
    significance
        Upper bound of the probability of a wrong "holds", and of a wrong "does not
        hold"; 0 if all measured numbers are exact.
    """

    id: str
    claim: str  # statement of the paper, paraphrased
    quantity: str  # what was measured
    reason: str  # reason for the threshold, and source of the interval
    cases: tuple[Case, ...]
    significance: float
    note: str = ""  # remark on the outcome

    @property
    def readings(self) -> dict[str, bool | None]:
        """Whether it holds under each reading; a single one has the name ""."""
        deciding = [case for case in self.cases if case.decides]
        names = dict.fromkeys(case.reading for case in deciding)
        return {
            name: _all_hold(case for case in deciding if case.reading == name) for name in names
        }

    @property
    def holds(self) -> bool | None:
        """Whether it holds under every reading; None if undecided or if readings differ."""
        outcomes = set(self.readings.values())
        return outcomes.pop() if len(outcomes) == 1 else None

    @property
    def outcome(self) -> str:
        """Outcome in words."""
        return DEPENDS if {True, False} <= set(self.readings.values()) else OUTCOMES[self.holds]

    @property
    def worst(self) -> Case:
        """The case that stands for the claim."""
        return deciding_case(self.cases, self.holds)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        worst = self.worst.to_dict()
        return {
            "id": self.id,
            "claim": self.claim,
            **{name: worst[name] for name in ("measured", "interval", "threshold")},
            "holds": self.holds,
            "outcome": self.outcome,
            "readings": {name: OUTCOMES[one] for name, one in self.readings.items() if name},
            "significance": self.significance,
            "quantity": self.quantity,
            "reason": self.reason,
            "note": self.note,
            "cases": [case.to_dict() for case in self.cases],
        }


def readings_text(claim: Claim) -> str:
    """Return the outcome under each reading in words; empty if there are no readings.

    Examples
    --------
    >>> cases = Case("a", 1.0, ">", 0.0, reading="A"), Case("b", -1.0, ">", 0.0, reading="B")
    >>> readings_text(Claim("id", "", "", "", cases, significance=0.0))
    'A: holds; B: does not hold'
    """
    return "; ".join(f"{name}: {OUTCOMES[one]}" for name, one in claim.readings.items() if name)


def measured_text(case: Case) -> str:
    """Return the measured number with enough digits to show on which side of the threshold it is.

    Examples
    --------
    >>> measured_text(Case("a hair below", 0.99999876, ">=", 1.0))
    '0.999999'
    """
    value, right = float(case.measured), _COMPARISONS[case.comparison]
    if math.isnan(value):
        return "not a number"
    if value.is_integer() and abs(value) < 1e6:
        return f"{value:.0f}"
    for digits in range(4, 17):
        text = f"{value:.{digits}g}"
        if right(float(text), case.threshold) == right(value, case.threshold):
            return text
    return repr(value)


def interval_text(case: Case) -> str:
    """Return the interval in words; empty if the measured number is exact.

    Examples
    --------
    >>> interval_text(Case("share", 0.97, ">=", 0.95, interval=(0.9412, float("inf"))))
    '0.9412 or more'
    """
    if case.interval is None:
        return ""
    low, high = case.interval
    if not math.isfinite(low) and not math.isfinite(high):
        return "any number"
    if not math.isfinite(high):
        return f"{low:.4g} or more"
    return f"{low:.4g} to {high:.4g}" if math.isfinite(low) else f"{high:.4g} or less"
