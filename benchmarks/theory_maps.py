"""Maps by the criteria map and mean_square against plain NumPy, cell by cell, as a ratio.

Run: python benchmarks/theory_maps.py [--size 200]

Two weights, a sinusoidal mean, batches of 20. NumPy multiplies the matrices of a period for cells
drawn at random from the map, in the same run, with the formulas for two weights written out: 4 x 4
matrices M, and for mean_square the 16 x 16 matrices E[M (x) M]. Its time is given per cell. Every
map is made once before it is timed, of other numbers: what compiles then is told.
"""

from __future__ import annotations

import argparse
import logging
import platform
import time
from typing import Any

import jax
import numpy as np

import resonax as rx
from resonax.theory.discrete import rational_period

LR, BATCH, AMPLITUDE = 0.01, 20, 0.5
CELLS = 12  # of NumPy
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(5)  # exact for the fourth moments
WEIGHTS = WEIGHTS / WEIGHTS.sum()


def update(hessian: np.ndarray, momentum: float) -> np.ndarray:
    """Return the matrix of one step of heavy ball."""
    eye = np.eye(2)
    return np.block([[eye - LR * hessian, momentum * eye], [-LR * hessian, momentum * eye]])


def numpy_rate(momentum: float, steps: int, turns: int, criterion: str) -> float:
    """Return the rate of one cell by the product of the matrices of all its steps."""
    product = np.eye(4 if criterion == "map" else 16)
    scale = 0.0
    for k in range(steps):
        x = AMPLITUDE * np.sin(2 * np.pi * k * turns / steps) + NODES
        features = np.stack([x, np.ones_like(x)], 1)
        drawn = 2 * features[:, :, None] * features[:, None, :]
        mean = update(np.einsum("q,qij->ij", WEIGHTS, drawn), momentum)
        step = mean
        if criterion == "mean_square":
            each = np.array([update(matrix, momentum) - mean for matrix in drawn])
            around = np.einsum("q,qij,qkl->ikjl", WEIGHTS, each, each).reshape(16, 16)
            step = np.kron(mean, mean) + around / BATCH
        product = step @ product
        size = np.abs(product).max()
        product, scale = product / size, scale + np.log(size)
    log = np.log(np.abs(np.linalg.eigvals(product)).max()) + scale
    return float(log / steps / (1 if criterion == "map" else 2))


class Compilations(logging.Handler):
    """Counts what jax compiles."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += "Compiling" in record.getMessage()


def timed(setting: rx.Setting, criterion: str, axes: dict[str, Any]) -> tuple[float, float, Any]:
    """Return the least wall and processor time of three maps, and the last one."""
    wall, processor, dataset = np.inf, np.inf, None
    for _ in range(3):
        began, used = time.perf_counter(), time.process_time()
        dataset = rx.stability_map(setting, criterion, **axes)
        wall = min(wall, time.perf_counter() - began)
        processor = min(processor, time.process_time() - used)
    return wall, processor, dataset


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200)
    size = parser.parse_args().size
    print(f"python {platform.python_version()}, jax {jax.__version__}, {platform.machine()}")
    seen = Compilations()
    logging.getLogger("jax").addHandler(seen)
    logging.getLogger("jax").propagate = False
    for criterion in ("map", "mean_square"):
        print(f"{criterion}, seconds of wall and of processor time")
        for names, count in (
            (("momentum", "period"), 20),
            (("momentum", "period"), 100),
            (("momentum", "lr"), 100),
            (("amplitude", "period"), 100),
            (("momentum", "period"), size),
        ):
            ranges = {
                "momentum": np.linspace(0.95, 0.999, count),
                "period": np.linspace(15, 60, count),
                "lr": np.linspace(0.001, 0.1, count),
                "amplitude": np.linspace(0.1, 1.0, count),
            }
            axes: dict[str, Any] = {name: ranges[name] for name in names}
            setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(LR, 0.97), batch=BATCH)
            other = rx.Setting(rx.Sinusoid(period=24), rx.heavy_ball(0.02, 0.9), batch=10)
            began = time.perf_counter()
            rx.stability_map(other, criterion, **{name: 0.99 * axes[name][:-3] for name in axes})
            first = time.perf_counter() - began
            with jax.log_compiles():
                before = seen.count
                wall, processor, dataset = timed(setting, criterion, axes)
            print(
                f"  {names[0]:9} x {names[1]:6} {count:3} x {count:3}: {wall:7.3f} {processor:7.3f}"
                f"   first of its kind {first:.2f}, compiled anew {seen.count - before}"
            )
        cells = np.random.default_rng(0).integers(0, size, (CELLS, 2))
        began, worst = time.perf_counter(), 0.0
        for i, j in cells:
            momentum, period = axes["momentum"][i], axes["period"][j]
            steps, turns = rational_period(period)
            rate = numpy_rate(momentum, steps, turns, criterion)
            worst = max(worst, abs(rate - float(dataset.rate[i, j])))
        each = (time.perf_counter() - began) / CELLS
        print(
            f"  NumPy, cell by cell: {each * size**2:.0f} s, {each * size**2 / wall:.0f} x as long"
        )
        print(f"  largest difference of the rate: {worst:.1e}")


if __name__ == "__main__":
    main()
