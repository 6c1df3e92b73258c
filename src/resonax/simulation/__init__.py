"""Simulation: cells of a grid -> one compiled, vectorised loop -> responses."""

from resonax.simulation.engine import Responses, simulate
from resonax.simulation.statistics import STATISTICS, summarise
from resonax.simulation.training import Training

__all__ = [
    "STATISTICS",
    "Responses",
    "Training",
    "simulate",
    "summarise",
]
