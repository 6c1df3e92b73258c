"""Guards for training loops of JAX."""

from resonax.jax.replay import ReplayGuard, ReplayGuardState, ReplayInfo, replay_guard
from resonax.jax.transformation import GuardedState, guard, report

__all__ = [
    "GuardedState",
    "ReplayGuard",
    "ReplayGuardState",
    "ReplayInfo",
    "guard",
    "replay_guard",
    "report",
]
