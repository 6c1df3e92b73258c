"""Measured natural periods and dampings of linear learners against theory.

Settings: SGD with momentum, Nesterov and Adam on Gaussian rows, each drawn at random with a damping
between 0.05 and 0.8. Theory is computed here by `numpy.roots`, from the curvature of the rows; for
Adam with the second moment read off the optimizer's own state, in a run without any excitation. The
table has both errors and whether the 95% intervals hold the theory. Seed 0 was used to tune, seed 1
to report.

    python benchmarks/response.py --processes 16 --seed 1
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

OPTIMIZERS = ("heavy_ball", "nesterov", "adam")
ROWS = 2**14


@dataclass(frozen=True)
class Setting:
    """A learner, and the rows that it learns."""

    optimizer: str
    lr: float
    momentum: float  # or beta1
    batch: int
    scales: tuple[float, ...]  # standard deviation of each input
    noise: float
    seed: int


def draw(optimizer: str, seed: int, index: int) -> Setting:
    """Draw a setting: damping, momentum and inputs at random, and the step size that gives it."""
    rng = np.random.default_rng([seed, OPTIMIZERS.index(optimizer), index])
    while True:
        damping = rng.uniform(0.05, 0.8)
        momentum = 1 - 10 ** rng.uniform(-2, -0.8)
        dim = int(rng.integers(1, 4))
        # Apart from each other and from the bias, whose feature is 1: one curvature answers.
        scales = 1.8 ** np.arange(1, dim + 1) * rng.uniform(0.9, 1.1, dim)
        step = ((1 - momentum) / (2 * damping)) ** 2  # lr times curvature, for small steps
        period = 2 * np.pi / np.sqrt(step)
        noisy = step / (1 - momentum) * (dim + 3)  # a batch must keep the error bounded
        batch = int(2 ** np.ceil(np.log2(max(4 * noisy, 1))))
        lr = step / (2 * scales[-1] ** 2)
        if optimizer == "adam":  # the gradients have the second moment 4 scale^2 noise / batch
            lr = step / (1 - momentum) / scales[-1] / np.sqrt(batch)
        if 12 < period < 300 and batch <= 64:
            noise = float(rng.uniform(0.3, 1.0)) if optimizer != "adam" else 1.0
            where = int(rng.integers(2**31))
            return Setting(optimizer, lr, momentum, batch, tuple(scales.tolist()), noise, where)


def theory(step: float, momentum: float, nesterov: bool) -> tuple[float, float]:
    """Return natural period and damping of the characteristic polynomial."""
    linear = -(1 + momentum) * (1 - step) if nesterov else -(1 + momentum - step)
    constant = momentum * (1 - step) if nesterov else momentum
    exponents = np.log(np.roots([1, linear, constant]).astype(complex))
    frequency = np.sqrt(np.prod(exponents).real)
    return 2 * np.pi / frequency, -exponents.sum().real / 2 / frequency


def second_moment(setting: Setting, inputs: np.ndarray, target: np.ndarray) -> float:
    """Return what Adam keeps as the second moment of the last input's gradient, in a plain run."""
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = optax.adam(setting.lr, setting.momentum)
    features = jnp.asarray(np.c_[inputs, np.ones(len(inputs))])
    labels = jnp.asarray(target)

    def step(state, chosen):
        weights, memory = state
        x, y = features[chosen], labels[chosen]
        gradient = 2 * x.T @ (x @ weights - y) / len(chosen)
        moves, memory = optimizer.update(gradient, memory, weights)
        return (weights + moves, memory), optax.tree.get(memory, "nu")[-2]

    order = np.random.default_rng(setting.seed).integers(ROWS, size=(40_000, setting.batch))
    weights = jnp.zeros(features.shape[1])
    kept = jax.lax.scan(step, (weights, optimizer.init(weights)), jnp.asarray(order))[1]
    return float(np.mean(np.asarray(kept)[20_000:]))


def measure(setting: Setting) -> dict[str, Any]:
    """Return theory and measurement of one setting."""
    import resonax as rx

    started = time.perf_counter()
    rng = np.random.default_rng(setting.seed)
    inputs = rng.normal(size=(ROWS, len(setting.scales))) * setting.scales
    target = inputs.sum(axis=1) + np.sqrt(setting.noise) * rng.normal(size=ROWS)
    features = np.c_[inputs, np.ones(ROWS)]
    curvature = 2 * np.linalg.eigvalsh(features.T @ features / ROWS)[-1]
    lr = setting.lr
    if setting.optimizer == "adam":
        lr *= (1 - setting.momentum) / np.sqrt(second_moment(setting, inputs, target))
    period, damping = theory(lr * curvature, setting.momentum, setting.optimizer == "nesterov")
    make = getattr(rx, setting.optimizer)(setting.lr, setting.momentum)
    found = rx.response(
        make, inputs, target, batch=setting.batch, realisations=64, periods=8, seed=setting.seed
    )
    row: dict[str, Any] = {
        "optimizer": setting.optimizer,
        "lr": setting.lr,
        "momentum": setting.momentum,
        "batch": setting.batch,
        "period": period,
        "damping": damping,
        "reason": found.reason or "",
        "seconds": time.perf_counter() - started,
    }
    if found.natural_period is not None:
        ends: Any = (found.natural_period_low, found.natural_period_high)
        damped: Any = (found.damping_low, found.damping_high)
        row |= {
            "measured_period": found.natural_period,
            "measured_damping": found.damping,
            "period_inside": ends[0] < period < ends[1],
            "damping_inside": damped[0] < damping < damped[1],
        }
    return row


def show(rows: list[dict]) -> None:
    """Print the table, and the shares that count."""
    both = "".join(f"| {name} | measured | error " for name in ("period", "damping"))
    print(f"| optimizer | lr | momentum | batch {both}|\n{'|---' * 10}|")
    for row in rows:
        start = f"| {row['optimizer']} | {row['lr']:.4g} | {row['momentum']:.4f} | {row['batch']} "
        if row["reason"]:
            print(f"{start}| {row['period']:.2f} | {row['reason']} ||| {row['damping']:.4f} |||")
            continue
        for name, digits in (("period", 2), ("damping", 4)):
            off = row[f"measured_{name}"] / row[name] - 1
            mark = "" if row[f"{name}_inside"] else " (outside)"
            start += f"| {row[name]:.{digits}f} | {row[f'measured_{name}']:.{digits}f} "
            start += f"| {off:+.1%}{mark} "
        print(start + "|")
    for optimizer in OPTIMIZERS:
        own = [row for row in rows if row["optimizer"] == optimizer]
        kept = [row for row in own if not row["reason"]]
        parts = []
        for name in ("period", "damping"):
            off = np.array([abs(row[f"measured_{name}"] / row[name] - 1) for row in kept])
            inside = sum(row[f"{name}_inside"] for row in kept)
            parts.append(
                f"{name} within 5% in {(off < 0.05).sum()} of {len(own)}, at most "
                f"{off.max():.1%} off, inside its interval in {inside}"
            )
        print(f"\n{optimizer}: " + "; ".join(parts) + ".")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--settings", type=int, default=20, help="of each optimizer")
    given = parser.parse_args()
    settings = [
        draw(name, given.seed, place) for name in OPTIMIZERS for place in range(given.settings)
    ]
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(given.processes) as pool:
        show(pool.map(measure, settings, chunksize=1))


if __name__ == "__main__":
    main()
