"""What one pass over the rows found: growth in segments, and the largest rise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["SEGMENTS", "Pass", "Tally", "log_sum_exp"]

SEGMENTS = 512  # of a pass, for which the growth is kept


@dataclass(frozen=True)
class Pass:
    """What one pass found in each lane: a cell of a grid, or a sequence of rows."""

    growth: np.ndarray  # (segments, lanes): logarithmic growth
    rise: np.ndarray  # (lanes,): the largest between any two blocks
    lengths: np.ndarray  # (segments,) in steps
    squares: np.ndarray | None = None  # (blocks, lanes): log of the mean squared residual
    sizes: np.ndarray | None = None  # (blocks, lanes): log of the norm of the weights

    def first(self, count: int) -> Pass:
        """Return the first few lanes alone."""
        squares, sizes = (
            None if part is None else part[:, :count] for part in (self.squares, self.sizes)
        )
        return Pass(self.growth[:, :count], self.rise[:count], self.lengths, squares, sizes)

    @property
    def total(self) -> np.ndarray:
        """Logarithm of the growth of the whole pass."""
        return self.growth.sum(axis=0)


class Tally:
    """The growth of lanes along a pass, added up step by step."""

    def __init__(self, segments: int, lanes: int) -> None:
        self.growth = np.zeros((segments, lanes))
        self.rise, self._reached, self._lowest = (np.zeros(lanes) for _ in range(3))

    def add(self, segment: np.ndarray, logs: np.ndarray) -> None:
        """Add logarithmic growth, (steps, lanes), each step to its segment."""
        np.add.at(self.growth, segment, logs)
        path = self._reached + np.cumsum(logs, axis=0)
        low = np.minimum(np.minimum.accumulate(path, axis=0), self._lowest)
        self.rise = np.maximum(self.rise, np.max(path - low, axis=0))
        self._reached, self._lowest = path[-1], low[-1]


def log_sum_exp(logs: np.ndarray) -> np.ndarray:
    """Return the logarithm of a sum over the last axis, from the logarithms of its terms.

    Examples
    --------
    >>> print(f"{log_sum_exp(np.array([1000.0, 1000.0])):.6f}")  # 1000 + log 2
    1000.693147
    """
    largest = logs.max(axis=-1)
    return largest + np.log(np.exp(logs - largest[..., None]).sum(axis=-1))
