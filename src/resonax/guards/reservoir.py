"""A reservoir: a uniform sample of all batches so far, by which a run is judged."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

__all__ = ["sampled"]

_BLOCK = 64  # steps whose random numbers are drawn together


def sampled(
    kept: tuple[Any, ...], size: int, batches: Sequence[Any], step: int, seed: int | None
) -> tuple[Any, ...]:
    """Return a reservoir with new batches, the first of which is that of a step.

    Algorithm R (Vitter, 1985): each batch so far is kept with the same probability. Without a seed
    the reservoir is only filled.

    Examples
    --------
    >>> sampled((), 3, [0, 1], step=0, seed=0)
    (0, 1)
    >>> late = [max(sampled((), 3, range(100), 0, seed)) >= 50 for seed in range(1000)]
    >>> 0.85 < sum(late) / 1000 < 0.9  # 1 - 1/8
    True
    """
    made, has_changed = list(kept), False
    for number, batch in enumerate(batches, step):
        if len(made) < size:
            made.append(batch)
            has_changed = True
        elif seed is None:
            break
        elif (place := _place(seed, number)) < size:
            made[place] = batch
            has_changed = True
    return tuple(made) if has_changed else kept


def _place(seed: int, step: int) -> int:
    """Return a random whole number from 0 to a step, of that step alone."""
    block, inside = divmod(step, _BLOCK)
    return int(_uniform(seed, block)[inside] * (step + 1))


@lru_cache(maxsize=2)
def _uniform(seed: int, block: int) -> tuple[float, ...]:
    """Return random numbers of a block of steps: one generator for each step costs too much."""
    return tuple(np.random.default_rng([seed, 1, block]).random(_BLOCK).tolist())
