"""A guard for training loops of JAX."""

from resonax.jax.transformation import GuardedState, guard, report

__all__ = ["GuardedState", "guard", "report"]
