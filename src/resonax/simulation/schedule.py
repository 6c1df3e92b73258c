"""When a run is measured: over a window before its middle, and one before its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import jax
import numpy as np
from jax import Array

from resonax.simulation.batches import BLOCK

__all__ = ["Advance", "Windowed", "run_windows", "schedule"]

_LONGEST = 1000  # steps between two reports of progress
Advance = Callable[[float], None]  # told the share of the work just finished


class Segment(NamedTuple):
    """Some steps that are taken without a report."""

    start: int
    blocks: int
    record: bool  # whether responses are summed up
    opens: bool  # whether a window begins here
    closes: bool  # whether a window ends here


def schedule(steps: int, window: int) -> Iterator[Segment]:
    """Yield the segments of a run.

    Examples
    --------
    >>> [tuple(segment) for segment in schedule(80, 20)]
    [(0, 1, False, False, False), (20, 1, True, True, True),
     (40, 1, False, False, False), (60, 1, True, True, True)]
    """
    for end in (steps // 2, steps):
        begin, opening = end - steps // 2, end - window
        for low, high, record in ((begin, opening, False), (opening, end, True)):
            for start in range(low, high, _LONGEST):
                stop = min(start + _LONGEST, high)
                blocks = (stop - start) // BLOCK
                yield Segment(
                    start, blocks, record, record and start == low, record and stop == end
                )


class Windowed(Protocol):
    """A state that sums responses up."""

    @property
    def total(self) -> Array | np.ndarray:
        """Sum of the responses in a window."""
        ...

    def reset(self) -> Self:
        """Return the same state at the beginning of a window."""
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
    """Advance a state over a run; return what is measured at the end of each window.

    ``step_blocks(state, first, blocks, record)`` makes some blocks of steps.
    """
    measured = []
    for part in schedule(steps, window):
        state = state.reset() if part.opens else state
        state = step_blocks(state, part.start, part.blocks, part.record)
        jax.block_until_ready(state.total)
        advance(part.blocks * BLOCK / steps)
        if part.closes:
            measured.append(measure(state))
    return measured
