r"""The average of the weights of a run, and what a guard offers for prediction.

The noise of the last weights grows with the effective step :math:`\eta/(1-\mu)`, with or without a
resonance. Their average has less of it, and leaves the run as it is. A plain mean remembers the
start for long; here weights count more the later they are (polynomial decay, Shamir and Zhang,
2013, "Stochastic gradient descent for non-smooth optimization"):

.. math:: \bar w_n = \bar w_{n-1} + a_n (w_n - \bar w_{n-1}), \qquad a_n = \frac{p + 1}{n + p},

so that the weights of step :math:`k` count about :math:`(k/n)^p`; :math:`p = 0` is the mean, and
:math:`1/a_n` the number of weights that count. Errors of successive weights are alike over some
:math:`1/(1-\mu)` steps, and an average over fewer has as much noise as they: so :math:`1/a_n`
is at least :math:`m` of them, or all while there are fewer.

An average is no better than the run that it is made of. So three are compared from time to time:
the average, the weights, and what was offered before, see `preferred`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["LEAST", "STRIDE", "preferred", "share"]

POWER = 8  # about the last tenth of a run counts
LEAST = 64  # steps: three times 1/(1 - momentum) for a momentum of 0.95
STRIDE = 8  # steps between two terms, where every step would cost too much
_FEW = 4  # batches from which on a standard error is taken


def share(count: int, power: int = POWER, least: int = LEAST) -> float:
    """Return how much the newest of ``count`` weights counts in their average.

    Parameters
    ----------
    count
        Weights so far, the newest included.
    power
        How much more later ones count.
    least
        Weights that count at least.

    Examples
    --------
    >>> share(1), share(4), share(4, least=1)
    (1.0, 0.25, 0.75)
    """
    return max(1 / count, min(1 / least, (power + 1) / (count + power)))


def preferred(losses: Sequence[Sequence[float]] | np.ndarray) -> int:
    r"""Return the place of what is offered, of several given in the order of preference.

    One gives way to a later one only if it is worse by more than a standard error. Both are judged
    on the same :math:`n` batches, so that the standard error is that of the mean difference of
    their losses, :math:`s_d/\sqrt n`: most of the noise of the losses is in both. What was offered
    before is given last, as it was chosen for a low loss on batches that are still among these: by
    the mean alone it would win by chance, and stay (the rule of one standard error, Breiman et al.,
    1984, "Classification and Regression Trees").

    Parameters
    ----------
    losses
        Of each, the losses on the same batches.

    Examples
    --------
    >>> new, old = [1.0, 1.2, 0.9, 1.1, 1.0], [0.9, 1.3, 0.7, 1.2, 1.0]  # lower, by chance
    >>> preferred([new, old])
    0
    >>> preferred([new, [one - 0.1 for one in new]])
    1
    """
    chosen = 0
    for place in range(1, len(losses)):
        if _is_worse(np.asarray(losses[chosen], float), np.asarray(losses[place], float)):
            chosen = place
    return chosen


def _is_worse(one: np.ndarray, other: np.ndarray) -> bool:
    """Return whether the first losses are above the others by more than a standard error."""
    if not np.isfinite(one).all():
        return bool(np.isfinite(other).all())
    with np.errstate(over="ignore", invalid="ignore"):
        differences = one - other
        error = differences.std(ddof=1) / math.sqrt(len(one)) if len(one) >= _FEW else 0.0
        return bool(differences.mean() > (error if np.isfinite(error) else 0.0))
