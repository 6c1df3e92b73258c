"""How a sweep scales: tasks a second over the number of workers, and what the store costs a task.

    python benchmarks/scaling.py workers 1 2         # processes, and shards that share a store
    python benchmarks/scaling.py store 10 1000       # tasks without physics into a real store

`workers` runs one sweep of equal tasks with each number of processes, and then as that many
commands `resonax sweep --shard N/M` at once. Each worker has one thread. The rate is taken from the
times of the markers, from when each worker has stored a task to the last one: to load libraries and
to compile are not part of it. "With start" is the whole of the commands. Efficiency is the rate of
a worker over that of the first number of them.

`store` writes tasks of one number each, and reads the store as a run that is taken up again does.
What is left when the physics is taken away is what limits the number of tasks.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.update(dict.fromkeys(("PJRT_NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"))

import numpy as np

from resonax.cli.cache import keep_compiled
from resonax.run.processes import start_executor
from resonax.spec.sweep_checks import parse_sweep
from resonax.store import Layout, Store, Variable
from resonax.sweeps.experiment import from_sweep
from resonax.sweeps.runner import run_experiments
from resonax.sweeps.status import read_status


def sweep_table(tasks: int, steps: int) -> dict:
    """Return a sweep of so many tasks of the same size."""
    return {
        "id": "scaling",
        "process": {"kind": "square", "amplitude": 0.5, "variance": 0.5},
        "model": {"kind": "polynomial", "degree": 3},
        "optimizer": {"kind": "nesterov", "lr": 0.01},
        "train": {"batch": 4, "noise": 0.1},
        "run": {"runs": 16, "steps": steps, "window": 500},
        "chunk": 4,
        "axes": {
            "momentum": {"first": 0.8, "last": 0.98, "count": 8},
            "period": {"first": 10, "last": 50, "count": 4 * tasks},
        },
    }


def toml(table: dict) -> str:
    lines = []
    for name, value in table.items():
        parts = value.items() if isinstance(value, dict) else [("", value)]
        for key, part in parts:
            inner = f"{name}.{key}" if key else name
            if isinstance(part, dict):
                lines += [f"{inner}.{word} = {number!r}" for word, number in part.items()]
            else:
                lines.append(f"{inner} = {part!r}".replace("'", '"'))
    return "\n".join(lines)


def pace(out: Path, count: int, tasks: int) -> float:
    """Return the tasks a second from when each worker has stored one to the last."""
    markers = out.glob("results/scaling.zarr/tasks/[0-9]*.json")
    times = np.sort([path.stat().st_mtime for path in markers])
    assert len(times) == tasks
    return (tasks - count) / (times[-1] - times[count - 1])


def by_processes(count: int, tasks: int, steps: int, folder: Path) -> float:
    """Return the tasks a second of so many processes while all work."""
    sweep, out = from_sweep(parse_sweep(sweep_table(tasks, steps))), folder / f"processes-{count}"
    with start_executor(count, keep_compiled, ["resonax.sweeps.runner"]) as executor:
        run_experiments([sweep], out, executor=executor, device="cpu")
    return pace(out, count, tasks)


def by_shards(count: int, tasks: int, steps: int, folder: Path) -> tuple[float, float]:
    """Return the tasks a second of shards while all work, and of the whole command."""
    (folder / "scaling.toml").write_text(toml(sweep_table(tasks, steps)))
    out = folder / f"shards-{count}"
    sweep = [sys.executable, "-m", "resonax", "sweep", "scaling.toml", "--yes", "--out", str(out)]
    began = time.perf_counter()
    running = [
        subprocess.Popen(
            [*sweep, "--device", "cpu", "--workers", "1", "--shard", f"{part}/{count}"],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for part in range(1, count + 1)
    ]
    assert not any(one.wait() for one in running)
    wall = time.perf_counter() - began
    return pace(out, count, tasks), tasks / wall


def compare_workers(counts: list[int], each: int, steps: int, folder: Path) -> None:
    tasks = each * max(counts)
    print(f"{tasks} tasks of 512 runs of {steps:,} steps; one thread for each worker")
    print(
        "| workers | processes, tasks a second | efficiency | shards, tasks a second | with start |"
    )
    print("|---|---|---|---|---|")
    first = None
    for count in counts:
        rate = by_processes(count, tasks, steps, folder)
        first = first or rate / count
        shards, whole = by_shards(count, tasks, steps, folder)
        share = f"{rate / count / first:.0%}"
        print(f"| {count} | {rate:.2f} | {share} | {shards:.2f} | {whole:.2f} |", flush=True)


def store_cost(tasks: int, folder: Path) -> None:
    layout = Layout(
        {"place": np.arange(tasks)}, {"place": 1}, {"height": Variable(("place",), "float64")}
    )
    path, marks = folder / f"results/{tasks}.zarr", [time.perf_counter()]

    def mark() -> float:
        marks.append(time.perf_counter())
        return marks[-1] - marks[-2]

    store = Store.open(path, layout, {"tasks": tasks}, {})
    opened = mark()
    for task in store.tasks:
        store.write(task, {"height": np.array([float(task.number)])})
    written = mark()
    assert not Store.open(path, layout, {"tasks": tasks}, {}).pending()
    again = mark()
    found = float(store.load().height.sum())
    loaded = mark()
    assert found == tasks * (tasks - 1) / 2
    read_status(folder)
    told = mark()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"| {tasks:,} | {opened:.2f} s | {1e6 * written / tasks:.0f} us | "
        f"{1e6 * again / tasks:.0f} us | {1e6 * loaded / tasks:.0f} us | {told:.2f} s | "
        f"{memory:.0f} MiB |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="How a sweep scales.")
    parser.add_argument("what", choices=("workers", "store"))
    parser.add_argument("counts", type=int, nargs="+")
    parser.add_argument("--each", type=int, default=12, help="tasks for each of the most workers")
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--folder", type=Path, help="where stores are written: the disk to judge")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        if given.what == "workers":
            return compare_workers(given.counts, given.each, given.steps, folder)
        print("| tasks | open | write a task | look for it | load it | status | memory |")
        print("|---|---|---|---|---|---|---|")
        for tasks in given.counts:
            store_cost(tasks, folder / str(tasks))
    return None


if __name__ == "__main__":
    main()
