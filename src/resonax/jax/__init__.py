"""Guards for training loops of JAX."""

from resonax.jax.average import Offered
from resonax.jax.replay import ReplayGuard, ReplayGuardState, ReplayInfo, replay_guard
from resonax.jax.transformation import GuardedState, guard, report

__all__ = [
    "GuardedState",
    "Offered",
    "ReplayGuard",
    "ReplayGuardState",
    "ReplayInfo",
    "guard",
    "replay_guard",
    "report",
]
