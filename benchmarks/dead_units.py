"""What resonance does to the network of Experiment 6: units of its second layer that still answer.

Run: python benchmarks/dead_units.py

A ReLU unit is alive if some of 500 fresh inputs make it answer. 20 networks for each line.
"""

from __future__ import annotations

import math
from typing import Any

import guard_periods as periods
import jax
import jax.numpy as jnp
import numpy as np
import optax

from resonax.simulation.network import apply_network, target

TASK = periods.TASKS["network"]


def alive(momentum: float, period: int, steps: int, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return the share of the second layer that is alive after training, and the loss."""
    optimizer = optax.sgd(periods.LR, momentum)
    start, means, rows, noise, test = jax.random.split(key, 5)
    wide = math.sqrt(TASK.amplitude**2 + TASK.variance)
    fresh = wide * jax.random.normal(test, (500, TASK.dim))

    def step(carry: Any, k: jax.Array) -> Any:
        layers, state = carry
        x = jax.random.normal(jax.random.fold_in(rows, k), (TASK.batch, TASK.dim))
        mean = periods.mean_at("network", means, k, jnp.asarray(period))
        x = mean + math.sqrt(TASK.variance) * x
        error = jax.random.normal(jax.random.fold_in(noise, k), (TASK.batch,))
        y = target(x) + math.sqrt(0.1) * error
        grads = jax.grad(lambda p: jnp.mean((apply_network(p, x) - y) ** 2))(layers)
        updates, state = optimizer.update(grads, state, layers)
        return (optax.apply_updates(layers, updates), state), None

    layers = periods.begin("network", start)
    (layers, _), _ = jax.lax.scan(step, (layers, optimizer.init(layers)), jnp.arange(steps))
    hidden = jax.nn.relu(fresh @ layers[0][0] + layers[0][1])
    answers = (hidden @ layers[1][0] + layers[1][1] > 0).any(axis=0)
    return answers.mean(), jnp.mean((apply_network(layers, fresh) - target(fresh)) ** 2)


def main() -> None:
    for period in (0, 10):
        for momentum in (0.95, 0.85):
            for steps in (500, 6000):
                run = jax.jit(
                    jax.vmap(lambda key, m=momentum, t=period, n=steps: alive(m, t, n, key))
                )
                found = run(jax.random.split(jax.random.key(0), 20))
                share, loss = (np.asarray(part) for part in found)
                print(
                    f"{f'T = {period}' if period else 'iid':6} momentum {momentum}, {steps} steps: "
                    f"alive {np.median(share):.0%}, loss {np.median(loss):.2g}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
