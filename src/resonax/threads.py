"""How many threads compute at the same time."""

from __future__ import annotations

import os

__all__ = ["count_threads"]


def count_threads() -> int:
    """Return how many threads compute: one for each core that this process may use.

    ``OMP_NUM_THREADS`` sets another number, as it does for other libraries. Processes that share
    the work are started with their share of the cores in it.
    """
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    if wanted.isdigit() and int(wanted):
        return int(wanted)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
