r"""The average of the weights of a run: less noise at no cost to the training.

The noise of the last weights grows with the effective step :math:`\eta/(1-\mu)`, with or without a
resonance. Their average has less of it, and leaves the run as it is. A plain mean remembers the
start for long; here weights count more the later they are (polynomial decay, Shamir and Zhang,
2013, "Stochastic gradient descent for non-smooth optimization"):

.. math:: \bar w_n = \bar w_{n-1} + a_n (w_n - \bar w_{n-1}), \qquad a_n = \frac{p + 1}{n + p},

so that the weights of step :math:`k` count about :math:`(k/n)^p`; :math:`p = 0` is the mean, and
:math:`1/a_n` the number of weights that count. Errors of successive weights are alike over some
:math:`1/(1-\mu)` steps, and an average over fewer has as much noise as they: so :math:`1/a_n`
is at least :math:`m` of them, or all while there are fewer.
"""

from __future__ import annotations

__all__ = ["share"]

POWER = 8  # about the last tenth of a run counts
LEAST = 64  # steps: three times 1/(1 - momentum) for a momentum of 0.95


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
