"""The two answers of a check: what these rows do, exactly, and what more of the same would do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from resonax.rows.exact import PASSES, STILL, Exact
from resonax.rows.intervals import BURST, measure
from resonax.rows.subject import Subject

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

    An error is the distance from the best weights, and all growth the natural logarithm of a
    factor. The verdict is

    - ``diverges``: it ends larger than it was, and further passes do not take that back: after 20
      of them it is larger still, or each multiplies it by 1 or more in the end;
    - ``rises``: it does not diverge, but grows more than `BURST` fold in some stretch of the rows;
    - ``converges``: neither.
    """

    verdict: str
    log_growth: float  # over all passes
    log_growth_per_pass: float  # over the first
    log_rise: float  # the largest between any two moments
    rise_from: int  # the steps after which it begins
    rise_to: int  # and ends
    log_pass_radius: float | None  # of each further pass, after many of them
    log_growth_in_20: float | None  # over 20 passes, or those asked for if these are more
    epochs: int
    steps: int

    @property
    def is_harmful(self) -> bool:
        """Whether training is ruined on these rows, at their end or on the way."""
        return self.verdict != "converges"

    @property
    def grows_later(self) -> bool:
        """Whether an error that does not grow in the passes asked for would with more of them."""
        if self.verdict == "diverges" or self.log_pass_radius is None:
            return False
        return max(self.log_pass_radius, self.log_growth_in_20 or 0.0) > STILL

    def meaning(self) -> str:
        """Return it as a sentence without its full stop."""
        passes = "one pass of" if self.epochs == 1 else f"{self.epochs:,} passes,"
        text = f"in {passes} {self.steps:,} steps, the distance from the best weights "
        ends, rise = f"{factor(self.log_growth)} times what it was", self._rise()
        if self.verdict == "diverges":
            text += f"grows {factor(self.log_growth)}-fold"
            on_the_way = self.log_rise > max(0.0, self.log_growth) + math.log(BURST)
            return f"{text}; its largest rise on the way is {rise}" if on_the_way else text
        if self.verdict == "rises":
            text += f"rises {rise}, and ends at {ends}"
        elif self.log_growth > 0:
            text += f"ends at {ends}"
        else:
            return f"{text}falls to {factor(self.log_growth)} of what it was"
        if self.log_pass_radius is not None and not self.grows_later:
            text += f"; each further pass multiplies it by {factor(self.log_pass_radius)}"
        return text

    def _rise(self) -> str:
        return f"{factor(self.log_rise)}-fold from step {self.rise_from:,} to {self.rise_to:,}"


@dataclass(frozen=True)
class OnMore:
    """What an error would do on further rows of the same kind, as far as these can tell."""

    verdict: str  # by the interval: undecided if it includes 0
    rate: float  # growth per step
    low: float
    high: float
    level: float
    steps: int  # it was estimated from

    def meaning(self) -> str:
        """Return it as half a sentence."""
        if self.verdict == "undecided":
            return "on further data like this: undecided (the interval includes 0)"
        return f"on further data like this: the distance {pace(self.rate)}"


def judge_rows(found: Exact, steps: int) -> OnTheseRows:
    """Judge by the size of an error at the end, after further passes, and on the way."""
    log_rise, rise_from, rise_to = found.largest_rise
    known = found.log_radius is not None
    later = float(found.passes[max(PASSES, found.epochs) - 1]) if known else None
    # Larger at the end is no divergence where it is the swing of a pass that the next ones undo.
    undone = later is not None and later <= 0 and (found.log_radius or 0.0) < -STILL
    word = "converges"
    if found.log_growth > 0 and not undone:
        word = "diverges"
    elif log_rise > math.log(BURST):
        word = "rises"
    return OnTheseRows(
        word,
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
