"""The guard over every period of the paper's Experiments 3, 4 and 6, against other remedies.

Run: python benchmarks/guard_periods.py [switching|square|sinusoid|network ...] [--every N]
    [--seeds N] [--results FILE.npz] [--figure PATH]

All periods and seeds of an experiment are one batch of runs, which a GPU takes at once. A period of
0 is the same inputs in random order. Inputs are drawn as the run goes, so that nothing is stored.
Results that were stored before are read, so that a figure can be drawn anew.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from remedies import FIXED, NLMS, OWN, SAFE, SHUFFLE, WARM, methods, shuffled

from resonax.simulation.network import apply_network, first_layers, target

LR, NOISE = 0.01, 0.1
LOST = {"switching": 1e3, "square": 1e3, "sinusoid": 1e3, "network": 10.0}  # ends above it
PERIODS = {
    "switching": range(51),
    "square": range(121),
    "sinusoid": range(121),
    "network": range(101),
}
TITLES = {
    "switching": "switching mean (Exp. 4)",
    "square": "square wave, 5 samples (Exp. 3)",
    "sinusoid": "sinusoid, 5 samples",
    "network": "network (Exp. 6)",
}
NEAR = FIXED[:3]


class Task(NamedTuple):
    """What is learnt: inputs of a step, and how a run is judged."""

    dim: int
    batch: int
    amplitude: float
    variance: float
    summed: bool


TASKS = {
    "switching": Task(5, 1, 0.5, 0.25, False),
    "square": Task(5, 5, 0.5, 0.25, True),
    "sinusoid": Task(5, 5, 0.5, 0.25, True),
    "network": Task(2, 10, math.sqrt(0.4), 0.1, False),
}


def mean_at(name: str, key: jax.Array, step: jax.Array, period: jax.Array) -> jax.Array:
    """Return the mean of the inputs of a step, (batch, dim); a period of 0 is iid."""
    task = TASKS[name]
    ordered = period > 0
    whole = jnp.maximum(period, 1)
    alone = jax.random.fold_in(key, step)
    if name in ("square", "sinusoid"):
        turn = step / whole
        wave = jnp.where((2 * step // whole) % 2 == 0, 1.0, -1.0)
        mixed = jax.random.rademacher(alone, (task.batch,), float)
        if name == "sinusoid":
            wave = jnp.sin(2 * jnp.pi * (turn - jnp.floor(turn)))
            mixed = jnp.sin(2 * jnp.pi * jax.random.uniform(alone, (task.batch,)))
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
        return first_layers(jax.random.normal(key, (2 * 20 + 20 * 20 + 20,)), 2, (20, 20))
    return 0.5 * jax.random.normal(key, (TASKS[name].dim + 1,))


def power(name: str) -> jax.Array:
    """Return the mean square of each input of a linear stream, and of the constant one."""
    task = TASKS[name]
    waves = jnp.zeros(task.dim).at[0].set(0.5 if name == "sinusoid" else 1.0)
    around = jnp.ones(task.dim) if name == "switching" else waves
    return jnp.append(task.amplitude**2 * around + task.variance, 1.0)


class Found(NamedTuple):
    """Of each run: error and squared prediction error at the end, largest error, last momentum.

    The error is the distance from the solution, or the loss of a network on fresh inputs.
    """

    end: Any
    squared: Any
    largest: Any
    momentum: Any


@functools.partial(jax.jit, static_argnames=("name", "optimizer"))
def train(
    name: str, optimizer: Any, keys: jax.Array, periods: jax.Array, orders: jax.Array
) -> Found:
    """Train all runs; the rows of ``orders`` are taken in turn."""
    task = TASKS[name]
    steps = orders.shape[1]

    def loss_of(z: jax.Array, y: jax.Array) -> jax.Array:
        return jnp.sum((z - y) ** 2) if task.summed else jnp.mean((z - y) ** 2)

    def run(key: jax.Array, period: jax.Array, row: jax.Array) -> Found:
        start, means, rows, noise, test = jax.random.split(key, 5)
        wide = math.sqrt(task.amplitude**2 + task.variance)
        fresh = wide * jax.random.normal(test, (200, task.dim))

        def errors(params: Any) -> tuple[jax.Array, jax.Array]:
            if name == "network":
                loss = jnp.mean((apply_network(params, fresh) - target(fresh)) ** 2)
                return loss, loss
            return jnp.linalg.norm(params), jnp.sum(power(name) * params**2)

        def step(carry: Any, index: jax.Array) -> Any:
            params, state, total, largest = carry
            k = orders[row, index]
            x = jax.random.normal(jax.random.fold_in(rows, k), (task.batch, task.dim))
            x = mean_at(name, means, k, period) + math.sqrt(task.variance) * x
            y = math.sqrt(NOISE) * jax.random.normal(jax.random.fold_in(noise, k), (task.batch,))
            y = y + target(x) if name == "network" else y
            value, grads = jax.value_and_grad(lambda p: loss_of(outputs(name, p, x), y))(params)
            updates, state = optimizer.update(
                grads,
                state,
                params,
                value=value,
                rows=jnp.append(x, jnp.ones((task.batch, 1)), axis=1),
                output_fn=lambda p: outputs(name, p, x),
                loss_fn=lambda z: loss_of(z, y),
            )
            params = optax.apply_updates(params, updates)
            # The network is judged in every twentieth step: that costs more than to train it.
            judged = (index % 20 == 0) if name == "network" else True
            now = jnp.stack(errors(params))
            total = total + jnp.where((index >= steps - steps // 10) & judged, now, 0.0)
            return (params, state, total, jnp.maximum(largest, now[0])), None

        params = begin(name, start)
        carry = params, optimizer.init(params), jnp.zeros(2), jnp.zeros(())
        (_, state, total, largest), _ = jax.lax.scan(step, carry, jnp.arange(steps))
        end, squared = total / (steps // 10 // (20 if name == "network" else 1))
        momentum = jnp.asarray(getattr(state, "momentum", jnp.nan))
        return Found(end, squared + NOISE, largest, momentum)

    return jax.vmap(run)(keys, periods, jnp.arange(len(keys)) % len(orders))


def sweep(name: str, steps: int, seeds: int, periods: list[int]) -> dict[str, Found]:
    """Return what was found, (periods, seeds), by method."""
    keys = jax.random.split(jax.random.key(0), len(periods) * seeds)  # the same for every method
    each = jnp.repeat(jnp.asarray(periods), seeds)
    plain = jnp.arange(steps)[None]
    mixed = jnp.stack([jnp.asarray(shuffled(steps, seed)) for seed in range(seeds)])
    found, begun = {}, time.perf_counter()
    for method, optimizer in methods(LR).items():
        if name == "network" and method == NLMS:
            continue  # it divides by the power of the inputs of a linear model
        made = train(name, optimizer, keys, each, mixed if method == SHUFFLE else plain)
        rows = [np.asarray(part, float).reshape(len(periods), seeds) for part in made]
        whole = [np.nan_to_num(part, nan=np.inf) for part in rows[:3]]
        found[method] = Found(whole[0], whole[1], whole[2], rows[3])
        print(f"  {method}: {time.perf_counter() - begun:.0f} s so far", flush=True)
    return found


def judge(name: str, found: dict[str, Found], periods: list[int]) -> None:
    """Print what each method did over all periods."""
    ends = {method: np.median(rows.end, axis=1) for method, rows in found.items()}
    wrong = {method: np.sqrt(np.median(rows.squared, axis=1)) for method, rows in found.items()}
    iid, plain = periods.index(0), ends[f"fixed {OWN:g}"]
    resonant, strong = (plain > fold * plain[iid] for fold in (1.5, 3.0))
    print(
        f"  resonant periods, 0.95 ends above 1.5 x iid: {np.asarray(periods)[resonant].tolist()}"
    )
    print(f"  strongly, above 3 x iid: {np.asarray(periods)[strong].tolist()}")
    every = np.stack([ends[f"fixed {mu:g}"] for mu in FIXED])
    settled = np.argmax(
        every <= 1.5 * every[:, [iid]], axis=0
    )  # the largest that does not resonate
    goal = np.take_along_axis(every, settled[None], axis=0)[0]
    best, near = every.min(axis=0), every[: len(NEAR)].min(axis=0)
    exact = np.min([wrong[f"fixed {mu:g}"] for mu in FIXED], axis=0)
    for method in (SAFE, WARM):
        kept = np.mean(found[method].momentum[iid] > OWN - 1e-3)
        there = "; at the resonant periods" if resonant.any() else ""
        print(f"  {method}: {kept:.0%} of the iid runs kept their momentum{there}")
        for words, ratio in (
            ("error over the largest fixed that does not resonate", ends[method] / goal),
            ("error over the best of 0.95, 0.9, 0.85", ends[method] / near),
            ("error over the best of all fixed", ends[method] / best),
            ("root of the squared prediction error over the best of all", wrong[method] / exact),
        ):
            for which, where in (("", resonant), (", strongly", strong)):
                if where.any():
                    part = ratio[where]
                    print(
                        f"    {words}{which}: median {np.median(part):.2f}, largest "
                        f"{part.max():.2f}, within 1.5 at {np.mean(part <= 1.5):.0%}"
                    )
    print(f"  {'':15} {'iid':>9} {'resonant':>9} {'worst T':>9} {'largest':>9}  lost runs")
    for method, rows in found.items():
        lost = rows.end > LOST[name]
        there = np.median(ends[method][resonant]) if resonant.any() else np.nan
        print(
            f"  {method:15} {ends[method][iid]:9.3g} {there:9.3g} {ends[method].max():9.3g} "
            f"{rows.largest.max():9.3g}  {lost.sum()} of {lost.size}"
        )


def draw(path: str, found: dict[str, dict[str, Found]], periods: dict[str, list[int]]) -> None:
    import matplotlib.pyplot as plt

    shown = {
        "fixed 0.95": ("#c1272d", 1.4, "-"),
        "reset on spike": ("#e58b88", 1.1, "--"),
        SHUFFLE: ("#b58900", 1.1, "-"),
        "clipping at 1": ("#6b8e23", 1.1, "-"),
        "fixed 0.85": ("#777777", 1.3, "-"),
        "Adam": ("#a08fc0", 1.1, "-"),
        NLMS: ("#c9b6a0", 1.1, "-"),
        SAFE: ("#0b61a4", 2.2, "-"),
        WARM: ("#35a7d8", 1.8, "--"),
    }
    rows = math.ceil(len(found) / 2)
    columns = min(2, len(found))
    figure, axes = plt.subplots(rows, columns, figsize=(5 * columns, 3.4 * rows), squeeze=False)
    for axis in axes.flat[len(found) :]:
        axis.remove()
    for axis, (name, by_method) in zip(axes.flat, found.items(), strict=False):
        for method, (color, width, style) in shown.items():
            if method not in by_method:
                continue
            middle = np.median(np.minimum(by_method[method].end, 1e30), axis=1)
            axis.plot(periods[name], middle, style, color=color, linewidth=width, label=method)
        error = "test loss" if name == "network" else "distance from the solution"
        axis.set(yscale="log", xlabel="period in steps (0: iid)", ylabel=error, title=TITLES[name])
        axis.set_ylim((0.01, 1) if name == "network" else (0.02, 30))  # what diverges leaves it
        axis.yaxis.set_major_formatter("{x:g}")
        axis.yaxis.set_minor_formatter("")
        axis.set_xlim(0, min(max(periods[name]), 100 if name == "network" else 60))
        axis.grid(alpha=0.25)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=5, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.13 / rows, 1, 1))
    figure.savefig(path, dpi=130)


def main() -> None:
    np.seterr(over="ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(PERIODS))
    parser.add_argument("--quick", action="store_true", help="few periods, seeds and steps")
    parser.add_argument("--every", type=int, default=1, help="only every N-th period")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--results", help="where to store all numbers, or to read them from")
    parser.add_argument("--figure", help="where to draw the errors over the period")
    options = parser.parse_args()
    seeds = 4 if options.quick else options.seeds
    store = Path(options.results) if options.results else None
    found: dict[str, dict[str, Found]] = {}
    if store is not None and store.exists():
        for path, rows in np.load(store).items():
            name, method = path.split("/")
            found.setdefault(name, {})[method] = Found(*rows)
    periods = {
        name: list(PERIODS[name])[:: 12 if options.quick else options.every]
        for name in options.names
    }
    for name in options.names:
        steps = 2000 if options.quick else 20_000 if name == "network" else 10_000
        print(f"{name}: {len(periods[name])} periods, {seeds} seeds, {steps} steps, {LR=}, {OWN=}")
        if name not in found:
            found[name] = sweep(name, steps, seeds, periods[name])
            if store is not None:
                rows = {f"{a}/{b}": np.stack(c) for a, d in found.items() for b, c in d.items()}
                np.savez(store, **rows)  # pyrefly: ignore[bad-argument-type]
        judge(name, found[name], periods[name])
    if options.figure:
        draw(options.figure, {name: found[name] for name in options.names}, periods)


if __name__ == "__main__":
    main()
