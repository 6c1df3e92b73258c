"""The whole command `resonax check` at 10,000 rows, in units of importing jax, and where it goes.

The unit is the time of ``python -c "import jax.numpy as j; j.zeros(3)"`` in the same run. Each
command runs in a process of its own, with compiled programs kept from a call before; the least of
a few times counts.

Run: python benchmarks/check_command.py [--repeats 5]
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

from check import write

UNIT = "import jax.numpy as j; j.zeros(3)"
LEARNER = ["--lr", "0.005", "--momentum", "0.95"]
STAGES = """
import sys, time
from contextlib import contextmanager
found, last = [], time.perf_counter()
def done(name):
    global last
    now = time.perf_counter()
    found.append((name, now - last))
    last = now
import resonax.cli.app
done("import of the command line")
from resonax.recordings.recording import read_recording
rows = read_recording(sys.argv[1], "y")
done("reading, with pandas")
from resonax.cli.cache import keep_compiled
keep_compiled()
done("import of jax")
from resonax.checking.check import check
done("import of the check")
@contextmanager
def stage(name, steps):
    yield
    done(name)
check(rows, lr=0.005, momentum=0.95, stage=stage).to_dict()
done("the rest")
for name, seconds in found:
    print(f"{name}\\t{seconds}")
"""


def seconds(command: list[str], repeats: int, home: str) -> tuple[float, float, str]:
    """Return the least time of a command in a process of its own, by the clock and of processors.

    With it comes what the command printed when it was fastest.
    """
    surroundings = os.environ | {"XDG_CACHE_HOME": home, "PYTHONDONTWRITEBYTECODE": ""}
    times, processors = [], []
    for _ in range(repeats):
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        start = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True, env=surroundings)
        times.append((time.perf_counter() - start, done.stdout))
        then = resource.getrusage(resource.RUSAGE_CHILDREN)
        processors.append(then.ru_utime + then.ru_stime - used.ru_utime - used.ru_stime)
        assert done.returncode in (0, 1), done.stderr
    clock, told = min(times)
    return clock, min(processors), told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as home:
        wide, narrow = Path(home) / "wide.csv", Path(home) / "narrow.csv"
        write(wide, 10_000)
        write(narrow, 10_000, features=5)
        unit, own, _ = seconds([sys.executable, "-c", UNIT], repeats + 1, home)
        print(f"unit: {UNIT}, {unit:.2f} s, {own:.2f} s of processors")
        command = [sys.executable, "-m", "resonax", "check"]
        asked = {
            "20 features": [str(wide), "--target", "y", *LEARNER, "--json"],
            "5 features": [str(narrow), "--target", "y", *LEARNER, "--json"],
            "20 features, --plot": [
                *(str(wide), "--target", "y", *LEARNER),
                *("--plot", str(Path(home) / "check.png")),
            ],
            "--example": ["--example", "--json"],
        }
        for name, words in asked.items():
            first, _, _ = seconds([*command, *words], 1, home)
            again, used, _ = seconds([*command, *words], repeats, home)
            print(
                f"  check, 10,000 rows, {name:<20}  first {first / unit:5.1f}, again "
                f"{again / unit:4.1f} units, {again:5.2f} s; {used / own:4.1f} of processors"
            )
        _, _, told = seconds([sys.executable, "-c", STAGES, str(wide)], repeats, home)
        print("where the time goes, 20 features:")
        for line in told.splitlines():
            stage, taken = line.split("\t")
            print(f"  {stage:<30} {float(taken) / unit:5.2f} units")


if __name__ == "__main__":
    main()
