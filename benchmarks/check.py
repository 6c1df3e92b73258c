"""Time and memory of `resonax check` as a recording grows: 20 features, a map of 32 x 32.

Run: python benchmarks/check.py [--quick]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

FEATURES = 20


def write(path: Path, rows: int, features: int = FEATURES) -> None:
    """Write noise around a daily rhythm in the first of some columns, and a target."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, features))
    inputs[:, 0] = 0.5 * inputs[:, 0] + 1.2 * np.sin(2 * np.pi * np.arange(rows) / 24)
    target = inputs @ rng.normal(size=features) + rng.normal(size=rows)
    names = [*(f"x{i}" for i in range(features)), "y"]
    pd.DataFrame(np.column_stack([inputs, target]), columns=names).to_csv(path, index=False)


def run(path: Path) -> tuple[float, float]:
    """Return seconds and mebibytes of the whole command, in a process of its own."""
    command = f"resonax check {path} --target y --lr 0.005 --momentum 0.95 --json".split()
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", *command], stdout=subprocess.DEVNULL, check=False)
    assert done.returncode == 1, "these rows diverge"
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return time.perf_counter() - start, memory


def main() -> None:
    sizes = (
        (10_000, 20_000, 40_000) if "--quick" in sys.argv else (125_000, 250_000, 500_000, 10**6)
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "data.csv"
        write(path, 10_000)
        run(path)  # fills the cache of compiled code
        print(f"resonax check, CSV of {FEATURES} features, map of 32 x 32, process included")
        for rows in sizes:
            write(path, rows)
            seconds, memory = run(path)
            each = seconds / rows * 1e6
            print(f"  {rows:>9,} rows  {seconds:6.1f} s  {each:6.1f} us a row  {memory:5.0f} MiB")


if __name__ == "__main__":
    main()
