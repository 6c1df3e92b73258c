"""Guards for training loops of JAX."""

from resonax.jax.phases import phases
from resonax.jax.training import Guard, Offered, TrainState, UpdateInfo, guard

__all__ = ["Guard", "Offered", "TrainState", "UpdateInfo", "guard", "phases"]
