r"""Does the order of the rows harm? A test by training on the same rows, mixed.

If the rows of a stretch are exchangeable, as independent draws are, the run on the rows as they
came is like any of the mixed runs: their losses :math:`L, L_1, \dots, L_m` are exchangeable. With
normal logarithms

.. math:: t = \frac{\log L - \overline{\log L_i}}{s \sqrt{1 + 1/m}}

has Student's distribution with :math:`m - 1` degrees of freedom. The significance :math:`\alpha` of
a run is shared: each of its first five tests has 16% of it, and the :math:`k`-th after them
:math:`\alpha / (5 k (k + 1))`, which adds up to :math:`\alpha` over all tests. What harms from the
start is found early, while little is lost; a later harm shows in more than one test.

No mixed run is more than :math:`s (m - 1)/\sqrt m` from their mean (Samuelson, 1968). Up to a
significance of 0.005 and for twelve of them that is less than what :math:`t` asks of the run: a
mixed run that is as bad as the run settles the test, and under exchangeability
1 + 1/2 + ... + 1/12 = 3.1 of the twelve are trained on average.

Logarithms of losses are skewed to the right, so that far tails are longer than Student's: on
independent rows of noise, p below 0.0025 comes two to four times as often. The default
:math:`\alpha` of 0.01 allows for that. Few mixed runs say little of their spread; so a loss three
times the largest of them is harm too, which independent rows of the noisiest of the
paper's streams show in 0.2% of the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["geometric_mean", "harm_of_order", "significance_of", "student_p"]

_LEAST = 1e-9  # least spread of log losses
_EQUAL = 5  # tests of a run that have the same significance


def _log(loss: float) -> float:
    return math.log(max(loss, 1e-300)) if math.isfinite(loss) else math.inf


def geometric_mean(losses: Sequence[float]) -> float:
    """Return the geometric mean of losses; infinity if one of them is not finite.

    Examples
    --------
    >>> geometric_mean([1.0, 4.0])
    2.0
    """
    if not losses:
        return math.inf
    mean = sum(_log(one) for one in losses) / len(losses)
    return math.exp(mean) if mean < 700 else math.inf


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


def student_p(own: float, mixed: Sequence[float]) -> float:
    """Return the probability of so large a loss of the run if the order did not matter.

    Examples
    --------
    >>> student_p(1.0, [1.1, 0.9, 1.05, 0.95]) > 0.4
    True
    >>> student_p(3.0, [1.1, 0.9, 1.05, 0.95]) < 0.001
    True
    """
    from scipy.special import stdtr

    logs = np.array([_log(one) for one in mixed])
    if not np.all(np.isfinite(logs)):
        return 1.0
    if not math.isfinite(own):
        return 0.0
    spread = max(float(np.std(logs, ddof=1)), _LEAST) * math.sqrt(1 + 1 / len(logs))
    return float(stdtr(len(logs) - 1, (float(np.mean(logs)) - _log(own)) / spread))


def harm_of_order(
    own: float,
    mixed: Iterable[float],
    significance: float,
    *,
    harm: float = 1.0,
    beyond: float = math.inf,
) -> tuple[tuple[float, ...], float] | None:
    """Return the losses on mixed rows and p if the order harms, None if not.

    Parameters
    ----------
    own
        Loss of the run.
    mixed
        Losses of mixed runs, which are asked for only until they settle the test.
    significance
        Largest p at which the order is found to harm, at most 0.005.
    harm
        Times the usual loss on mixed rows that the run has at least.
    beyond
        Times the largest loss on mixed rows that is harm whatever its p.

    Examples
    --------
    >>> harm_of_order(2.0, iter([1.0, 2.5, 1.0]), 0.005) is None
    True
    >>> losses, p = harm_of_order(2.0, [1.1, 0.9, 1.05, 0.95], 0.005)
    >>> len(losses), round(p, 4)
    (4, 0.0033)
    """
    seen: list[float] = []
    for one in mixed:
        seen.append(one)
        if not own > max(harm * geometric_mean(seen), *seen):
            return None
    p = student_p(own, seen)
    return (tuple(seen), p) if p <= significance or own > beyond * max(seen) else None
