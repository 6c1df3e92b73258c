"""Where the time of ``resonax reproduce`` goes: from an empty cache, and again from a warm one.

Run: python benchmarks/whole_paper.py [ID ...] [--scale paper] [--device cpu] [--processes 2]
     [--no-networks] [--timeline]

Each run is a process of its own, into a new folder, with a compilation cache of its own: first
empty, then as the first run left it. For every experiment it prints the wall time and the processor
time of its jobs, summed over the processes, and what of the wall time were imports, tracing and
lowering, compilation (or reading from the cache), drawing, and the rest, which is computing; and
how many programs were compiled (those that were kept whole are not counted). The last lines have
the whole command and the ratio to what it is meant to take; its processor time is that of the jobs
and of the process that hands them out. ``--timeline`` lists the jobs in the order in which they
began.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

# Seconds that the whole command is meant to take, by scale, device and whether networks are in it.
BARS = {
    ("smoke", "cpu", True, "warm"): 45,
    ("paper", "cpu", True, "cold"): 480,
    ("paper", "cpu", False, "cold"): 180,
    ("paper", "gpu", True, "cold"): 30,
    ("paper", "gpu", True, "warm"): 15,
}
KINDS = {
    "jaxpr_trace_duration": "tracing",
    "jaxpr_to_mlir_module_duration": "tracing",
    "backend_compile_duration": "compiling",
}
PARTS = ("imports", "tracing", "compiling")
_spans: list[tuple[str, float, float]] = []  # what, from, to: of this process


def _hear(event: str, duration_secs: float, **_: Any) -> None:
    kind = KINDS.get(event.rpartition("/")[2])
    if kind:
        now = time.time()
        _spans.append((kind, now - duration_secs, now))


@functools.cache
def watch() -> None:
    """Note imports, and what jax says of tracing and compiling, from now on."""
    loader: Any = importlib._bootstrap
    load, depth = loader._find_and_load, [0]

    def timed(*arguments: Any) -> Any:
        began = time.time()
        depth[0] += 1
        try:
            return load(*arguments)
        finally:
            depth[0] -= 1
            if not depth[0]:
                _spans.append(("imports", began, time.time()))

    loader._find_and_load = timed


def listen() -> None:
    """Hear jax, once it is loaded."""
    import jax

    jax.monitoring.register_event_duration_secs_listener(_hear)


def covered(spans: list[tuple[float, float]]) -> float:
    """Return the length of a union of spans: one program is traced inside another."""
    total, reached = 0.0, 0.0
    for low, high in sorted(spans):
        total += max(0.0, high - max(low, reached))
        reached = max(reached, high)
    return total


def measured(function: Any, *arguments: Any) -> tuple[Any, dict[str, Any]]:
    """Return a result, and what it took."""
    _spans.clear()
    began, cpu = time.time(), time.process_time()
    result = function(*arguments)
    by_kind = defaultdict(list)
    for kind, *span in _spans:
        by_kind[kind].append(tuple(span))
    taken = {part: covered(by_kind[part]) for part in PARTS}
    return result, {
        **taken,
        "pid": os.getpid(),
        "began": began,
        "ended": time.time(),
        "cpu": time.process_time() - cpu,
        "programs": len(by_kind["compiling"]),
    }


class Traced:
    """An executor that measures each job of another."""

    def __init__(self, executor: Any) -> None:
        self._executor, self.workers, self.jobs = executor, executor.workers, []
        self.owners = getattr(executor, "owners", 0)

    def owned(self) -> Any:
        """Return what the owner of a GPU says of it."""
        return self._executor.owned()

    def dismiss(self) -> None:
        """Let its processes end."""
        if dismiss := getattr(self._executor, "dismiss", None):
            dismiss()

    def run(self, function: Any, jobs: Any, advance: Any, then: Any) -> None:
        """Do jobs, and note what each took."""

        def noted(job: Any, result: Any) -> Any:
            inner, taken = result
            kind = "drawing" if not job.tasks else "storing" if job.found else "computing"
            if job.part is not None:
                kind += f" part {job.part}"
            self.jobs.append({"id": job.id, "kind": kind, "tasks": list(job.tasks), **taken})
            return then(job, inner)

        self._executor.run(functools.partial(measured, function), jobs, advance, noted)


def prepare() -> None:
    """Prepare as the command does, and listen."""
    from resonax.cli.cache import keep_compiled

    watch()
    keep_compiled()
    listen()


def child(given: argparse.Namespace, out: Path) -> None:
    """Run the command in this process, and write down what its jobs took."""
    began = time.time()
    from resonax.cli import reproduce as command
    from resonax.cli import work
    from resonax.cli.start import leave

    if given.owners:
        work._OWNERS = given.owners
    start, traced = work.start_executor, []

    @contextlib.contextmanager
    def start_traced(*arguments: Any, **more: Any) -> Iterator[Traced]:
        with start(*arguments, **more) as executor:
            traced.append(Traced(executor))
            yield traced[0]

    work.start_executor = start_traced  # pyrefly: ignore[bad-assignment]
    command.reproduce(
        tuple(given.ids),
        scale=given.scale,
        out=out,
        device=given.device,
        seed=0,
        double=False,
        networks=given.networks,
        as_json=True,
        dry_run=False,
        work=work.Work(workers=given.processes or None),
        prepare=prepare,
    )
    after = max(job["ended"] for job in traced[0].jobs)
    mine = time.process_time()
    mine += sum(job["cpu"] for job in traced[0].jobs if job["pid"] != os.getpid())
    note = {"began": began, "after": after, "cpu": mine, "jobs": traced[0].jobs}
    (out / "times.json").write_text(json.dumps(note))
    leave(0)  # as the command does


def run(given: argparse.Namespace, cache: Path) -> dict[str, Any]:
    """Run the command once as a process of its own; return what it took."""
    with tempfile.TemporaryDirectory() as folder, _gpu_use() as use:
        out = given.out or Path(folder) / "out"
        began = time.time()
        subprocess.run(
            [sys.executable, __file__, *sys.argv[1:], "--into", str(out)],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=None if given.verbose else subprocess.DEVNULL,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        )
        wall = time.time() - began
        note = json.loads((out / "times.json").read_text())
        return {**note, "began": began, "wall": wall, "gpu": use}


@contextlib.contextmanager
def _gpu_use() -> Iterator[list[float]]:
    """Give a list that is filled with the use of the GPU, in percent, if there is one."""
    found: list[float] = []
    if not shutil.which("nvidia-smi"):
        yield found
        return
    ask = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"]
    with subprocess.Popen([*ask, "-lms", "200"], stdout=subprocess.PIPE, text=True) as process:
        try:
            yield found
        finally:
            process.terminate()
            text = process.communicate()[0]
            found += [float(line) for line in text.split() if line.strip().isdigit()]


def show(note: dict[str, Any], given: argparse.Namespace, state: str) -> None:
    """Print a table of one run."""
    rows: dict[str, dict[str, float]] = {}
    for job in note["jobs"]:
        row = rows.setdefault(job["id"], defaultdict(float))
        wall = job["ended"] - job["began"]
        row["wall"] += wall
        for name in ("cpu", "programs", *PARTS):
            row[name] += job[name]
        kind = "drawing" if job["kind"] == "drawing" else "computing"
        row[kind] += wall - sum(job[part] for part in PARTS)
    names = ("wall", "cpu", *PARTS, "computing", "drawing", "programs")
    rows["all"] = {name: sum(row[name] for row in rows.values()) for name in names}
    print(f"  {'seconds of jobs':<20}" + "".join(f"{name:>11}" for name in names))
    for key, row in rows.items():
        digits = "".join(f"{row[name]:11.0f}" if name == "programs" else f"{row[name]:11.2f}"
                         for name in names)  # fmt: skip
        print(f"  {key:<20}{digits}")
    first, pids = min(job["began"] for job in note["jobs"]), {job["pid"] for job in note["jobs"]}
    busy = rows["all"]["wall"] / (len(pids) * (note["after"] - first))
    print(
        f"  before the first job {first - note['began']:.1f} s, after the last one "
        f"{note['wall'] - (note['after'] - note['began']):.1f} s; {len(pids)} processes, "
        f"{busy:.0%} of their time in jobs"
    )
    if note["gpu"]:
        idle = sum(use == 0 for use in note["gpu"]) / len(note["gpu"])
        print(f"  the GPU was idle {idle:.0%} of the time")
    bar = BARS.get((given.scale, given.device or "cpu", given.networks, state))
    text = f", {note['wall'] / bar:.2f} of {bar} s" if bar and not given.ids else ""
    print(f"  whole command, {state}: {note['wall']:.1f} s{text}; processor {note['cpu']:.1f} s")
    if given.timeline:
        for job in sorted(note["jobs"], key=lambda job: job["began"]):
            low, high = (job[name] - note["began"] for name in ("began", "ended"))
            words = f"{job['kind']} {job['tasks'] or ''}"
            print(f"    {low:7.1f} to {high:7.1f}  {job['pid']:>7}  {job['id']:<20} {words}")


def main() -> None:
    """Run the command from an empty and from a warm cache."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*")
    parser.add_argument("--scale", default="smoke")
    parser.add_argument("--device")
    parser.add_argument("--processes", type=int)
    parser.add_argument("--owners", type=int, help="processes that own a GPU")
    parser.add_argument("--no-networks", dest="networks", action="store_false")
    parser.add_argument("--cache", type=Path, help="for one run alone; cold if it is empty")
    parser.add_argument("--out", type=Path, help="where to keep the results, for one run alone")
    parser.add_argument("--timeline", action="store_true")
    parser.add_argument("--verbose", action="store_true", help="show what the command prints")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.into:
        child(given, given.into)
        return
    print(f"resonax reproduce {' '.join(given.ids)} --scale {given.scale}")
    if given.cache:
        state = "warm" if given.cache.is_dir() and any(given.cache.iterdir()) else "cold"
        show(run(given, given.cache), given, state)
        return
    with tempfile.TemporaryDirectory() as folder:
        for state in ("cold", "warm"):
            show(run(given, Path(folder)), given, state)


if __name__ == "__main__":
    main()
