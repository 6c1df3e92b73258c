"""Digits by class in cycles: what `watch` predicts against what training does.

Run: python benchmarks/guard_cycles.py [--steps N] [--lr X] [--cycles 0 10 20 ...] [--seeds N]
    [--loss squares|cross-entropy]

The ten classes come one after the other, all of them in a cycle of so many steps; 0 is iid. The
same network learns them with its own momentum, watched; with a smaller one; and guarded. The rates
are those of its own momentum over the first 256 steps.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from digits import digits, network, ordered

from resonax.guards.report import Candidate, GuardReport
from resonax.torch import Guard, ResonanceWarning

OWN, WARMUP = 0.95, 256
CYCLES = [0, 10, 15, 20, 25, 30, 35, 40, 50, 60, 80, 120]
METHODS: dict[str, tuple[float, dict[str, Any]]] = {
    "watch": (OWN, {"policy": "watch", "warmup": WARMUP}),
    "fixed 0.85": (0.85, {}),
    "safe": (OWN, {"policy": "safe"}),
    "safe, warm-up": (OWN, {"policy": "safe", "warmup": WARMUP}),
}


class Told(NamedTuple):
    """Of one run: digits told right and test loss at the end, step of a loss that is not finite."""

    right: float
    loss: float
    lost: int | None
    early: Candidate | None  # what was known of the own momentum after the warm-up
    guard: Guard | None


def squares(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    goals = torch.eye(10, device=outputs.device)
    return torch.sum((outputs - goals[labels]) ** 2, dim=1).mean()


LOSSES = {"squares": squares, "cross-entropy": torch.nn.functional.cross_entropy}


def run(method: str, cycle: int, steps: int, lr: float, loss_fn: Any, seed: int) -> Told:
    momentum, options = METHODS[method]
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = network(seed).to(device)
    images, labels = (part.to(device) for part in digits())
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    guard = Guard(model, optimizer, instrument="tangent", **options) if options else None
    right, far, lost, early = [], [], None, None
    for step, (x, y) in enumerate(ordered(cycle, steps, seed)):
        x, y = x.to(device), y.to(device)

        def loss_of(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            return loss_fn(model(x), y)

        if guard is not None:
            loss = guard.step(loss_of)
        else:
            optimizer.zero_grad()
            loss = loss_of()
            loss.backward()
            optimizer.step()
        if step % 8 == 0 and lost is None and not bool(torch.isfinite(loss)):
            lost = step
        if step >= steps - max(cycle, 100) and step % 10 == 0:
            with torch.no_grad():
                outputs = model(images)
                right.append(float((outputs.argmax(1) == labels).float().mean()))
                far.append(float(loss_fn(outputs, labels)))
        if step == WARMUP and guard is not None and "warmup" in options:
            report = guard.report()
            assert isinstance(report, GuardReport)
            early = report.candidates[0]
    return Told(float(np.mean(right)), float(np.mean(far)), lost, early, guard)


def said(told: Told) -> str:
    """Return what a guard said, in a few words."""
    if told.guard is None:
        return ""
    found, words = told.guard.report(), []
    warned = [event.step for event in found.events if event.kind == "resonance"]
    if found.policy == "watch":
        words.append(f"warned at {warned[0]}" if warned else "silent")
    else:
        words.append(f"momentum {told.guard.momentum:g}")
    if told.early is not None and told.early.rate is not None:
        low, high = told.early.low, told.early.high
        words.append(f"rate {told.early.rate:+.4f} [{low:+.4f}, {high:+.4f}]")
    return f" ({', '.join(words)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.005)
    parser.add_argument("--cycles", type=int, nargs="*", default=CYCLES)
    parser.add_argument("--loss", choices=list(LOSSES), default="squares")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", ResonanceWarning)
    print(
        f"{options.loss}, {options.steps} steps, lr {options.lr}, momentum {OWN}, right at the end"
    )
    begun = time.perf_counter()
    for cycle in options.cycles:
        for seed in range(options.seeds):
            parts = []
            for method in METHODS:
                told = run(method, cycle, options.steps, options.lr, LOSSES[options.loss], seed)
                end = (
                    f"lost at {told.lost}"
                    if told.lost is not None
                    else f"{told.right:.0%} loss {told.loss:.2g}"
                )
                parts.append(f"{method} {end}{said(told)}")
            spent = time.perf_counter() - begun
            print(f"cycle {cycle or 'iid'}, seed {seed}: {'; '.join(parts)} [{spent:.0f} s]")


if __name__ == "__main__":
    main()
