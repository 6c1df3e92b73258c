"""What is said of a cell: statistics over its runs."""

from __future__ import annotations

import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.core.intervals import half_width
from resonax.simulation.engine import Responses

__all__ = ["STATISTICS", "summarise"]

# name: what it is; logarithms are natural
STATISTICS = {
    "log_response": "logarithm of the mean response over runs (the paper's statistic)",
    "log_median": "logarithm of the median response over runs",
    "log_low": "logarithm of the lower quartile of the response over runs",
    "log_high": "logarithm of the upper quartile of the response over runs",
    "rate": "growth per step from the middle to the end, mean over runs",
    "rate_low": "lower end of the 95% interval of the rate",
    "rate_high": "upper end of the 95% interval of the rate",
    "diverged": "share of runs that ended farther away than they began",
}


def summarise(found: Responses) -> dict[str, np.ndarray]:
    """Return the statistics of every cell, by the names of `STATISTICS`.

    The rate's interval is Student's over the runs. With a single run it has no width to tell.

    Examples
    --------
    >>> cell = np.log([[[1.0, 3.0]]])
    >>> found = summarise(Responses(cell, np.zeros((1, 1, 2)), np.array([[[0.0, 2.0]]])))
    >>> [f"{np.exp(found['log_response'].item()):.1f}", found["diverged"].item()]
    ['2.0', 0.5]
    """
    logs, runs = found.log_response, found.log_response.shape[-1]
    rate = found.rate.mean(axis=-1)
    finite = np.where(np.isfinite(found.rate), found.rate, 0.0)
    spread = finite.std(axis=-1, ddof=1) if runs > 1 else np.zeros_like(rate)
    half = half_width(spread, runs, 0.025) if runs > 1 else spread
    low, median, high = np.quantile(logs, [0.25, 0.5, 0.75], axis=-1, method="inverted_cdf")
    return {
        "log_response": scipy.special.logsumexp(logs, axis=-1) - np.log(runs),
        "log_median": median,
        "log_low": low,
        "log_high": high,
        "rate": rate,
        "rate_low": rate - half,
        "rate_high": rate + half,
        "diverged": (logs > found.log_start).mean(axis=-1),
    }
