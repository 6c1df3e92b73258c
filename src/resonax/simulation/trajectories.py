"""Single runs over time, in the order of the process and shuffled."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from resonax.core.algebra import double_precision
from resonax.core.errors import ArgumentError, check_whole
from resonax.core.moments import Moments
from resonax.dynamics.problem import check_problem
from resonax.learners import Features
from resonax.simulation.cells import Training
from resonax.streams import Iid, Recorded, shuffled

__all__ = ["Trajectories", "trajectories"]

_POINTS = 200
_ROW_COUNTS = (64, 256, 4096)  # inputs drawn for a step: few compiled functions serve every batch
_RUNS_MULTIPLE = 4  # the number of runs is filled up to a multiple of this


class Trajectories(NamedTuple):
    """Runs over time: logarithms of distances from the best weights, base 10.

    Where the target drifts, the distance is that before the last update, as in `Training`.
    """

    steps: np.ndarray  # (points,)
    in_order: np.ndarray  # (runs, points); infinite where a run overflowed
    shuffled: np.ndarray  # (runs, points)


def trajectories(
    training: Training, *, runs: int = 4, steps: int = 2000, seed: int = 0
) -> Trajectories:
    """Return how far some runs are from the best weights over time, about 200 points of each.

    Parameters
    ----------
    training
        What is simulated: a linear model, by any optimizer.
    runs, steps
        Independent runs, and steps of each.
    seed
        Seed of all random numbers. The runs in order and the shuffled ones, whose inputs are
        independent draws from the same stationary law, begin at the same weights.

    Examples
    --------
    >>> from resonax import Sinusoid, heavy_ball
    >>> training = Training(Sinusoid(period=22.0), heavy_ball(0.01, 0.98), batch=20)
    >>> found = trajectories(training)
    >>> bool(found.in_order[:, -1].min() > found.shuffled[:, -1].max() + 3)  # a thousand fold
    True
    """
    check_problem(training, Training)
    check_whole("runs", runs, low=1, high=10**4)
    check_whole("steps", steps, low=1, high=10**7)
    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_whole("batch", int(training.batch), low=1, high=_ROW_COUNTS[-1])
    if not isinstance(training.model, Features) or isinstance(training.process, Recorded):
        raise ArgumentError("trajectories are of linear models on inputs that are drawn")
    stride = -(-steps // _POINTS)
    kept = steps // stride + 1
    rows = next(size for size in _ROW_COUNTS if training.batch <= size)
    keys = -(-runs // _RUNS_MULTIPLE) * _RUNS_MULTIPLE

    def follow(in_order: bool) -> np.ndarray:
        return _follow(training, seed, keys, rows, stride, in_order)[:runs, :kept]

    in_order = follow(in_order=True)
    # Independent inputs have no order to lose: shuffled, they are the same numbers again.
    at_random = in_order if isinstance(training.process, Iid) else follow(in_order=False)
    return Trajectories(stride * np.arange(kept), in_order, at_random)


@double_precision
def _follow(
    training: Training, seed: int, runs: int, rows: int, stride: int, in_order: bool
) -> np.ndarray:
    summed = float(training.gradient_scale)
    plain = replace(training, reduction="mean", batch=float(training.batch))
    shape = {"runs": runs, "rows": rows, "in_order": in_order}
    drifts = bool(training.drift)
    distances = _distances(plain, seed, stride, summed, **shape, is_drifting=drifts)
    with np.errstate(divide="ignore"):
        found = np.log10(np.asarray(distances))
    return np.where(np.isnan(found), np.inf, found)


@functools.partial(jax.jit, static_argnames=("runs", "rows", "in_order", "is_drifting"))
def _distances(
    training: Training,
    seed: ArrayLike,
    stride: ArrayLike,
    scale: ArrayLike,
    *,
    runs: int,
    rows: int,
    in_order: bool,
    is_drifting: bool,
) -> Array:
    """Return the distance of each run before the first step and after every stride."""
    if not in_order:
        process = training.process
        mixed = Iid(law=process.mixture(), dim=process.dim) if is_drifting else shuffled(process)
        training = replace(training, process=mixed)

    def one(key: Array) -> Array:
        start_key, init_key, walk_key, draw_key = jax.random.split(key, 4)
        weights, target = _start(training, start_key)
        optimizer: Any = training.optimizer.transform()
        law = training.process.draw_init(init_key)
        state = (weights, optimizer.init(weights), law, jnp.linalg.norm(weights - target))

        def step(index: Array, now: tuple[Any, ...]) -> tuple[Any, ...]:
            weights, moved, law, _ = now
            law, moments = training.process.draw_step(
                jax.random.fold_in(walk_key, index), law, index
            )
            key = jax.random.fold_in(draw_key, index)
            gradient, best = _gradient(training, key, moments, weights - target, rows)
            moves, moved = optimizer.update(scale * gradient, moved, weights)
            after = weights + moves
            apart = weights - target - best if is_drifting else after - target
            return after, moved, law, jnp.linalg.norm(apart)

        def stride_of_steps(now: tuple[Any, ...], number: Array) -> tuple[Any, Array]:
            first = number * stride
            after = jax.lax.fori_loop(first, first + stride, step, now)
            return after, after[-1]

        _, distances = jax.lax.scan(stride_of_steps, state, jnp.arange(_POINTS))
        return jnp.concatenate([jnp.linalg.norm(weights - target)[None], distances])

    return jax.vmap(one)(jax.random.split(jax.random.key(seed), runs))


def _start(training: Training, key: Array) -> tuple[Array, Array]:
    """Return the first weights and the best ones."""
    shape = (2, training.size)
    if training.start_law == "normal":
        drawn = jnp.sqrt(jnp.asarray(training.start)) * jax.random.normal(key, shape)
    else:
        drawn = training.start * jax.random.uniform(key, shape, minval=-1.0, maxval=1.0)
    return drawn[0], drawn[1]


def _gradient(
    training: Training, key: Array, moments: Moments, error: Array, rows: int
) -> tuple[Array, Array]:
    """Return the mean gradient of a batch, and how far the best weights of its first row are.

    Of the rows drawn the first ``batch`` count.
    """
    inputs_key, noise_key = jax.random.split(key)
    assert isinstance(training.model, Features)
    inputs, signals = moments.draw(inputs_key, (rows,))
    features, best = training.model.apply(inputs), training.motion(signals)
    noise = jnp.sqrt(jnp.asarray(training.noise)) * jax.random.normal(noise_key, (rows,))
    gaps = jnp.sum(features * (error - best), axis=-1) - noise
    if training.omitted is not None:
        gaps -= training.omitted.apply(inputs)
    gaps = jnp.where(jnp.arange(rows) < training.batch, gaps, 0.0)
    return 2 * gaps @ features / training.batch, best[0]
