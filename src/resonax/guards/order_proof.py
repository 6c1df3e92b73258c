r"""The momentum that needs no watching: that of the bound for every order, in closed form.

With step size :math:`\eta` and curvatures :math:`0 \le H_k \le L`, weight decay included, no order
of the batches lets an error grow if (see the page on every order) :math:`x = \eta L` is at most

.. math:: \frac{2(1-\mu)^2}{1+\mu} \text{ for heavy ball}, \qquad
          \frac{(1-\mu)^2}{\mu^2 + (1-\mu)/2} \text{ for Nesterov.}

Both are quadratic in :math:`\mu`.
"""

from __future__ import annotations

import math

__all__ = ["unwatched_momentum"]


def unwatched_momentum(step: float, *, nesterov: bool = False) -> float | None:
    """Return the largest momentum that is safe in every order, None where there is none.

    Parameters
    ----------
    step
        Step size, times 1 - dampening, times the largest curvature, weight decay included.
    nesterov
        Whether the method is Nesterov's.

    Examples
    --------
    >>> round(unwatched_momentum(0.04), 3)
    0.81
    """
    if not 0 <= step <= 2:
        return None
    if nesterov:
        return (2 - step) / (2 - step / 2 + math.sqrt(step * (4 - 1.75 * step)))
    return (2 * (2 - step)) / (4 + step + math.sqrt(step * (step + 16)))
