"""The work that `faults.py` disturbs: short tasks that note when they begin.

Workers import this by name, so it stands apart from the script.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

import numpy as np
import zarr  # noqa: F401  loaded once, before workers are forked

from resonax.store import Layout, Store, Task, Variable
from resonax.sweeps.experiment import Experiment

TASKS, SECONDS = 24, 0.15
LOG = "RESONAX_FAULTS_LOG"  # a path in the environment
ID = "faults"


def note(*words: object) -> None:
    """Add a line with the time to the log, whole."""
    line = " ".join(map(str, (f"{time.time():.6f}", *words))) + "\n"
    handle = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def compute(
    region: Mapping[str, slice], seed: int, double: bool, advance: Callable[[float], None]
) -> dict[str, np.ndarray]:
    """Return what a task computes, after a while."""
    del double
    place = region["place"]
    note("begin", place.start, os.getpid())
    for _ in range(5):
        time.sleep(SECONDS / 5)
        advance(0.2)
    height = np.sin(np.arange(TASKS)[place] + seed)
    return {"height": height, "runs": np.outer(height, np.arange(50.0))}


def experiment() -> Experiment:
    """Return the experiment: as many tasks as groups, of two variables."""
    variables = {
        "height": Variable(("place",), "float64"),
        "runs": Variable(("place", "run"), "float64"),
    }
    return Experiment(
        id=ID,
        title="Faults",
        caption="",
        specification={"id": ID},
        layout=Layout({"place": np.arange(TASKS), "run": np.arange(50)}, {"place": 1}, variables),
        compute=compute,
        groups=tuple((number,) for number in range(TASKS)),
        seconds=(SECONDS,) * TASKS,
    )


def write_and_note(self: Store, task: Task, values: Mapping[str, np.ndarray]) -> None:
    """Store a task, and write down that its marker is there."""
    _write(self, task, values)
    note("marker", task.number)


_write, Store.write = Store.write, write_and_note
