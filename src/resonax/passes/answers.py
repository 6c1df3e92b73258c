"""The two answers of a check: what these rows do, exactly, and what more of the same would do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from resonax.passes.exact import PASSES, Exact
from resonax.passes.intervals import BURST, measure
from resonax.passes.subject import Subject

__all__ = ["OnMore", "OnTheseRows", "factor", "judge", "judge_rows", "number", "pace"]

_LARGEST = 300 * math.log(10)  # the logarithm of a factor that is still given as a number


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


def factor(log: float) -> str:
    """Return a factor as text, from its logarithm: it can be larger than any number.

    Examples
    --------
    >>> factor(0.0), factor(math.log(112)), factor(-2.0), factor(5000.0)
    ('1', '112', '0.14', '3.0e+2171')
    """
    tens = log / math.log(10)
    if -4 < tens < 4:
        return f"{math.exp(log):.2g}" if tens < 2 else f"{math.exp(log):,.0f}"
    exponent = math.floor(tens)
    return f"{10 ** (tens - exponent):.1f}e{exponent:+03d}"


@dataclass(frozen=True)
class OnTheseRows:
    """What becomes of an error on these rows in the passes that were asked for: no chance in it.

    All growth is given as the natural logarithm of a factor.
    """

    verdict: str  # diverges: ends larger; marginal: smaller, after a rise of more than `BURST` fold
    log_growth: float  # over all passes
    log_growth_per_pass: float  # over the first
    log_rise: float  # the largest between any two moments
    log_pass_radius: float | None  # of each further pass, after many of them
    log_growth_in_20: float | None  # over 20 passes, or those asked for if these are more
    epochs: int
    steps: int

    @property
    def grows_later(self) -> bool:
        """Whether an error that does not grow in the passes asked for would with more of them."""
        if self.verdict == "diverges" or self.log_pass_radius is None:
            return False
        return max(self.log_pass_radius, self.log_growth_in_20 or 0.0) > 1e-6

    def meaning(self) -> str:
        """Return it as half a sentence."""
        passes = "one pass of" if self.epochs == 1 else f"{self.epochs} passes,"
        when, size = f"{passes} {self.steps:,} steps", factor(self.log_growth)
        if self.verdict == "diverges":
            return f"on these rows an error ends {size} times as large as it was, after {when}"
        if self.verdict == "converges":
            return f"on these rows an error falls to {size} of what it was, in {when}"
        return (
            f"on these rows an error ends at {size} of what it was, after {when}, but grows "
            f"{factor(self.log_rise)} fold on the way"
        )


@dataclass(frozen=True)
class OnMore:
    """What an error would do on more rows of the same kind, as far as these can tell."""

    verdict: str  # by the interval: marginal if it holds 0
    rate: float  # growth per step
    low: float
    high: float
    level: float
    steps: int  # it was estimated from

    def meaning(self) -> str:
        """Return it as half a sentence."""
        if self.verdict == "marginal":
            return (
                "on more of the same it cannot be told whether an error grows: the interval of "
                f"the growth per step holds 0 after {self.steps:,} steps"
            )
        return f"on more of the same an error {pace(self.rate)}"


def judge_rows(found: Exact, steps: int) -> OnTheseRows:
    """Judge by the size of an error at the end, and by how far it rose on the way."""
    word = "diverges" if found.log_growth > 0 else "converges"
    if word == "converges" and found.log_rise > math.log(BURST):
        word = "marginal"
    known = found.log_radius is not None
    return OnTheseRows(
        word,
        found.log_growth,
        float(found.passes[0]),
        found.log_rise,
        found.log_radius,
        float(found.passes[max(PASSES, found.epochs) - 1]) if known else None,
        found.epochs,
        steps,
    )


def judge(subject: Subject) -> tuple[Exact, OnTheseRows, OnMore]:
    """Follow an error along the rows once; return its path, and what it says of them and of more.

    `resonax.check` and the verdict of a recording are both made of this.
    """
    exact = subject.follow_exactly()
    found = measure(exact.one_pass(), subject.level)
    rate, low, high = (float(part[0]) for part in (found.rate, found.low, found.high))
    steps = subject.steps // subject.epochs
    more = OnMore(str(found.verdicts[0]), rate, low, high, subject.level, steps)
    return exact, judge_rows(exact, subject.steps), more


def number(log: float | None) -> float | None:
    """Return a factor from its logarithm, None where it is too large or small for a number."""
    return None if log is None or abs(log) > _LARGEST else math.exp(log)
