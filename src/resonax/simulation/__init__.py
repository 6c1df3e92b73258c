"""Simulation: cells of a grid -> one compiled, vectorised loop -> responses."""

from resonax.simulation.engine import Responses, simulate
from resonax.simulation.statistics import STATISTICS, summarise
from resonax.simulation.training import Network, Training, Transform, adam

__all__ = [
    "STATISTICS",
    "Network",
    "Responses",
    "Training",
    "Transform",
    "adam",
    "simulate",
    "summarise",
]
