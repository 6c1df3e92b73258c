"""The guard on the network of Experiment 6: test loss over the period, against fixed momenta.

Run: python benchmarks/guard_network.py [--quick]
"""

from __future__ import annotations

import functools
import math
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from resonax.jax import guard
from resonax.simulation.network import apply_network, he_layers, target

LR, OWN, BATCH, VARIANCE = 0.01, 0.95, 10, 0.4
METHODS = {
    "guard safe": guard(LR, OWN, "safe"),
    **{
        f"fixed {momentum:g}": optax.with_extra_args_support(optax.sgd(LR, momentum))
        for momentum in (0.95, 0.85, 0.5)
    },
}


def loss(layers: Any, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((apply_network(layers, x) - y) ** 2)


def inputs(key: jax.Array, mean: jax.Array, rows: int) -> jax.Array:
    return mean + math.sqrt(0.1) * jax.random.normal(key, (rows, 2))


@functools.partial(jax.jit, static_argnames=("name", "steps", "period"))
def train(key: jax.Array, name: str, steps: int, period: int) -> tuple[jax.Array, jax.Array]:
    """Return the test loss over the last tenth, and the momentum that was used at the end."""
    optimizer = METHODS[name]

    def run(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        begin, means, rows, noise, test = jax.random.split(key, 5)
        layers = he_layers(jax.random.normal(begin, (2 * 20 + 20 * 20 + 20,)), 2, (20, 20))
        spread = math.sqrt(VARIANCE)
        places = jax.random.normal(test, (400, 2)) * math.sqrt(VARIANCE + 0.1)

        def step(carry: Any, k: jax.Array) -> Any:
            layers, state = carry
            if period:
                mean = spread * jax.random.normal(jax.random.fold_in(means, k // period), (2,))
            else:
                mean = spread * jax.random.normal(jax.random.fold_in(means, k), (BATCH, 2))
            x = inputs(jax.random.fold_in(rows, k), mean, BATCH)
            y = target(x) + math.sqrt(0.1) * jax.random.normal(
                jax.random.fold_in(noise, k), (BATCH,)
            )
            grads = jax.grad(loss)(layers, x, y)
            updates, state = optimizer.update(
                grads,
                state,
                layers,
                output_fn=lambda layers: apply_network(layers, x),
                loss_fn=lambda z: jnp.mean((z - y) ** 2),
            )
            layers = optax.apply_updates(layers, updates)
            seen = jax.lax.dynamic_slice_in_dim(places, (k % 20) * 20, 20)
            return (layers, state), loss(layers, seen, target(seen))

        start = (layers, optimizer.init(layers))
        (_, state), found = jax.lax.scan(step, start, jnp.arange(steps))
        return found[-steps // 10 :].mean(), jnp.asarray(getattr(state, "momentum", jnp.nan))

    return jax.vmap(run)(jax.random.split(key, SEEDS))


SEEDS = 4 if "--quick" in sys.argv else 20


def main() -> None:
    steps = 1500 if "--quick" in sys.argv else 6000
    begun = time.perf_counter()
    print(f"network 2-20-20-1, v = {VARIANCE}, {BATCH} samples, {SEEDS} seeds, {steps} steps")
    for period in (0, 10, 40):
        row = []
        for name in METHODS:
            found, momentum = (
                np.asarray(part) for part in train(jax.random.key(period), name, steps, period)
            )
            finite = np.where(np.isfinite(found), found, np.inf)
            text = f"{name} {np.median(finite):.3f} (largest {finite.max():.3g})"
            if np.isfinite(momentum).all():
                text += f", momentum kept in {np.mean(momentum > OWN - 1e-3):.0%}"
            row.append(text)
        print(f"  {f'T = {period}' if period else 'iid':8} {'; '.join(row)}")
        print(f"           {time.perf_counter() - begun:.0f} s so far", flush=True)


if __name__ == "__main__":
    main()
