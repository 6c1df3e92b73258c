"""Regions of tasks that make up a larger one: joined, and the arrays of that cut again."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

__all__ = ["is_box", "join_regions", "split_arrays"]

Region = Mapping[str, slice]


def _distinct(regions: Sequence[Region], dim: str) -> list[tuple[int, int]]:
    """Return the ends of the slices along a dimension, in order, each once."""
    return sorted({(one[dim].start, one[dim].stop) for one in regions})


def _step(ends: Sequence[tuple[int, int]]) -> int:
    """Return the step of the slice that some make up: 1, or more between single places; or 0."""
    if all(one[1] == after[0] for one, after in pairwise(ends)):
        return 1
    steps = {after[0] - one[0] for one, after in pairwise(ends)}
    return steps.pop() if len(steps) == 1 and all(stop - start == 1 for start, stop in ends) else 0


def is_box(regions: Sequence[Region]) -> bool:
    """Return whether regions are all pieces of one that slices can name.

    Examples
    --------
    >>> one, two = {"period": slice(0, 3)}, {"period": slice(3, 5)}
    >>> is_box([one, two]), is_box([one, {"period": slice(4, 5)}])
    (True, False)
    >>> is_box([{"panel": slice(n, n + 1)} for n in (0, 2, 4)])
    True
    """
    ends = [_distinct(regions, dim) for dim in regions[0]]
    return all(map(_step, ends)) and math.prod(map(len, ends)) == len(regions)


def join_regions(regions: Sequence[Region]) -> Region:
    """Return the region that others make up.

    Examples
    --------
    >>> join_regions([{"period": slice(0, 3)}, {"period": slice(3, 5)}])
    {'period': slice(0, 5, 1)}
    """
    if len(regions) == 1:
        return regions[0]
    found = {}
    for dim in regions[0]:
        ends = _distinct(regions, dim)
        found[dim] = slice(ends[0][0], ends[-1][1], _step(ends))
    return found


def split_arrays(
    found: Mapping[str, np.ndarray], dims: Mapping[str, Sequence[str]], regions: Sequence[Region]
) -> list[dict[str, np.ndarray]]:
    """Return the arrays of each of some regions from those of the one that they make up.

    Examples
    --------
    >>> parts = [{"period": slice(2, 4)}, {"period": slice(4, 5)}]
    >>> found = split_arrays({"rate": np.arange(3)}, {"rate": ["period"]}, parts)
    >>> [one["rate"].tolist() for one in found]
    [[0, 1], [2]]
    """
    if len(regions) == 1:
        return [dict(found)]
    whole = join_regions(regions)

    def place(region: Region, dim: str) -> slice:
        if dim not in region:
            return slice(None)
        first = (region[dim].start - whole[dim].start) // whole[dim].step
        return slice(first, first + region[dim].stop - region[dim].start)

    return [
        {name: array[tuple(place(one, dim) for dim in dims[name])] for name, array in found.items()}
        for one in regions
    ]
