"""What judging a claim gives: the measured figure, the threshold, and whether it holds."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Case", "Claim", "measured_text"]

_COMPARISONS = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Case:
    """One figure of a claim, for example that of one panel, beside its threshold.

    A case with ``decides=False`` is shown for comparison (another reading, say) and does not
    count for the claim.
    """

    case: str
    measured: float
    comparison: str
    threshold: float
    decides: bool = True

    @property
    def holds(self) -> bool:
        """Whether the measured figure is on the right side; one that is no number is not."""
        return bool(_COMPARISONS[self.comparison](self.measured, self.threshold))

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "case": self.case,
            "measured": self.measured,
            "threshold": f"{self.comparison} {self.threshold:g}",
            "holds": self.holds,
            "decides": self.decides,
        }


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, judged: it holds when every case that decides does."""

    id: str
    claim: str  # what the paper says, in our words
    quantity: str  # what was measured
    reason: str  # why the threshold is what it is
    cases: tuple[Case, ...]
    note: str = ""  # what to know of the outcome, above all where it does not hold

    @property
    def holds(self) -> bool:
        """Whether all cases that decide hold."""
        return all(case.holds for case in self.cases if case.decides)

    @property
    def worst(self) -> Case:
        """The case that says most: the first that fails, else the first."""
        deciding = [case for case in self.cases if case.decides]
        return next((case for case in deciding if not case.holds), deciding[0])

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        worst = self.worst
        return {
            "id": self.id,
            "claim": self.claim,
            "measured": worst.measured,
            "threshold": f"{worst.comparison} {worst.threshold:g}",
            "holds": self.holds,
            "quantity": self.quantity,
            "reason": self.reason,
            "note": self.note,
            "cases": [case.to_dict() for case in self.cases],
        }


def measured_text(case: Case) -> str:
    """Return the measured figure with as many digits as show on which side it is.

    Examples
    --------
    >>> measured_text(Case("a hair below", 0.99999876, ">=", 1.0))
    '0.999999'
    """
    value = float(case.measured)
    if math.isnan(value):
        return "not a number"
    if value.is_integer() and abs(value) < 1e6:
        return f"{value:.0f}"
    for digits in range(4, 17):
        text = f"{value:.{digits}g}"
        if replace(case, measured=float(text)).holds == case.holds:
            return text
    return repr(value)
