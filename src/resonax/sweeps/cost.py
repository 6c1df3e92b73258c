"""Division of a sweep into tasks, and estimates of its time and memory before it is run.

The memory is an upper bound of the arrays in the compiled loops. The time follows from the number
of multiplications, at the speed of two cores, and is right to a factor of about 3.
"""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.spec.sweep_checks import count_weights, resolve, rows_drawn
from resonax.spec.sweeps import COSTLY, FILE_LIMITS, Sweep
from resonax.sweeps.panels import applies

__all__ = [
    "LARGE",
    "LIBRARIES",
    "Cost",
    "check_cost",
    "describe_time",
    "described_chunk",
    "estimate_cost",
    "memory",
    "task_points",
]

GB = 10**9
ASK_SECONDS, ASK_BYTES = 600.0, 4 * GB  # above these the user is asked
MAX_SECONDS, MAX_BYTES = 30 * 86_400.0, 256 * GB  # above these a sweep is refused
LARGE = f"{ASK_SECONDS / 60:g} minutes or {ASK_BYTES / GB:g} GB"
MAX_SINGLE = 1_000_000  # steps in 32 bits; beyond, the phase of a short period is inaccurate

LIBRARIES = GB // 2  # memory of the libraries before anything is computed
_DRAWN = GB // 2  # largest part of the results that is loaded to draw a figure
_TASK_RUNS = 200_000  # cells times runs of a task, if no chunk is given: some MB of results
_BLOCK = 20  # steps drawn at once
_STREAMS_MULTIPLE = 64  # numbers of streams are rounded up to a multiple
_COMPONENTS = 64  # at most, of the distribution of inputs in random order
_TEST_ROWS = 10  # rows on which a network is tested in each step of the window
_SLOTS = 10  # floats of an optimizer for each weight, at most
_SPEED = 3e9  # multiplications per second
_NUMBA_SPEED = 6  # speed-up of the training of networks by numba, if it is installed
# Seconds per cell of a criterion, for 2 weights; the last two are computed only on the points that
# the table theory asks for.
_CRITERIA = {"flow": 1e-4, "map": 2e-4, "mean_square": 2e-3, "lyapunov": 0.01}


class Cost(NamedTuple):
    """Estimated size, time and memory of a sweep."""

    cells: int  # of all panels
    runs: int
    steps: int  # of the longest run
    seconds: float
    engine: int  # bytes of the largest task while it runs
    stored: int  # bytes of the results
    tasks: int  # that can run in parallel
    loaded: int  # bytes of the results that are in memory at once

    @property
    def bytes(self) -> int:
        """Total memory: libraries, the largest task, and two copies of the loaded results."""
        return LIBRARIES + self.engine + 2 * self.loaded

    @property
    def is_large(self) -> bool:
        """Whether the user is asked before the sweep runs."""
        return self.seconds > ASK_SECONDS or self.bytes > ASK_BYTES

    @property
    def size(self) -> str:
        """Cells, runs and steps in words."""
        return f"{self.cells:,} cells, {self.runs:,} runs of {self.steps:,} steps each"

    def __str__(self) -> str:
        time = describe_time(self.seconds)
        return f"{self.size}: about {time} and {self.bytes / GB:.2g} GB of memory"


def describe_time(seconds: float) -> str:
    """Return a time in words, with one or two digits.

    Examples
    --------
    >>> [describe_time(seconds) for seconds in (3.2, 250, 9000, 1e6)]
    ['a few seconds', '4 minutes', '2 hours', '12 days']
    """
    if seconds < 30:
        return "a few seconds"
    units = (("minutes", 60, 90), ("hours", 3600, 36), ("days", 86_400, 1e300))
    unit, length, _ = next(unit for unit in units if seconds < unit[1] * unit[2])
    count = max(round(seconds / length), 1)
    return f"{count:.3g} {unit if count > 1 else unit[:-1]}"


def task_points(sweep: Sweep) -> int:
    """Return how many points of the second axis a task has.

    It is ``chunk`` if that is given, else as many as make a task of moderate size, at most all. If
    rates of theory are computed too, a panel of moderate size is one task, whatever ``chunk`` is.

    Examples
    --------
    >>> from resonax.spec.sweep_checks import parse_sweep
    >>> table = {
    ...     "id": "large",
    ...     "process": {"kind": "sinusoid"},
    ...     "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    ...     "axes": {
    ...         "momentum": {"first": 0.9, "last": 0.99, "count": 1000},
    ...         "period": {"first": 20, "last": 60, "count": 1000},
    ...     },
    ... }
    >>> [task_points(parse_sweep(table | more)) for more in ({}, {"chunk": 7})]
    [20, 7]
    >>> task_points(parse_sweep({**table, "theory": {"criteria": ["flow"]}}))
    20
    """
    first, second = (len(points) for points in sweep.points().values())
    if sweep.theory is not None and first * second * sweep.run.runs <= _TASK_RUNS:
        return second
    moderate = max(_TASK_RUNS // (first * sweep.run.runs), 1)
    return min(sweep.chunk or moderate, second)


def described_chunk(sweep: Sweep) -> int:
    """Return the chunk in a specification; the largest possible number if panels are not cut.

    This value keeps the specifications of old stores valid.
    """
    points = task_points(sweep)
    is_whole = points == len([*sweep.points().values()][1])
    return sweep.chunk or (FILE_LIMITS["points"] if is_whole else points)


class _PanelCost(NamedTuple):
    """Memory and time of one panel."""

    bytes: int  # of its largest task, at most
    seconds: float


def _estimate_panel(
    sweep: Sweep, number: int, points: Mapping[str, np.ndarray], item: int
) -> _PanelCost:
    """Return the cost of a panel; a float has ``item`` bytes."""
    cell, panel = resolve(sweep, number), sweep.panels[number]
    first, second = (
        int(((array >= low) & (array <= high)).sum())
        for name, array in points.items()
        for low, high in [panel.limits.get(name, (-np.inf, np.inf))]
    )
    # Cells along the first axis share a stream of inputs, if the inputs have the same distribution.
    inner, columns = (first, second) if sweep.share else (1, first * second)
    part = min(task_points(sweep), second) / max(second, 1)
    streams = math.ceil(int(columns * part) * cell.run.runs / _STREAMS_MULTIPLE) * _STREAMS_MULTIPLE
    rows, dim = rows_drawn(sweep, cell, points), cell.dim(points)
    weights = count_weights(cell.model, dim)
    if cell.is_network:
        hidden = sum(cell.model.get("hidden", (20, 20))) + 1
        state = inner * (_SLOTS * weights + 4 * rows * hidden)
        drawn = 6 * _BLOCK * inner * (rows + _TEST_ROWS) * (dim + 2)
        law = 2 * inner * (_BLOCK + _COMPONENTS // 2) * dim**2
        held = state + drawn + law
        stepping = (6 * rows + _SLOTS) * weights
    else:
        listed = _COMPONENTS * rows * inner if (points.get("period", np.ones(1)) == 0).any() else 0
        block = rows * (dim + 2) + listed + inner * (rows * (weights + 1) + 2 * dim)
        held = 2 * inner * (_SLOTS * weights + 3) + _BLOCK * block
        stepping = 2 * (rows + _SLOTS) * weights
    products = cell.run.steps * (columns * 20 * rows * (dim + 2) + first * second * stepping)
    products *= cell.run.runs
    if cell.is_network and importlib.util.find_spec("numba") is not None:
        products /= _NUMBA_SPEED
    return _PanelCost(
        int(item * streams * held), products / _SPEED + _theory_seconds(sweep, number, points)
    )


def _theory_seconds(sweep: Sweep, number: int, points: Mapping[str, np.ndarray]) -> float:
    """Return the time of the criteria of one panel."""
    if sweep.theory is None:
        return 0.0
    process, total = sweep.merged(sweep.panels[number], "process"), 0.0
    cells = [len(array) for array in points.values()]
    for name in sweep.theory.criteria:
        if applies(name, process, sweep.theory.process):
            pairs = zip(cells, sweep.theory.points, strict=True)
            total += _CRITERIA[name] * np.prod(
                [min(pair) for pair in pairs] if name in COSTLY else cells
            )
    # A period of more steps has more matrices to multiply.
    return float(total) * max(1.0, float(np.max(points.get("period", np.ones(1)))) / 1000)


def estimate_cost(sweep: Sweep, *, double: bool = False, streams: bool = False) -> Cost:
    """Return the cost of a sweep; with ``streams`` its results are not loaded as a whole.

    Examples
    --------
    >>> from resonax.spec.sweep_checks import parse_sweep
    >>> sweep = parse_sweep({
    ...     "id": "mine",
    ...     "process": {"kind": "sinusoid"},
    ...     "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    ...     "axes": {"momentum": {"values": [0.9, 0.95]}, "period": {"values": [20, 30]}},
    ... })
    >>> print(estimate_cost(sweep))
    4 cells, 10 runs of 10,000 steps each: about a few seconds and 0.5 GB of memory
    """
    points, numbers = sweep.points(), range(len(sweep.panels))
    panels = [_estimate_panel(sweep, n, points, 8 if double else 4) for n in numbers]
    cells = int(np.prod([len(array) for array in points.values()])) * len(panels)
    criteria = len(sweep.theory.criteria) if sweep.theory else 0
    stored = 8 * cells * (8 + 2 * sweep.run.runs + 3 * criteria)
    return Cost(
        cells=cells,
        runs=sweep.run.runs,
        steps=max(resolve(sweep, number).run.steps for number in numbers),
        seconds=sum(panel.seconds for panel in panels),
        engine=max(panel.bytes for panel in panels),
        stored=stored,
        tasks=len(panels) * -(-len([*points.values()][1]) // task_points(sweep)),
        loaded=min(stored, _DRAWN) if streams else stored,
    )


def memory() -> int:
    """Return the memory of this machine in bytes, or 0 if it is not known."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def check_cost(
    sweep: Sweep, *, double: bool = False, streams: bool = False, workers: int = 1
) -> Cost:
    """Return the cost of a sweep; raise `ArgumentError` if it is too high."""
    found = estimate_cost(sweep, double=double, streams=streams)
    if found.steps > MAX_SINGLE and not double:
        raise ArgumentError(
            f"run.steps must be at most {MAX_SINGLE:,} in 32 bits, got {found.steps:,}: "
            "add `double`"
        )
    available = min(memory() or MAX_BYTES, MAX_BYTES)
    if found.bytes > available:
        raise ArgumentError(
            f"{found}, and there are {available / GB:.2g} GB: use a smaller chunk or model, or "
            "fewer runs, points or samples"
        )
    if found.seconds > MAX_SECONDS * workers:
        raise ArgumentError(
            f"{found}, and {describe_time(MAX_SECONDS)} of a worker are the most: use fewer "
            "points, runs or steps"
        )
    return found
