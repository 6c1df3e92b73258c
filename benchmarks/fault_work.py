"""The work that `faults.py` disturbs: short tasks that note when they begin, and a bad folder.

Workers import this by name, so it stands apart from the script.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
from fsspec.spec import AbstractFileSystem

from resonax.results import Layout, Store, Task, Variable
from resonax.sweeps.experiment import Experiment

TASKS, SECONDS = 24, 0.15
LOG, FOLDER = "RESONAX_FAULTS_LOG", "RESONAX_FAULTS_FOLDER"  # paths in the environment
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


class Stalling(AbstractFileSystem):
    """A network folder that stalls, fails before or after the work, and leaves half a file."""

    protocol = "stall"
    cachable = False

    def _trouble(self, when: str) -> None:
        draw = random.random()
        if draw < 0.02:
            time.sleep(random.uniform(0.5, 2.0))
            note("fault", "stall", when)
        elif draw < 0.12:
            note("fault", "error", when)
            raise OSError(random.choice((errno.EIO, errno.ESTALE, errno.ETIMEDOUT)), "on purpose")

    def _where(self, path: str) -> Path:
        return Path(os.environ[FOLDER]) / str(self._strip_protocol(path)).lstrip("/")

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **_: Any
    ) -> bytes:
        self._trouble("read")
        return self._where(path).read_bytes()[start:end]

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        where = self._where(path)
        self._trouble("write")
        where.parent.mkdir(parents=True, exist_ok=True)
        if mode == "create":
            with open(where, "xb") as file:
                file.write(value)
        else:
            where.write_bytes(value[: len(value) // 2])
            self._trouble("half")
            where.write_bytes(value)
        self._trouble("written")

    def rm(self, path: str, recursive: bool = False, maxdepth: int | None = None) -> None:
        del recursive, maxdepth
        self._where(path).unlink(missing_ok=True)

    def ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        self._trouble("list")
        names = [f"{path}/{name}" for name in os.listdir(self._where(path))]
        return [{"name": name, "size": 0, "type": "file"} for name in names] if detail else names


fsspec.register_implementation("stall", Stalling, clobber=True)
