"""How a sweep is cut into tasks: along its panels, and along the second axis of each."""

from __future__ import annotations

from resonax.spec.sweeps import MOST, Sweep

__all__ = ["described_chunk", "task_points"]

_MODERATE = 200_000  # runs of cells in a task, if no chunk is given: some MB of results


def task_points(sweep: Sweep) -> int:
    """Return how many points of the second axis a task has.

    Those that ``chunk`` says; else all, or as many as make a task of a moderate size. Where theory
    is asked for a panel of a moderate size is one task, also if ``chunk`` says less.

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
    if sweep.theory is not None and first * second * sweep.run.runs <= _MODERATE:
        return second
    moderate = max(_MODERATE // (first * sweep.run.runs), 1)
    return min(sweep.chunk or moderate, second)


def described_chunk(sweep: Sweep) -> int:
    """Return the chunk that a specification names: the most that there can be, if nothing is cut.

    So it stays what it was before sweeps were cut by themselves.
    """
    points = task_points(sweep)
    is_whole = points == len([*sweep.points().values()][1])
    return sweep.chunk or (MOST["points"] if is_whole else points)
