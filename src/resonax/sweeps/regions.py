"""Regions of tasks that follow each other along one dimension: joined, and arrays cut again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np

__all__ = ["is_contiguous", "join_regions", "split_arrays"]

Region = Mapping[str, slice]


def _varying(regions: Sequence[Region]) -> list[str]:
    """Return the dimensions in which regions differ."""
    return [dim for dim in regions[0] if any(one[dim] != regions[0][dim] for one in regions)]


def is_contiguous(regions: Sequence[Region]) -> bool:
    """Return whether regions differ in one dimension alone, and follow each other there.

    Examples
    --------
    >>> one, two = {"period": slice(0, 3)}, {"period": slice(3, 5)}
    >>> is_contiguous([one, two]), is_contiguous([two, one])
    (True, False)
    """
    dims = _varying(regions)
    if len(dims) != 1:
        return len(regions) == 1
    slices = [one[dims[0]] for one in regions]
    return all(one.stop == after.start for one, after in pairwise(slices))


def join_regions(regions: Sequence[Region]) -> Region:
    """Return the region that contiguous ones make up.

    Examples
    --------
    >>> join_regions([{"period": slice(0, 3)}, {"period": slice(3, 5)}])
    {'period': slice(0, 5, None)}
    """
    return dict(regions[0]) | {
        dim: slice(regions[0][dim].start, regions[-1][dim].stop) for dim in _varying(regions)
    }


def split_arrays(
    found: Mapping[str, np.ndarray], dims: Mapping[str, Sequence[str]], regions: Sequence[Region]
) -> list[dict[str, np.ndarray]]:
    """Return the arrays of each of some contiguous regions from those of all of them.

    Examples
    --------
    >>> parts = [{"period": slice(2, 4)}, {"period": slice(4, 5)}]
    >>> found = split_arrays({"rate": np.arange(3)}, {"rate": ["period"]}, parts)
    >>> [one["rate"].tolist() for one in found]
    [[0, 1], [2]]
    """
    if len(regions) == 1:
        return [dict(found)]
    (dim,) = _varying(regions)
    ends = np.cumsum([one[dim].stop - one[dim].start for one in regions])[:-1]
    pieces = {
        name: np.split(array, ends, axis=list(dims[name]).index(dim))
        for name, array in found.items()
    }
    return [{name: parts[n] for name, parts in pieces.items()} for n in range(len(regions))]
