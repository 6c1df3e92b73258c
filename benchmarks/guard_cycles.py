"""Digits by class in cycles: what `watch` predicts against what training does.

Run: python benchmarks/guard_cycles.py [--steps N] [--lr X] [--cycles 0 10 20 ...] [--seeds N]

The ten classes come one after the other, all of them in a cycle of so many steps; 0 is iid. The
same network is trained with its own momentum and watched, with a smaller one, and guarded.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from digits import digits, network, ordered
from torch import nn

from resonax.torch import Guard, ResonanceWarning

OWN = 0.95
CYCLES = [0, 10, 20, 30, 40, 60, 80, 120, 160, 240]
METHODS: dict[str, tuple[float, dict[str, Any]]] = {
    "watch": (OWN, {"policy": "watch", "budget": math.inf}),
    "fixed 0.85": (0.85, {}),
    "safe": (OWN, {"policy": "safe"}),
    "safe, warm-up": (OWN, {"policy": "safe", "warmup": 256}),
}


class Told(NamedTuple):
    """Of one run: share of digits told right at the end, step of a loss that is not finite."""

    right: float
    lost: int | None
    guard: Guard | None


def run(method: str, cycle: int, steps: int, lr: float, seed: int, device: str) -> Told:
    momentum, options = METHODS[method]
    model = network(seed).to(device)
    images, labels = (part.to(device) for part in digits())
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    guard = Guard(model, optimizer, **options) if options else None
    right, lost = [], None
    for step, (x, y) in enumerate(ordered(cycle, steps, seed)):
        x, y = x.to(device), y.to(device)

        def loss_of(x: torch.Tensor = x, y: torch.Tensor = y) -> torch.Tensor:
            return nn.functional.cross_entropy(model(x), y)

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
                right.append(float((model(images).argmax(1) == labels).float().mean()))
    return Told(float(np.mean(right)), lost, guard)


def said(told: Told) -> str:
    """Return what a guard said, in a few words."""
    if told.guard is None:
        return ""
    found = told.guard.report()
    if found.policy != "watch":
        return f" at {found.momentum:g}"
    warned = [event.step for event in found.events if event.kind == "resonance"]
    own = found.candidates[0]
    rate = "" if own.rate is None else f", rate {own.rate:+.4f} [{own.low:+.4f}, {own.high:+.4f}]"
    period = f", period {found.period:.0f}" if found.period else ""
    return f" ({f'warned at {warned[0]}' if warned else 'silent'}{rate}{period})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--cycles", type=int, nargs="*", default=CYCLES)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    warnings.simplefilter("ignore", ResonanceWarning)
    print(f"{options.steps} steps, lr {options.lr}, momentum {OWN}, right at the end, on {device}")
    begun = time.perf_counter()
    for cycle in options.cycles:
        for seed in range(options.seeds):
            parts = []
            for method in METHODS:
                told = run(method, cycle, options.steps, options.lr, seed, device)
                end = f"lost at {told.lost}" if told.lost is not None else f"{told.right:4.0%}"
                parts.append(f"{method} {end}{said(told)}")
            spent = time.perf_counter() - begun
            print(f"cycle {cycle or 'iid'}, seed {seed}: {'; '.join(parts)} [{spent:.0f} s]")


if __name__ == "__main__":
    main()
