"""What else one may do against a momentum that resonates, as optax transformations."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from resonax.jax import guard

FIXED = (0.95, 0.9, 0.85, 0.75, 0.5, 0.0)
OWN = FIXED[0]
WARMUP = 256
BUFFER = 64  # batches in the shuffle buffer
SAFE, WARM, SHUFFLE, NLMS = "safe", "safe, warm-up", "shuffle buffer", "NLMS"


def nlms(step: float = 0.05) -> optax.GradientTransformationExtraArgs:
    """Return normalised least mean squares: the step is divided by the power of the rows."""

    def update(updates: Any, state: Any, params: Any = None, *, rows: Any, **extra: Any) -> Any:
        del params, extra
        power = 2 * jnp.sum(rows**2)
        return jax.tree.map(lambda g: -step * g / (1e-6 + power), updates), state

    return optax.GradientTransformationExtraArgs(lambda _: (), update)  # pyrefly: ignore[bad-argument-type]


def reset_on_spike(lr: float, momentum: float) -> optax.GradientTransformationExtraArgs:
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

    return optax.GradientTransformationExtraArgs(init, update)  # pyrefly: ignore[bad-argument-type]


def methods(lr: float) -> dict[str, optax.GradientTransformationExtraArgs]:
    """Return everything that is compared, with its name; `SHUFFLE` needs shuffled batches too."""
    support = optax.with_extra_args_support
    clipped = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(lr, OWN))
    return {
        **{f"fixed {momentum:g}": support(optax.sgd(lr, momentum)) for momentum in FIXED},
        SAFE: guard(lr, OWN, "safe", speak=False),
        WARM: guard(lr, OWN, "safe", warmup=WARMUP, speak=False),
        "fastest": guard(lr, OWN, "fastest", speak=False),
        "clipping at 1": support(clipped),
        "Adam": support(optax.adam(lr)),
        NLMS: nlms(),
        "reset on spike": reset_on_spike(lr, OWN),
        SHUFFLE: support(optax.sgd(lr, OWN)),
    }


def shuffled(steps: int, seed: int) -> np.ndarray:
    """Return the order in which batches leave a shuffle buffer."""
    rng = np.random.default_rng(seed)
    order, buffer = np.empty(steps, int), list(range(min(BUFFER, steps)))
    for step in range(steps):
        place = rng.integers(len(buffer))
        order[step] = buffer[place]
        following = step + BUFFER
        if following < steps:
            buffer[place] = following
        else:
            buffer.pop(place)
    return order
