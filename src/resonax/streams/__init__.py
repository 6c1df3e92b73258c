"""Covariate processes: how the inputs of a training stream move."""

from resonax.streams.base import Process, Spectrum
from resonax.streams.random_mean import AR2, Switching
from resonax.streams.recorded import Recorded
from resonax.streams.waves import Iid, Sinusoid, Square, Wave, shuffled

__all__ = [
    "AR2",
    "Iid",
    "Process",
    "Recorded",
    "Sinusoid",
    "Spectrum",
    "Square",
    "Switching",
    "Wave",
    "shuffled",
]
