"""The guard on a control stream: a value function learnt from the states of a car, as they come.

Run: python benchmarks/guard_control.py [--quick]

A car in a valley (MountainCar of gymnasium) is pushed in the direction in which it rolls, or at
random now and then. Its states come in the order of time, and a value function learns the
discounted cost from each of them by temporal differences, TD(0), with SGD and momentum.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from resonax.torch import Guard

LR, OWN, DISCOUNT = 0.01, 0.95, 0.9


def states(steps: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return states, standardised, (steps + 1, 2), and the cost of each step: the height left."""
    env = gymnasium.make("MountainCar-v0", max_episode_steps=10**9).unwrapped
    rng = np.random.default_rng(seed)
    now, seen = env.reset(seed=seed)[0], []
    for _ in range(steps + 1):
        push = rng.integers(3) if rng.uniform() < 0.1 else 2 * int(now[1] >= 0)
        now, _, done, _, _ = env.step(int(push))
        seen.append(now)
        if done:
            now = env.reset()[0]
    rows = np.asarray(seen, float)
    cost = np.cos(3 * rows[:-1, 0])  # 1 in the valley
    rows = (rows - rows.mean(0)) / rows.std(0)
    return torch.tensor(rows, dtype=torch.float32), torch.tensor(cost, dtype=torch.float32)


def value_function(kind: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    if kind == "linear":
        return nn.Linear(2, 1)
    return nn.Sequential(nn.Linear(2, 32), nn.Tanh(), nn.Linear(32, 1))


def learn(
    kind: str, momentum: float, warmup: int | None, data: Any, seed: int
) -> tuple[float, float, float]:
    """Return the error of the last tenth, the largest value on the way and the last momentum.

    The error is the root mean square of the temporal difference.
    """
    rows, cost = data
    model = value_function(kind, seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=momentum)
    guard = (
        None
        if warmup is None
        else Guard(model, optimizer, "safe", instrument="tangent", warmup=warmup)
    )
    errors, largest = [], 0.0
    for k in range(len(cost)):
        with torch.no_grad():
            goal = cost[k] + DISCOUNT * model(rows[k + 1])

        def loss(k: int = k, goal: torch.Tensor = goal) -> torch.Tensor:
            return torch.sum((model(rows[k]) - goal) ** 2)

        if guard is not None:
            found = guard.step(loss)
        else:
            optimizer.zero_grad()
            found = loss()
            found.backward()
            optimizer.step()
        errors.append(float(found.detach()))
        largest = max(largest, abs(float(goal)))
        if not np.isfinite(errors[-1]):
            return float("inf"), float("inf"), momentum
    end = float(np.sqrt(np.mean(errors[-len(errors) // 10 :])))
    return end, largest, guard.momentum if guard is not None else momentum


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    torch.set_num_threads(1)
    steps, seeds = (3000, 2) if quick else (6000, 3)
    methods = {
        "fixed 0.95": (OWN, None),
        "fixed 0.85": (0.85, None),
        "fixed 0": (0.0, None),
        "safe": (OWN, 0),
        "safe, warm-up": (OWN, 256),
    }
    streams = [states(steps, seed) for seed in range(seeds)]
    for kind in ("linear", "network"):
        print(f"{kind} value function, {steps} steps, {seeds} seeds, {LR=}, {OWN=}, {DISCOUNT=}")
        for name, (momentum, warmup) in methods.items():
            found = np.array([learn(kind, momentum, warmup, streams[s], s) for s in range(seeds)])
            middle, worst = np.median(found[:, 0]), found[:, 0].max()
            print(
                f"  {name:13} error {middle:9.3g} (median), {worst:9.3g} (largest), "
                f"largest value {found[:, 1].max():9.3g}, last momentum {found[:, 2].tolist()}",
                flush=True,
            )


if __name__ == "__main__":
    main()
