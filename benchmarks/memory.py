"""Peak memory and time of a map as it grows, each size in a process of its own.

Run: make benchmark, or python benchmarks/memory.py
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

SIZES = (100, 300, 1000)
MAPS = {
    "flow": {"momentum": (0.95, 0.999), "period": (15.0, 60.0)},
    "map": {"momentum": (0.9, 0.999), "lr": (0.001, 0.05)},
}


def child(criterion: str, size: int) -> None:
    import resonax as rx

    setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(0.01, 0.97))
    axes: dict[str, Any] = {
        name: np.linspace(*ends, size) for name, ends in MAPS[criterion].items()
    }
    start = time.perf_counter()
    rx.stability_map(setting, criterion, **axes)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"  {criterion:5} {size:5} x {size:<5} {seconds:7.1f} s  peak {peak:6.0f} MiB", flush=True
    )


def main() -> None:
    print("peak memory of a map, process and libraries included")
    for criterion in MAPS:
        for size in SIZES:
            subprocess.run([sys.executable, __file__, criterion, str(size)], check=True)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        child(sys.argv[1], int(sys.argv[2]))
    else:
        main()
