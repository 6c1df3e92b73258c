"""How a sweep scales: tasks a second over the number of workers, and what the store costs a task.

    python benchmarks/scaling.py workers 1 2                # `--workers N`, and N shards at once
    python benchmarks/scaling.py store 10 1000 100000       # tasks of one number, no physics
    python benchmarks/scaling.py cells 1e4 1e6              # maps of few steps: memory and time

Rates of `workers` are taken from the times of the markers, from when each worker has stored a task
to the last one: to load libraries and to compile are not part of it. Efficiency is the rate of a
worker over that of the first number of them. Each worker has one thread.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from resonax.store import Layout, Store, Variable

TASKS = """
id = "scaling"
process = {{ kind = "square", amplitude = 0.5, variance = 0.5 }}
model = {{ kind = "polynomial", degree = 3 }}
optimizer = {{ kind = "nesterov", lr = 0.01 }}
train = {{ batch = 4, noise = 0.1 }}
run = {{ runs = 16, steps = {steps}, window = 500 }}
chunk = 4
[axes]
momentum = {{ first = 0.8, last = 0.98, count = 8 }}
period = {{ first = 10, last = 50, count = {count} }}
"""
CELLS = """
id = "scaling"
process = {{ kind = "sinusoid" }}
optimizer = {{ kind = "heavy_ball", lr = 0.01 }}
train = {{ batch = 1 }}
run = {{ runs = 2, steps = 40, window = 20 }}
[axes]
momentum = {{ first = 0.9, last = 0.99, count = {side} }}
period = {{ first = 10, last = 1000, count = {side}, spacing = "inverse" }}
"""


def sweep(folder: Path, text: str, out: str, *options: str) -> subprocess.Popen[bytes]:
    (folder / "scaling.toml").write_text(text)
    words = ["sweep", "scaling.toml", "--yes", "--device", "cpu", "--out", out, *options]
    one = dict.fromkeys(("PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    command = [sys.executable, "-m", "resonax", *words]
    with (folder / "said").open("ab") as said:
        return subprocess.Popen(command, cwd=folder, env=os.environ | one, stdout=said, stderr=said)


def pace(out: Path, count: int) -> float:
    """Return the tasks a second from when each worker has stored one to the last."""
    markers = out.glob("results/scaling.zarr/tasks/[0-9]*.json")
    times = np.sort([path.stat().st_mtime for path in markers])
    return (len(times) - count) / (times[-1] - times[count - 1])


def workers(counts: list[int], each: int, steps: int, folder: Path) -> None:
    tasks = each * max(counts)
    text = TASKS.format(steps=steps, count=4 * tasks)
    print(f"{tasks} tasks of 512 runs of {steps:,} steps; tasks a second")
    print(
        "| workers | processes | efficiency | shards | shards, with start |\n|---|---|---|---|---|"
    )
    first = 0.0
    for count in counts:
        out = f"processes-{count}"
        assert sweep(folder, text, out, "--workers", str(count)).wait() == 0
        rate = pace(folder / out, count)
        first = first or rate / count
        out, began = f"shards-{count}", time.perf_counter()
        shards = [
            sweep(folder, text, out, "--workers", "1", "--shard", f"{part}/{count}")
            for part in range(1, count + 1)
        ]
        assert not any(shard.wait() for shard in shards)
        whole = tasks / (time.perf_counter() - began)
        print(
            f"| {count} | {rate:.2f} | {rate / count / first:.0%} | "
            f"{pace(folder / out, count):.2f} | {whole:.2f} |",
            flush=True,
        )


def store(tasks: int, folder: Path) -> None:
    layout = Layout(
        {"place": np.arange(tasks)}, {"place": 1}, {"height": Variable(("place",), "float64")}
    )
    marks = [time.perf_counter()]

    def mark() -> float:
        marks.append(time.perf_counter())
        return marks[-1] - marks[-2]

    path = folder / f"{tasks}.zarr"
    made = Store.open(path, layout, {"tasks": tasks}, {})
    opened = mark()
    for task in made.tasks:
        made.write(task, {"height": np.array([float(task.number)])})
    written = mark()
    assert not Store.open(path, layout, {"tasks": tasks}, {}).pending()
    again = mark()
    assert float(made.load().height.sum()) == tasks * (tasks - 1) / 2
    loaded = mark()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    each = [f"{1e6 * taken / tasks:.0f} us" for taken in (written, again, loaded)]
    print(f"| {tasks:,} | {opened:.2f} s | {' | '.join(each)} | {memory:.0f} MiB |", flush=True)


def cells(count: int, folder: Path) -> None:
    text = CELLS.format(side=math.isqrt(count))
    taken = []
    for _ in range(2):
        began = time.perf_counter()
        assert sweep(folder, text, f"{count}", "--workers", "2").wait() == 0
        taken.append(time.perf_counter() - began)
    files = [file for file in (folder / f"{count}").rglob("*") if file.is_file()]
    size = sum(file.stat().st_size for file in files) / 1e6
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"| {count:,} | {len(files)} | {size:.1f} MB | {taken[0]:.0f} s | {taken[1]:.0f} s | "
        f"{memory:.0f} MiB |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("workers", "store", "cells"))
    parser.add_argument("counts", type=float, nargs="+")
    parser.add_argument("--each", type=int, default=12, help="tasks for each of the most workers")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where stores are written: the disk to judge")
    given = parser.parse_args()
    counts = [int(count) for count in given.counts]
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        if given.what == "workers":
            return workers(counts, given.each, given.steps, folder)
        if given.what == "store":
            print("| tasks | open | write a task | look for it | load it | memory |")
            print("|---|---|---|---|---|---|")
            for count in counts:
                store(count, folder)
            return None
        print("| cells | files | stored | time | again | largest process so far |")
        print("|---|---|---|---|---|---|")
        for count in counts:
            cells(count, folder)
    return None


if __name__ == "__main__":
    main()
