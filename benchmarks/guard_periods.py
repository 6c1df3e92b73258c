"""The guard over every period of the paper's Experiments 3, 4 and 6, against fixed momenta.

Run: python benchmarks/guard_periods.py [square|switching|network ...] [--every N] [--figure PATH]

All periods and seeds of an experiment are one batch of runs, which a GPU takes at once. A period of
0 is the same inputs in random order. Inputs are drawn as the run goes, so that nothing is stored.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from resonax.jax import guard
from resonax.simulation.network import apply_network, he_layers, target

LR, OWN = 0.01, 0.95
FIXED = (0.95, 0.9, 0.85, 0.75, 0.5, 0.0)
LOST = {"square": 1e3, "switching": 1e3, "network": 10.0}  # a run that ends above it is lost
PERIODS = {"square": range(121), "switching": range(51), "network": range(101)}


class Task(NamedTuple):
    """What is learnt: inputs of a step, and how a run is judged."""

    dim: int
    batch: int
    amplitude: float
    variance: float
    summed: bool


TASKS = {
    "square": Task(5, 5, 0.5, 0.25, True),
    "switching": Task(5, 1, 0.5, 0.25, False),
    "network": Task(2, 10, math.sqrt(0.4), 0.1, False),
}


def mean_at(name: str, key: jax.Array, step: jax.Array, period: jax.Array) -> jax.Array:
    """Return the mean of the inputs of a step, (batch, dim); a period of 0 is iid."""
    task = TASKS[name]
    ordered = period > 0
    whole = jnp.maximum(period, 1)
    alone = jax.random.fold_in(key, step)
    if name == "square":
        wave = jnp.where((2 * step // whole) % 2 == 0, 1.0, -1.0)
        mixed = jax.random.rademacher(alone, (task.batch,), float)
        first = jnp.where(ordered, jnp.full(task.batch, wave), mixed)
        return task.amplitude * jnp.zeros((task.batch, task.dim)).at[:, 0].set(first)
    block = jax.random.normal(jax.random.fold_in(key, step // whole), (task.dim,))
    mixed = jax.random.normal(alone, (task.batch, task.dim))
    return task.amplitude * jnp.where(ordered, jnp.broadcast_to(block, mixed.shape), mixed)


def outputs(name: str, params: Any, x: jax.Array) -> jax.Array:
    if name == "network":
        return apply_network(params, x)
    return x @ params[:-1] + params[-1]


def begin(name: str, key: jax.Array) -> Any:
    if name == "network":
        return he_layers(jax.random.normal(key, (2 * 20 + 20 * 20 + 20,)), 2, (20, 20))
    return 0.5 * jax.random.normal(key, (TASKS[name].dim + 1,))


@functools.partial(jax.jit, static_argnames=("name", "optimizer", "steps"))
def train(
    name: str, optimizer: Any, steps: int, keys: jax.Array, periods: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return the error at the end, the largest on the way and the last momentum of each run.

    The error is the distance from the solution, or the loss of a network on fresh inputs.
    """
    task = TASKS[name]

    def loss_of(z: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sum((z - y) ** 2) if task.summed else jnp.mean((z - y) ** 2)

    def run(key: jax.Array, period: jax.Array) -> Any:
        start, means, rows, noise, test = jax.random.split(key, 5)
        wide = math.sqrt(task.amplitude**2 + task.variance)
        fresh = wide * jax.random.normal(test, (200, task.dim))

        def error(params: Any) -> jax.Array:
            if name == "network":
                return jnp.mean((apply_network(params, fresh) - target(fresh)) ** 2)
            return jnp.linalg.norm(params)

        def step(carry: Any, k: jax.Array) -> Any:
            params, state, total, largest = carry
            x = jax.random.normal(jax.random.fold_in(rows, k), (task.batch, task.dim))
            x = mean_at(name, means, k, period) + math.sqrt(task.variance) * x
            y = math.sqrt(0.1) * jax.random.normal(jax.random.fold_in(noise, k), (task.batch,))
            y = y + target(x) if name == "network" else y
            grads = jax.grad(lambda p: loss_of(outputs(name, p, x), y))(params)
            updates, state = optimizer.update(
                grads,
                state,
                params,
                output_fn=lambda p: outputs(name, p, x),
                loss_fn=lambda z: loss_of(z, y),
            )
            params = optax.apply_updates(params, updates)
            # The network is judged in every twentieth step: that costs more than to train it.
            judged = (k % 20 == 0) if name == "network" else True
            now = error(params)
            total = total + jnp.where((k >= steps - steps // 10) & judged, now, 0.0)
            return (params, state, total, jnp.maximum(largest, now)), None

        params = begin(name, start)
        carry = params, optimizer.init(params), jnp.zeros(()), jnp.zeros(())
        (_, state, total, largest), _ = jax.lax.scan(step, carry, jnp.arange(steps))
        count = steps // 10 // (20 if name == "network" else 1)
        return total / count, largest, jnp.asarray(getattr(state, "momentum", jnp.nan))

    return jax.vmap(run)(keys, periods)


def methods() -> dict[str, Any]:
    return {
        "guard safe": guard(LR, OWN, "safe"),
        **{f"fixed {mu:g}": optax.with_extra_args_support(optax.sgd(LR, mu)) for mu in FIXED},
    }


def sweep(name: str, steps: int, seeds: int, periods: list[int]) -> dict[str, np.ndarray]:
    """Return the end, the largest error and the last momentum, (3, periods, seeds), by method."""
    keys = jax.random.split(jax.random.key(0), len(periods) * seeds)  # the same for every method
    each = jnp.repeat(jnp.asarray(periods), seeds)
    found, begun = {}, time.perf_counter()
    for method, optimizer in methods().items():
        made = train(name, optimizer, steps, keys, each)
        rows = [np.asarray(part, float).reshape(len(periods), seeds) for part in made]
        found[method] = np.stack([np.nan_to_num(part, nan=np.inf) for part in rows[:2]] + rows[2:])
        print(f"  {method}: {time.perf_counter() - begun:.0f} s so far", flush=True)
    return found


def judge(name: str, found: dict[str, np.ndarray], periods: list[int]) -> None:
    """Print what the guard did over all periods."""
    ends = {method: np.median(rows[0], axis=1) for method, rows in found.items()}
    safe = found["guard safe"]
    lost = safe[0] > LOST[name]
    iid = periods.index(0)
    kept = np.mean(safe[2][iid] > OWN - 1e-3)
    print(f"  guarded runs that ended lost: {lost.sum()} of {lost.size}")
    print(f"  fixed 0.95 lost: {np.mean(found['fixed 0.95'][0] > LOST[name]):.1%} of its runs")
    print(f"  iid runs that kept their momentum: {kept:.0%}; error {ends['guard safe'][iid]:.3g}")
    print(f"    against {ends['fixed 0.95'][iid]:.3g} with fixed 0.95")
    resonant = ends["fixed 0.95"] > 1.5 * ends["fixed 0.95"][iid]
    print(f"  resonant periods: {np.asarray(periods)[resonant].tolist()}")
    for words, among in (("all", FIXED), ("0.85 to 0.95", FIXED[:3])):
        best = np.min([ends[f"fixed {mu:g}"] for mu in among], axis=0)
        ratio = (ends["guard safe"] / best)[resonant]
        if ratio.size:
            print(
                f"  over the best of {words} there: median {np.median(ratio):.2f}, "
                f"largest {ratio.max():.2f}, within 1.5 at {np.mean(ratio <= 1.5):.0%}"
            )
    print(f"  largest error on the way: {safe[1].max():.3g}")


def draw(path: str, found: dict[str, dict[str, np.ndarray]], periods: dict[str, list[int]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(4.6 * len(found), 3.5), squeeze=False)
    shown = {
        "fixed 0.95": ("#c1272d", 1.2),
        "fixed 0.85": ("#8a8a8a", 1.2),
        "fixed 0": ("#c9c9c9", 1.2),
        "guard safe": ("#0b61a4", 2.2),
    }
    for axis, (name, rows) in zip(axes[0], found.items(), strict=True):
        for method, (color, width) in shown.items():
            low, middle, high = np.quantile(np.minimum(rows[method][0], 1e12), (0.1, 0.5, 0.9), 1)
            axis.plot(periods[name], middle, color=color, linewidth=width, label=method)
            axis.fill_between(periods[name], low, high, color=color, alpha=0.15, linewidth=0)
        error = "test loss" if name == "network" else "distance from the solution"
        axis.set(yscale="log", xlabel="period in steps (0: iid)", ylabel=error, title=name)
        axis.grid(alpha=0.25)
    axes[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PERIODS))
    parser.add_argument("--quick", action="store_true", help="few periods, seeds and steps")
    parser.add_argument("--every", type=int, default=1, help="only every N-th period")
    parser.add_argument("--figure", help="where to draw the errors over the period")
    options = parser.parse_args()
    seeds = 4 if options.quick else 20
    found, periods = {}, {}
    for name in options.names:
        steps = 2000 if options.quick else 20_000 if name == "network" else 10_000
        periods[name] = list(PERIODS[name])[:: 12 if options.quick else options.every]
        print(f"{name}: {len(periods[name])} periods, {seeds} seeds, {steps} steps, {LR=}, {OWN=}")
        found[name] = sweep(name, steps, seeds, periods[name])
        judge(name, found[name], periods[name])
    if options.figure:
        draw(options.figure, found, periods)


if __name__ == "__main__":
    main()
