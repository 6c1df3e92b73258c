r"""How many predictions are close to the truth, where the truth is known by few noisy runs.

Each cell has two p-values: that of being far from the prediction and that of being close to it.
How many of some hypotheses are true is bounded by closed testing (Goeman and Solari, 2011): the k
that are true are rejected together with a chance of at most :math:`\alpha`, and no k p-values have
less against them than the k largest. So the largest k that is not rejected is an upper bound. A
test of k together is Fisher's, :math:`-2\sum\log p` against :math:`\chi^2_{2k}`, to which many
cells of moderate evidence add up, or Bonferroni's, which sees few of strong evidence among others
that have none; each at :math:`\alpha/2`. Intervals for all cells at once would say nothing of most.
"""

from __future__ import annotations

import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.paper.inference import Estimate

__all__ = ["close_share"]


def most_true(p_values: np.ndarray, error: float) -> int:
    """Return an upper bound of the number of true hypotheses, from independent p-values.

    Examples
    --------
    >>> most_true(np.array([0.5, 0.001, 0.002]), 0.01), most_true(np.full(9, 0.05), 0.01)
    (1, 3)
    """
    ordered, number = np.sort(p_values)[::-1], np.arange(1, len(p_values) + 1)
    with np.errstate(divide="ignore"):
        fisher = scipy.special.chdtrc(2.0 * number, np.cumsum(-2 * np.log(ordered)))
    possible = np.minimum(fisher, number * ordered) > error / 2
    return int(max(number[possible], default=0))


def close_share(
    samples: np.ndarray, predicted: np.ndarray, tolerance: float, error: float
) -> Estimate:
    """Return the share of cells whose true mean m has ``abs(predicted / m - 1) <= tolerance``.

    The p-values are Student's. The cells of a row must be independent; rows may depend on each
    other, as the error is shared out among them. A cell without a prediction is not close.

    Parameters
    ----------
    samples
        Independent runs of positive numbers, (rows, cells, runs).
    predicted
        (rows, cells); nan where there is none.
    tolerance
        Below 1.
    error
        Chance that either end is wrong.
    """
    rows, cells, runs = samples.shape
    means, low, high = samples.mean(-1), predicted / (1 + tolerance), predicted / (1 - tolerance)
    is_close = (means >= low) & (means <= high)
    spread = samples.std(-1, ddof=1) / np.sqrt(runs) if runs > 1 else np.full((rows, cells), np.inf)

    def beyond(distance: np.ndarray) -> np.ndarray:
        """Return the chance to see the mean so far beyond an end at which it truly is."""
        with np.errstate(invalid="ignore", divide="ignore"):
            chance = scipy.special.stdtr(runs - 1.0, -distance / spread)
        return np.where(np.isnan(chance), 1.0, chance)

    far = np.maximum(beyond(means - low), beyond(high - means))
    close = np.minimum(1.0, 2 * np.minimum(beyond(low - means), beyond(means - high)))
    close = np.where(np.isnan(predicted), 0.0, close)
    most_far, most_close = (
        sum(most_true(row, error / rows) for row in p_values) / is_close.size
        for p_values in (far, close)
    )
    return Estimate(float(is_close.mean()), 1 - most_far, most_close)
