"""Runs that are followed in 64 bits over one pass, a few steps at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.learners import Momentum
from resonax.rows.feed import Feed
from resonax.rows.update import Weights

__all__ = ["Numbers", "follow_blocks", "numbers_of", "update"]

BLOCK = 4  # steps between two rescalings
CHUNK = 1024  # steps handed to the compiled loop at once
Numbers = dict[str, Any]
# run, rows, numbers, numpy or jax.numpy -> run, (log sizes after each step, what else was found)
Steps = Callable[[Any, Any, Numbers, Any], tuple[Any, tuple[Any, ...]]]


def numbers_of(optimizer: Momentum, weights: Weights) -> Numbers:
    """Return the numbers of the canonical recursion of `resonax.learners.optimizers`."""
    moved, plain, curvature = weights.columns(float)
    numbers = {
        name: np.asarray(getattr(optimizer, name), dtype=float)
        for name in ("momentum", "alpha", "kappa", "beta", "weight_decay")
    }
    gain = numbers["kappa"] * numbers["alpha"] + numbers["beta"]
    return numbers | {
        "moved": moved,
        "plain": plain,
        "curvature": curvature + moved * numbers["weight_decay"],
        "gain": moved * gain + plain,
    }


def update(weights: Any, velocity: Any, gradient: Any, numbers: Numbers) -> tuple[Any, Any]:
    """Return weights and velocity after one update."""
    moved = numbers["moved"]
    decayed = moved * (gradient + numbers["weight_decay"] * weights)
    velocity = moved * numbers["momentum"] * velocity - numbers["alpha"] * decayed
    move = numbers["kappa"] * velocity - numbers["beta"] * decayed - numbers["plain"] * gradient
    return weights + move, velocity


@functools.partial(jax.jit, static_argnames=("steps",))
def _compiled(
    run: Any, rows: Array, live: Array, numbers: Numbers, *, steps: Steps
) -> tuple[Any, Any]:
    """Make the updates of a chunk; a block that is not live leaves the run as it is."""

    def block(now: Any, given: tuple[Array, Array]) -> tuple[Any, Any]:
        part, is_live = given
        then, found = steps(now, part, numbers, jnp)
        return jax.tree.map(functools.partial(jnp.where, is_live), then, now), found

    return jax.lax.scan(block, run, (rows.reshape(-1, BLOCK, *rows.shape[1:]), live))


def follow_blocks(
    steps: Steps, run: Any, feed: Feed, numbers: Numbers, plain_steps: int = 0
) -> Iterator[tuple[Any, ...]]:
    """Follow runs over one pass: yield them, their growth in each step, and what else was found.

    Up to ``plain_steps`` compiling would take longer than a plain loop; beyond, only the first
    steps, which do not fill a block, are made by one. Blocks of zeros before the others fill the
    first chunk.
    """
    plain = feed.steps if feed.steps <= plain_steps else feed.steps % BLOCK
    for first in range(0, plain, CHUNK):
        rows = feed.factors(first, min(first + CHUNK, plain), float)
        blocks = []
        for start in range(0, len(rows), BLOCK):
            run, (sizes, *rest) = steps(run, rows[start : start + BLOCK], numbers, np)
            blocks.append((np.diff(sizes, axis=0, prepend=0.0), *(part[None] for part in rest)))
        yield run, *(np.concatenate(parts) for parts in zip(*blocks, strict=True))
    for first in range(plain - (plain - feed.steps) % CHUNK, feed.steps, CHUNK):
        rows = feed.factors(max(first, plain), first + CHUNK, float)
        rows = np.concatenate([np.zeros((CHUNK - len(rows), *rows.shape[1:])), rows])
        live = np.arange(first, first + CHUNK, BLOCK) >= plain
        run, found = _compiled(run, rows, live, numbers, steps=steps)
        sizes, *rest = (np.asarray(part)[live] for part in found)
        yield run, np.diff(sizes, axis=1, prepend=0.0).reshape(-1, sizes.shape[-1]), *rest
