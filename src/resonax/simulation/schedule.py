"""Schedule of a run: responses are averaged over a window before its middle and one at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import jax
import numpy as np
from jax import Array

from resonax.simulation.batches import BLOCK

__all__ = ["Advance", "Windowed", "run_windows", "schedule"]

_MAX_STEPS = 1000  # between two reports of progress
Advance = Callable[[float], None]  # called with the share of the work just finished


class Segment(NamedTuple):
    """Consecutive steps between two reports of progress."""

    start: int
    blocks: int
    is_recorded: bool  # whether it lies in a window, in which responses are summed
    is_window_start: bool
    is_window_end: bool


def schedule(steps: int, window: int) -> Iterator[Segment]:
    """Yield the segments of a run.

    Examples
    --------
    >>> [tuple(segment) for segment in schedule(80, 20)]
    [(0, 1, False, False, False), (20, 1, True, True, True),
     (40, 1, False, False, False), (60, 1, True, True, True)]
    """
    for end in (steps // 2, steps):
        begin, window_start = end - steps // 2, end - window
        parts = ((begin, window_start, False), (window_start, end, True))
        for low, high, is_recorded in parts:
            for start in range(low, high, _MAX_STEPS):
                stop = min(start + _MAX_STEPS, high)
                blocks = (stop - start) // BLOCK
                is_window_start = is_recorded and start == low
                is_window_end = is_recorded and stop == end
                yield Segment(start, blocks, is_recorded, is_window_start, is_window_end)


class Windowed(Protocol):
    """A state that sums responses."""

    @property
    def total(self) -> Array | np.ndarray:
        """Sum of the responses in a window."""
        ...

    def reset(self) -> Self:
        """Return the state with a sum of 0, at the start of a window."""
        ...


S = TypeVar("S", bound=Windowed)


def run_windows(
    state: S,
    step_blocks: Callable[[S, int, int, bool], S],
    measure: Callable[[S], Any],
    steps: int,
    window: int,
    advance: Advance,
) -> list[Any]:
    """Advance a state over a run; return the results of ``measure`` at the end of each window.

    ``step_blocks(state, first, blocks, is_recorded)`` makes some blocks of steps.
    """
    measured = []
    for segment in schedule(steps, window):
        if segment.is_window_start:
            state = state.reset()
        state = step_blocks(state, segment.start, segment.blocks, segment.is_recorded)
        jax.block_until_ready(state.total)
        advance(segment.blocks * BLOCK / steps)
        if segment.is_window_end:
            measured.append(measure(state))
    return measured
