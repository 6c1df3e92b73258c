"""The first second of each command, as a multiple of the time that jax takes to start.

    python benchmarks/first_second.py [--repeats 3] [--only stability]

The unit is `python -c "import jax.numpy as j; j.zeros(3)"`, measured between the commands: the
least of all its repeats. A command is run with an empty cache of compiled programs, once for each
repeat, and then again with what it left there. Wall time, the least of the repeats; beside it the
processor time of all threads, which other work on the machine moves less.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

UNIT = [sys.executable, "-c", "import jax.numpy as j; j.zeros(3)"]
SINE = "stability sinusoid --period 40 --lr 0.01 --momentum 0.95"
MAP = "map sinusoid --lr 0.01 --momentum 0.95:0.999:100 --period 15:60:100 --plot map.png"
CHECK = "check rows.csv --target y --lr 0.01 --momentum 0.95"


class Bar(NamedTuple):
    """A command, and the multiples of the unit that it may take; None where none is set."""

    line: str
    first: float | None
    second: float | None


BARS = {
    "stability": Bar(SINE, 8, 3),
    "stability square": Bar(SINE.replace("sinusoid", "square"), 8, 3),
    "stability iid": Bar("stability iid --amplitude 0.5 --lr 0.01 --momentum 0.95", 8, 3),
    "stability switching": Bar(SINE.replace("sinusoid", "switching"), 8, 3),
    "stability ar2": Bar(SINE.replace("sinusoid", "ar2"), 8, 3),
    "stability nesterov": Bar(f"{SINE} --optimizer nesterov", 8, 3),
    "stability radial": Bar(f"{SINE} --basis radial:-1,0,1", 8, 3),
    "stability recorded": Bar(
        "stability recorded --data rows.csv --lr 0.01 --momentum 0.95", None, 3
    ),
    "stability adam": Bar(
        "stability sinusoid --period 40 --lr 0.01 --optimizer adam --beta1 0.95", None, None
    ),
    "map with plot": Bar(MAP, None, 5),
    "check of 10,000 rows": Bar(CHECK, None, None),
}
REFUSED = {
    "refused option": f"{SINE} --colour red",
    "refused number": SINE.replace("0.95", "1.5"),
    "refused name": SINE.replace("sinusoid", "sinusoidd"),
    "missing file": CHECK.replace("rows", "none"),
    "missing file, recorded": "stability recorded --data none.csv --lr 0.01 --momentum 0.95",
    "map without a place": MAP.replace("map.png", "none/map.png"),
    "missing sweep": "sweep none.toml",
    "refused figure": "reproduce sinusoid-mapp",
}


class Took(NamedTuple):
    """Seconds by the clock and of the processor."""

    wall: float
    cpu: float


def run(command: list[str], folder: Path, cache: Path, status: int = 0) -> Took:
    """Run a command in a folder with a cache of its own."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if found.returncode not in (status, 1 if status == 0 else status):  # 1: training diverges
        raise SystemExit(f"{shlex.join(command)} failed: {found.stderr.decode()}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Took(wall, cpu)


def least(many: list[Took]) -> Took:
    """Return the least of each kind of time."""
    return Took(min(took.wall for took in many), min(took.cpu for took in many))


def show(name: str, took: Took, unit: Took, bar: float | None) -> None:
    """Print a line: times, multiples of the unit, and whether the bar is reached."""
    ratio = took.wall / unit.wall
    word = "" if bar is None else f"  at most {bar:g}: {'yes' if ratio <= bar else 'NO'}"
    print(
        f"  {name:<34} {took.wall:6.2f} s {ratio:6.2f} x   (processor {took.cpu:6.2f} s "
        f"{took.cpu / unit.cpu:6.2f} x){word}",
        flush=True,
    )


def main() -> None:
    """Measure all commands, or some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", default="", help="a part of the names to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rng = np.random.default_rng(0)
        rows = np.cumsum(rng.normal(size=(10_000, 3)), axis=0) * 0.01 + rng.normal(size=(10_000, 3))
        np.savetxt(folder / "rows.csv", rows, delimiter=",", header="a,b,y", comments="")
        measure(folder, options.repeats, options.only)


def measure(folder: Path, repeats: int, only: str) -> None:
    """Run everything, the unit in between, and print the least of each."""
    units, found = [], {}
    for repeat in range(repeats):
        units.append(run(UNIT, folder, folder))
        for name, bar in BARS.items():
            if only in name:
                cache = folder / f"cache-{repeat}-{name}"
                command = [sys.executable, "-m", "resonax", *shlex.split(bar.line)]
                for kind in ("first", "second"):
                    found.setdefault((name, kind), []).append(run(command, folder, cache))
        units.append(run(UNIT, folder, folder))
        for name, line in REFUSED.items():
            if only in name:
                command = [sys.executable, "-m", "resonax", *shlex.split(line)]
                found.setdefault((name, "refusal"), []).append(
                    run(command, folder, folder / "none", 2)
                )
    unit = least(units)
    print(f"unit: {shlex.join(['python', *UNIT[1:]])}: {unit.wall:.2f} s ({unit.cpu:.2f} s)")
    titles = {"first": "empty cache", "second": "second call", "refusal": "refusals"}
    for kind, title in titles.items():
        print(title)
        for (name, which), many in found.items():
            if which == kind:
                bar = 1.0 if kind == "refusal" else getattr(BARS[name], kind)
                show(name, least(many), unit, bar)


if __name__ == "__main__":
    main()
