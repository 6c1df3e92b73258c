r"""One compiled pass over the rows: many optimizers at once, on several sequences of rows.

With the decayed gradient :math:`h_k = F_k^\top F_k\,u_k + \lambda u_k` of a difference :math:`u`
of two runs, the canonical recursion of `resonax.learners.optimizers` reads, without its velocity,

.. math:: u_{k+1} = u_k + \mu\,(u_k - u_{k-1}) - (\kappa\alpha+\beta)\,h_k + \mu\beta\,h_{k-1} .

The pair :math:`(u_k, u_{k-1})` is rescaled every few steps and the logarithm of its size kept, so
that nothing overflows. Its size is that of `resonax.rows.update.energy`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.errors import ArgumentError
from resonax.learners import Momentum
from resonax.rows.feed import Feed
from resonax.rows.growth import SEGMENTS, Pass, Tally
from resonax.rows.update import Weights, energy, pull, residuals

__all__ = ["is_small", "walk"]

# The weights, those one step before, the residuals and the factor of that step. A lane is a cell
# of a grid or a sequence of rows; there is one sequence, or one cell.
State = tuple[Array, Array, Array, Array]

_CHUNKS = (256, 2048)  # steps handed to the compiled loop at once
# Growth without rescaling whose energy is still a number of 32 and of 64 bits.
_LARGEST = {np.float32: 1e15, np.float64: 1e120}
_FEW = 96  # cells of a pass, of which there are at least as many if the model is small
_TRAINED = 16  # and of a pass that trains a learner, which nobody asks for in more cells
_SMALL = 64  # numbers in the rows of a step
_BLOCKS = (8, 2, 1)  # steps between two rescalings


class Terms(NamedTuple):
    """Which terms an update has, which shapes the compiled code."""

    lookahead: bool
    decays: bool
    alike: bool  # whether all weights move alike

    @classmethod
    def of(cls, optimizer: Momentum, weights: Weights) -> Terms:
        """Return the terms that are not zero."""
        decays = bool(np.any(np.asarray(optimizer.weight_decay) > 0))
        alike = bool(weights.moved.all() and not weights.plain.any())
        return cls(optimizer.lookahead, decays, alike)


@functools.partial(jax.jit, static_argnames=("terms", "block", "record"))
def _run_blocks(
    state: State,
    factors: Array,
    live: Array,
    gains: tuple[Array, ...],
    moved: Array,
    plain: Array,
    curvature: Array,
    *,
    terms: Terms,
    block: int,
    record: bool,
) -> tuple[State, tuple[Array, ...]]:
    momentum, gradient_gain, last_gain, decay = gains
    # Kept as a column and a row: their outer product would be read from memory in each step.
    share = 1.0 if terms.alike else moved

    def size_of(here: Array, before: Array) -> Array:
        if record:  # a learner, with the constant beneath its weights
            return jnp.sqrt(jnp.sum(here * here + before * before, axis=0))
        stiff = curvature + share * decay if terms.decays else curvature
        gain = gradient_gain if terms.alike else moved * gradient_gain + plain
        return jnp.sqrt(energy(here, before, stiff, gain))

    def steps(state: State, given: tuple[Array, Array]) -> tuple[State, tuple[Array, ...]]:
        here, before, errors, last = state
        squares = jnp.zeros_like(here[0])
        for factor, (now, earlier) in zip(*given, strict=True):
            new = residuals(factor, here)
            if record:
                squares = squares + jnp.sum(new * new, axis=0)
            ahead = here + (share * momentum) * (here - before)
            # The gain goes with the residuals, of which there are fewer than weights.
            ahead = ahead - share * pull(factor, gradient_gain * new)
            if not terms.alike:
                ahead = ahead - plain * pull(factor, new)
            if terms.decays:
                ahead = ahead - (share * gradient_gain * decay * now) * here
            if terms.lookahead:
                pulled = pull(last, errors)
                pulled = pulled + decay * earlier * before if terms.decays else pulled
                ahead = ahead + (share * last_gain) * pulled
            here, before, errors, last = ahead, here, new, factor
        size = jnp.maximum(size_of(here, before), jnp.finfo(here.dtype).tiny)
        found = (jnp.log(size),)
        if record:
            trained = jnp.sum(jnp.where((moved > 0) | (plain > 0), here * here, 0.0), axis=0)
            found += (jnp.log(squares / (2 * block)), 0.5 * jnp.log(trained))
        return (here / size, before / size, errors / size, last), found

    shaped = factors.reshape(-1, block, *factors.shape[1:]), live.reshape(-1, block, 2)
    return jax.lax.scan(steps, state, shaped)


def _gains(optimizer: Momentum) -> tuple[float, float, float, float]:
    """Return what multiplies the last move, the gradient, the gradient before, and the decay."""
    return (
        optimizer.momentum,
        optimizer.kappa * optimizer.alpha + optimizer.beta,
        optimizer.momentum * optimizer.beta,
        optimizer.weight_decay,
    )


def _room(optimizer: Momentum, feed: Feed, plain: np.ndarray) -> tuple[type, int]:
    r"""Return the floating-point type, and the number of steps between two rescalings.

    Whatever the rows are, one step multiplies the pair by at most
    :math:`3 + (\kappa\alpha + 2\beta + \pi)(2 L^2 + \lambda)`, where no row is longer than L and
    :math:`\pi` is the largest step size of a weight without momentum.
    """
    gain = np.max(optimizer.kappa * optimizer.alpha + 2 * optimizer.beta) + np.max(plain)
    steep = 2 * feed.largest**2 + np.max(optimizer.weight_decay)
    step = 3.0 + float(gain) * float(steep)
    for dtype, limit in _LARGEST.items():
        for count in _BLOCKS:
            if step < limit ** (1 / count):
                return dtype, count
    raise ArgumentError(
        f"one step can multiply an error by {step:.0e}, which exceeds what can be counted: use a "
        "smaller step size or weight decay, or rows brought to variance 1"
    )


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
    dtype, block = _room(optimizer, feed, weights.plain)
    cells = _cells(optimizer)
    wanted = max(cells, feed.sequences)
    few = _TRAINED if record else _FEW
    if feed.sequences == 1 and cells < few and is_small(feed):
        optimizer = _repeated(optimizer, cells, few)
    if wanted <= _FEW:  # steps take little, and a block is compiled as a whole
        block = min(block, _BLOCKS[1])
    if start is None:
        start = np.random.default_rng(seed).normal(size=feed.size)
    lanes = max(_cells(optimizer), feed.sequences)
    here = np.broadcast_to(np.asarray(start, float)[:, None], (feed.size, lanes))
    if not record:  # of energy 1
        stiff = weights.curvature[:, None] + weights.moved[:, None] * optimizer.weight_decay
        here = here / np.sqrt(np.sum(stiff * here**2, axis=0))
    with jax.enable_x64(dtype is np.float64):
        return _walk(here, feed, optimizer, weights, record, advance, dtype, block, wanted)


def is_small(feed: Feed) -> bool:
    """Whether more lanes cost less than to compile for their number."""
    return feed.size * feed.rank <= _SMALL


def _repeated(optimizer: Momentum, cells: int, few: int) -> Momentum:
    """Return the cells with the last one repeated: passes of few cells share a compiled loop."""
    numbers: dict[str, Any] = {}
    for name in ("momentum", "lr", "weight_decay"):
        each = np.broadcast_to(getattr(optimizer, name), (cells,))
        if name != "weight_decay" or np.size(optimizer.weight_decay) > 1:
            numbers[name] = np.pad(each, (0, few - cells), mode="edge")
    return replace(optimizer, **numbers)


def _cells(optimizer: Momentum) -> int:
    return max(np.size(number) for number in _gains(optimizer))


def _walk(
    start: np.ndarray,
    feed: Feed,
    optimizer: Momentum,
    weights: Weights,
    record: bool,
    advance: Callable[[int], None] | None,
    dtype: type,
    block: int,
    wanted: int,
) -> Pass:
    """Follow pairs that are at rest at the start, (size, lanes); return the first ``wanted``."""
    lanes, cells = start.shape[1], _cells(optimizer)
    assert 1 in (cells, feed.sequences)
    gains = tuple(
        np.broadcast_to(np.asarray(number, dtype), (cells,)) for number in _gains(optimizer)
    )
    chunk = _CHUNKS[feed.steps > 4 * _CHUNKS[0]]
    # Of numpy: each operation of jax outside of compiled code is a program of its own.
    here = np.asarray(start, dtype)
    last = np.zeros((feed.rank, feed.size, feed.sequences), dtype)
    state = here, here, np.zeros((feed.rank, lanes), dtype), last
    # Rows of zeros before the first one fill the chunks: without decay, a pair at rest stays.
    padding = -feed.steps % chunk
    skipped = padding // block
    blocks = (feed.steps + padding) // block - skipped
    per = math.ceil(blocks / SEGMENTS)  # blocks of a segment
    tally = Tally(math.ceil(blocks / per), wanted)
    records: list[tuple[np.ndarray, ...]] = []
    for first in range(-padding, feed.steps, chunk):
        factors = feed.factors(max(first, 0), first + chunk, dtype)
        if first < 0:
            zeros = np.zeros((-first, *factors.shape[1:]), factors.dtype)
            factors = np.concatenate([zeros, factors])
        places = np.arange(first, first + chunk)
        live = np.stack([places >= 0, places >= 1], axis=1).astype(dtype)
        state, found = _run_blocks(
            state,
            factors,
            live,
            gains,
            *weights.columns(dtype),
            block=block,
            terms=Terms.of(optimizer, weights),
            record=record,
        )
        logs, *rest = (np.asarray(part)[:, :wanted].astype(float) for part in found)
        segment = (np.arange(len(logs)) + (first + padding) // block - skipped) // per
        tally.add(segment[segment >= 0], logs[segment >= 0])
        if record:
            records.append((logs, *rest))
        if advance:
            advance(first + chunk - max(first, 0))
    lengths = np.full(len(tally.growth), float(per * block))
    lengths[0] -= padding - skipped * block
    lengths[-1] += feed.steps - lengths.sum()
    if not record:
        return Pass(tally.growth, tally.rise, lengths)
    logs, squares, sizes = (np.concatenate(parts) for parts in zip(*records, strict=True))
    scale = np.cumsum(logs, axis=0) - logs  # before each block
    kept = (squares + 2 * scale)[skipped:], (sizes + scale)[skipped:]
    return Pass(tally.growth, tally.rise, lengths, *kept)
