"""Cells of a grid -> one compiled, vectorised loop -> responses."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
import scipy  # its parts are loaded where they are used
from jax import Array
from numpy.typing import ArrayLike

from resonax.core.errors import ArgumentError, check_whole
from resonax.core.intervals import half_width
from resonax.dynamics.problem import check_problem
from resonax.learners import Linear, Network
from resonax.simulation.batches import BLOCK
from resonax.simulation.cells import Grid, Loop, Training, cell_at
from resonax.simulation.linear import begin_linear, log_distance, step_linear
from resonax.simulation.network import run_networks
from resonax.simulation.random_numbers import MIN_FREEDOM, path_keys
from resonax.simulation.schedule import Advance, run_windows
from resonax.spec.sweep_checks import MAX_INPUTS, MAX_WEIGHTS
from resonax.streams import Recorded

__all__ = ["STATISTICS", "Responses", "simulate", "summarise"]

# The number of paths is filled up to a multiple of this by copies of the last one. Vectorised code
# rounds the last few numbers of an array, which do not fill a vector, another way.
_PATHS_MULTIPLE = 64


class Responses(NamedTuple):
    """What every run of every cell did, (columns, shared, runs). Logarithms are natural."""

    log_response: np.ndarray  # mean distance (or test loss) over the last steps
    log_start: np.ndarray  # the same before the first step
    rate: np.ndarray  # growth per step, from the middle of the run to its end


def simulate(
    training: Training,
    columns: Mapping[str, ArrayLike],
    shared: Mapping[str, ArrayLike] | None = None,
    *,
    runs: int = 10,
    steps: int = 10_000,
    window: int = 500,
    seed: int = 0,
    labels: ArrayLike | None = None,
    double: bool = False,
    numba: bool | None = None,
    advance: Advance | None = None,
) -> Responses:
    """Simulate a grid of cells, several runs each.

    Parameters
    ----------
    training
        What is simulated; the numbers named below are replaced cell by cell.
    columns
        Numbers of each column, by name: arrays of one length. Every column has random numbers of
        its own. A period of 0 stands for the same inputs in random order. ``summed`` is 1 where
        the loss is summed over the batch, and 0 where it is the mean.
    shared
        Numbers that vary inside a column: arrays of one length. These cells share their random
        numbers, which leaves the law of each as it is and sharpens their comparison.
    runs, steps, window
        Independent runs of each cell, steps of each, and how many last steps the response is the
        mean over. Steps and window are multiples of 20.
    seed
        Seed of all random numbers.
    labels
        A whole number for each column, by which it gets its random numbers: 0, 1, 2, ... unless
        the columns are a part of a larger grid.
    double
        Whether to compute in 64 bits.
    numba
        Whether the loop over the steps of networks is compiled by Numba, several times faster on a
        CPU, or by jax. Both draw the same random numbers, and agree to rounding. If not given,
        Numba is used where it can be: on a CPU, with the extra ``fast``, for small networks
        trained by SGD with momentum or by Adam.
    advance
        Called with the share of the work just finished.

    Returns
    -------
    Responses
        Logarithm of the response, of its start, and growth per step, (columns, shared, runs).

    Examples
    --------
    >>> from resonax import Sinusoid, heavy_ball
    >>> training = Training(Sinusoid(period=22.0), heavy_ball(0.01, 0.95), batch=20)
    >>> found = simulate(training, {"period": [22.0]}, {"momentum": [0.95, 0.98]}, steps=2000)
    >>> (found.rate.mean(axis=2) > 0).tolist()  # the tongue reaches down to 0.966
    [[False, True]]
    """
    check_problem(training, Training)
    vectors = _vectors("columns", columns), _vectors("shared", shared or {})
    request = _Request(training, *vectors, runs, steps, window, numba)
    check_whole("seed", seed, low=0, high=2**63 - 1)
    _check(request)
    count = len(next(iter(request.columns.values())))
    names = np.arange(count) if labels is None else np.asarray(labels)
    if names.shape != (count,) or names.dtype.kind not in "iu" or np.any(names < 0):
        raise ArgumentError("labels must be whole numbers of at least 0, one for each column")
    if not shared:
        single = next(name for name in ("start", "noise", "batch") if name not in columns)
        request = request._replace(shared={single: np.full(1, getattr(training, single))})
    shape = (count, len(next(iter(request.shared.values()))), runs)
    found = [np.empty(shape) for _ in range(3)]
    # Columns are computed together if one compiled loop serves them.
    shuffled = request.columns.get("period", np.ones(count)) == 0
    kinds = np.stack([shuffled, request.columns.get("batch", np.zeros(count))], axis=1)
    for kind in np.unique(kinds, axis=0):
        chosen = np.flatnonzero((kinds == kind).all(axis=1))
        part = request.of_columns(chosen)
        loop = _loop(part, not kind[0], bool(shared))
        if not loop.ordered:  # not used, but it must be a period
            part.columns["period"] = np.full(len(chosen), 2.0)
        weight = len(chosen) / count

        def report(share: float, weight: float = weight) -> None:
            if advance:
                advance(weight * share)

        keys = path_keys(seed, names[chosen], runs)
        with jax.enable_x64(double):
            results = _run(part, keys, loop, report)
        for whole, values in zip(found, results, strict=True):
            whole[chosen] = values
    return Responses(*found)


class _Request(NamedTuple):
    """Cells to simulate."""

    training: Training
    columns: dict[str, np.ndarray]
    shared: dict[str, np.ndarray]
    runs: int
    steps: int
    window: int
    numba: bool | None

    @property
    def values(self) -> dict[str, np.ndarray]:
        """Numbers that vary, in columns or inside them."""
        return {**self.columns, **self.shared}

    def of_columns(self, chosen: np.ndarray) -> _Request:
        """Return the same of some columns."""
        return self._replace(columns={name: of[chosen] for name, of in self.columns.items()})

    def largest(self, name: str) -> float:
        """Return the largest value of a number, whether or not it varies."""
        own = getattr(self.training, name, None)
        own = getattr(self.training.optimizer, name, 0.0) if own is None else own
        return float(np.max(self.values.get(name, own)))


def _vectors(name: str, values: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    if not isinstance(values, Mapping) or not (values or name == "shared"):
        raise ArgumentError(f"{name} must name at least one number, as {{'period': [22.0]}} does")
    arrays = {key: np.atleast_1d(np.asarray(array, float)) for key, array in values.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(len(shape) > 1 for shape in shapes):
        raise ArgumentError(f"{name} must be arrays of one length")
    return arrays


def _check(request: _Request) -> None:
    training, columns, shared, runs, steps, window, _ = request
    check_whole("runs", runs, low=1, high=10**6)
    for name, number in (("steps", steps), ("window", window)):
        check_whole(name, number, low=BLOCK, high=10**8)
        if number % BLOCK:
            raise ArgumentError(f"{name} must be a multiple of {BLOCK}, got {number}")
    if steps % (2 * BLOCK) or 2 * window > steps:
        raise ArgumentError(f"steps must be a multiple of {2 * BLOCK} and at least two windows")
    if "period" in shared:
        raise ArgumentError("period must be in columns: inputs of other periods are not shared")
    both = set(columns) & set(shared)
    if both:
        raise ArgumentError(f"{min(both)} must be in columns or in shared, not in both")
    for name, array in request.values.items():
        for number in array[array != 0] if name == "period" else array:
            cell_at(training, {name: float(number)})
    if "dim" in request.values:
        if not isinstance(training.model, Linear) or isinstance(training.process, Recorded):
            raise ArgumentError("dim cannot vary: only the linear model on drawn inputs allows it")
        for extreme in (request.values["dim"].min(), request.values["dim"].max()):
            check_whole("dim", int(extreme), low=1, high=training.process.dim)
    if isinstance(training.process, Recorded):
        if "batch" in request.values:
            raise ArgumentError("batch cannot vary for a recording")
        most = training.process.grouped(int(training.batch)).steps
        if steps > most and not training.process.repeat:
            raise ArgumentError(f"steps must be at most {most} for one pass, got {steps}")
    if request.largest("drift") > 0:
        if not training.process.signalled:
            raise ArgumentError(f"drift needs inputs that move, got {training.process.name}")
        if "dim" in request.values:
            raise ArgumentError("dim cannot vary where the target drifts")
    if isinstance(training.model, Network):
        if "batch" in shared:
            raise ArgumentError("batch must be in columns for a network")
        most = MAX_INPUTS // training.process.dim
        check_whole("batch", int(request.largest("batch")), low=1, high=most)
    elif training.size > MAX_WEIGHTS:
        raise ArgumentError(
            f"the model must have at most {MAX_WEIGHTS} weights, got {training.size}"
        )


def _loop(request: _Request, ordered: bool, share_paths: bool) -> Loop:
    """Return what the compiled loop of some cells has to compute."""
    training, values, rows = request.training, request.values, int(request.largest("batch"))
    law_varies = not set(request.shared) <= {*training.optimizer.axes, "start", "batch", "dim"}
    mixed = not ordered or getattr(training.process, "law", None) is not None
    driven = request.largest("drift") > 0 or training.omitted is not None
    # Sufficient statistics stand for the inputs where they can, and are fewer.
    statistics = isinstance(training.model, Linear) and not isinstance(training.process, Recorded)
    statistics = statistics and "dim" not in values and "batch" not in request.shared and not mixed
    statistics = statistics and training.omitted is None
    scatter = statistics and rows - training.process.dim >= MIN_FREEDOM
    # Cells that share H need no more products for H e than for F'(F e).
    gram = share_paths and not law_varies and "batch" not in request.shared
    gram = gram and not isinstance(training.model, Network)
    gram = gram and (scatter or training.size <= 2 * rows)
    return Loop(
        law_varies=law_varies,
        batch_varies="batch" in request.shared,
        dim_varies="dim" in values,
        gram=gram,
        rows=rows,
        scatter=scatter,
        ordered=ordered,
        mixed=mixed,
        noisy=request.largest("noise") > 0 or driven,
        decays=request.largest("weight_decay") > 0,
        drifts=request.largest("drift") > 0,
    )


def _run(
    request: _Request, keys: Array, loop: Loop, advance: Advance
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run cells that one compiled loop serves."""
    training, columns, shared, runs, steps, window, _ = request
    paths = len(keys)
    filled = np.minimum(np.arange(-(-paths // _PATHS_MULTIPLE) * _PATHS_MULTIPLE), paths - 1)
    real = jax.dtypes.canonicalize_dtype(float)
    grid = Grid(
        *jax.device_put(
            (
                {name: np.repeat(of, runs)[filled].astype(real) for name, of in columns.items()},
                {name: of.astype(real) for name, of in shared.items()},
                keys[filled],
                np.asarray(training.reduction == "sum", real),
            )
        )
    )
    process = training.process.grouped(int(training.batch))
    # The reduction is a number of the grid: one compiled loop serves both.
    training = replace(training, process=process, reduction="mean")
    if isinstance(training.model, Network):
        logs = run_networks(training, grid, loop, steps, window, advance, request.numba)
    else:
        step_blocks = functools.partial(step_linear, training, grid, loop=loop)
        measure = functools.partial(log_distance, steps=window)
        state = begin_linear(training, grid, loop=loop)
        start = log_distance(state, steps=0)
        logs = [start, *run_windows(state, step_blocks, measure, steps, window, advance)]
    begin, middle, end = (
        np.asarray(log, float)[:, :paths].reshape(-1, paths // runs, runs).swapaxes(0, 1)
        for log in logs
    )
    # A run that overflowed is infinitely far away, and grows.
    over = np.isnan(end) | np.isposinf(end)
    growth = np.where(over, np.inf, end) - np.where(over, 0.0, middle)
    return np.where(over, np.inf, end), begin, growth / (steps // 2)


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
        # The start of a network is a mean over its first steps, in which it may overflow as well.
        "diverged": ((logs > found.log_start) | np.isposinf(logs)).mean(axis=-1),
    }
