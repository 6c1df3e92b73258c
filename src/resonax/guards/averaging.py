r"""The average of the weights of a run: less noise at no cost to the training.

The noise of the last weights grows with the effective step :math:`\eta/(1-\mu)`, with or without a
resonance. Their average has less of it, and leaves the run as it is. A plain mean remembers the
start for long; here weights count more the later they are (polynomial decay, Shamir and Zhang,
2013, "Stochastic gradient descent for non-smooth optimization"):

.. math:: \bar w_n = \bar w_{n-1} + \frac{p + 1}{n + p} (w_n - \bar w_{n-1}),

so that the weights of step :math:`k` count about :math:`(k/n)^p`; :math:`p = 0` is the mean.
"""

from __future__ import annotations

__all__ = ["share"]

POWER = 8  # about the last tenth of a run counts


def share(count: int, power: int = POWER) -> float:
    """Return how much the newest of ``count`` weights counts in their average.

    Examples
    --------
    >>> share(1), share(4, power=0)
    (1.0, 0.25)
    """
    return (power + 1) / (count + power)
