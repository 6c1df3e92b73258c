"""The guard against other remedies, on the paper's streams and on recordings.

Run: python benchmarks/guard_streams.py [--quick] [--figure PATH]
"""

from __future__ import annotations

import argparse
import functools
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from resonax.jax import guard

LR, OWN = 0.01, 0.95
FIXED = (0.95, 0.9, 0.85, 0.75, 0.5, 0.0)
LOST = 1e3  # distance from which a run counts as diverged


class Batch(NamedTuple):
    """Rows, (n, d + 1), their targets, (n,), and whether losses are summed."""

    rows: jax.Array
    targets: jax.Array


def nlms(step: float = 0.05) -> optax.GradientTransformationExtraArgs:
    """Return normalised least mean squares: the step is divided by the power of the rows."""

    def update(updates: Any, state: Any, params: Any = None, *, batch: Batch, **extra: Any) -> Any:
        del params, extra
        power = 2 * jnp.sum(batch.rows**2)
        return jax.tree.map(lambda g: -step * g / (1e-6 + power), updates), state

    return optax.GradientTransformationExtraArgs(lambda _: (), update)  # pyright: ignore


def reset_on_spike(lr: float = LR, momentum: float = OWN) -> optax.GradientTransformationExtraArgs:
    """Return SGDm that forgets its velocity where the loss exceeds ten times its mean."""

    def update(updates: Any, state: Any, params: Any = None, *, value: Any, **extra: Any) -> Any:
        del params, extra
        velocity, mean = state
        spike = value > 10 * mean
        velocity = jax.tree.map(
            lambda v, g: jnp.where(spike, 0.0, momentum * v) + g, velocity, updates
        )
        mean = jnp.where(jnp.isinf(mean), value, 0.99 * mean + 0.01 * value)
        return jax.tree.map(lambda v: -lr * v, velocity), (velocity, mean)

    def init(params: Any) -> Any:
        return optax.tree.zeros_like(params), jnp.asarray(jnp.inf)

    return optax.GradientTransformationExtraArgs(init, update)  # pyright: ignore


def methods(lr: float = LR) -> dict[str, optax.GradientTransformationExtraArgs]:
    support = optax.with_extra_args_support
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(lr, OWN))
    return {
        "guard safe": guard(lr, OWN, "safe"),
        "guard fastest": guard(lr, OWN, "fastest"),
        "clipping at 1": support(clipped),
        "Adam": support(optax.adam(lr)),
        "NLMS": nlms(),
        "reset on spike": reset_on_spike(lr),
        "shuffle buffer": support(optax.sgd(lr, OWN)),
        **{f"fixed {momentum:g}": support(optax.sgd(lr, momentum)) for momentum in FIXED},
    }


def square_loss(summed: bool) -> Callable[[Any, Batch], jax.Array]:
    def loss(params: jax.Array, batch: Batch) -> jax.Array:
        errors = (batch.rows @ params - batch.targets) ** 2
        return jnp.sum(errors) if summed else jnp.mean(errors)

    return loss


@functools.partial(jax.jit, static_argnames=("optimizer", "loss"))
def train(
    optimizer: Any, loss: Any, start: jax.Array, batches: Batch, goal: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return distances from the goal, (runs, steps), and the momentum that was used at the end."""

    def run(start: jax.Array, batches: Batch) -> tuple[jax.Array, jax.Array]:
        def step(carry: Any, batch: Batch) -> Any:
            params, state = carry
            value, grads = jax.value_and_grad(loss)(params, batch)
            updates, state = optimizer.update(
                grads, state, params, value=value, batch=batch, value_fn=lambda p: loss(p, batch)
            )
            params = params + updates
            return (params, state), jnp.linalg.norm(params - goal)

        (_, state), far = jax.lax.scan(step, (start, optimizer.init(start)), batches)
        return far, jnp.asarray(getattr(state, "momentum", jnp.nan))

    return jax.vmap(run)(start, batches)


def shuffled(batches: Batch, size: int, seed: int) -> Batch:
    """Return the stream as it leaves a shuffle buffer of some batches."""
    rng = np.random.default_rng(seed)
    runs, steps = batches.targets.shape[:2]
    order = np.empty((runs, steps), int)
    for run in range(runs):
        buffer = list(range(min(size, steps)))
        for step in range(steps):
            place = rng.integers(len(buffer))
            order[run, step] = buffer[place]
            following = step + size
            if following < steps:
                buffer[place] = following
            else:
                buffer.pop(place)
    rows = np.arange(runs)[:, None]
    return Batch(batches.rows[rows, order], batches.targets[rows, order])


def stream(kind: str, period: int, seeds: int, steps: int) -> tuple[Batch, jax.Array, bool]:
    """Return rows, start and reduction of Experiment 3 (square, sinusoid) or 4; 0 is iid."""
    rng = np.random.default_rng([period, *kind.encode()])
    batch = 1 if kind == "switching" else 5
    k = np.arange(steps)
    if kind == "switching":
        means = 0.5 * rng.normal(size=(seeds, steps, 5))
        if period:
            means = means[:, k // period]
    else:
        turn = k / period if period else rng.uniform(size=(seeds, steps))
        wave = np.sin(2 * np.pi * turn) if kind == "sinusoid" else np.where(turn % 1 < 0.5, 1, -1)
        means = np.zeros((seeds, steps, 5))
        means[..., 0] = 0.5 * wave
    rows = means[:, :, None] + 0.5 * rng.normal(size=(seeds, steps, batch, 5))
    rows = np.concatenate([rows, np.ones((seeds, steps, batch, 1))], axis=-1)
    targets = math.sqrt(0.1) * rng.normal(size=(seeds, steps, batch))
    start = 0.5 * rng.normal(size=(seeds, 6))
    made = Batch(*(jnp.asarray(part, jnp.float32) for part in (rows, targets)))
    return made, jnp.asarray(start, jnp.float32), kind != "switching"


def recording(name: str) -> tuple[Batch, jax.Array, jax.Array]:
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from recordings import RECORDINGS  # pyright: ignore[reportMissingImports]

    inputs, target = RECORDINGS[name]()
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    target = (target - target.mean()) / target.std()
    rows = np.column_stack([inputs, np.ones(len(inputs))])
    goal = np.linalg.lstsq(rows, target, rcond=None)[0]
    batch = Batch(jnp.asarray(rows[None, :, None], jnp.float32), jnp.asarray(target[None, :, None]))
    return batch, jnp.zeros((1, rows.shape[1])), jnp.asarray(goal, jnp.float32)


def compare(
    batches: Batch, start: Any, goal: Any, summed: bool, lr: float = LR
) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return for each method the end, the largest distance and the last momentum of each run."""
    found, loss = {}, LOSSES[summed]
    for name, optimizer in METHODS[lr].items():
        given = shuffled(batches, 64, 0) if name == "shuffle buffer" else batches
        far, momentum = train(optimizer, loss, start, given, goal)
        far = np.nan_to_num(np.asarray(far), nan=np.inf, posinf=np.inf)
        found[name] = far[:, -500:].mean(1), far.max(1), np.asarray(momentum)
    return found


LOSSES = {flag: square_loss(flag) for flag in (False, True)}
METHODS = {lr: methods(lr) for lr in (LR, 0.03)}


def print_table(title: str, found: dict[str, Any]) -> None:
    print(title)
    fixed = {mu: float(np.median(found[f"fixed {mu:g}"][0])) for mu in FIXED}
    best, near = min(fixed.values()), min(fixed[mu] for mu in (0.95, 0.9, 0.85))
    for name, (end, largest, momentum) in found.items():
        used = f"  last momentum {np.median(momentum):.2f}" if np.isfinite(momentum).all() else ""
        print(
            f"  {name:15} end {np.median(end):9.3g}  {np.median(end) / best:8.3g} x best fixed, "
            f"{np.median(end) / near:8.3g} x best of 0.85 to 0.95  "
            f"largest {largest.max():9.3g}  diverged {np.mean(end > LOST):4.0%}{used}"
        )


def draw(path: str, curves: dict[str, dict[int, dict[str, Any]]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(curves), figsize=(4.5 * len(curves), 3.6), sharey=True)
    shown = [name for name in METHODS[LR] if "fixed" not in name or name[6:] in ("0.95", "0.85")]
    for axis, (kind, by_period) in zip(np.atleast_1d(axes), curves.items(), strict=True):
        periods = sorted(by_period)
        for name in shown:
            ends = [min(float(np.median(by_period[period][name][0])), 1e12) for period in periods]
            width = 2.4 if name == "guard safe" else 1.0
            axis.plot(range(len(periods)), ends, label=name, linewidth=width)
        axis.set(yscale="log", xlabel="period (0: iid)", title=kind, xticks=range(len(periods)))
        axis.set_xticklabels(periods)
    np.atleast_1d(axes)[0].set_ylabel("median distance at the end")
    np.atleast_1d(axes)[-1].legend(fontsize=7, ncols=2)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--figure")
    options = parser.parse_args()
    seeds, steps = (4, 3000) if options.quick else (20, 10_000)
    periods = {"switching": [0, 3, 6, 12, 25, 50], "square": [0, 10, 12, 22, 28, 60]}
    periods["sinusoid"] = [0, 12, 22, 28, 60]
    if options.quick:
        periods = {"switching": [0, 6], "square": [0, 22]}
    curves: dict[str, dict[int, dict[str, Any]]] = {}
    begun = time.perf_counter()
    alone = []
    for kind, list_ in periods.items():
        curves[kind] = {}
        for period in list_:
            batches, start, summed = stream(kind, period, seeds, steps)
            found = compare(batches, start, jnp.zeros(6), summed)
            curves[kind][period] = found
            alone += (found["guard safe"][2] > 0.94).tolist() if period == 0 else []
            word = f"{kind}, {f'T = {period}' if period else 'iid'}, {seeds} seeds, {steps} steps"
            print_table(word, found)
            print(f"  {time.perf_counter() - begun:.0f} s so far", flush=True)
    print(f"iid runs in which `safe` left the momentum alone: {np.mean(alone):.1%} of {len(alone)}")
    for name, lr in (("san-francisco", LR), ("taylor", 0.03), ("mountain-car", LR)):
        batches, start, goal = recording(name)
        print_table(
            f"{name}, {batches.rows.shape[1]} rows, lr {lr}",
            compare(batches, start, goal, False, lr),
        )
    if options.figure:
        draw(options.figure, curves)


if __name__ == "__main__":
    main()
