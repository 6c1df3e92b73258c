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
    drawn, shares = -1, ()
    for number, batch in enumerate(batches, step):
        if len(made) < size:
            made.append(batch)
            has_changed = True
        elif seed is None:
            break
        else:
            block, inside = divmod(number, _BLOCK)
            if block != drawn:
                drawn, shares = block, _uniform(seed, block)
            place = int(shares[inside] * (number + 1))  # uniform from 0 to the number
            if place < size:
                made[place], has_changed = batch, True
    return tuple(made) if has_changed else kept


@lru_cache(maxsize=2)
def _uniform(seed: int, block: int) -> tuple[float, ...]:
    """Return random numbers of a block of steps: one generator for each step costs too much."""
    return tuple(np.random.default_rng([seed, 1, block]).random(_BLOCK).tolist())
