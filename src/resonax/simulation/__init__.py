"""Simulation: cells of a grid -> one compiled, vectorised loop -> responses."""

from resonax.simulation.engine import Responses, simulate
from resonax.simulation.network import network_loop
from resonax.simulation.statistics import STATISTICS, summarise
from resonax.simulation.training import Training
from resonax.simulation.trajectories import Trajectories, trajectories

__all__ = [
    "STATISTICS",
    "Responses",
    "Training",
    "Trajectories",
    "network_loop",
    "simulate",
    "summarise",
    "trajectories",
]
