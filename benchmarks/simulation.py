"""The engine against a loop of torch.optim.SGD, a vectorised NumPy loop and torch.func.vmap.

Run: python benchmarks/simulation.py [--quick] [--networks]

All contestants train the same cells in one run, so that the ratios hold on a noisy machine: cells
of the map of Fig. 2a (regression in two weights, sinusoidal mean, 20 samples a step) and networks
of Fig. 5. The slow ones take fewer steps or runs, and their time is given per cell, run and step.
The whole command is timed as a process of its own, with figure and theory, from a warm cache.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np
import torch
from torch_networks import vmap_networks

import resonax as rx

MOMENTUM, PERIOD = np.linspace(0.95, 0.999, 100), 1 / np.linspace(0.0005, 0.05, 100)
RUNS, STEPS = 10, 10_000
RUNS_OF_NETWORKS = 16  # for each period
ROUNDS = 5  # of all contestants in turn
COUNTS = (512, 1024, 2048, 4096, 8192)  # of networks at once, of which vmap takes its best


def seconds(function: Callable[[], Any]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def torch_loop(steps: int = 1000) -> float:
    """Return seconds per step of one run of torch.optim.SGD, drawing 20 samples a step."""
    torch.set_num_threads(2)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.97)

    def train() -> None:
        for k in range(steps):
            inputs = 0.5 * np.sin(2 * np.pi * k / 22) + torch.randn(20, 1)
            targets = 0.3 * inputs + 0.1
            optimizer.zero_grad()
            torch.mean((model(inputs) - targets) ** 2).backward()
            optimizer.step()

    train()
    return seconds(train) / steps


def numpy_loop(steps: int = 40) -> float:
    """Return seconds per cell, run and step of a NumPy loop over all cells and runs at once."""
    rng = np.random.default_rng(0)
    momentum, period = (grid.ravel() for grid in np.meshgrid(MOMENTUM, PERIOD, [0.0] * RUNS)[:2])
    count = len(momentum)
    slope, bias = rng.uniform(-1, 1, (2, count))
    velocity = np.zeros((2, count))

    def train() -> None:
        nonlocal slope, bias
        for k in range(steps):
            inputs = 0.5 * np.sin(2 * np.pi * k / period)[:, None] + rng.normal(size=(count, 20))
            gaps = inputs * slope[:, None] + bias[:, None]
            velocity[0] = momentum * velocity[0] - 0.02 * (gaps * inputs).mean(axis=1)
            velocity[1] = momentum * velocity[1] - 0.02 * gaps.mean(axis=1)
            slope, bias = slope + velocity[0], bias + velocity[1]

    return seconds(train) / steps / count


def engine(columns: int = 100, cells: int = 100, steps: int = STEPS, **changes: Any) -> float:
    """Return seconds of the compiled loop for a map, without its compilation."""
    given: dict[str, Any] = {"batch": 20, "dim": 1, **changes}
    process = rx.Sinusoid(period=22.0, dim=given["dim"])
    training = rx.Training(process, rx.heavy_ball(0.01, 0.95), batch=given["batch"])
    axes = {"period": PERIOD[:columns]}, {"momentum": MOMENTUM[:cells]}
    rx.simulate(training, *axes, runs=RUNS, steps=1000, window=500)  # compiles
    return min(
        seconds(lambda: rx.simulate(training, *axes, runs=RUNS, steps=steps)) for _ in range(3)
    )


def command(figure: str) -> float:
    """Return seconds of the whole command for a figure at the paper's scale, from a warm cache."""

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder:
            words = ["reproduce", figure, "--scale", "paper", "--out", folder]
            subprocess.run(
                [sys.executable, "-m", "resonax", *words], check=True, capture_output=True
            )

    run()
    return min(seconds(run) for _ in range(2))


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Let Numba's networks be trained by so many threads; None: by all cores."""
    before = os.environ.pop("OMP_NUM_THREADS", None)
    os.environ |= {} if count is None else {"OMP_NUM_THREADS": str(count)}
    yield
    os.environ.pop("OMP_NUM_THREADS", None)
    os.environ |= {} if before is None else {"OMP_NUM_THREADS": before}


def our_networks(
    numba: bool, count: int = 512, steps: int = 4000, cores: int | None = None
) -> float:
    """Return seconds per network and step of so many networks by the engine, 16 for each period.

    All is in it: first weights, laws, random numbers, and the test losses of a tenth of the steps
    in the middle and at the end, as in Fig. 5.
    """
    process = rx.Switching(period=6.0, dim=2, variance=0.1, amplitude=0.63)
    training = rx.Training(
        process, rx.heavy_ball(0.01, 0.95), model=rx.Network(), batch=10, noise=0.1
    )
    axes = {"period": np.arange(1.0, count // RUNS_OF_NETWORKS + 1)}
    run = partial(rx.simulate, training, axes, runs=RUNS_OF_NETWORKS, numba=numba)
    with threads(cores):
        run(steps=200, window=20)  # compiles
        return seconds(lambda: run(steps=steps, window=steps // 10)) / steps / count


def networks_command() -> tuple[float, float]:
    """Return seconds of the whole command for Fig. 5, and per network and step."""
    cells, runs, steps = 4 * 101, 20, 20_000  # three values of v, and one again with less noise
    taken = command("switching-network")
    return taken, taken / (cells * runs * steps)


def compare_networks(quick: bool) -> None:
    """Print what a step of a network takes, of 512 at once and of as many as suit vmap best.

    All contestants take turns, some rounds of them, in pieces of about the same length: the clock
    of a short piece may be a higher one. The least time of each counts.
    """
    torch.set_num_threads(os.cpu_count() or 1)
    work: dict[Any, Callable[[], float]] = {
        (kind, count): partial(vmap_networks, count, same_work=kind == "the same work")
        for kind in ("training alone", "the same work")
        for count in COUNTS
    }
    work["jax, 512"] = partial(our_networks, False, steps=400)
    work["numba, 512, one core"] = partial(our_networks, True, cores=1)
    work["numba, 512, all cores"] = partial(our_networks, True)
    work["numba, 4096, all cores"] = partial(our_networks, True, count=4096, steps=2000)
    least = dict.fromkeys(work, np.inf)
    for _ in range(ROUNDS):
        for name, measure in work.items():
            least[name] = min(least[name], measure())
    alone, same = (
        {count: least[kind, count] for count in COUNTS}
        for kind in ("training alone", "the same work")
    )
    rows = [(name, taken) for name, taken in least.items() if isinstance(name, str)]
    print("Networks of Fig. 5, 2-20-20-1 with 10 samples, us per network and step")
    for name, taken in (("training alone", alone), ("the same work", same)):
        times = ", ".join(f"{count}: {value * 1e6:.2f}" for count, value in taken.items())
        print(f"  torch.func.vmap, {name:14s} {times} at once")
    print("  times as fast as vmap            512 at once          at its best")
    print("                                alone  same work     alone  same work")
    if not quick:
        whole, per = networks_command()
        rows.append((f"whole command, {whole:.1f} s", per))
    for name, taken in rows:
        others = alone[512], same[512], min(alone.values()), min(same.values())
        a, b, c, d = (f"{other / taken:.1f}" for other in others)
        print(f"  {name:22s} {taken * 1e6:6.3f} {a:>6s} {b:>10s} {c:>9s} {d:>10s}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out how the time grows")
    parser.add_argument("--networks", action="store_true", help="networks alone")
    asked = parser.parse_args()
    quick = asked.quick
    print(f"jax {jax.__version__}, torch {torch.__version__}, {jax.devices()[0]}")
    if asked.networks:
        return compare_networks(quick)
    work = len(MOMENTUM) * len(PERIOD) * RUNS * STEPS
    by_torch, by_numpy = torch_loop(), numpy_loop()
    loop, whole = engine(), command("sinusoid-map")
    print("Fig. 2a at the paper's scale: 10,000 cells, 10 runs, 10,000 steps")
    print(f"  torch.optim.SGD, run by run   {by_torch * 1e6:9.1f} us per cell, run and step")
    print(f"  NumPy, all cells at once      {by_numpy * 1e6:9.4f} us")
    print(f"  compiled loop                 {loop / work * 1e6:9.6f} us, {loop:.2f} s in all")
    print(f"  whole command                 {whole / work * 1e6:9.6f} us, {whole:.2f} s in all")
    for name, taken in (("compiled loop", loop), ("whole command", whole)):
        per = taken / work
        print(f"  {name}: {by_torch / per:,.0f} x torch, {by_numpy / per:,.0f} x NumPy")
    compare_networks(quick)
    if quick:
        return None
    print("How the time of the compiled loop grows (seconds)")
    for words, values in (
        ("columns", [25, 50, 100]),
        ("cells", [10, 30, 100]),
        ("steps", [2000, 5000, 10_000]),
        ("dim", [1, 2, 4, 8]),
        ("batch", [1, 20, 1000, 100_000]),
    ):
        times = [engine(**{words: number}) for number in values]
        shown = ", ".join(f"{n}: {t:.2f}" for n, t in zip(values, times, strict=True))
        print(f"  {words:8s} {shown}")
    return None


if __name__ == "__main__":
    main()
