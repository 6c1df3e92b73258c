"""The exact criterion of the expected dynamics: the product of the updates over a period."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from resonax.core.algebra import (
    Scaled,
    double_precision,
    log_radii,
    multiply,
    on_the_cpu,
    scaled_identity,
)
from resonax.core.threads import count_threads
from resonax.dynamics import Map, Setting
from resonax.theory.cells import Advance, Tile, Values, chunks, take, tiles
from resonax.theory.products import EXPECTED, Product, multiply_tile

__all__ = ["discrete_rates", "monodromy", "rates_by", "rational_period", "rational_periods"]

_AHEAD = 4  # tiles that wait for each thread
_CHUNK = 1024
_MAX_TURNS = 64
_MAX_STEPS = 4096
_TOLERANCE = 2e-4


def rational_period(period: float) -> tuple[int, int]:
    """Return a rational period steps/turns, so that the product of the updates repeats.

    After that many whole steps, that many periods have passed. A period that is no such fraction is
    replaced by the simplest one within a share of 2e-4 of it, or by the closest one with at most 64
    turns (fewer for long periods, to keep the steps below about 4096).

    Examples
    --------
    >>> rational_period(22), rational_period(22.5), rational_period(15 + 5 / 11)
    ((22, 1), (45, 2), (170, 11))
    """
    most = int(np.clip(_MAX_STEPS / period, 1, _MAX_TURNS))
    for turns in range(1, most + 1):
        steps = round(turns * period)
        if abs(steps / turns - period) <= _TOLERANCE * period:
            return steps, turns
    share = Fraction(float(period)).limit_denominator(most)
    return share.numerator, share.denominator


def rational_periods(setting: Setting, values: Values) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the values with every period replaced by a rational one, and its steps."""
    values = {name: np.asarray(array, dtype=float) for name, array in values.items()}
    count = len(next(iter(values.values())))
    cycles = values.get("period", np.full(count, setting.process.cycle, dtype=float))
    pairs = {cycle: rational_period(cycle) for cycle in np.unique(cycles)}
    steps, turns = np.array([pairs[cycle] for cycle in cycles]).T
    if hasattr(setting.process, "period"):
        values["period"] = steps / turns
    return values, steps


def monodromy(setting: Setting, steps: Array | int, limit: Array | int) -> Scaled:
    """Return the product of the expected maps of the first ``steps`` steps (at most ``limit``)."""
    discrete = Map(setting)

    def body(index: Array, product: Scaled) -> Scaled:
        matrix = discrete.expected(setting.process.moments(index))
        after = multiply(matrix, product)
        return jax.tree.map(lambda new, old: jnp.where(index < steps, new, old), after, product)

    return jax.lax.fori_loop(0, limit, body, scaled_identity(2 * setting.size))


@jax.jit
def _products(setting: Setting, values: dict[str, Array], steps: Array) -> Scaled:
    limit = jnp.max(steps)
    return jax.vmap(lambda v, n: monodromy(setting.at(v), n, limit))(values, steps)


def _tile_logs(
    product: Product, setting: Setting, values: Values, steps: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the places of the cells of each tile, and the logarithms of their radii.

    Each thread takes tile by tile: jax hands programs of one thread to one core, one by one.
    """

    @double_precision  # as seen by the thread that calls it
    @on_the_cpu
    def compute(tile: Tile) -> tuple[np.ndarray, np.ndarray]:
        return tile.places, log_radii(multiply_tile(setting, *tile[1:], product=product))

    made = tiles(setting, values, steps, product.cells)
    yield compute(next(made))  # compiles what the threads run
    ahead: deque[Future[tuple[np.ndarray, np.ndarray]]] = deque()
    with ThreadPoolExecutor(threads := count_threads()) as pool:
        for tile in made:
            ahead.append(pool.submit(compute, tile))
            if len(ahead) > _AHEAD * threads:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@double_precision
def rates_by(
    product: Product,
    general: Callable[[Setting, dict[str, np.ndarray], np.ndarray], Scaled],
    setting: Setting,
    values: Values,
    size: int,
    advance: Advance | None,
) -> np.ndarray:
    """Return the logarithm of the radius per step of every cell.

    Parameters
    ----------
    product
        What is multiplied, in tiles, where the weights are few.
    general
        The same for any number of weights, of ``size`` cells at once.
    setting, values, advance
        Of the cells.
    """
    values, steps = rational_periods(setting, values)
    logs = np.full(len(steps), np.nan)
    if len(steps) > 1 and setting.size <= product.most:
        for places, found in _tile_logs(product, setting, values, steps):
            logs[places] = found
            if advance:
                advance(np.unique(places[np.isfinite(logs[places])]).size)
    # What is left: many weights, one cell, or steps so large that a tile overflowed.
    left = np.flatnonzero(np.isnan(logs))
    for part, count in chunks(steps[left], max(1, min(size, len(left)))):
        index = left[part]
        found = log_radii(general(setting, take(values, index), steps[index]))
        logs[index[:count]] = found[:count]
        if advance:
            advance(count)
    return logs / steps


def discrete_rates(setting: Setting, values: Values, advance: Advance | None = None) -> np.ndarray:
    """Return the rate per step of every cell."""
    return rates_by(EXPECTED, _products, setting, values, _CHUNK, advance)
