"""Covariate processes: how the inputs of a training stream move."""

from resonax.processes.base import Process, Spectrum
from resonax.processes.random_mean import AR2, Switching
from resonax.processes.recorded import Recorded
from resonax.processes.waves import Iid, Sinusoid, Square, Wave, shuffled

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
