"""Executors: jobs one after the other, or side by side in processes. They know no physics."""

from resonax.executors.executor import Executor, Futures, Serial
from resonax.executors.processes import count_workers, worker_processes

__all__ = ["Executor", "Futures", "Serial", "count_workers", "worker_processes"]
