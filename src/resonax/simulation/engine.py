"""Cells of a grid -> one compiled, vectorised loop -> responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike

from resonax.checks import ArgumentError, check_whole
from resonax.learners import Features, Linear, Network
from resonax.processes import Recorded
from resonax.simulation.linear import advance_linear, begin_linear, log_distance
from resonax.simulation.schedule import BLOCK, schedule
from resonax.simulation.streams import stream_keys
from resonax.simulation.training import Training
from resonax.simulation.walk import Grid, Shape, cell_at

__all__ = ["Responses", "simulate"]

MOST_WEIGHTS = 24
_LANES = 64  # streams are computed in multiples of this
MOST_INPUTS = 2**18  # of a network in one step, in all coordinates: each has its slot
Advance = Callable[[float], None]


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
    advance: Advance | None = None,
) -> Responses:
    """Simulate a grid of cells, several runs each.

    Parameters
    ----------
    training
        What is simulated; the numbers named below are replaced cell by cell.
    columns
        Numbers of each column, by name: arrays of one length. Every column has random numbers of
        its own. A period of 0 stands for the same inputs in random order.
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
    advance
        Told the share of the work just finished.

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
    with jax.enable_x64(double):
        return _simulate(
            training, columns, shared or {}, runs, steps, window, seed, labels, advance
        )


def _simulate(
    training: Training,
    columns: Mapping[str, ArrayLike],
    shared: Mapping[str, ArrayLike],
    runs: int,
    steps: int,
    window: int,
    seed: int,
    labels: ArrayLike | None,
    advance: Advance | None,
) -> Responses:
    column_values = _vectors("columns", columns)
    shared_values = _vectors("shared", shared)
    count = _length(column_values)
    _check(training, column_values, shared_values, runs, steps, window, seed)
    names = np.arange(count) if labels is None else np.asarray(labels)
    if names.shape != (count,) or names.dtype.kind not in "iu" or np.any(names < 0):
        raise ArgumentError("labels must be whole numbers of at least 0, one for each column")
    if not shared:
        alone = next(name for name in ("start", "noise", "batch") if name not in columns)
        shared_values = {alone: np.full(1, getattr(training, alone))}
    found: list[np.ndarray] = [np.empty((count, _length(shared_values), runs)) for _ in range(3)]
    # What decides how a column is computed is in the column itself: parts of a grid give its bits.
    still = column_values.get("period", np.ones(count)) == 0
    kinds = np.stack([still, column_values.get("batch", np.zeros(count))], axis=1)
    for kind in np.unique(kinds, axis=0):
        chosen, ordered = np.flatnonzero((kinds == kind).all(axis=1)), not kind[0]
        part = {name: array[chosen] for name, array in column_values.items()}
        if not ordered:
            part["period"] = np.full(len(chosen), 2.0)  # not used, but it must be a period
        run = (runs, steps, window, seed, names[chosen], ordered, bool(shared))

        def tell(share: float, weight: float = len(chosen) / count) -> None:
            if advance:
                advance(weight * share)

        results = _run(training, part, shared_values, *run, tell)
        for whole, values in zip(found, results, strict=True):
            whole[chosen] = values
    return Responses(*found)


def _length(values: Mapping[str, np.ndarray]) -> int:
    return len(next(iter(values.values())))


def _vectors(name: str, values: Mapping[str, ArrayLike]) -> dict[str, np.ndarray]:
    arrays = {key: np.atleast_1d(np.asarray(array, float)) for key, array in values.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(len(shape) > 1 for shape in shapes):
        raise ArgumentError(f"{name} must be arrays of one length")
    if name == "columns" and not arrays:
        raise ArgumentError("columns must name at least one number")
    return arrays


def _check(
    training: Training,
    columns: dict[str, np.ndarray],
    shared: dict[str, np.ndarray],
    runs: int,
    steps: int,
    window: int,
    seed: int,
) -> None:
    check_whole("runs", runs, low=1, high=10**6)
    check_whole("seed", seed, low=0, high=2**63 - 1)
    for name, number in (("steps", steps), ("window", window)):
        check_whole(name, number, low=BLOCK)
        if number % BLOCK:
            raise ArgumentError(f"{name} must be a multiple of {BLOCK}, got {number}")
    if steps % (2 * BLOCK) or 2 * window > steps:
        raise ArgumentError(f"steps must be a multiple of {2 * BLOCK} and at least two windows")
    if "period" in shared:
        raise ArgumentError("period must be in columns: streams of other periods are not shared")
    both = set(columns) & set(shared)
    if both:
        raise ArgumentError(f"{min(both)} must be in columns or in shared, not in both")
    for values in (columns, shared):
        for name, array in values.items():
            for extreme in array[array != 0] if name == "period" else array:
                cell_at(training, {name: float(extreme)})
    if "dim" in {**columns, **shared}:
        dims = np.concatenate([values["dim"] for values in (columns, shared) if "dim" in values])
        if not isinstance(training.model, Linear) or isinstance(training.process, Recorded):
            raise ArgumentError("dim cannot vary: only the linear model on drawn inputs allows it")
        check_whole("dim", int(dims.min()), low=1, high=training.process.dim)
        check_whole("dim", int(dims.max()), low=1, high=training.process.dim)
    if isinstance(training.process, Recorded):
        if "batch" in {**columns, **shared}:
            raise ArgumentError("batch cannot vary for a recording")
        most = training.process.grouped(int(training.batch)).steps
        if steps > most and not training.process.repeat:
            raise ArgumentError(f"steps must be at most {most} for one pass, got {steps}")
    batch = np.atleast_1d({**columns, **shared}.get("batch", training.batch))
    if isinstance(training.model, Network):
        if "batch" in shared:
            raise ArgumentError("batch must be in columns for a network")
        check_whole("batch", int(batch.max()), low=1, high=MOST_INPUTS // training.process.dim)
    if isinstance(training.model, Features) and training.size > MOST_WEIGHTS:
        raise ArgumentError(
            f"the model must have at most {MOST_WEIGHTS} weights, got {training.size}"
        )


def _run(
    training: Training,
    columns: dict[str, np.ndarray],
    shared: dict[str, np.ndarray],
    runs: int,
    steps: int,
    window: int,
    seed: int,
    labels: np.ndarray,
    ordered: bool,
    shared_streams: bool,
    tell: Advance,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run cells that one compiled loop serves."""
    values = {**columns, **shared}
    training = replace(training, process=training.process.grouped(int(training.batch)))
    decay = getattr(training.optimizer, "weight_decay", 0.0)
    numbers = (*training.optimizer.axes, "start", "batch", "dim")
    law_varies = not set(shared) <= set(numbers)
    mixed = not ordered or getattr(training.process, "law", None) is not None
    rows = int(np.max(values.get("batch", training.batch)))
    scatter = not mixed and _scatter(training, columns, shared)
    shape = Shape(
        law_varies=law_varies,
        batch_varies="batch" in shared,
        dim_varies="dim" in values,
        gram=shared_streams and not law_varies and _gram(training, rows, scatter, shared),
        rows=rows,
        scatter=scatter,
        ordered=ordered,
        mixed=mixed,
        noisy=bool(np.max(values.get("noise", training.noise)) > 0),
        decays=bool(np.max(values.get("weight_decay", decay)) > 0),
    )
    # Vectorised code treats the last few numbers of an array otherwise than the rest, and rounds
    # them otherwise: streams are filled up with copies, so that no real one is among them.
    streams = len(labels) * runs
    filled = np.minimum(np.arange(-(-streams // _LANES) * _LANES), streams - 1)
    grid = Grid(
        {
            name: jnp.asarray(np.repeat(array, runs)[filled], float)
            for name, array in columns.items()
        },
        {name: jnp.asarray(array, float) for name, array in shared.items()},
        stream_keys(seed, labels, runs)[filled],
        jnp.asarray(training.reduction == "sum", float),
    )
    # A number in the grid: one compiled loop serves both.
    training = replace(training, reduction="mean")
    if isinstance(training.model, Network):
        from resonax.simulation.network import run_networks

        logs = run_networks(training, grid, shape, steps, window, tell)
    else:
        logs = _run_linear(training, grid, shape, steps, window, tell)
    begin, middle, end = (
        np.asarray(log, float)[:streams].reshape(len(labels), runs, -1).swapaxes(1, 2)
        for log in logs
    )
    # What left the range of numbers altogether is infinitely far away, and grows.
    over = np.isnan(end) | np.isposinf(end)
    growth = np.where(over, np.inf, end) - np.where(over, 0.0, middle)
    return np.where(over, np.inf, end), begin, growth / (steps // 2)


def _gram(training: Training, rows: int, scatter: bool, shared: Mapping[str, np.ndarray]) -> bool:
    """Whether H e costs cells that share H no more products than F'(F e)."""
    if isinstance(training.model, Network) or "batch" in shared:
        return False
    return scatter or training.size <= 2 * rows


def _scatter(
    training: Training, columns: Mapping[str, np.ndarray], shared: Mapping[str, np.ndarray]
) -> bool:
    """Whether sufficient statistics can stand for the inputs, and are fewer."""
    if not isinstance(training.model, Linear) or isinstance(training.process, Recorded):
        return False
    if "dim" in {**columns, **shared} or "batch" in shared:  # inputs that are switched off
        return False
    return bool(np.max(columns.get("batch", training.batch)) > training.process.dim + 1)


def _run_linear(
    training: Training, grid: Grid, shape: Shape, steps: int, window: int, tell: Advance
) -> list[Any]:
    """Return the logarithms of the distance at the start, and over windows in middle and end."""
    state = begin_linear(training, grid, shape=shape)
    logs = [log_distance(state, steps=0)]
    for part in schedule(steps, window):
        if part.opens:
            flat = jnp.zeros_like(state.total)
            state = state._replace(total=flat, level=flat - np.inf)
        now = part.start, part.blocks, part.record
        state = advance_linear(training, grid, state, *now, shape=shape)
        jax.block_until_ready(state.total)
        tell(part.blocks * BLOCK / steps)
        if part.closes:
            logs.append(log_distance(state, steps=window))
    return logs
