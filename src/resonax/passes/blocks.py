"""Runs that are followed in 64 bits over one pass, a few steps at a time."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.learners import Momentum
from resonax.passes.feed import Feed
from resonax.passes.update import Weights
from resonax.programs import program

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
    if "is_heavy_ball" in numbers:  # the same numbers in a third of the operations
        velocity = numbers["momentum"] * velocity - numbers["alpha"] * gradient
        return weights + numbers["kappa"] * velocity, velocity
    moved = numbers["moved"]
    decayed = moved * (gradient + numbers["weight_decay"] * weights)
    velocity = moved * numbers["momentum"] * velocity - numbers["alpha"] * decayed
    move = numbers["kappa"] * velocity - numbers["beta"] * decayed - numbers["plain"] * gradient
    return weights + move, velocity


def _marked(numbers: Numbers) -> Numbers:
    """Return the numbers with a mark where most terms of an update are zero."""
    absent = (numbers[name].any() for name in ("weight_decay", "beta", "plain"))
    is_heavy_ball = numbers["moved"].all() and not any(absent)
    return numbers | {"is_heavy_ball": True} if is_heavy_ball else numbers


def _growth(sizes: Sequence[np.ndarray]) -> np.ndarray:
    """Return the growth in each step, from the log sizes over that before their block."""
    reached = np.concatenate(sizes)
    before = np.concatenate([np.zeros_like(reached[:1]), reached[:-1]])
    before[::BLOCK] = 0.0
    return reached - before


@functools.partial(program, static=("steps",))
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
    marked = _marked(numbers)
    for first in range(0, plain, CHUNK):
        rows = feed.factors(first, min(first + CHUNK, plain), float)
        blocks = []
        for start in range(0, len(rows), BLOCK):
            run, found = steps(run, rows[start : start + BLOCK], marked, np)
            blocks.append(found)
        sizes, *rest = zip(*blocks, strict=True)
        yield run, _growth(sizes), *(np.stack(parts) for parts in rest)
    for first in range(plain - (plain - feed.steps) % CHUNK, feed.steps, CHUNK):
        rows = feed.factors(max(first, plain), first + CHUNK, float)
        rows = np.concatenate([np.zeros((CHUNK - len(rows), *rows.shape[1:])), rows])
        live = np.arange(first, first + CHUNK, BLOCK) >= plain
        run, found = _compiled(run, rows, live, numbers, steps=steps)
        sizes, *rest = (np.asarray(part)[live] for part in found)
        yield run, np.diff(sizes, axis=1, prepend=0.0).reshape(-1, sizes.shape[-1]), *rest
