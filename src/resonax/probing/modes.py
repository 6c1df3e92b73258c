r"""Modes of a learner: along which curvature it is excited.

The curvature of a linear model is :math:`2E[\phi\phi^\top]`. Each of its eigenvectors :math:`v`
with eigenvalue :math:`\lambda` is a mode, with a natural period of its own; the scaled coordinate
:math:`\langle v, \phi(x)\rangle / \sqrt{\lambda/2}` has mean square 1 and drives that mode alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resonax.core.errors import ArgumentError, as_array, check_number, check_numbers, shorten

__all__ = ["Mode", "choose_mode"]

_ALIKE = 1.5  # ratio of curvatures up to which modes swing together
_MOST = 6  # modes that are looked at together
_NONE = 1e-9  # relative to the largest: such a curvature is none


@dataclass(frozen=True, eq=False)
class Mode:
    """The pattern by which labels are moved, and the modes that swing at about its period."""

    pattern: np.ndarray  # (rows,), of mean square 1
    modes: np.ndarray  # (rows, modes): scaled coordinates, that of the pattern first
    curvature: float | None  # 2 E[(v phi)^2] for a unit vector v; None if the pattern has none

    def modulation(self, batch: int) -> np.ndarray:
        """Return the curvature of each batch along the modes, (steps, modes, modes), of mean I."""
        steps = len(self.modes) // batch
        kept = self.modes[: steps * batch].reshape(steps, batch, -1)
        return np.einsum("kni,knj->kij", kept, kept) / batch


def choose_mode(
    mode: int | np.ndarray | Callable[[np.ndarray], np.ndarray],
    inputs: np.ndarray,
    features: np.ndarray,
) -> Mode:
    """Return a mode: by the rank of its curvature, by weights of features, or as a function.

    Parameters
    ----------
    mode
        0 for the eigenvector of the largest curvature, 1 for the next one, and so on; weights, one
        for each feature; or a function of the inputs, (rows, d) -> (rows,).
    inputs
        The rows, (rows, d).
    features
        Their features, (rows, p).

    Examples
    --------
    >>> inputs = np.array([[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> choose_mode(1, inputs, inputs).curvature  # the mean of y^2 is 1/2
    1.0
    """
    if callable(mode):
        return _single(as_array("mode", mode(inputs)), None)
    if not isinstance(mode, int | np.integer):
        weights = as_array("mode", mode)
        check_numbers("mode", weights, (features.shape[1],))
        pattern = features @ weights
        return _single(pattern, 2 * float((pattern**2).mean() / max(weights @ weights, 1e-300)))
    values, vectors = np.linalg.eigh(features.T @ features / len(features))
    order = np.argsort(-values)
    order = order[values[order] > _NONE * values[order[0]]]
    if not len(order):
        raise ArgumentError("inputs must not all be zero")
    check_number("mode", int(mode), low=0, high=len(order) - 1)
    own = order[int(mode)]
    apart = np.abs(np.log(values[order] / values[own]))
    near = np.flatnonzero(apart < np.log(_ALIKE))
    near = near[np.lexsort((order[near] != own, apart[near]))]  # its own first
    chosen = order[near[:_MOST]]
    modes = features @ vectors[:, chosen] / np.sqrt(values[chosen])
    return Mode(modes[:, 0], modes, 2 * float(values[own]))


def _single(pattern: np.ndarray, curvature: float | None) -> Mode:
    size = float(np.sqrt((pattern**2).mean()))
    if not np.isfinite(size) or size == 0 or pattern.ndim != 1:
        raise ArgumentError(
            f"mode must give a number for each row, not all zero, got {shorten(pattern)}"
        )
    return Mode(pattern / size, pattern[:, None] / size, curvature)
