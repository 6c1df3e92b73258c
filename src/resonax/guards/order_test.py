r"""Does the order of the rows harm? A test by training on the same rows, mixed.

If the rows of a stretch are exchangeable, as independent draws are, the run on the rows as they
came is like any of the mixed runs: their losses :math:`L, L_1, \dots, L_m` are exchangeable. With
normal logarithms

.. math:: t = \frac{\log L - \overline{\log L_i}}{s \sqrt{1 + 1/m}}

has Student's distribution with :math:`m - 1` degrees of freedom. Of the :math:`k`-th test of a run
the level is :math:`\alpha / (k (k + 1))`, which adds up to :math:`\alpha` over all tests.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

__all__ = ["geometric_mean", "student_p"]

_LEAST = 1e-9  # least spread of log losses


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
