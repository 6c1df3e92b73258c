"""Columns of a grid in as many parts as there are cores, each simulated by a thread of its own.

A kernel of XLA takes one step of all cells, some microseconds, and its threads meet at the end of
each. Parts of a grid have nothing to do with each other until the end: two threads that simulate a
half each need a little more than half of the time. A column has the same bits in any part.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import numpy as np

from resonax.core.threads import count_threads

__all__ = [
    "Stopped",
    "current_device",
    "cut_columns",
    "fill_cells",
    "fill_up",
    "jax_threads",
    "map_parts",
    "map_side_by_side",
]

_LANES = 64  # the number of paths is filled up to a multiple of this
_CELLS = 10  # the number of cells of a few paths is filled up to a multiple of this
_MORE = 1.25  # times as many paths as without parts, at most, when each of them is filled up
P = TypeVar("P")
T = TypeVar("T")
R = TypeVar("R")


class Stopped(Exception):  # noqa: N818
    """Ends a part when the caller was interrupted or another part failed; it is never seen."""


def current_device() -> Any:
    """Return the device on which jax computes now."""
    chosen = jax.config.jax_default_device  # pyrefly: ignore[missing-attribute]
    return chosen if isinstance(chosen, jax.Device) else jax.local_devices(backend=chosen)[0]


def fill_up(paths: int) -> int:
    """Return to how many paths some are filled up.

    Vectorised code rounds the last few numbers of an array, which do not fill a vector, another
    way: copies of the last path fill it up, so that no result depends on their number.
    """
    return -(-paths // _LANES) * _LANES


def fill_cells(cells: int, paths: int) -> int:
    """Return to how many cells those of each path are filled up, for so many paths.

    A loop over few paths takes longer to compile than to run: one serves many grids so.

    Examples
    --------
    >>> fill_cells(4, paths=64), fill_cells(1, paths=64), fill_cells(4, paths=128)
    (10, 1, 4)
    """
    return -(-cells // _CELLS) * _CELLS if cells > 1 and paths <= _LANES else cells


def jax_threads() -> int:
    """Return how many threads jax has: on a CPU ``PJRT_NPROC``, or one for each core."""
    if current_device().platform != "cpu":
        return 1
    return count_threads("PJRT_NPROC")


def cut_columns(columns: np.ndarray, runs: int, most: int) -> tuple[list[np.ndarray], int]:
    """Return columns in at most so many parts, and the number of paths that each is filled up to.

    All parts have the same number of paths, so that they run the same compiled program. Few columns
    stay together, as most of each part would be copies.

    Examples
    --------
    >>> parts, paths = cut_columns(np.arange(100), runs=10, most=2)
    >>> [len(part) for part in parts], paths
    ([50, 50], 512)
    >>> cut_columns(np.arange(3), runs=10, most=2)
    ([array([0, 1, 2])], 64)
    """
    whole = fill_up(len(columns) * runs)
    for count in range(min(most, len(columns)), 1, -1):
        longest = -(-len(columns) // count)
        paths = fill_up(longest * runs)
        if count * paths <= _MORE * whole:
            return np.array_split(columns, count), paths
    return [columns], whole


def map_parts(function: Callable[[P, Callable[[], None]], None], parts: Sequence[P]) -> None:
    """Call a function with each part, and with what it is to call now and then, in threads.

    Whatever is raised here or in a part ends the others where they next call what they were given.
    """
    if len(parts) == 1:
        return function(parts[0], lambda: None)
    stopping, device = threading.Event(), current_device()

    def go_on() -> None:
        if stopping.is_set():
            raise Stopped

    def run(part: P) -> None:
        try:
            with jax.default_device(device):  # each thread has its own
                function(part, go_on)
        except BaseException:
            stopping.set()
            raise

    with ThreadPoolExecutor(len(parts)) as threads:
        try:  # an interrupt may come as soon as the first part runs
            running = [threads.submit(run, part) for part in parts]
            errors = [one.exception() for one in running]
        finally:
            stopping.set()
    errors.sort(key=lambda error: isinstance(error, Stopped))  # the cause first
    if error := next(filter(None, errors), None):
        raise error
    return None


def map_side_by_side(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """Return what a function gives for each item, in threads if it computes on a GPU.

    One loop is compiled, or loaded, on a core while another is, or runs on the GPU. On a CPU they
    would take each other's cores: there it is one after the other.

    Examples
    --------
    >>> map_side_by_side(abs, [-1, 2])
    [1, 2]
    """
    device = current_device()
    if device.platform == "cpu" or len(items) < 2:
        return [function(item) for item in items]

    def compute(item: T) -> R:
        with jax.default_device(device):  # each thread has its own
            return function(item)

    with ThreadPoolExecutor(len(items)) as threads:
        return list(threads.map(compute, items))
