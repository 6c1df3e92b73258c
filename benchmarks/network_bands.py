"""Periods at which alternating domains harm networks under AdamW, measured and predicted.

    python benchmarks/network_bands.py prepare data.npz
    python benchmarks/network_bands.py measure data.npz [--scale full] [--out OUT] [--only NAME]
    python benchmarks/network_bands.py table OUT

Batches come half a period from one domain and half from the other; at period 0 each batch holds
both. All runs of a network (seed, period, beta1, lr) are one program. Measured is the mean loss of
both domains over the second half of the steps, on fresh samples of what is trained on, against
that at period 0. ``prepare`` collects the data from installed packages, for machines without them.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from network_tasks import Domains, Network, Params, combinations, prepare

WARM_UP, BETA2, DECAY = 100, 0.95, 0.01
EVERY = 13  # steps between evaluations: no divisor of a period, so that all phases are met


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    periods: tuple[int, ...] = (0, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512)
    beta1: tuple[float, ...] = (0.5, 0.8, 0.9, 0.95, 0.98)
    lr: tuple[float, ...] = (1e-3, 3e-3)
    seeds: int = 3
    steps: int = 1040
    width: int = 96
    layers: int = 3
    batch: int = 16
    evaluated: int = 64  # rows of each domain
    chunk: int = 5 * EVERY  # steps between two lines of progress


SCALES = {
    "full": Scale(),
    "smoke": Scale((0, 4, 16), (0.5, 0.95), (3e-3,), 1, 130, 16, 1, 4, 8),
}


# Training: all runs at once.


class Run(NamedTuple):
    """What differs from run to run."""

    lr: Array
    beta1: Array
    period: Array
    seed: Array


def loss_of(network: Network, params: Params, x: Array, y: Array) -> Array:
    losses = optax.softmax_cross_entropy_with_integer_labels(network.apply(params, x), y)
    return losses.mean()


def rows_of(period: Array, step: Array, batch: int) -> Array:
    """Return the domain of each row of a batch."""
    mixed = jnp.arange(batch) % 2
    ordered = (step % jnp.maximum(period, 1)) >= period / 2
    return jnp.where(period == 0, mixed, ordered.astype(int))


def optimizer(lr: Array | float, beta1: Array | float) -> optax.GradientTransformation:
    return optax.adamw(lr, b1=beta1, b2=BETA2, weight_decay=DECAY)  # pyrefly: ignore[bad-argument-type]


@functools.partial(jax.jit, static_argnums=(0, 1, 2), donate_argnums=(4,))
def train(
    network: Network, domains: Domains, scale: Scale, runs: Run, state: Any, start: Array
) -> tuple[Any, Array]:
    """Train all runs for some steps; returns states and losses, (evaluations, runs, domains)."""
    fresh = jnp.repeat(jnp.arange(2), scale.evaluated)
    test = domains.draw(jax.random.key(10**6), fresh)

    def one(run: Run, state: Any, step: Array) -> Any:
        params, moments = state
        key = jax.random.fold_in(jax.random.key(run.seed), step)
        x, y = domains.draw(key, rows_of(run.period, step, domains.rows * scale.batch))
        gradient = jax.grad(functools.partial(loss_of, network))(params, x, y)
        lr = run.lr * jnp.minimum(1.0, (step + 1) / WARM_UP)
        change, moments = optimizer(lr, run.beta1).update(gradient, moments, params)
        return optax.apply_updates(params, change), moments

    def judge(state: Any) -> Array:
        losses = optax.softmax_cross_entropy_with_integer_labels(
            network.apply(state[0], test[0]), test[1]
        )
        return losses.reshape(2, -1).mean(1)

    def some(state: Any, first: Array) -> tuple[Any, Array]:
        each = lambda state, step: (jax.vmap(one, (0, 0, None))(runs, state, step), None)  # noqa: E731
        state, _ = jax.lax.scan(each, state, first + jnp.arange(EVERY))
        return state, jax.vmap(judge)(state)

    return jax.lax.scan(some, state, start + EVERY * jnp.arange(scale.chunk // EVERY))


def measure(name: str, network: Network, domains: Domains, scale: Scale) -> dict[str, Any]:
    """Return the losses of all runs of a network, (lr, beta1, period, seed, evaluation, domain)."""
    axes = (scale.beta1, scale.periods, range(scale.seeds))
    losses = []
    for lr in scale.lr:
        beta1, period, seed = map(jnp.array, zip(*itertools.product(*axes), strict=True))
        runs = Run(jnp.full(len(seed), lr), beta1, period, seed)
        params = jax.vmap(lambda s: network.init(jax.random.key(s)))(seed)
        state: Any = (params, jax.vmap(optimizer(lr, 0.9).init)(params))
        found, begun = [], time.time()
        for start in range(0, scale.steps, scale.chunk):
            state, some = train(network, domains, scale, runs, state, jnp.array(start))
            found.append(np.asarray(some))
            left = (time.time() - begun) * (scale.steps / (start + scale.chunk) - 1)
            print(
                f"\r{name} lr {lr:g}: step {start + scale.chunk} of {scale.steps}, "
                f"about {left:.0f} s left ",
                end="",
                flush=True,
            )
        print(f"\r{name} lr {lr:g}: {scale.steps} steps in {time.time() - begun:.0f} s", " " * 20)
        shape = (*(len(axis) for axis in axes), -1, 2)
        losses.append(np.concatenate(found).transpose(1, 0, 2).reshape(shape))
    size = sum(leaf.size for leaf in jax.tree.leaves(params)) // len(seed)
    return {
        "name": name,
        "parameters": int(size),
        "dims": ["lr", "beta1", "period", "seed", "evaluation", "domain"],
        "lr": scale.lr,
        "beta1": scale.beta1,
        "period": scale.periods,
        "every": EVERY,
        "steps": scale.steps,
        "loss": np.round(np.stack(losses), 5).tolist(),
    }


def final(result: dict[str, Any]) -> np.ndarray:
    """Return the mean loss over the second half of the steps, (lr, beta1, period, seed)."""
    loss = np.array(result["loss"], dtype=float)
    return loss[..., loss.shape[-2] // 2 :, :].mean((-1, -2))


def table(folder: Path) -> None:
    """Print the excess loss of all networks, with its standard error over the seeds."""
    for path in sorted(folder.glob("bands-*.json")):
        result = json.loads(path.read_text())
        loss = final(result)
        print(f"\n{result['name']}, {result['parameters']:,} parameters")
        heads = "".join(f"{period:>8}" for period in result["period"][1:])
        for place, lr in enumerate(result["lr"]):
            print(f"lr {lr:g}  beta1   mixed{heads}")
            for row, beta1 in enumerate(result["beta1"]):
                mixed, ordered = loss[place, row, 0], loss[place, row, 1:]
                excess = (ordered - mixed).mean(-1)
                line = "".join(f"{number:8.3f}" for number in excess)
                print(f"{beta1:>15} {mixed.mean():7.3f}{line}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("command", choices=("prepare", "measure", "table"))
    parser.add_argument("path", type=Path)
    parser.add_argument("--scale", choices=SCALES, default="full")
    parser.add_argument("--out", type=Path, default=Path("bands"))
    parser.add_argument("--only", default="", help="names of networks that contain this")
    options = parser.parse_args()
    if options.command == "prepare":
        return prepare(options.path)
    if options.command == "table":
        return table(options.path)
    options.out.mkdir(parents=True, exist_ok=True)
    scale = SCALES[options.scale]
    for name, network, domains in combinations(options.path, scale.width, scale.layers):
        path = options.out / f"bands-{name}.json"
        if options.only in name and not path.exists():
            path.write_text(json.dumps(measure(name, network, domains, scale)))
    return table(options.out)


if __name__ == "__main__":
    main()
