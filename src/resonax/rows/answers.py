"""The two verdicts of a check: on the given rows, and on further data of the same kind."""

from __future__ import annotations

import math
from dataclasses import dataclass

from resonax.rows.exact import PASSES, STILL, Exact
from resonax.rows.intervals import BURST, measure
from resonax.rows.subject import Subject

__all__ = ["OnMore", "OnTheseRows", "factor", "judge", "judge_rows", "number", "pace"]

_MAX_LOG = 300 * math.log(10)  # of a factor that is returned as a number


def pace(rate: float) -> str:
    """Return in words in how many steps an error doubles or halves.

    Examples
    --------
    >>> pace(0.0114), pace(-0.1), pace(0.0)
    ('doubles every 61 steps', 'halves every 6.9 steps', 'hardly changes')
    """
    if abs(rate) * 1e6 < math.log(2):
        return "hardly changes"
    return f"{'doubles' if rate > 0 else 'halves'} every {_steps(rate)} steps"


def _steps(rate: float) -> str:
    steps = math.log(2) / max(abs(rate), 1e-12)
    return f"{steps:.2g}" if steps < 10 else f"{steps:,.0f}"


def factor(log: float) -> str:
    """Return a factor as text, from its logarithm, as it may exceed floating-point numbers.

    Examples
    --------
    >>> factor(0.0), factor(math.log(112)), factor(-2.0), factor(5000.0)
    ('1', '112', '0.14', '3.0e+2171')
    """
    log10 = log / math.log(10)
    if -4 < log10 < 4:
        return f"{math.exp(log):.2g}" if log10 < 2 else f"{math.exp(log):,.0f}"
    exponent = math.floor(log10)
    return f"{10 ** (log10 - exponent):.1f}e{exponent:+03d}"


@dataclass(frozen=True)
class OnTheseRows:
    """Growth of the error on these rows over all epochs, which involves no statistics.

    The error is the distance from the best weights, and growth is the natural logarithm of a
    factor. The verdict is

    - ``diverges``: the error is larger at the end than at the start, and further passes do not undo
      that: it is still larger after 20 passes, or each late pass multiplies it by 1 or more;
    - ``rises``: it does not diverge, but grows more than `BURST` fold within some stretch of rows;
    - ``converges``: neither.
    """

    verdict: str
    log_growth: float  # over all epochs
    log_growth_per_pass: float  # over the first pass
    log_rise: float  # largest growth between any two steps
    rise_from: int  # the step at which the largest rise begins
    rise_to: int  # and at which it ends
    log_pass_radius: float | None  # growth of each further pass, in the limit of many
    log_growth_in_20: float | None  # over 20 passes, or all epochs if there are more
    epochs: int
    steps: int

    @property
    def is_harmful(self) -> bool:
        """Whether the error diverges on these rows, or rises on the way."""
        return self.verdict != "converges"

    @property
    def grows_later(self) -> bool:
        """Whether an error that does not diverge over all epochs would grow with more passes."""
        if self.verdict == "diverges" or self.log_pass_radius is None:
            return False
        return max(self.log_pass_radius, self.log_growth_in_20 or 0.0) > STILL

    def meaning(self) -> str:
        """Return the verdict as a sentence without its full stop."""
        passes = "one pass of" if self.epochs == 1 else f"{self.epochs:,} passes,"
        text = f"in {passes} {self.steps:,} steps, the distance from the best weights "
        ends = f"{factor(self.log_growth)} times what it was"
        rise = f"{factor(self.log_rise)}-fold from step {self.rise_from:,} to {self.rise_to:,}"
        if self.verdict == "diverges":
            text += f"grows {factor(self.log_growth)}-fold"
            has_larger_rise = self.log_rise > max(0.0, self.log_growth) + math.log(BURST)
            return f"{text}; its largest rise on the way is {rise}" if has_larger_rise else text
        if self.verdict == "rises":
            text += f"rises {rise}, and ends at {ends}"
        elif self.log_growth > 0:
            text += f"ends at {ends}"
        else:
            return f"{text}falls to {factor(self.log_growth)} of what it was"
        if self.log_pass_radius is not None and not self.grows_later:
            text += f"; each further pass multiplies it by {factor(self.log_pass_radius)}"
        return text


@dataclass(frozen=True)
class OnMore:
    """Growth of the error on further data of the same kind, estimated from these rows."""

    verdict: str  # by the confidence interval: undecided if it includes 0
    rate: float  # growth per step
    low: float
    high: float
    confidence: float
    steps: int  # from which the rate was estimated

    def meaning(self) -> str:
        """Return the verdict as a part of a sentence."""
        if self.verdict == "undecided":
            return "on further data like this: undecided (the interval includes 0)"
        fewest, most = sorted((self.low, self.high), key=abs, reverse=True)
        return (
            f"on further data like this: the distance {pace(self.rate)} "
            f"({100 * self.confidence:.4g}% interval {_steps(fewest)} to {_steps(most)})"
        )


def judge_rows(found: Exact, steps: int) -> OnTheseRows:
    """Return the verdict on the given rows; see `OnTheseRows`."""
    log_rise, rise_from, rise_to = found.largest_rise
    later = None
    if found.log_radius is not None:
        later = float(found.passes[max(PASSES, found.epochs) - 1])
    # An error that oscillates may be larger at the end of an epoch, and smaller after further ones.
    is_undone = later is not None and later <= 0 and (found.log_radius or 0.0) < -STILL
    verdict = "converges"
    if found.log_growth > 0 and not is_undone:
        verdict = "diverges"
    elif log_rise > math.log(BURST):
        verdict = "rises"
    return OnTheseRows(
        verdict,
        found.log_growth,
        float(found.passes[0]),
        log_rise,
        rise_from,
        rise_to,
        found.log_radius,
        later,
        found.epochs,
        steps,
    )


def judge(subject: Subject) -> tuple[Exact, OnTheseRows, OnMore]:
    """Follow the error along the rows; return its path and both verdicts.

    `resonax.check` and the verdict of a setting on a recording both use this.
    """
    exact = subject.follow_exactly()
    found = measure(exact.one_pass(), subject.confidence)
    rate, low, high = (float(part[0]) for part in (found.rate, found.low, found.high))
    steps = subject.steps // subject.epochs
    more = OnMore(str(found.verdicts[0]), rate, low, high, subject.confidence, steps)
    return exact, judge_rows(exact, subject.steps), more


def number(log: float | None) -> float | None:
    """Return a factor from its logarithm; None if it is too large or small for a number."""
    return None if log is None or abs(log) > _MAX_LOG else math.exp(log)
