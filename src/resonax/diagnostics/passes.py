r"""One compiled pass over the rows: many optimizers at once, on several streams at once.

With the decayed gradient :math:`h_k = F_k^\top F_k\,u_k + \lambda u_k` of a difference :math:`u`
of two runs, the canonical recursion of `resonax.learners.optimizers` reads, without its velocity,

.. math:: u_{k+1} = u_k + \mu\,(u_k - u_{k-1}) - (\kappa\alpha+\beta)\,h_k + \mu\beta\,h_{k-1} .

The pair :math:`(u_k, u_{k-1})` is rescaled every few steps and the logarithm of its size kept, so
that nothing overflows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.diagnostics.feed import Feed
from resonax.learners import Momentum

__all__ = ["Pass", "Weights", "advance_pair", "walk"]

# The weights, those one step before, the residuals and the factor of that step. A lane is a cell
# of a grid or a stream; either there is one stream, or one cell.
State = tuple[Array, Array, Array, Array]

_SEGMENTS = 512  # of a pass, for which the growth is kept
_CHUNKS = (256, 2048)  # steps handed to the compiled loop at once
_LARGEST = 1e15  # growth without rescaling: its energy is still a 32-bit number
_BLOCKS = (8, 2, 1)  # steps between two rescalings


@dataclass(frozen=True)
class Weights:
    """How each weight moves: ``moved`` with the momentum, ``plain`` by a step size of its own."""

    moved: np.ndarray  # (size,) 1 or 0
    plain: np.ndarray  # (size,)
    curvature: np.ndarray  # (size,) of the loss, by which a difference is measured

    @classmethod
    def of(
        cls, curvature: np.ndarray, intercept_lr: float | None = None, *, target: bool = False
    ) -> Weights:
        """Return the weights of a model; the one of a target never moves."""
        size = len(curvature) + target
        moved, plain = np.ones(size, np.float32), np.zeros(size, np.float32)
        if target:
            moved[-1] = 0.0
        if intercept_lr is not None:
            place = size - 1 - target
            moved[place], plain[place] = 0.0, intercept_lr
        return cls(moved, plain, np.append(curvature, np.ones(int(target))).astype(np.float32))


@dataclass(frozen=True)
class Pass:
    """What one pass found in each lane, a cell or a stream."""

    growth: np.ndarray  # (segments, lanes): logarithmic growth
    rise: np.ndarray  # (lanes,): the largest between any two blocks
    lengths: np.ndarray  # (segments,) in steps
    squares: np.ndarray | None = None  # (blocks, lanes): log of the mean squared residual
    sizes: np.ndarray | None = None  # (blocks, lanes): log of the norm of the weights

    @property
    def total(self) -> np.ndarray:
        """Logarithm of the growth of the whole pass."""
        return self.growth.sum(axis=0)


def _residuals(factor: Array, weights: Array) -> Array:
    """Return F u: (rank, size, 1 or lanes) and (size, lanes) give (rank, lanes).

    One row is a sum of products, which vectorises over the lanes; a batch that all lanes share
    is a matrix product.
    """
    if len(factor) == 1:
        return jnp.sum(factor[0] * weights, axis=0)[None]
    if factor.shape[2] == 1:
        return factor[:, :, 0] @ weights
    return jnp.sum(factor * weights, axis=1)


def _pull(factor: Array, residuals: Array) -> Array:
    """Return F^T e, (size, lanes)."""
    if len(factor) == 1:
        return factor[0] * residuals[0]
    if factor.shape[2] == 1:
        return factor[:, :, 0].T @ residuals
    return jnp.sum(factor * residuals[:, None], axis=0)


class Shape(NamedTuple):
    """Which terms an update has, which shapes the compiled code."""

    lookahead: bool
    decays: bool
    alike: bool  # whether all weights move alike

    @classmethod
    def of(cls, optimizer: Momentum, weights: Weights) -> Shape:
        """Return the terms that are not zero."""
        decays = bool(np.any(np.asarray(optimizer.weight_decay) > 0))
        alike = bool(weights.moved.all() and not weights.plain.any())
        return cls(optimizer.lookahead, decays, alike)


@functools.partial(jax.jit, static_argnames=("shape", "block", "record"))
def _advance(
    state: State,
    factors: Array,
    gains: tuple[Array, ...],
    moved: Array,
    plain: Array,
    curvature: Array,
    *,
    shape: Shape,
    block: int,
    record: bool,
) -> tuple[State, tuple[Array, ...]]:
    momentum, gradient_gain, last_gain, decay = gains
    # Products of a column and a row, not their table: that would be read at each step.
    share = 1.0 if shape.alike else moved

    def energy(here: Array, before: Array) -> Array:
        if record:  # a learner, with the constant beneath its weights
            return jnp.sum(here * here + before * before, axis=0)
        # Of the swing: it stays, while the weights alone pass through 0 again and again.
        speed = here - before
        gain = gradient_gain if shape.alike else moved * gradient_gain + plain
        return jnp.sum(curvature * here * here + speed * speed / gain, axis=0)

    def steps(state: State, rows: Array) -> tuple[State, tuple[Array, ...]]:
        here, before, residuals, last = state
        squares = jnp.zeros_like(here[0])
        for factor in rows:
            new = _residuals(factor, here)
            if record:
                squares = squares + jnp.sum(new * new, axis=0)
            ahead = here + (share * momentum) * (here - before)
            # The gain goes with the residuals, of which there are fewer than weights.
            ahead = ahead - share * _pull(factor, gradient_gain * new)
            if not shape.alike:
                ahead = ahead - plain * _pull(factor, new)
            if shape.decays:
                ahead = ahead - (share * gradient_gain * decay) * here
            if shape.lookahead:
                pull = _pull(last, residuals)
                pull = pull + decay * before if shape.decays else pull
                ahead = ahead + (share * last_gain) * pull
            here, before, residuals, last = ahead, here, new, factor
        size = jnp.sqrt(energy(here, before))
        size = jnp.maximum(size, jnp.finfo(here.dtype).tiny)
        found = (jnp.log(size),)
        if record:
            trained = jnp.sum(jnp.where((moved > 0) | (plain > 0), here * here, 0.0), axis=0)
            found += (jnp.log(squares / (2 * block)), 0.5 * jnp.log(trained))
        return (here / size, before / size, residuals / size, last), found

    shaped = factors.reshape(-1, block, *factors.shape[1:])
    return jax.lax.scan(steps, state, shaped)


def _gains(optimizer: Momentum) -> tuple[float, float, float, float]:
    """Return what multiplies the last move, the gradient, the gradient before, and the decay."""
    return (
        optimizer.momentum,
        optimizer.kappa * optimizer.alpha + optimizer.beta,
        optimizer.momentum * optimizer.beta,
        optimizer.weight_decay,
    )


def advance_pair(
    state: tuple, factors: np.ndarray, optimizer: Momentum, weights: Weights, *, block: int
) -> tuple[tuple, Array]:
    """Advance pairs over some steps; return them rescaled, and the logarithms of their growth."""
    gains = tuple(np.asarray(number, factors.dtype).reshape(-1) for number in _gains(optimizer))
    columns = (
        part.astype(factors.dtype).reshape(-1, 1)
        for part in (weights.moved, weights.plain, weights.curvature)
    )
    state, found = _advance(
        state,  # pyright: ignore[reportArgumentType]
        factors,  # pyright: ignore[reportArgumentType]
        gains,  # pyright: ignore[reportArgumentType]
        *columns,
        block=block,
        shape=Shape.of(optimizer, weights),
        record=False,
    )
    return state, found[0]


def _block(optimizer: Momentum, feed: Feed, plain: np.ndarray) -> int:
    """Return how many steps can go without rescaling, whatever the rows are."""
    gain = optimizer.kappa * optimizer.alpha + 2 * optimizer.beta
    step = 3.0 + (float(np.max(gain)) + float(np.max(plain))) * 2 * feed.largest**2
    return next((count for count in _BLOCKS if step**count < _LARGEST), _BLOCKS[-1])


def walk(
    feed: Feed,
    optimizer: Momentum,
    weights: Weights,
    *,
    start: np.ndarray | None = None,
    record: bool = False,
    seed: int = 0,
    advance: Callable[[int], None] | None = None,
) -> Pass:
    """Follow a difference of weights, or a learner, over all steps of a feed.

    Parameters
    ----------
    feed
        The rows.
    optimizer
        Its numbers may be arrays, one entry for each cell.
    weights
        How each weight moves.
    start
        (size,) where all begin; a random direction by default.
    record
        Whether to keep residuals and norms of the weights as well.
    seed
        Of the random direction.
    advance
        Called with the number of steps made.
    """
    cells = max(np.size(number) for number in _gains(optimizer))
    columns = [part.reshape(-1, 1) for part in (weights.moved, weights.plain, weights.curvature)]
    gains = tuple(
        np.broadcast_to(np.asarray(number, np.float32), (cells,)) for number in _gains(optimizer)
    )
    block = _block(optimizer, feed, weights.plain)
    chunk = _CHUNKS[feed.steps > 4 * _CHUNKS[0]]

    if start is None:
        start = np.random.default_rng(seed).normal(size=feed.size)
        start /= np.linalg.norm(start)
    lanes = max(cells, feed.streams)
    assert 1 in (cells, feed.streams)
    here = jnp.asarray(np.broadcast_to(np.asarray(start, np.float32)[:, None], (feed.size, lanes)))
    state = (
        here,
        here,
        jnp.zeros((feed.rank, lanes), jnp.float32),
        jnp.zeros((feed.rank, feed.size, feed.streams), jnp.float32),
    )
    # Rows of zeros before the first one fill the chunks: a pair at rest stays where it is.
    padding = -feed.steps % chunk
    skipped = padding // block
    blocks = (feed.steps + padding) // block - skipped
    per = math.ceil(blocks / _SEGMENTS)  # blocks of a segment
    growth = np.zeros((math.ceil(blocks / per), lanes))
    records: list[tuple[np.ndarray, ...]] = []
    reached, lowest, rise = np.zeros(lanes), np.full(lanes, np.inf), np.zeros(lanes)
    for first in range(-padding, feed.steps, chunk):
        factors = feed.factors(max(first, 0), first + chunk, np.float32)
        if first < 0:
            zeros = np.zeros((-first, *factors.shape[1:]), factors.dtype)
            factors = np.concatenate([zeros, factors])
        state, found = _advance(
            state,
            factors,
            gains,
            *columns,
            block=block,
            shape=Shape.of(optimizer, weights),
            record=record,
        )
        logs, *rest = (np.asarray(part, dtype=float) for part in found)
        place = (np.arange(len(logs)) + (first + padding) // block - skipped) // per
        kept = logs[place >= 0]
        np.add.at(growth, place[place >= 0], kept)
        path = reached + np.cumsum(kept, axis=0)
        low = np.minimum(np.minimum.accumulate(path, axis=0), lowest)
        rise = np.maximum(rise, np.max(path - low, axis=0))
        reached, lowest = path[-1], low[-1]
        if record:
            records.append((logs, *rest))
        if advance:
            advance(first + chunk - max(first, 0))
    lengths = np.full(len(growth), float(per * block))
    lengths[0] -= padding - skipped * block
    lengths[-1] += feed.steps - lengths.sum()
    if not record:
        return Pass(growth, rise, lengths)
    logs, squares, sizes = (np.concatenate(parts) for parts in zip(*records, strict=True))
    scale = np.cumsum(logs, axis=0) - logs  # before each block
    return Pass(growth, rise, lengths, (squares + 2 * scale)[skipped:], (sizes + scale)[skipped:])
