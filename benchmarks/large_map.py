"""How large may a map be? Peak memory of the command and of its workers, by cells and by tasks.

    python benchmarks/large_map.py
    python benchmarks/large_map.py --cells 1e6 --tasks 100000
    python benchmarks/large_map.py --cells 1e6 --tasks --theory flow

Each row is a process of its own that runs a sweep of few steps with two workers, draws it, and
opens it again as a second run does. A store of many tasks is filled with small chunks first.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from resonax.store import Task


def high_water(process: int) -> float:
    """Return the largest memory that a process has had, in MB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


class Watch:
    """Notes the peak memory of all processes that this one starts."""

    def __init__(self) -> None:
        self.peak, self._is_over = 0.0, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        me = psutil.Process()
        while not self._is_over.wait(0.2):
            for child in me.children(recursive=True):
                try:
                    self.peak = max(self.peak, high_water(child.pid))
                except (OSError, psutil.Error):
                    continue

    def stop(self) -> float:
        self._is_over.set()
        self._thread.join()
        return self.peak


def sweep_table(cells: int, criteria: Sequence[str]) -> dict[str, object]:
    """Return a sweep of so many cells, as square as can be, and as cheap, with its theory."""
    rows = math.isqrt(cells)
    while cells % rows:
        rows -= 1
    theory = {"theory": {"criteria": criteria, "points": [50, 50]}} if criteria else {}
    return {
        **theory,
        "id": "large",
        "process": {"kind": "sinusoid"},
        "optimizer": {"kind": "heavy_ball", "lr": 0.01},
        "train": {"batch": 1},
        "run": {"runs": 2, "steps": 40, "window": 20},
        "axes": {
            "momentum": {"first": 0.9, "last": 0.99, "count": rows},
            "period": {"first": 10, "last": 1000, "count": cells // rows, "spacing": "inverse"},
        },
    }


def run_map(cells: int, criteria: Sequence[str]) -> dict[str, float]:
    """Return what a map of so many cells takes."""
    from resonax.cli.running import draw
    from resonax.run.processes import start_executor
    from resonax.spec.sweep_checks import parse_sweep
    from resonax.sweeps.experiment import from_sweep
    from resonax.sweeps.runner import run_experiments

    experiment = from_sweep(parse_sweep(sweep_table(cells, criteria)))
    watch = Watch()
    found: dict[str, float] = {"cells": cells, "tasks": experiment.layout.count()}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("seconds", "again"):
            began = time.perf_counter()
            with start_executor(2) as executor:
                run_experiments([experiment], folder, executor=executor, finish=draw)
            found[name] = time.perf_counter() - began
        sizes = [file.stat().st_size for file in Path(folder).rglob("*") if file.is_file()]
        found |= {"stored": sum(sizes) / 1e6, "files": len(sizes)}
    return found | {"client": high_water(os.getpid()), "workers": watch.stop()}


def fill_store(tasks: int, _: Sequence[str]) -> dict[str, float]:
    """Return what the store alone takes with so many tasks of one number each.

    To wait for the disk is what takes time when a task is written: that is measured with the first
    of them, and left out for the rest.
    """
    import numpy as np

    from resonax.store import Layout, Store, Variable

    layout = Layout(
        {"place": np.arange(tasks)}, {"place": 1}, {"rate": Variable(("place",), "float64")}
    )
    found: dict[str, float] = {"tasks": tasks}

    def timed(name: str, action: Callable[[], object]) -> None:
        began = time.perf_counter()
        action()
        found[name] = time.perf_counter() - began

    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "x.zarr", layout, {}, {})

        def write(some: Sequence[Task]) -> None:
            for task in some:
                store.write(task, {"rate": np.array([float(task.number)])})

        first = min(tasks, 300)
        timed("write", lambda: write(store.tasks[:first]))
        found["write"] /= first
        for start in range(first, tasks, 1000):
            write(store.tasks[start : start + 1000])
        for name, action in (
            ("list", store.marked),
            ("check", store.missing),
            ("load", store.load),
        ):
            timed(name, action)
    return found | {"client": high_water(os.getpid())}


def alone(kind: str, size: int, criteria: Sequence[str] = ()) -> dict[str, float]:
    """Return what a row measures, in a process of its own."""
    command = [sys.executable, __file__, "--row", kind, str(size), "--theory", *criteria]
    return json.loads(subprocess.check_output(command, text=True).splitlines()[-1])


def show(cells: list[int], tasks: list[int], criteria: list[str]) -> None:
    print("  cells  tasks  files  stored MB  client MB  workers MB    s  again s")
    for size in cells:
        one = alone("map", size, criteria)
        print(
            f"{size:7d} {one['tasks']:6d} {one['files']:6d} {one['stored']:10.1f} "
            f"{one['client']:10.0f} {one['workers']:11.0f} "
            f"{one['seconds']:4.0f} {one['again']:8.1f}",
            flush=True,
        )
    print("  tasks  client MB  ms/task written  list s  check s  load s")
    for size in tasks:
        one = alone("store", size)
        print(
            f"{size:7d} {one['client']:10.0f} {1e3 * one['write']:16.2f} "
            f"{one['list']:7.3f} {one['check']:8.2f} {one['load']:7.2f}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=float, nargs="*", default=[1e4, 1e5, 1e6])
    parser.add_argument("--tasks", type=float, nargs="*", default=[10, 1000, 100_000])
    parser.add_argument("--theory", nargs="*", default=[], help="criteria beside the simulation")
    parser.add_argument("--row", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.row:
        measure = {"map": run_map, "store": fill_store}[given.row[0]]
        print(json.dumps(measure(int(given.row[1]), given.theory)))
    else:
        cells, tasks = ([int(size) for size in row] for row in (given.cells, given.tasks))
        show(cells, tasks, given.theory)
