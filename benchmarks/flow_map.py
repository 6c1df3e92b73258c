"""A 200 x 200 flow map against one ``scipy.integrate.solve_ivp`` call per cell, as a ratio.

Run: make benchmark, or python benchmarks/flow_map.py [--size 200]

Both integrate the paper's equation for the sinusoidal mean to an error of 1e-8 in the monodromy
matrix. solve_ivp is timed on cells drawn at random from the map, in the same run; its right-hand
side is plain NumPy with the two-weight formula written out, which is kinder to it than a general
one would be. The error is measured against solve_ivp at rtol 1e-12.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
from scipy.integrate import solve_ivp

import resonax as rx

LR = 0.01
CELLS = 300  # of solve_ivp


def integrate(momentum: float, period: float, rtol: float, atol: float) -> float:
    """Return the spectral radius of one cell by scipy."""
    root = np.sqrt(LR)
    span, friction = root * period, (1 - momentum) / root
    matrix = np.zeros((4, 4))
    matrix[0, 2] = matrix[1, 3] = 1.0
    matrix[2, 2] = matrix[3, 3] = -friction
    matrix[3, 1] = -2.0

    def slope(now: float, state: np.ndarray) -> np.ndarray:
        mean = 0.5 * np.sin(2 * np.pi * now / span)
        matrix[2, 0] = -2 * (1 + mean * mean)
        matrix[2, 1] = matrix[3, 0] = -2 * mean
        return (matrix @ state.reshape(4, 4)).ravel()

    start = np.eye(4).ravel()
    found = solve_ivp(slope, (0.0, span), start, method="DOP853", rtol=rtol, atol=atol)
    return float(np.abs(np.linalg.eigvals(found.y[:, -1].reshape(4, 4))).max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=200)
    size = parser.parse_args().size
    setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(LR, 0.97))
    axes: dict[str, Any] = {
        "momentum": np.linspace(0.95, 0.999, size),
        "period": np.linspace(15, 60, size),
    }

    times = []
    for _ in range(6):
        start = time.perf_counter()
        rx.stability_map(setting, "flow", **axes)
        times.append(time.perf_counter() - start)
    first, best = times[0], min(times[1:])
    dataset = rx.stability_map(setting, "flow", **axes)

    random = np.random.default_rng(0)
    cells = random.integers(0, size, (CELLS, 2))
    start = time.perf_counter()
    for i, j in cells:
        integrate(axes["momentum"][i], axes["period"][j], 1e-8, 1e-9)
    scipy_cell = (time.perf_counter() - start) / CELLS

    def errors(rtol: float, atol: float, found: bool) -> float:
        worst = 0.0
        for i, j in cells[:60]:
            momentum, period = axes["momentum"][i], axes["period"][j]
            exact = integrate(momentum, period, 1e-12, 1e-13)
            ours = float(np.exp(dataset.rate[i, j] * period))
            other = ours if found else integrate(momentum, period, rtol, atol)
            worst = max(worst, abs(other - exact))
        return worst

    print(f"flow map of {size} x {size} cells, two weights, eta = {LR}")
    print(f"  resonax, compiled         {best:8.3f} s   {best / size**2 * 1e6:8.2f} us per cell")
    print(f"  resonax, first call       {first:8.3f} s   (compilation included)")
    print(f"  solve_ivp DOP853 per cell {scipy_cell * size**2:8.1f} s   {scipy_cell * 1e6:8.1f} us")
    print(f"  ratio                     {scipy_cell * size**2 / best:8.0f}")
    print(f"  ratio, first call         {scipy_cell * size**2 / first:8.0f}")
    print(
        f"  largest error of the radius: resonax {errors(0, 0, True):.1e}, "
        f"solve_ivp {errors(1e-8, 1e-9, False):.1e}"
    )


if __name__ == "__main__":
    main()
