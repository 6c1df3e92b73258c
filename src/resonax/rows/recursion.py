r"""The one recursion along rows: many optimizers at once, on several sequences of rows.

With the gradient :math:`g_k = F_k^\top F_k\,u_k` of a difference :math:`u` of two runs and the
decayed gradient :math:`h_k = g_k + \lambda u_k`, an update is that of
`resonax.learners.optimizers`,

.. math:: v_{k+1} = \mu v_k - \alpha h_k, \qquad u_{k+1} = u_k + \kappa v_{k+1} - \beta h_k ,

in 64 bits. After each update a run is divided by its size and the logarithm of the size is kept, so
that nothing overflows. The size is the root of an `energy`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import double_precision
from resonax.core.errors import ArgumentError
from resonax.learners import Momentum
from resonax.rows.feed import Feed
from resonax.rows.intervals import Pass, gather

__all__ = [
    "Numbers",
    "Run",
    "Weights",
    "energy",
    "follow",
    "is_small",
    "linear_step",
    "numbers_of",
    "pull",
    "residuals",
    "size_of",
    "update",
    "walk",
]

_CHUNK = 1024  # steps handed to the compiled loop at once
_LARGEST = 1e120  # growth in one step whose energy is still a number
_FEW = 96  # cells of a pass, of which there are at least as many if the model is small
_TRAINED = 16  # and of a pass that trains a learner, which nobody asks for in more cells
_SMALL = 64  # numbers in the rows of a step

Numbers = dict[str, Any]
# run, rows of a step, numbers -> run, (logarithm of the growth, what else was found)
Step = Callable[[Any, Array, Numbers], tuple[Any, tuple[Array, ...]]]


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
        moved, plain = np.ones(size), np.zeros(size)
        if target:
            moved[-1] = 0.0
        if intercept_lr is not None:
            place = size - 1 - target
            moved[place], plain[place] = 0.0, intercept_lr
        return cls(moved, plain, np.append(curvature, np.ones(int(target))))


def numbers_of(optimizer: Momentum, weights: Weights) -> Numbers:
    """Return the numbers of the recursion: rows over the lanes, or columns over the weights."""
    moved, plain, curvature = (
        np.asarray(part, dtype=float).reshape(-1, 1)
        for part in (weights.moved, weights.plain, weights.curvature)
    )
    names = ("momentum", "alpha", "kappa", "beta", "weight_decay")
    numbers = {name: np.asarray(getattr(optimizer, name), dtype=float) for name in names}
    gain = numbers["kappa"] * numbers["alpha"] + numbers["beta"]
    return numbers | {
        "moved": moved,
        "plain": plain,
        "curvature": curvature + moved * numbers["weight_decay"],
        "gain": moved * gain + plain,
    }


def residuals(factor: Array, weights: Array) -> Array:
    """Return F u: (rank, size, 1 or lanes) and (size, lanes) give (rank, lanes).

    One row is a sum of products, which vectorises over the lanes; a batch that all lanes share
    is a matrix product.
    """
    if len(factor) == 1:
        return (factor[0] * weights).sum(axis=0)[None]
    if factor.shape[2] == 1:
        return factor[:, :, 0] @ weights
    return (factor * weights).sum(axis=1)


def pull(factor: Array, errors: Array) -> Array:
    """Return F^T e, (size, lanes)."""
    if len(factor) == 1:
        return factor[0] * errors[0]
    if factor.shape[2] == 1:
        return factor[:, :, 0].T @ errors
    return (factor * errors[:, None]).sum(axis=0)


def energy(here: Any, before: Any, curvature: Any, gain: Any, xp: Any = jnp) -> Any:
    r"""Return the energy of each lane, by which the size of a difference :math:`u` is measured.

    With the curvature :math:`c_i` of the decayed loss along each axis and the gain :math:`g` of the
    gradient,

    .. math:: E_k = \sum_i \tfrac12 c_i\,(u_{k,i}^2 + u_{k-1,i}^2)
        + \max(\tfrac1g - \tfrac{c_i}2, 0)\,(u_{k,i} - u_{k-1,i})^2 .

    For a constant curvature with :math:`g c_i \le 2` and a momentum of 1 this is the invariant of
    heavy ball: a free oscillation leaves it constant, while the weights pass through zero again
    and again. At rest it is :math:`\sum_i c_i u_i^2`. Weights that nothing moves have no speed.

    Parameters
    ----------
    here, before
        Weights and those one step before, (..., size, lanes).
    curvature
        Of the decayed loss along each axis.
    gain
        What multiplies the gradient.
    xp
        The module of the arrays, ``jax.numpy`` or ``numpy``.
    """
    speed = here - before
    inertia = xp.where(gain > 0, 1 / xp.where(gain > 0, gain, 1.0), 0.0)
    inertia = xp.maximum(inertia - curvature / 2, 0.0)
    swing = curvature * (here * here + before * before) / 2
    return (swing + inertia * speed * speed).sum(axis=-2)


def size_of(here: Array, before: Array, velocity: Array, numbers: Numbers) -> Array:
    """Return the size of each lane after an update."""
    size = jnp.sqrt(energy(here, before, numbers["curvature"], numbers["gain"]))
    # A velocity that has not moved its weight yet has no energy, but is not zero.
    size = jnp.where(size > 0, size, jnp.abs(velocity).max(axis=0))
    return jnp.maximum(size, jnp.finfo(size.dtype).tiny)


def update(
    weights: Array, velocity: Array, gradient: Array, numbers: Numbers
) -> tuple[Array, Array]:
    """Return weights and velocity after one update."""
    moved = numbers["moved"]
    decayed = moved * (gradient + numbers["weight_decay"] * weights)
    velocity = moved * numbers["momentum"] * velocity - numbers["alpha"] * decayed
    move = numbers["kappa"] * velocity - numbers["beta"] * decayed - numbers["plain"] * gradient
    return weights + move, velocity


class Run(NamedTuple):
    """Runs side by side, (size, lanes): weights, velocity, and the weights one step before."""

    here: Any
    velocity: Any
    before: Any


def linear_step(run: Run, factor: Array, numbers: Numbers) -> tuple[Run, tuple[Array, ...]]:
    """Make one update of differences, and divide them by their size."""
    gradient = pull(factor, residuals(factor, run.here))
    here, velocity = update(run.here, run.velocity, gradient, numbers)
    size = size_of(here, run.here, velocity, numbers)
    return Run(here / size, velocity / size, run.here / size), (jnp.log(size),)


class _Trained(NamedTuple):
    """Learners side by side, with a constant 1 beneath their weights; and the log of their scale.

    The constant is scaled with the weights.
    """

    here: Any
    velocity: Any
    scale: Any


def _learner_step(
    run: _Trained, factor: Array, numbers: Numbers
) -> tuple[_Trained, tuple[Array, ...]]:
    """Make one update of learners; find the squared residual before it and the weights after."""
    errors = residuals(factor, run.here)
    square = jnp.log(jnp.sum(errors * errors, axis=0) / 2) + 2 * run.scale
    here, velocity = update(run.here, run.velocity, pull(factor, errors), numbers)
    size = jnp.sqrt(jnp.sum(here * here + run.here * run.here, axis=0))
    size = jnp.maximum(size, jnp.finfo(size.dtype).tiny)
    is_trained = (numbers["moved"] > 0) | (numbers["plain"] > 0)
    norm = jnp.sqrt(jnp.sum(jnp.where(is_trained, here * here, 0.0), axis=0))
    scale = run.scale + jnp.log(size)
    found = jnp.log(size), square, jnp.log(norm) + run.scale
    return _Trained(here / size, velocity / size, scale), found


@functools.partial(jax.jit, static_argnames=("step",))
def _compiled(
    run: Any, rows: Array, count: Array, numbers: Numbers, *, step: Step
) -> tuple[Any, tuple[Array, ...]]:
    """Make the first ``count`` updates of a chunk; return the run, and what each step found."""
    shapes = jax.eval_shape(lambda: step(run, rows[0], numbers)[1])

    def body(index: Array, carry: tuple) -> tuple:
        run, found = carry
        run, new = step(run, rows[index], numbers)
        return run, tuple(every.at[index].set(one) for every, one in zip(found, new, strict=True))

    found = tuple(jnp.zeros((len(rows), *one.shape), one.dtype) for one in shapes)
    return jax.lax.fori_loop(0, count, body, (run, found))


def follow(step: Step, run: Any, feed: Feed, numbers: Numbers) -> Iterator[tuple[Any, ...]]:
    """Follow runs over one pass, a chunk at a time: yield them, and what each step found."""
    for first in range(0, feed.steps, _CHUNK):
        rows = feed.factors(first, min(first + _CHUNK, feed.steps), float)
        count = len(rows)
        rows = np.concatenate([rows, np.zeros((_CHUNK - count, *rows.shape[1:]))])
        run, found = _compiled(run, rows, count, numbers, step=step)
        yield run, *(np.asarray(part)[:count] for part in found)


def _check_size(optimizer: Momentum, feed: Feed, plain: np.ndarray) -> None:
    r"""Refuse steps so large that a size is no number.

    Whatever the rows are, one step multiplies the pair by at most
    :math:`3 + (\kappa\alpha + 2\beta + \pi)(2 L^2 + \lambda)`, where no row is longer than L and
    :math:`\pi` is the largest step size of a weight without momentum.
    """
    gain = np.max(optimizer.kappa * optimizer.alpha + 2 * optimizer.beta) + np.max(plain)
    steep = 2 * feed.largest**2 + np.max(optimizer.weight_decay)
    step = 3.0 + float(gain) * float(steep)
    if not step < _LARGEST:
        raise ArgumentError(
            f"one step can multiply an error by {step:.0e}, which exceeds what can be counted: use "
            "a smaller step size or weight decay, or rows brought to variance 1"
        )


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
    names = ("momentum", "alpha", "kappa", "beta", "weight_decay")
    return max(np.size(getattr(optimizer, name)) for name in names)


@double_precision
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

    A lane is a cell of a grid or a sequence of rows; there is one sequence, or one cell.

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
        Whether a learner is trained, whose residuals and sizes are kept as well.
    seed
        Of the random direction.
    advance
        Called with the number of steps made.
    """
    _check_size(optimizer, feed, weights.plain)
    cells = _cells(optimizer)
    assert 1 in (cells, feed.sequences)
    wanted, few = max(cells, feed.sequences), _TRAINED if record else _FEW
    if feed.sequences == 1 and cells < few and is_small(feed):
        optimizer = _repeated(optimizer, cells, few)
    if start is None:
        start = np.random.default_rng(seed).normal(size=feed.size)
    lanes = max(_cells(optimizer), feed.sequences)
    here = np.repeat(np.asarray(start, float)[:, None], lanes, axis=1)
    numbers = numbers_of(optimizer, weights)
    if record:
        run = _Trained(here, np.zeros_like(here), np.zeros(lanes))
        found = follow(_learner_step, run, feed, numbers)
    else:  # of energy 1
        here = here / np.sqrt(energy(here, here, numbers["curvature"], numbers["gain"], np))
        found = follow(linear_step, Run(here, np.zeros_like(here), here), feed, numbers)
    return gather((parts for _, *parts in found), feed.steps, wanted, advance)
