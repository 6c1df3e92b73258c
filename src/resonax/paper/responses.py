"""What judges read from stored sweeps: curves over the period, and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy  # its parts are loaded where they are used

if TYPE_CHECKING:
    import xarray as xr

__all__ = [
    "DIVERGES",
    "ORDERED",
    "largest_over_periods",
    "log_mean_response",
    "period_rates",
    "run_areas",
    "run_maps",
    "split_curve",
]

# Growth per step that counts as divergence: a tenth of what the paper calls so, distances "on the
# order of 10^19" after 10^4 steps, log(10^19) / 10^4 / 10. Where nothing diverges, the growth
# between two windows is 0 up to its noise, and no test could find it below 0.
DIVERGES = 4.4e-4
ORDERED = 0.9  # share of the pairs along an axis that are to rise, where a trend is claimed


def split_curve(panel: xr.Dataset, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return a variable of the runs for shuffled inputs, (runs), and all else, (periods, runs)."""
    curve = panel[name].transpose("period", "run")
    return curve.sel(period=0).values, curve.sel(period=curve.period > 0).values


def period_rates(panel: xr.Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Return the periods of a curve, without shuffled inputs, and the rates, (periods, runs)."""
    curve = panel.run_rate.sel(period=panel.period > 0)
    return curve.period.values, curve.transpose("period", "run").values


def largest_over_periods(panel: xr.Dataset, axis: str, name: str) -> np.ndarray:
    """Return the largest value over the periods of each run along an axis, (axis, runs)."""
    return panel[name].sel(period=panel.period > 0).max("period").transpose(axis, "run").values


def run_areas(panel: xr.Dataset) -> np.ndarray:
    """Return for each run the share of the cells of a map at which it grew."""
    grew = panel.run_rate.transpose("run", ...).values > 0
    return grew.reshape(len(grew), -1).mean(axis=1)


def run_maps(panel: xr.Dataset) -> np.ndarray:
    """Return the logarithm of each run's mean distance, (momentum, period, runs)."""
    return panel.run_log_response.transpose("momentum", "period", "run").values


def log_mean_response(runs: np.ndarray) -> np.ndarray:
    """Return what the paper's maps show, the mean distance over the runs; its logarithm."""
    return scipy.special.logsumexp(runs, axis=-1) - np.log(runs.shape[-1])
