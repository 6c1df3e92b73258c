"""How many cores this process may use, and how many threads compute at the same time."""

from __future__ import annotations

import os

__all__ = ["count_cores", "count_threads"]


def count_cores() -> int:
    """Return how many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


def count_threads() -> int:
    """Return how many threads compute: one for each core that this process may use.

    The environment variable ``OMP_NUM_THREADS`` sets another number, as it does for other
    libraries: processes that share the work are started with their share of the cores in it.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(wanted) if wanted.isdigit() and int(wanted) else count_cores()
