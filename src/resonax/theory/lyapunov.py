"""The almost-sure criterion: growth along sampled paths, by products of random matrices.

A recording that is trained on once is its own path: the same engine, interval and words as those of
`resonax.check`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy  # its parts are loaded where they are used
from jax import Array

from resonax.core.algebra import double_precision
from resonax.core.errors import ArgumentError, check_number, check_whole
from resonax.core.intervals import mean_interval, tail_of
from resonax.dynamics import Map, Setting, check_problem
from resonax.learners import Linear
from resonax.recordings.recording import Recording
from resonax.rows.answers import OnTheseRows, judge
from resonax.rows.intervals import measure
from resonax.rows.subject import Subject, prepare
from resonax.streams import Recorded
from resonax.theory.map import map_product, map_rates
from resonax.theory.period import (
    REASONS,
    Advance,
    Values,
    chunks,
    over_cells,
    own_values,
    rational_period,
    take,
)

__all__ = [
    "MAP_PATHS",
    "MAP_STEPS",
    "RESOLUTION",
    "Interval",
    "check_reach",
    "judge_recording",
    "lyapunov",
    "lyapunov_rates",
]

RESOLUTION = 1e-7  # no interval is claimed to be narrower than this, on either side
MAP_PATHS, MAP_STEPS = 32, 2048  # for each cell of a map
_CHUNK, _RECORDED_CHUNK = 512, 1024  # cells that are followed together
_MIN_STEPS, _MAX_STEPS = 4096, 2**17
_DOUBLINGS = 30
_MAX_DRAWS = 2**33  # paths x steps x weights^2, above which a call would take hours
_MAX_KEPT, _MAX_TOGETHER = 2**28, 3 * 2**28  # paths x steps of a cell, of many: 16 bytes or more


class Interval(NamedTuple):
    """A rate per step with its confidence interval."""

    rate: float
    low: float
    high: float


def _start(key: Array, slowest: Array) -> Array:
    """Return a random tangent vector, turned where it can be into the slowest direction."""
    size = len(slowest) // 2
    vector = jax.random.normal(key, (2, size))
    turned = (slowest @ vector.ravel()).reshape(vector.shape)
    vector = jnp.where(jnp.linalg.norm(turned) > 1e-6, turned, vector)
    return vector / jnp.linalg.norm(vector)


def _slowest(setting: Setting, values: dict[str, np.ndarray], cycles: np.ndarray) -> np.ndarray:
    """Return for each cell a matrix that turns vectors into the slowest direction.

    For a periodic law that is a high power of the expected monodromy matrix: a start in its
    dominant space needs no time to forget the other directions.
    """
    size = 2 * setting.size
    if not setting.process.periodic:
        return np.broadcast_to(np.eye(size), (len(cycles), size, size))

    def power(values: dict[str, np.ndarray], counts: np.ndarray) -> np.ndarray:
        return map_product(setting, values, counts).power(_DOUBLINGS)

    return over_cells(power, values, cycles, size)


def _growth(setting: Setting, keys: Array, batch: int, steps: int, start: Array) -> Array:
    """Return the logarithmic growth of a tangent vector in each step of one sampled path."""
    discrete = Map(setting)
    init_key, walk_key, draw_key = keys

    def one(carry: tuple[Array, Array], index: Array) -> tuple[tuple[Array, Array], Array]:
        state, vector = carry
        state, moments = setting.process.draw_step(
            jax.random.fold_in(walk_key, index), state, index
        )
        hessian = discrete.draw(jax.random.fold_in(draw_key, index), moments, batch)
        vector = jnp.stack(discrete.step(hessian, *vector))
        # A step can annihilate the vector (momentum 0, lr B = 1): its growth is then the least.
        norm = jnp.maximum(jnp.linalg.norm(vector), jnp.finfo(vector.dtype).tiny)
        return (state, vector / norm), jnp.log(norm)

    carry = (setting.process.draw_init(init_key), start)
    return jax.lax.scan(one, carry, jnp.arange(steps))[1]


@functools.partial(jax.jit, static_argnames=("batch",))
def _averages(
    setting: Setting,
    values: dict[str, Array],
    slowest: Array,
    windows: Array,
    keys: Array,
    *,
    batch: int,
) -> Array:
    """Return the rate of each path of each cell in each of its windows.

    A path has three keys: of its state, of its walk (and of its start), of its batches.
    """

    def path(values: dict[str, Array], slowest: Array, window: Array, keys: Array) -> Array:
        cell = setting.at(values)
        growth = _growth(cell, keys, batch, window.shape[1], _start(keys[1], slowest))
        return jnp.sum(window * growth, axis=1)  # a product would round by the number of threads

    over_paths = jax.vmap(path, in_axes=(None, None, None, 0))
    return jax.vmap(over_paths, in_axes=(0, 0, 0, None))(values, slowest, windows, keys)


def _window(steps: int, cycle: int) -> np.ndarray:
    r"""Return weights for the steps of a path, which sum to 1.

    They are :math:`\propto e^{-1/(t(1-t))}`: with them averages of a quasi-periodic signal
    converge faster than any power of the length (Das et al., Nonlinearity 30, 2017), where the
    plain mean leaves an error of order 1/steps. Smeared over one cycle, they see every part of it
    equally often, however few cycles there are.
    """
    time = (np.arange(steps - cycle + 1) + 0.5) / (steps - cycle + 1)
    weight = np.exp(-1.0 / (time * (1.0 - time)))
    smeared = scipy.signal.fftconvolve(weight, np.ones(cycle)).clip(0.0)
    return smeared / smeared.sum()


def _windows(steps: int, cycle: int) -> np.ndarray:
    """Return weights over all measured steps and over the later half, after an unmeasured start."""
    half, burn = steps // 2, steps // 2
    weights = np.zeros((2, burn + steps))
    weights[0, burn:], weights[1, -half:] = _window(steps, cycle), _window(half, cycle)
    return weights


class _Sampling(NamedTuple):
    paths: int
    steps: int
    confidence: float
    seed: int


def _interval(samples: np.ndarray, confidence: float, drift: float = 0.0) -> Interval:
    """Return the mean of independent samples with its Student interval.

    ``drift`` is how much the estimate still moves with the length of the paths; it counts as an
    independent error, and is what remains where nothing is random.
    """
    mean, error = (float(number) for number in mean_interval(samples, tail_of(confidence)))
    if not np.isfinite(mean):
        return Interval(math.nan, math.nan, math.nan)
    half = float(np.hypot(error, drift)) + RESOLUTION
    return Interval(mean, mean - half, mean + half)


def _compiled_steps(steps: int) -> int:
    """Return for how many steps code is compiled: up to a power of two, and the start before."""
    return 3 * 2 ** math.ceil(math.log2(steps)) // 2


def _sampled(
    setting: Setting,
    values: dict[str, np.ndarray],
    sampling: _Sampling,
    batch: int,
) -> list[Interval]:
    """Return rates of cells along sampled paths."""
    paths, steps, confidence, seed = sampling
    periods = np.ones(len(next(iter(values.values()))))
    if setting.process.periodic:
        periods = values.get("period", periods * setting.process.cycle)
    cycles = {period: rational_period(period)[0] for period in np.unique(periods)}
    # A cycle that repeats too late for the steps is smeared over its nearest whole number of steps.
    smears = {
        period: cycle if 2 * cycle <= steps else round(period) for period, cycle in cycles.items()
    }
    weights = {smear: _windows(steps, smear) for smear in set(smears.values())}
    each = np.array([weights[smears[period]] for period in periods])
    keys = jax.random.split(jax.random.key(int(seed)), paths)
    averages = _averages(
        setting,
        values,
        _slowest(setting, values, np.array([cycles[period] for period in periods])),
        np.pad(each, ((0, 0), (0, 0), (0, _compiled_steps(steps) - each.shape[-1]))),
        jax.vmap(lambda key: jax.random.split(key, 3))(keys),
        batch=batch,
    )
    return [
        _interval(whole, confidence, float(whole.mean() - later.mean()))
        for whole, later in np.moveaxis(np.asarray(averages), -1, 1)
    ]


def _check_sampling(setting: Setting, paths: int, steps: int, confidence: float, seed: int) -> None:
    check_whole("paths", paths, low=2)
    check_whole("steps", steps, low=16)
    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_number("confidence", confidence, low=0, high=1, open_low=True, open_high=True)
    size = setting.size
    draws = min(_MAX_DRAWS // size**2, _MAX_KEPT)
    if 16 * paths > draws:
        raise ArgumentError(
            f"paths must be at most {draws // steps} for {steps} steps, {size} weights, got {paths}"
        )
    if paths * steps > draws:
        raise ArgumentError(
            f"steps must be at most {draws // paths} for {paths} paths, {size} weights, got {steps}"
        )


def _check_batch(setting: Setting, batch: int) -> None:
    if batch > 10**5 and not isinstance(setting.model, Linear):
        raise ArgumentError(f"batch must be at most 100000 for this basis, got {batch}")


def _whole_cycles(setting: Setting, values: Values, paths: int, steps: int) -> int:
    """Return as many steps, or more where a half would not have two cycles."""
    if setting.process.periodic and not isinstance(setting.process, Recorded):
        longest = np.max(values.get("period", setting.process.cycle))
        steps = max(steps, 4 * math.ceil(longest))
        if paths * steps > _MAX_KEPT:
            raise ArgumentError(
                f"paths must be at most {_MAX_KEPT // steps} for {steps} steps, four periods"
            )
    return steps


def check_reach(
    setting: Setting, paths: int, steps: int | None, confidence: float, seed: int
) -> None:
    """Refuse what `lyapunov` could not follow, before anything is computed."""
    least = _MIN_STEPS if steps is None else steps
    _check_sampling(setting, paths, least, confidence, seed)
    _whole_cycles(setting, {}, paths, least)
    _check_batch(setting, int(setting.batch))


def _subject(setting: Setting, confidence: float, seed: int) -> Subject:
    """Return the problem that a check of the same rows, as they are, would be about."""
    assert isinstance(setting.process, Recorded)
    check_number("confidence", confidence, low=0, high=1, open_low=True, open_high=True)
    check_whole("seed", seed, low=0, high=2**63 - 1)
    rows = np.asarray(setting.process.data).reshape(-1, setting.process.dim)
    recording = Recording(rows, None, (), None, "the recording", ())
    # The sum of gradients is their mean with a larger step, to which the decay is the smaller.
    scale, optimizer = float(setting.gradient_scale), setting.optimizer
    optimizer = replace(
        optimizer, lr=scale * optimizer.lr, weight_decay=optimizer.weight_decay / scale
    )
    made = prepare(recording, setting.model, optimizer, int(setting.batch))
    return replace(made, confidence=confidence, seed=seed)


def judge_recording(setting: Setting, confidence: float, seed: int) -> tuple[OnTheseRows, Interval]:
    """Return what these rows do in one pass, exactly, and the rate on more of the same."""
    _, rows, more = judge(_subject(setting, confidence, seed))
    return rows, Interval(more.rate, more.low, more.high)


def recorded_rates(
    setting: Setting, values: dict[str, np.ndarray], confidence: float, seed: int
) -> list[Interval]:
    """Return the rates of many cells along a recording, each from one random start.

    If it is replayed again and again nothing is random: the growth of a pass is exact.
    """
    assert isinstance(setting.process, Recorded)
    if setting.process.repeat:
        rates = map_rates(setting, values)
        return [Interval(float(r), float(r) - RESOLUTION, float(r) + RESOLUTION) for r in rates]
    scale = float(setting.gradient_scale)
    scaled = {"lr": scale, "weight_decay": 1 / scale}
    subject = _subject(setting, confidence, seed)
    cells = subject.at({name: scaled.get(name, 1.0) * array for name, array in values.items()})
    found = measure(cells.follow(cells.feed()), confidence)
    return [
        Interval(*map(float, ends)) for ends in zip(found.rate, found.low, found.high, strict=True)
    ]


@double_precision
def lyapunov_rates(
    setting: Setting,
    values: Values,
    advance: Advance | None = None,
    *,
    paths: int = MAP_PATHS,
    steps: int = MAP_STEPS,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[Interval]:
    """Return rate and interval of every cell, NaN where the growth exceeds all numbers.

    All cells see the same random numbers.
    """
    _check_sampling(setting, paths, steps, confidence, seed)
    values = {name: np.asarray(array, dtype=float) for name, array in values.items()}
    count = len(next(iter(values.values())))
    batches = np.asarray(values.pop("batch", np.full(count, setting.batch)), dtype=int)
    _check_batch(setting, int(batches.max()))
    if not values:
        values = {"momentum": np.full(count, float(setting.optimizer.momentum))}
    steps = _whole_cycles(setting, values, paths, steps)
    result: list[Interval] = [Interval(0.0, 0.0, 0.0)] * count
    sampling = _Sampling(paths, steps, confidence, seed)
    for batch in np.unique(batches):
        members = np.flatnonzero(batches == batch)
        one = setting.at({"batch": int(batch)}).grouped
        size = max(1, min(_CHUNK, _MAX_TOGETHER // (paths * _compiled_steps(steps))))
        size = _RECORDED_CHUNK if isinstance(one.process, Recorded) else size
        for index, real in chunks(members * 0, min(size, len(members))):
            cell = members[index]
            if isinstance(one.process, Recorded):
                found = recorded_rates(one, take(values, cell), confidence, seed)
            else:
                found = _sampled(one, take(values, cell), sampling, int(batch))
            for place, interval in zip(cell[:real], found, strict=False):
                result[place] = interval
            if advance:
                advance(real)
    return result


@jax.jit
def _mean_trace(setting: Setting) -> Array:
    return jnp.trace(setting.curvature(setting.process.stationary()))


@double_precision
def _natural_steps(setting: Setting) -> int:
    """Return enough steps for the slowest time scales: 16 swings, and 8 times the friction's."""
    opt = setting.optimizer
    trace = float(_mean_trace(setting)) / setting.size
    swing = 2 * np.pi / np.sqrt(max(float(opt.alpha) * trace, 1e-12))
    need = max(_MIN_STEPS, 16 * swing, 8 / (1 - float(opt.momentum)))
    return int(min(need, _MAX_STEPS))


def lyapunov(
    setting: Setting,
    *,
    paths: int = 64,
    steps: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Return the almost-sure rate per step of one setting, with its confidence interval.

    The interval comes from independent paths. For a recording the path is given: the rate is that
    of `resonax.check` on more rows of the same kind, with its interval.

    Parameters
    ----------
    setting
        What is trained on what.
    paths
        Number of sampled paths.
    steps
        Steps of each path; half as many again go before, unmeasured. By default 4096, or more
        where the weights swing slowly.
    confidence
        Confidence of the interval.
    seed
        Seed of all random numbers.

    Examples
    --------
    >>> from resonax import Setting, Switching, heavy_ball
    >>> setting = Setting(Switching(period=6, amplitude=0.7, dim=5), heavy_ball(0.01, 0.95))
    >>> rate, low, high = lyapunov(setting, paths=16, steps=1024)
    >>> bool(0 < low < rate < high)  # every run diverges
    True
    """
    check_problem(setting, Setting)
    if isinstance(setting.process, Recorded) and not setting.process.repeat:
        return judge_recording(setting, confidence, seed)[1]
    if steps is None:
        check_reach(setting, paths, steps, confidence, seed)
        steps = _natural_steps(setting)
    found = lyapunov_rates(
        setting, own_values(setting), paths=paths, steps=steps, confidence=confidence, seed=seed
    )[0]
    if math.isnan(found.rate):
        raise ArgumentError(REASONS["overflow"])
    return found
