"""When a run is measured: over a window before its middle, and one before its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["BLOCK", "Segment", "schedule"]

BLOCK = 20  # steps drawn at once
_LONGEST = 1000  # steps between two reports of progress


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
