"""The numerical core on whatever device jax finds: numbers to compare between machines, and times.

Run: PYTHONPATH=src python benchmarks/device_check.py
"""

from __future__ import annotations

import platform
import time
from typing import Any

import jax
import numpy as np

import resonax as rx


def main() -> None:
    print(f"python {platform.python_version()}, jax {jax.__version__}, {jax.devices()[0]}")
    optimizer = rx.heavy_ball(0.01, 0.97)
    streams = {
        "sinusoid": rx.Sinusoid(period=22),
        "square": rx.Square(period=26.5, amplitude=0.5, variance=0.25, dim=5),
        "iid": rx.Iid(),
        "ar2": rx.AR2(period=22),
        "switching": rx.Switching(period=6, dim=5),
    }
    for name, process in streams.items():
        found = rx.verdict(rx.Setting(process, optimizer, batch=20), paths=64, steps=1024)
        numbers = [
            f"{growth.rate:+.12f}" if growth else "-"
            for growth in (found.flow, found.map, found.mean_square)
        ]
        print(f"{name:10} {found.verdict:9} {' '.join(numbers)} {found.lyapunov.rate:+.6f}")
    setting = rx.Setting(rx.Sinusoid(period=22), optimizer, batch=20)
    axes: dict[str, Any] = {
        "momentum": np.linspace(0.95, 0.999, 200),
        "period": np.linspace(15, 60, 200),
    }
    for criterion in ("flow", "map", "mean_square"):
        for attempt in ("first", "again"):
            start = time.perf_counter()
            dataset = rx.stability_map(setting, criterion, **axes)
            seconds = time.perf_counter() - start
            print(
                f"{criterion:12} 200 x 200 {attempt}: {seconds:7.2f} s, "
                f"{float((dataset.rate > 0).mean()):.4f} diverges"
            )


if __name__ == "__main__":
    main()
