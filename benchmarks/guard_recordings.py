"""The guard against other remedies on recordings: one pass over real rows in their own order.

Run: python benchmarks/guard_recordings.py
"""

from __future__ import annotations

import functools
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from remedies import SHUFFLE, methods, shuffled

SETTINGS = (("san-francisco", 0.01), ("taylor", 0.03), ("mountain-car", 0.01))


def recording(name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return standardised rows with a bias, (n, d), targets, (n,), and the least-squares goal."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
    from recordings import RECORDINGS  # pyright: ignore[reportMissingImports]

    inputs, target = RECORDINGS[name]()
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    target = (target - target.mean()) / target.std()
    rows = np.column_stack([inputs, np.ones(len(inputs))])
    return rows, target, np.linalg.lstsq(rows, target, rcond=None)[0]


@functools.partial(jax.jit, static_argnames="optimizer")
def train(optimizer: Any, rows: jax.Array, targets: jax.Array, goal: jax.Array) -> tuple[Any, Any]:
    """Return the distance from the goal in each step, and the last momentum."""

    def loss(params: jax.Array, row: jax.Array, target: jax.Array) -> jax.Array:
        return (row @ params - target) ** 2

    def step(carry: Any, batch: Any) -> Any:
        params, state = carry
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, state = optimizer.update(
            grads, state, params, value=value, rows=batch[0], value_fn=lambda p: loss(p, *batch)
        )
        params = params + updates
        return (params, state), jnp.linalg.norm(params - goal)

    start = jnp.zeros_like(goal)
    (_, state), far = jax.lax.scan(step, (start, optimizer.init(start)), (rows, targets))
    return far, jnp.asarray(getattr(state, "momentum", jnp.nan))


def main() -> None:
    for name, lr in SETTINGS:
        rows, targets, goal = (jnp.asarray(part, jnp.float32) for part in recording(name))
        print(f"{name}, {len(rows)} rows, {lr=}: distance from the least-squares solution")
        for method, optimizer in methods(lr).items():
            order = shuffled(len(rows), 0) if method == SHUFFLE else np.arange(len(rows))
            far, momentum = train(optimizer, rows[order], targets[order], goal)
            far = np.nan_to_num(np.asarray(far), nan=np.inf)
            used = f", last momentum {float(momentum):.2f}" if np.isfinite(momentum) else ""
            end = far[-500:].mean()
            print(f"  {method:15} end {end:9.3g}, largest {far.max():9.3g}{used}", flush=True)


if __name__ == "__main__":
    main()
