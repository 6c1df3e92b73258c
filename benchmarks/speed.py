"""Speed as ratios within one run: commands over the import of jax, and engines over their peers.

    python benchmarks/speed.py [commands maps simulation networks check explore paper] [--repeats 3]

commands    `stability`, `map` and a refusal from an empty cache and again, over the time of
            ``python -c "import jax.numpy as j; j.zeros(3)"``, the unit.
maps        A 200 x 200 map of the flow against scipy's `solve_ivp` cell by cell, and maps of map
            and mean_square against plain NumPy products; two weights and a sinusoidal mean.
simulation  Fig. 2a at the paper's scale: the compiled loop and the whole command against a loop of
            NumPy over all cells at once, and against `torch.optim.SGD`, run by run.
networks    Networks of Fig. 5 against `torch.func.vmap` of 512 networks.
check       `resonax check` of 10,000 rows, and how its time and memory grow.
explore     The time to a verdict of the server of `resonax explore`, first and again.
paper       `resonax reproduce`, smoke scale and the whole paper, from an empty cache and again.

All parts but explore and paper run by default. Seconds are the least of the repeats.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

UNIT = [sys.executable, "-c", "import jax.numpy as j; j.zeros(3)"]
SINE = "stability sinusoid --period 40 --lr 0.01 --momentum 0.95"
COMMANDS = {
    "stability sinusoid": SINE,
    "stability square": SINE.replace("sinusoid", "square"),
    "stability iid": "stability iid --amplitude 0.5 --lr 0.01 --momentum 0.95",
    "stability switching": SINE.replace("sinusoid", "switching"),
    "stability ar2": SINE.replace("sinusoid", "ar2"),
    "stability nesterov": f"{SINE} --optimizer nesterov",
    "stability adam": "stability sinusoid --period 40 --lr 0.01 --optimizer adam --beta1 0.95",
    "map 100 x 100, plot": "map sinusoid --lr 0.01 --momentum 0.95:0.999:100 --period 15:60:100 "
    "--plot map.png",
    "a refused number": SINE.replace("0.95", "1.5"),
}
CHECK = "check rows.csv --target y --lr 0.005 --momentum 0.95 --json"
MOMENTUM, PERIOD = np.linspace(0.95, 0.999, 100), 1 / np.linspace(0.0005, 0.05, 100)  # of Fig. 2a


def seconds(function: Callable[[], Any], repeats: int = 1) -> float:
    """Return the least wall time of a function."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        function()
        times.append(time.perf_counter() - began)
    return min(times)


def run(command: list[str], folder: Path, cache: Path, refused: bool = False) -> None:
    """Run a command, which is refused or not; status 1 is a verdict."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    if done.returncode not in ((2,) if refused else (0, 1)):
        raise SystemExit(f"{shlex.join(command)} failed: {done.stderr.decode()}")


def resonax(line: str) -> list[str]:
    return [sys.executable, "-m", "resonax", *shlex.split(line)]


def measure_unit(folder: Path, repeats: int) -> float:
    unit = seconds(lambda: run(UNIT, folder, folder), repeats + 1)
    print(f"unit: import of jax, {unit:.2f} s")
    return unit


def commands(repeats: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        unit = measure_unit(folder, repeats)
        print(f"{'units of a command':<24}{'empty cache':>12}{'again':>8}")
        for title, line in COMMANDS.items():
            firsts, repeated = [], []
            for repeat in range(repeats):
                cache = folder / f"{title}-{repeat}"

                def once(line: str = line, cache: Path = cache, title: str = title) -> None:
                    run(resonax(line), folder, cache, "refused" in title)

                firsts.append(seconds(once))
                repeated.append(seconds(once))
            print(f"  {title:<22}{min(firsts) / unit:12.1f}{min(repeated) / unit:8.1f}", flush=True)


def scipy_radius(momentum: float, period: float, lr: float, rtol: float = 1e-8) -> float:
    """Return the spectral radius of the flow over a period, by scipy."""
    from scipy.integrate import solve_ivp

    span, friction = np.sqrt(lr) * period, (1 - momentum) / np.sqrt(lr)
    matrix = np.zeros((4, 4))
    matrix[0, 2] = matrix[1, 3] = 1.0
    matrix[2, 2] = matrix[3, 3] = -friction
    matrix[3, 1] = -2.0

    def slope(now: float, state: np.ndarray) -> np.ndarray:
        mean = 0.5 * np.sin(2 * np.pi * now / span)
        matrix[2, 0] = -2 * (1 + mean * mean)
        matrix[2, 1] = matrix[3, 0] = -2 * mean
        return (matrix @ state.reshape(4, 4)).ravel()

    options: dict[str, Any] = {"method": "DOP853", "rtol": rtol, "atol": rtol / 10}
    found = solve_ivp(slope, (0.0, span), np.eye(4).ravel(), **options)
    return float(np.abs(np.linalg.eigvals(found.y[:, -1].reshape(4, 4))).max())


def numpy_rate(momentum: float, steps: int, lr: float, batch: int | None) -> float:
    """Return the rate of the product of a period's updates; of second moments, with a batch."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(5)  # exact for the fourth moments
    weights, eye = weights / weights.sum(), np.eye(2)

    def update(hessian: np.ndarray) -> np.ndarray:
        return np.block([[eye - lr * hessian, momentum * eye], [-lr * hessian, momentum * eye]])

    product, scale = np.eye(4 if batch is None else 16), 0.0
    for k in range(steps):
        x = 0.5 * np.sin(2 * np.pi * k / steps) + nodes
        features = np.stack([x, np.ones_like(x)], 1)
        drawn = 2 * features[:, :, None] * features[:, None, :]
        step = mean = update(np.einsum("q,qij->ij", weights, drawn))
        if batch is not None:
            each = np.array([update(matrix) - mean for matrix in drawn])
            around = np.einsum("q,qij,qkl->ikjl", weights, each, each).reshape(16, 16)
            step = np.kron(mean, mean) + around / batch
        product = step @ product
        size = np.abs(product).max()
        product, scale = product / size, scale + np.log(size)
    log = np.log(np.abs(np.linalg.eigvals(product)).max()) + scale
    return float(log / steps / (1 if batch is None else 2))


def maps(repeats: int) -> None:
    import resonax as rx

    setting = rx.Setting(rx.Sinusoid(period=22), rx.heavy_ball(0.01, 0.97), batch=20)
    axes: dict[str, Any] = {
        "momentum": np.linspace(0.95, 0.999, 200),
        "period": np.linspace(15, 60, 200),
    }
    chosen = np.random.default_rng(0).integers(200, size=(12, 2))
    print("maps of 200 x 200 cells     first     again   a peer, times   largest difference")
    for criterion in ("flow", "map", "mean_square"):

        def compute(criterion: str = criterion) -> Any:
            return rx.stability_map(setting, criterion, **axes)

        first, again = seconds(compute), seconds(compute, repeats)
        rates, worst, began = compute().rate.values, 0.0, time.perf_counter()
        for i, j in chosen:
            momentum, period = axes["momentum"][i], axes["period"][j]
            if criterion == "flow":
                peer = np.log(scipy_radius(momentum, period, 0.01)) / period
            else:  # a period of whole steps, to compare with a map of its own
                period = float(np.round(period))
                peer = numpy_rate(
                    momentum, int(period), 0.01, 20 if criterion == "mean_square" else None
                )
                rates[i, j] = rx.rates(
                    setting, {"momentum": [momentum], "period": [period]}, criterion
                )[0]
            worst = max(worst, abs(peer - rates[i, j]))
        other = (time.perf_counter() - began) / len(chosen) * 200**2
        print(
            f"  {criterion:<20}{first:8.2f} s{again:8.2f} s{other / again:15,.0f}   {worst:.1e}",
            flush=True,
        )


def torch_step(steps: int = 1000) -> float:
    """Return seconds per step of one run of torch.optim.SGD, drawing 20 samples a step."""
    import torch

    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.97)

    def train() -> None:
        for k in range(steps):
            inputs = 0.5 * np.sin(2 * np.pi * k / 22) + torch.randn(20, 1)
            optimizer.zero_grad()
            torch.mean((model(inputs) - 0.3 * inputs - 0.1) ** 2).backward()
            optimizer.step()

    return seconds(train, 2) / steps


def numpy_step(steps: int = 40) -> float:
    """Return seconds per cell, run and step of a NumPy loop over all cells and runs at once."""
    rng = np.random.default_rng(0)
    momentum, period = (grid.ravel() for grid in np.meshgrid(MOMENTUM, PERIOD, [0.0] * 10)[:2])
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


def reproduce(words: str, repeats: int = 1) -> tuple[float, float]:
    """Return seconds of `resonax reproduce` from an empty cache, and again into a new folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def once(out: str) -> float:
            line = f"reproduce {words} --out {out}"
            return seconds(lambda: run(resonax(line), folder, folder / "cache"))

        return once("first"), min(once(f"again-{repeat}") for repeat in range(repeats))


def simulation(repeats: int) -> None:
    import resonax as rx

    training = rx.Training(rx.Sinusoid(period=22.0), rx.heavy_ball(0.01, 0.95), batch=20)
    axes = {"period": PERIOD}, {"momentum": MOMENTUM}
    rx.simulate(training, *axes, runs=10, steps=1000, window=500)  # compiles
    loop = seconds(lambda: rx.simulate(training, *axes, runs=10, steps=10_000), repeats)
    _, whole = reproduce("sinusoid-map --scale paper", repeats)
    by_torch, by_numpy = torch_step(), numpy_step()
    print("Fig. 2a: 10,000 cells, 10 runs, 10,000 steps   times NumPy   times torch")
    for name, taken in (("compiled loop", loop), ("whole command", whole)):
        step = taken / 1e9
        print(f"  {name}, {taken:6.2f} s {by_numpy / step:26,.0f}{by_torch / step:14,.0f}")


def vmap_step(count: int = 512, steps: int = 20) -> float:
    """Return seconds per network and step of networks 2-20-20-1 trained by torch.func.vmap."""
    import torch

    widths = ((2, 20), (20, 20), (20, 1))
    weights = [torch.randn(count, a, b) * (2 / a) ** 0.5 for a, b in widths]
    weights += [torch.zeros(count, b) for _, b in widths]
    velocity = [torch.zeros_like(weight) for weight in weights]

    def loss(w: list[torch.Tensor], x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = torch.relu(x @ w[0] + w[3])
        h = torch.relu(h @ w[1] + w[4])
        return torch.mean(((h @ w[2] + w[5])[:, 0] - y) ** 2)

    slope = torch.func.vmap(torch.func.grad(loss))

    def train() -> None:
        for _ in range(steps):
            x = torch.randn(count, 10, 2)
            y = torch.cos(torch.pi * x.norm(dim=-1)) + 0.3 * torch.randn(count, 10)
            slopes = slope(weights, x, y)
            torch._foreach_mul_(velocity, 0.95)
            torch._foreach_add_(velocity, slopes, alpha=-0.01)
            torch._foreach_add_(weights, velocity)

    train()
    return seconds(train, 5) / steps / count


def networks(repeats: int) -> None:
    import resonax as rx

    process = rx.Switching(period=6.0, dim=2, variance=0.1, amplitude=0.63)
    training = rx.Training(
        process, rx.heavy_ball(0.01, 0.95), model=rx.Network(), batch=10, noise=0.1
    )
    axes = {"period": np.arange(1.0, 33.0)}  # 16 runs each: 512 networks
    rx.simulate(training, axes, runs=16, steps=200, window=20)  # compiles
    steps = 2000

    def train() -> None:
        rx.simulate(training, axes, runs=16, steps=steps, window=steps // 10)

    ours, others = seconds(train, repeats) / steps / 512, vmap_step()
    print(
        f"networks of Fig. 5: {ours * 1e6:.2f} us per network and step, torch.func.vmap "
        f"{others * 1e6:.2f}: {others / ours:.1f} times"
    )


def write_rows(path: Path, rows: int, features: int = 20) -> None:
    """Write noise around a daily rhythm in the first of some columns, and a target."""
    import pandas as pd

    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(rows, features))
    inputs[:, 0] = 0.5 * inputs[:, 0] + 1.2 * np.sin(2 * np.pi * np.arange(rows) / 24)
    target = inputs @ rng.normal(size=features) + rng.normal(size=rows)
    names = [*(f"x{i}" for i in range(features)), "y"]
    pd.DataFrame(np.column_stack([inputs, target]), columns=names).to_csv(path, index=False)


def check(repeats: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print("resonax check, 20 features       first     again   memory of the largest so far")
        for rows in (10_000, 100_000, 400_000):
            write_rows(folder / "rows.csv", rows)

            def once() -> None:
                run(resonax(CHECK), folder, folder / "cache")

            first, again = seconds(once), seconds(once, repeats)
            memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            print(f"  {rows:>9,} rows {first:18.1f} s{again:8.1f} s{memory:8.0f} MiB", flush=True)


def explore(repeats: int) -> None:
    token = "a-token-for-the-benchmark"
    environment = os.environ | {"RESONAX_EXPLORE_TOKEN": token}
    command = resonax("explore --no-browser --port 0")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        address = server.stdout.readline().strip().partition("?")[0].rstrip("/")

        def verdict(momentum: float) -> None:
            parts = {"process": "sinusoid", "period": 22, "lr": 0.01, "momentum": momentum}
            request = urllib.request.Request(
                f"{address}/api/verdict",
                json.dumps({"setting": {**parts, "batch": 20}}).encode(),
                {"X-Resonax-Token": token, "Content-Type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=120) as answer:
                answer.read()

        first = seconds(lambda: verdict(0.97))
        again = seconds(lambda: verdict(0.98), repeats)
        print(f"explore: first verdict {first:.2f} s, others {again:.2f} s")
        server.terminate()


def paper(repeats: int) -> None:
    for scale in ("smoke", "paper"):
        first, again = reproduce(f"--scale {scale}", repeats)
        print(f"reproduce --scale {scale}: {first:.1f} s, again {again:.1f} s", flush=True)


PARTS: dict[str, Callable[[int], None]] = {
    part.__name__: part for part in (commands, maps, simulation, networks, check, explore, paper)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], default=[])
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    for name in given.parts or [name for name in PARTS if name not in ("explore", "paper")]:
        PARTS[name](given.repeats)


if __name__ == "__main__":
    main()
