"""What a sweep will take, before anything of it is made: time and memory, to a factor of about 3.

The memory follows from what the compiled loops hold: `tests/test_cost.py` compares it with what the
compiler says. The time follows from the number of products, at the speed of two cores.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.spec.sweep_checks import Cell, count_weights, kind_of, resolve, rows_drawn
from resonax.spec.sweeps import COSTLY, Sweep
from resonax.sweeps.panels import applies
from resonax.sweeps.tasks import task_points

__all__ = [
    "LARGE",
    "LIBRARIES",
    "Cost",
    "check_cost",
    "criterion_seconds",
    "estimate_cost",
    "memory",
    "task_seconds",
]

GB = 10**9
ASK_SECONDS, ASK_BYTES = 600.0, 4 * GB  # above these a person is asked
MOST_SECONDS, MOST_BYTES = 30 * 86_400.0, 256 * GB  # above these a sweep is refused
LARGE = f"{ASK_SECONDS / 60:g} minutes or {ASK_BYTES / GB:g} GB"
MOST_SINGLE = 1_000_000  # steps in 32 bits: beyond, the phase of a short period is rounded away

LIBRARIES = GB // 2  # what the libraries take before anything is computed
_DRAWN = GB // 2  # of the results, the part that a figure is drawn from
_BLOCK, _LANES = 20, 64  # steps drawn at once, and streams are a multiple of this
_COMPONENTS = 64  # of the law of inputs in random order, at most
_TEST_ROWS = 10  # of a network, in each step of the window
_COMPILE, _COMPILE_ROW = 10.0, 0.1  # seconds for each program, and for each feature that it lists
_SPEED = 3e9  # products a second
_NUMBA_SPEED = 6  # times that of networks, whose loop numba compiles where it can
# Seconds that a criterion takes for a cell of 2 weights; those of the last two are computed on the
# points of the table theory.
_CRITERIA = {"flow": 1e-4, "map": 2e-4, "mean_square": 2e-3, "lyapunov": 0.01}


class Cost(NamedTuple):
    """How large a sweep is."""

    cells: int  # of all panels
    runs: int
    steps: int  # of the longest run
    seconds: float
    engine: int  # bytes of the largest task while it runs
    stored: int  # bytes of the results
    tasks: int  # that may be done side by side
    loaded: int  # bytes of the results that are in memory at once

    @property
    def bytes(self) -> int:
        """Memory in all: the libraries, the largest task, and what is loaded twice, to be drawn."""
        return LIBRARIES + self.engine + 2 * self.loaded

    @property
    def is_large(self) -> bool:
        """Whether it is worth a question."""
        return self.seconds > ASK_SECONDS or self.bytes > ASK_BYTES

    @property
    def size(self) -> str:
        """Cells, runs and steps in words."""
        return f"{self.cells:,} cells, {self.runs:,} runs of {self.steps:,} steps each"

    def __str__(self) -> str:
        return f"{self.size}: about {_time(self.seconds)} and {self.bytes / GB:.2g} GB of memory"


def _time(seconds: float) -> str:
    """Return a time in words, to one digit or two.

    Examples
    --------
    >>> [_time(seconds) for seconds in (3.2, 250, 9000, 1e6)]
    ['a few seconds', '4 minutes', '2 hours', '12 days']
    """
    if seconds < 30:
        return "a few seconds"
    units = (("minutes", 60, 90), ("hours", 3600, 36), ("days", 86_400, 1e300))
    unit, length, _ = next(unit for unit in units if seconds < unit[1] * unit[2])
    count = max(round(seconds / length), 1)
    return f"{count:.3g} {unit if count > 1 else unit[:-1]}"


class _Work(NamedTuple):
    """What one panel takes."""

    bytes: float
    products: float
    compile: float = _COMPILE  # seconds


def _linear(
    cell: Cell, streams: int, inner: int, rows: int, dim: int, varies: bool, mixed: bool
) -> _Work:
    """Return the work of a linear model; ``inner`` are the cells that share a stream."""
    weights = count_weights(cell.model, dim)
    gram = not varies and weights <= 2 * rows
    entries = weights * (weights + 3) // 2 if gram else rows * (weights + 1)
    laws = inner if varies else 1
    numbers = rows * (dim + 2) + 2 * dim + (_COMPONENTS * rows * laws if mixed else 0)
    slots = 3 if kind_of("optimizer", cell.optimizer).is_linear else 5  # error, memory, solution
    state = inner * (slots * weights + 3)
    block = _BLOCK * (numbers + laws * (entries + (2 * dim if varies else 0)))
    drawing = 20 * numbers + laws * rows * weights**2  # one number takes about 20 products
    stepping = inner * ((weights**2 if gram else 2 * rows * weights) + 4 * slots * weights)
    return _Work(
        streams * (1.7 * state + block),
        streams * (drawing + stepping),
        _COMPILE + _COMPILE_ROW * rows * weights,
    )


def _network(cell: Cell, streams: int, inner: int, rows: int, dim: int, varies: bool) -> _Work:
    """Return the work of a network."""
    weights = count_weights(cell.model, dim)
    hidden = sum(cell.model.get("hidden", (20, 20))) + 1
    laws = inner if varies else 1
    slots = 8 if kind_of("optimizer", cell.optimizer).is_linear else 10
    state = inner * (slots * weights + 4 * rows * hidden)
    drawn = 6 * _BLOCK * laws * (rows + _TEST_ROWS) * (dim + 2)
    law = 2 * laws * (_BLOCK + _COMPONENTS // 2) * dim**2
    products = inner * (6 * rows + slots) * weights + 20 * rows * (dim + 2)
    if importlib.util.find_spec("numba") is not None:
        products /= _NUMBA_SPEED
    return _Work(streams * (state + drawn + law), streams * products)


def _panel(sweep: Sweep, number: int, points: Mapping[str, np.ndarray], item: int) -> _Work:
    """Return the bytes of a panel's largest task, and the products of all of them."""
    cell = resolve(sweep, number)
    first, _second = points
    panel = sweep.panels[number]
    lengths = []
    for name, array in points.items():
        low, high = panel.limits.get(name, (-np.inf, np.inf))
        lengths.append(int(((array >= low) & (array <= high)).sum()))
    chunk = min(task_points(sweep), lengths[1])
    inner, columns = (lengths[0], chunk) if sweep.share else (1, lengths[0] * chunk)
    streams = -(-columns * cell.run.runs // _LANES) * _LANES
    own = (*kind_of("optimizer", cell.optimizer).varying, "start", "batch", "dim")
    varies = sweep.share and first not in own
    mixed = bool((points.get("period", np.ones(1)) == 0).any())
    rows, dim = rows_drawn(sweep, cell, points), cell.dim(points)
    work = (
        _network(cell, streams, inner, rows, dim, varies)
        if cell.is_network
        else _linear(cell, streams, inner, rows, dim, varies, mixed)
    )
    tasks = lengths[1] / chunk
    return _Work(item * work.bytes, tasks * work.products * cell.run.steps, work.compile)


def _criterion_seconds(
    sweep: Sweep, number: int, points: Mapping[str, np.ndarray], name: str
) -> float:
    """Return the time that a criterion of one panel takes."""
    assert sweep.theory is not None
    process = sweep.merged(sweep.panels[number], "process")
    if not applies(name, process, sweep.theory.process):
        return 0.0
    cells = [len(array) for array in points.values()]
    if name in COSTLY:
        cells = [min(pair) for pair in zip(cells, sweep.theory.points, strict=True)]
    # A period of more steps has more matrices to multiply.
    slow = max(1.0, float(np.max(points.get("period", np.ones(1)))) / 1000)
    return slow * _CRITERIA[name] * float(np.prod(cells))


def criterion_seconds(sweep: Sweep, name: str, tasks: int) -> tuple[float, ...]:
    """Return about how long a criterion takes in each of the tasks of a sweep."""
    points, each = sweep.points(), tasks // len(sweep.panels)
    panels = range(len(sweep.panels))
    seconds = [_criterion_seconds(sweep, number, points, name) / each for number in panels]
    return tuple(np.repeat(seconds, each).tolist())


def _theory_seconds(sweep: Sweep, number: int, points: Mapping[str, np.ndarray]) -> float:
    """Return the time that the criteria of one panel take."""
    names = sweep.theory.criteria if sweep.theory else ()
    return sum(_criterion_seconds(sweep, number, points, name) for name in names)


def task_seconds(sweep: Sweep, tasks: int) -> tuple[float, ...]:
    """Return about how long each of the tasks of a sweep takes, which are parts of its panels."""
    points, seconds = sweep.points(), []
    each = tasks // len(sweep.panels)
    for number in range(len(sweep.panels)):
        simulation = _panel(sweep, number, points, 4).products / _SPEED
        seconds += [(simulation + _theory_seconds(sweep, number, points)) / each] * each
    return tuple(seconds)


def estimate_cost(sweep: Sweep, *, double: bool = False, streams: bool = False) -> Cost:
    """Return what a sweep will take; ``streams`` if its results are not to be returned as a whole.

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
    points = sweep.points()
    panels = [
        _panel(sweep, number, points, 8 if double else 4) for number in range(len(sweep.panels))
    ]
    cells = int(np.prod([len(array) for array in points.values()])) * len(panels)
    criteria = len(sweep.theory.criteria) if sweep.theory else 0
    stored = 8 * cells * (8 + 2 * sweep.run.runs + 3 * criteria)
    kinds = 1
    if "batch" in points and not (sweep.share and next(iter(points)) == "batch"):
        kinds = len(points["batch"])
    return Cost(
        cells=cells,
        runs=sweep.run.runs,
        steps=max(resolve(sweep, number).run.steps for number in range(len(panels))),
        seconds=sum(panel.products / _SPEED + kinds * panel.compile for panel in panels)
        + sum(_theory_seconds(sweep, number, points) for number in range(len(panels))),
        engine=int(max(panel.bytes for panel in panels)),
        stored=stored,
        tasks=len(panels) * -(-len([*points.values()][1]) // task_points(sweep)),
        loaded=min(stored, _DRAWN) if streams else stored,
    )


def memory() -> int:
    """Return the memory of this machine in bytes, or 0 where it cannot be asked."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0


def check_cost(
    sweep: Sweep, *, double: bool = False, streams: bool = False, workers: int = 1
) -> Cost:
    """Return what a sweep will take; raise `ArgumentError` where that is out of reach."""
    found = estimate_cost(sweep, double=double, streams=streams)
    if found.steps > MOST_SINGLE and not double:
        raise ArgumentError(
            f"run.steps must be at most {MOST_SINGLE:,} in 32 bits, got {found.steps:,}: "
            "add `double`"
        )
    room = min(memory() or MOST_BYTES, MOST_BYTES)
    if found.bytes > room:
        raise ArgumentError(
            f"{found}, and there are {room / GB:.2g} GB: use a smaller chunk or model, or fewer "
            "runs, points or samples"
        )
    if found.seconds > MOST_SECONDS * workers:
        raise ArgumentError(
            f"{found}, and {_time(MOST_SECONDS)} of a worker are the most: use fewer points, runs "
            "or steps"
        )
    return found
