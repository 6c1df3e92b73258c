"""The theory's prediction at a state of a run, for ``network_bands.py``, and how it compares."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from network_tasks import Domains, Network

from resonax.jax.phases import make_phases
from resonax.learners.adaptive import Adaptive
from resonax.theory.alternation import (
    canonical,
    driven_orbit,
    growth,
    metric_of,
    phase_steps,
    settle,
)
from resonax.theory.subspace import Phase, Subspace, subspaces

__all__ = ["ATTEMPTS", "Adaptive", "peak_of", "predict", "sample"]

ATTEMPTS = ("averaged", "frozen", "settled")


def mean_loss(outputs: jax.Array, y: jax.Array) -> jax.Array:
    return optax.softmax_cross_entropy_with_integer_labels(outputs, y).mean()


def sample(domains: Domains, rows: int, count: int) -> dict[str, list[Any]]:
    """Return batches of each domain, of the size that is trained on."""
    keys = jax.random.split(jax.random.key(10**7), 2 * count).reshape(2, count)
    return {
        name: [domains.draw(key, jnp.full(rows, place)) for key in keys[place]]
        for place, name in enumerate(("first", "second"))
    }


def predict(
    network: Network,
    batches: dict[str, list[Any]],
    params: Any,
    square: Any,
    form: Adaptive,
    periods: tuple[int, ...],
    sampled: int,
    directions: int,
    length: int,
) -> dict[str, Any]:
    """Return rates and excess losses over the period, at a state of a run.

    ``rate_half`` is the rate with half the directions.
    """
    made = make_phases(network.apply, mean_loss, params, batches, (1, 1), curvature_batches=sampled)
    flat = np.asarray(jax.flatten_util.ravel_pytree(square)[0])
    metric = metric_of(form, flat)
    *_, space = subspaces(made, metric, sizes=[directions], keep_products=True)
    return {
        "directions": space.reduced.size,
        "curvature": float(np.linalg.eigvalsh(space.reduced.means.mean(0))[-1]),
        **_over_periods(made, space, flat, form, periods, length),
    }


def _over_periods(
    made: list[Phase],
    space: Subspace,
    square: np.ndarray,
    form: Adaptive,
    periods: tuple[int, ...],
    length: int,
) -> dict[str, Any]:
    rule = canonical(form)[0]
    reduced = space.reduced
    half = reduced.head(reduced.size // 2).means
    products: Any = jnp.asarray(space.products)
    known: Any = jnp.asarray(space.directions)
    there = space._replace(directions=known, products=products)
    gradients: Any = jnp.stack([jnp.asarray(phase.gradients.mean(0)) for phase in made])
    now: Any = jnp.asarray(square)

    def at(period: int) -> dict[str, Any]:
        steps = phase_steps((1, 1), period)
        own = reduced._replace(steps=steps)
        with jax.default_matmul_precision("highest"):
            settled = settle(rule, form, there, gradients, now, steps, length=length)
        return {
            "rate": growth(rule, reduced.means, steps),
            "rate_half": growth(rule, half, steps),
            "averaged": driven_orbit(rule, own, is_averaged=True).excess,
            "frozen": driven_orbit(rule, own).excess,
            "settled": settled.excess,
            "modes": [[float(number) for number in mode] for mode in settled.modes],
        }

    with ThreadPoolExecutor(8) as pool:
        rows = list(pool.map(at, periods))
    mixed = growth(rule, reduced.means.mean(0)[None], (1,))
    alone = [growth(rule, one[None], (1,)) for one in reduced.means]
    return {name: [row[name] for row in rows] for name in rows[0]} | {
        "mixed": mixed,
        "alone": alone,
    }


def peak_of(periods: np.ndarray, excess: np.ndarray) -> tuple[float, float, float] | None:
    """Return the worst period and the ends of the band of at least half that; None if it is an end.

    Where a prediction is infinite, the band is where it is.
    """
    excess = np.where(np.isnan(excess), -np.inf, excess)
    height = excess.max()
    if not height > 0:
        return None
    is_high = np.isinf(excess) if np.isinf(height) else excess >= height / 2
    high = np.flatnonzero(is_high)
    place = int(np.exp(np.log(high + 1).mean()).round()) - 1 if np.isinf(height) else None
    place = int(np.argmax(excess)) if place is None else int(high[np.abs(high - place).argmin()])
    first = last = place
    while first > 0 and is_high[first - 1]:
        first -= 1
    while last < len(excess) - 1 and is_high[last + 1]:
        last += 1
    return float(periods[place]), float(periods[first]), float(periods[last])
