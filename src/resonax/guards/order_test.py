r"""Does the order of the rows harm? A test by training on the same rows, mixed.

If the rows of a stretch are exchangeable, as independent draws are, the run on the rows as they
came is like any of the mixed runs: their levels :math:`L_0, L_1, \dots, L_m`, mean losses over the
last steps, are exchangeable. They are skewed to the right, as noise multiplies what is above a
floor, so that logarithms are taken, above the least of them and in units of twice their median
above it:

.. math:: z_i = \log\Bigl(1 + \frac{L_i - \min L}{2 (\operatorname{med}(L) - \min L)}\Bigr), \quad
          t = \frac{z_0 - \bar z}{s \sqrt{1 + 1/m}},

with mean and deviation of the :math:`m` mixed runs. If the :math:`z_i` were normal, :math:`t` would
have Student's distribution with :math:`m - 1` degrees of freedom. The level :math:`\alpha` of a run
is shared: each of its first five tests has 16% of it, and the :math:`k`-th after them
:math:`\alpha / (5 k (k + 1))`, which adds up to :math:`\alpha` over all tests. On independent rows
of the noisiest of the paper's streams 0.7% of runs are changed in their first three tests, with an
:math:`\alpha` of 0.5%.

What counts as harm is progress, not the loss itself, which may have a floor: of the steps of the
stretch a share has to be lost, also at the lower end of the interval (`lost_steps`). No decision
changes if the loss is multiplied, or shifted. A harm that is too small for one test shows in two: a
test whose p is small is followed by another, and both count together.

A mixed run that is as bad as the run settles the test: nothing is found. So under exchangeability
1 + 1/2 + ... + 1/12 = 3.1 of twelve are trained at most on average; fewer, as nothing is found
either where the run has not lost that share of the steps against the first of them, or where p is
above 0.1 after four. Four are enough to find harm if p is at most half of the level then.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np
import scipy

from resonax.guards.lost_steps import LostSteps, level_of, lost_steps

__all__ = ["FEW", "harm_of_order", "order_p", "significance_of", "student_p", "together"]

_EQUAL = 5  # tests of a run that have the same significance level
_LEAST = 1e-9  # least deviation of logarithms
FEW, _UNLIKELY = 4, 0.1  # mixed runs after which p is looked at, and what it is at most


def significance_of(test: int, significance: float) -> float:
    """Return the significance of a test of a run, the first being 1.

    All of them add up to ``significance``.

    Examples
    --------
    >>> round(significance_of(1, 0.05), 4), round(significance_of(6, 0.05), 4)
    (0.008, 0.005)
    >>> round(sum(significance_of(test, 0.05) for test in range(1, 10**5)), 4)
    0.05
    """
    later = test - _EQUAL
    share = 0.8 / _EQUAL if later <= 0 else 0.2 / (later * (later + 1))
    return significance * share


def order_p(own: float, mixed: Sequence[float] | np.ndarray) -> float:
    """Return the probability of so high a level of the run if the order did not matter.

    Examples
    --------
    >>> mixed = [1.1, 0.9, 1.05, 0.95, 1.0]
    >>> order_p(1.02, mixed) > 0.2, order_p(3.0, mixed) < 0.01, order_p(3.0, [1.1, np.inf])
    (True, True, 1.0)
    """
    levels = np.array([own, *mixed])
    if not np.isfinite(levels[1:]).all():
        return 1.0
    if not np.isfinite(own):
        return 0.0
    above = levels - levels.min()
    unit = 2 * float(np.median(above)) or float(above.max()) or 1.0
    scores = np.log1p(above / unit)
    return student_p(float(scores[0]), scores[1:])


def student_p(own: float, mixed: Sequence[float] | np.ndarray) -> float:
    """Return the probability of so large a number, if all of them were draws of one normal law.

    Examples
    --------
    >>> student_p(1.0, [1.1, 0.9, 1.05, 0.95]) > 0.4
    True
    >>> student_p(3.0, [1.1, 0.9, 1.05, 0.95]) < 0.001
    True
    """
    given = np.asarray(mixed, float)
    if not np.isfinite(given).all():
        return 1.0
    if not np.isfinite(own):
        return 0.0
    count = len(given)
    spread = max(float(np.std(given, ddof=1)), _LEAST * (1 + abs(own))) * (1 + 1 / count) ** 0.5
    return float(scipy.special.stdtr(count - 1, (given.mean() - own) / spread))


def together(p: float, before: float) -> float:
    """Return the p of two tests together (Fisher, 1925), or that of one, if that is smaller.

    Examples
    --------
    >>> together(0.01, 1.0), round(together(0.01, 0.01), 4)
    (0.01, 0.001)
    """
    product = p * before
    return min(p, product * (1 - math.log(product))) if product > 0 else 0.0


def harm_of_order(
    marks: Sequence[int],
    own: Sequence[float] | np.ndarray,
    mixed: Iterable[np.ndarray],
    significance: float,
    *,
    window: float,
    least: float,
    before: float = 1.0,
) -> LostSteps | None:
    """Return what the order of a stretch costs if it harms, None if that is not found.

    Parameters
    ----------
    marks
        (k,) steps of the stretch at which runs are judged, from 0 to the last.
    own
        (k,) losses of the run; only those within the window are looked at.
    mixed
        (k,) losses of each mixed run, asked for only until they settle the test.
    significance
        Largest p at which the order is found to harm, at most 0.005.
    window
        Steps at the end over which levels are taken.
    least
        Share of the steps that is lost at least.
    before
        p of the test before, if that was small; both count together.

    Examples
    --------
    >>> marks, own = np.arange(0, 101, 10), 2.0 ** (-np.arange(0, 101, 10) / 50)
    >>> mixed = [(1 + one / 100) * own**2.5 for one in range(5)]
    >>> print(harm_of_order(marks, own, mixed, 0.005, window=20, least=0.1))
    after 100 steps in this order the model is where mixed rows are after 41 (59 steps lost,
    interval 59 to 60)
    >>> harm_of_order(marks, own, [own], 0.005, window=20, least=0.1) is None
    True
    """
    seen: list[np.ndarray] = []
    level, levels = float(level_of(marks, own, window)), []
    for one in mixed:
        seen.append(one)
        levels.append(float(level_of(marks, one, window)))
        if not level > max(levels):
            return None
        twice = [*seen, one]  # a deviation needs two
        if lost_steps(marks, own, np.stack(twice), window=window).lost < least * marks[-1]:
            return None
        if len(seen) < FEW:
            continue
        p = order_p(level, levels)
        # What is found before the last run has half of the level.
        if p > _UNLIKELY or together(p, before) <= significance / 2:
            break
    if len(seen) < FEW:
        return None
    p = together(order_p(level, levels), before)
    found = lost_steps(marks, own, np.stack(seen), window=window)
    return replace(found, p=p) if p <= significance and found.is_harm(least) else None
