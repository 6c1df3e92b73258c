"""The almost-sure criterion: growth along sampled paths, by products of random matrices."""

from __future__ import annotations

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy import stats

from resonax.algebra import double_precision
from resonax.checks import ArgumentError, check_number
from resonax.dynamics import Map, Setting
from resonax.processes import Recorded
from resonax.stability.cells import Advance, Values, at, chunks, take

__all__ = ["Interval", "lyapunov", "lyapunov_rates"]

_CHUNK = 64
_BLOCKS = 16  # of a recording, for its interval
RESOLUTION = 1e-7  # no interval is claimed to be narrower than this, on either side


class Interval(NamedTuple):
    """A rate per step with its confidence interval."""

    rate: float
    low: float
    high: float


def _window(steps: int) -> np.ndarray:
    r"""Return weights :math:`\propto e^{-1/(t(1-t))}`, which sum to 1.

    Averages of a quasi-periodic signal converge faster than any power of the length with them
    (Das et al., Nonlinearity 30, 2017), where the plain mean leaves an error of order 1/steps.
    """
    time = (np.arange(steps) + 0.5) / steps
    weight = np.exp(-1.0 / (time * (1.0 - time)))
    return weight / weight.sum()


def _growth(setting: Setting, key: Array, batch: int, steps: int) -> Array:
    """Return the logarithmic growth of a random tangent vector in each step of one sampled path."""
    discrete = Map(setting)
    vector_key, init_key, walk_key, draw_key = jax.random.split(key, 4)
    start = jax.random.normal(vector_key, (2, setting.size))

    def advance(carry: tuple[Array, Array], index: Array) -> tuple[tuple[Array, Array], Array]:
        state, vector = carry
        state, moments = setting.process.step(jax.random.fold_in(walk_key, index), state, index)
        hessian = discrete.draw(jax.random.fold_in(draw_key, index), moments, batch)
        vector = jnp.stack(discrete.advance(hessian, *vector))
        # A step can annihilate the vector (momentum 0, lr B = 1): its growth is then the least.
        norm = jnp.maximum(jnp.linalg.norm(vector), jnp.finfo(vector.dtype).tiny)
        return (state, vector / norm), jnp.log(norm)

    carry = (setting.process.init(init_key), start / jnp.linalg.norm(start))
    return jax.lax.scan(advance, carry, jnp.arange(steps))[1]


@functools.partial(jax.jit, static_argnames=("batch", "steps", "burn"))
def _averages(
    setting: Setting, values: dict[str, Array], keys: Array, *, batch: int, steps: int, burn: int
) -> Array:
    """Return the rate of each path of each cell over all its steps and over the later half."""
    half = steps // 2
    windows = np.zeros((2, burn + steps))
    windows[0, burn:], windows[1, -half:] = _window(steps), _window(half)
    window = jnp.asarray(windows)

    def path(values: dict[str, Array], key: Array) -> Array:
        return window @ _growth(at(setting, values), key, batch, burn + steps)

    over_paths = jax.vmap(path, in_axes=(None, 0))
    return jax.vmap(over_paths, in_axes=(0, None))(values, keys)


@functools.partial(jax.jit, static_argnames=("batch", "steps"))
def _recorded_growth(
    setting: Setting, values: dict[str, Array], key: Array, *, batch: int, steps: int
) -> Array:
    return jax.vmap(lambda v: _growth(at(setting, v), key, batch, steps))(values)


def _interval(samples: np.ndarray, level: float, drift: float = 0.0) -> Interval:
    """Return the mean of independent samples with its Student interval.

    ``drift`` is how much the estimate still moves with the length of the paths; it counts as an
    independent error, and is what remains where nothing is random.
    """
    mean, count = float(samples.mean()), len(samples)
    error = float(samples.std(ddof=1) / np.sqrt(count) * stats.t.ppf(0.5 + level / 2, count - 1))
    half = float(np.hypot(error, drift)) + RESOLUTION
    return Interval(mean, mean - half, mean + half)


@double_precision
def lyapunov_rates(
    setting: Setting,
    values: Values,
    advance: Advance | None = None,
    *,
    paths: int = 32,
    steps: int = 2048,
    level: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Return rate and interval of every cell. All cells see the same random numbers."""
    check_number("paths", paths, low=2)
    check_number("steps", steps, low=16)
    check_number("level", level, low=0, high=1, open_low=True, open_high=True)
    values = {name: np.asarray(array, dtype=float) for name, array in values.items()}
    count = len(next(iter(values.values())))
    batches = np.asarray(values.pop("batch", np.full(count, setting.batch)), dtype=int)
    if not values:
        values = {"momentum": np.full(count, float(setting.optimizer.momentum))}  # pyright: ignore[reportArgumentType]
    result: list[Interval | None] = [None] * count
    key = jax.random.key(seed)
    for batch in np.unique(batches):
        members = np.flatnonzero(batches == batch)
        one = at(setting, {"batch": int(batch)}).grouped
        for index, real in chunks(members * 0, min(_CHUNK, len(members))):
            cell = members[index]
            if isinstance(one.process, Recorded):
                intervals = _recording(one, take(values, cell), key, int(batch), level)
            else:
                averages = _averages(
                    one,
                    take(values, cell),
                    jax.random.split(key, paths),
                    batch=int(batch),
                    steps=steps,
                    burn=steps // 2,
                )
                intervals = [
                    _interval(whole, level, float(whole.mean() - later.mean()))
                    for whole, later in np.moveaxis(np.asarray(averages), -1, 1)
                ]
            for place, interval in zip(cell[:real], intervals, strict=False):
                result[place] = interval
            if advance:
                advance(real)
    return [interval for interval in result if interval is not None]


def _recording(
    setting: Setting, values: dict[str, np.ndarray], key: Array, batch: int, level: float
) -> list[Interval]:
    """Return rates along a recording, with intervals from the spread between its parts."""
    assert isinstance(setting.process, Recorded)
    steps = setting.process.steps
    burn = steps // 10
    length = (steps - burn) // _BLOCKS
    if length < 4:
        raise ArgumentError(
            f"data must have at least {5 * _BLOCKS * batch} rows for a rate with an interval, "
            f"got {steps * batch}"
        )
    growth = _recorded_growth(setting, values, key, batch=batch, steps=steps)
    kept = np.asarray(growth)[:, steps - length * _BLOCKS :]
    blocks = kept.reshape(len(kept), _BLOCKS, length).mean(axis=2)
    return [_interval(row, level) for row in blocks]


def lyapunov(
    setting: Setting, *, paths: int = 64, steps: int = 4096, level: float = 0.95, seed: int = 0
) -> Interval:
    """Return the almost-sure rate per step of one setting, with its confidence interval.

    For a recording the path is given, and the interval comes from the spread between 16 equal
    parts of it; otherwise it comes from independent paths.

    Parameters
    ----------
    setting
        What is trained on what.
    paths, steps
        Number of sampled paths, and steps of each (half as many again go before, unmeasured).
    level
        Confidence level of the interval.
    seed
        Seed of all random numbers.

    Examples
    --------
    >>> from resonax import Setting, Switching, heavy_ball
    >>> setting = Setting(Switching(period=6, dim=5), heavy_ball(lr=0.01, momentum=0.95))
    >>> rate, low, high = lyapunov(setting)
    >>> bool(0 < low < rate < high)  # every run diverges
    True
    """
    values = {"momentum": np.array([setting.optimizer.momentum], dtype=float)}
    return lyapunov_rates(setting, values, paths=paths, steps=steps, level=level, seed=seed)[0]
