"""Simulation: cells of a grid -> one compiled, vectorised loop -> responses."""

from resonax.simulation.cells import Training
from resonax.simulation.engine import STATISTICS, Responses, simulate, summarise
from resonax.simulation.network import network_loop
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
