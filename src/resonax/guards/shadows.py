r"""Shadows: small differences that follow the tangent dynamics of a training run.

A difference :math:`u` of the weights and :math:`v` of the velocity, on a batch with curvature
:math:`H_k` and weight decay :math:`\lambda`, follow the canonical recursion of
`resonax.learners.optimizers` with :math:`h_k = H_k u_k + \lambda u_k`,

.. math::
    v_{k+1} = \mu v_k - \alpha h_k, \qquad u_{k+1} = u_k + \kappa v_{k+1} - \beta h_k .

Here the step size is in :math:`\kappa` and :math:`\beta`, as in torch and optax, so that it may
follow a schedule. The growth is measured in the energy

.. math:: E = \alpha \bar\lambda \lVert u \rVert^2 + \mu \kappa \lVert v \rVert^2,

with the mean curvature :math:`\bar\lambda` along the shadow: it varies less within a period
of the oscillation than either norm does. Nothing here knows a framework: `step_shadow` works on
arrays of NumPy, jax and torch alike.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError, check_number

__all__ = ["Energy", "Gains", "candidates_below", "checked_candidates", "gains", "step_shadow"]

# Candidates below the user's own momentum, as multiples of its 1 - momentum.
_LADDER = (1, 2, 3, 5, 10, 20, 50, 100, 200, 500)
_LEAST_GAP = 0.01
_FLOOR = 1e-30


class Gains(NamedTuple):
    """Coefficients of the canonical recursion; numbers, or one entry for each candidate."""

    momentum: Any
    alpha: Any
    kappa: Any
    beta: Any
    decay: Any


def gains(
    lr: Any,
    momentum: Any,
    *,
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    nesterov: bool = False,
) -> Gains:
    """Return the coefficients of an optimizer whose velocity is kept without the step size.

    Examples
    --------
    >>> gains(0.1, 0.9, nesterov=True)
    Gains(momentum=0.9, alpha=1.0, kappa=0.09000000000000001, beta=0.1, decay=0.0)
    """
    kappa = momentum * lr if nesterov else lr + 0.0 * momentum
    beta = lr if nesterov else 0.0
    return Gains(momentum, 1.0 - dampening, kappa, beta, weight_decay)


def step_shadow(place: Any, velocity: Any, product: Any, by: Gains) -> tuple[Any, Any, Any]:
    """Return position and velocity one step later, and the product with weight decay.

    Examples
    --------
    >>> place, velocity, _ = step_shadow(1.0, 0.0, 2.0, gains(0.1, 0.9))
    >>> place, velocity
    (0.8, -2.0)
    """
    pull = product + by.decay * place
    velocity = by.momentum * velocity - by.alpha * pull
    return place + by.kappa * velocity - by.beta * pull, velocity, pull


class Energy(NamedTuple):
    """The two parts of the energy, summed over the weights, one entry for each candidate.

    ``places`` is the sum of ``alpha u*u``, ``velocities`` that of ``momentum kappa v*v``.
    """

    places: Any
    velocities: Any

    def total(self, curvature: Any) -> Any:
        """Return the energy for a mean curvature."""
        return curvature * self.places + self.velocities + _FLOOR


def candidates_below(momentum: float) -> tuple[float, ...]:
    """Return the momenta that a guard compares by default: the user's own and smaller ones.

    Examples
    --------
    >>> candidates_below(0.95)
    (0.95, 0.9, 0.85, 0.75, 0.5, 0.0)
    """
    check_number("momentum", momentum, low=0, high=1, open_high=True)
    lack = max(1.0 - momentum, _LEAST_GAP / 10)
    steps = [momentum, *(round(1.0 - lack * times, 6) for times in _LADDER[1:])]
    kept = [step for step in steps if step >= _LEAST_GAP]
    return (*kept, 0.0) if momentum > 0 else (0.0,)


def checked_candidates(given: Any, own: float) -> tuple[float, ...]:
    """Return candidates from the largest to the smallest, the user's own momentum among them."""
    if given is None:
        return candidates_below(own)
    try:
        numbers = {float(number) for number in given}
    except (TypeError, ValueError):
        raise ArgumentError(f"candidates must be numbers, got {given!r}") from None
    for number in numbers:
        check_number("candidates", number, low=0, high=1, open_high=True)
    return tuple(sorted({*numbers, float(np.float64(own))}, reverse=True))
