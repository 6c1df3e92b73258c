"""What the guard costs on a network of about a million parameters, and how soon it speaks.

Run: python benchmarks/guard.py [--quick] [--part cost|delay]
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np
import torch
from digits import BATCH, network, ordered
from torch import nn

from resonax.guards.report import GuardReport
from resonax.torch import Guard
from resonax.torch.tangent import TangentInstrument


def probed_of(guard: Guard) -> int:
    """Return the steps in which shadows were followed."""
    report = guard.report()
    assert isinstance(report, GuardReport)
    return report.probed


def shadows_of(guard: Guard) -> int:
    """Return how many numbers shadows hold now."""
    assert isinstance(guard._inner, TangentInstrument)
    shadows = guard._inner.run.burst.shadows
    return 0 if shadows is None else sum(2 * part.numel() for part in shadows.places)


def timed(guarded: bool, steps: int, options: dict) -> tuple[float, int, int]:
    """Return seconds, probed steps and the largest number of numbers held by shadows."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    guard = Guard(model, optimizer, instrument="tangent", **options) if guarded else None
    batches, held = list(ordered(0, 200)), 0
    begun = time.process_time()
    for step in range(steps):
        x, y = batches[step % 200]
        if guard is not None:
            guard.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
            held = max(held, shadows_of(guard))
            continue
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    seconds = time.process_time() - begun
    return seconds, probed_of(guard) if guard is not None else 0, held


def cost(steps: int) -> None:
    size = sum(weight.numel() for weight in network().parameters())
    print(f"cost on {size:,} parameters, batch {BATCH}, {steps} steps, shuffled digits")
    timed(False, 50, {})
    few = min(steps, 600)
    plain = timed(False, few, {})[0] / few * steps
    print(f"  plain            {plain / steps * 1e3:7.2f} ms a step", flush=True)
    seconds, probed, held = timed(True, steps, {})
    print(
        f"  safe, default    {seconds / steps * 1e3:7.2f} ms a step, "
        f"{seconds / plain - 1:+.1%}, {probed} steps probed, "
        f"shadows of {held / size:.1f} x the parameters",
        flush=True,
    )
    warmup = min(steps, 256)
    seconds, probed, held = timed(True, warmup, {"warmup": warmup})
    print(
        f"  a warm-up of {warmup} steps: as long as {seconds / plain * steps:.0f} plain steps, "
        f"shadows of {held / size:.1f} x the parameters"
    )


def delay(steps: int, seeds: int) -> None:
    print(f"switching stream (d = 5, v = 0.25, T = 6, lr 0.01, momentum 0.95), {seeds} seeds")
    for budget in (0.07, 0.5, math.inf):
        found, probed, far = [], [], []
        for seed in range(seeds):
            torch.manual_seed(seed)
            draw = torch.Generator().manual_seed(seed)
            model = nn.Linear(5, 1)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.95)
            guard, mean, largest = Guard(model, optimizer, budget=budget), torch.zeros(5), 0.0
            for step in range(steps):
                if step % 6 == 0:
                    mean = 0.5 * torch.randn(5, generator=draw)
                x = mean + 0.5 * torch.randn(1, 5, generator=draw)
                y = math.sqrt(0.1) * torch.randn(1, 1, generator=draw)
                guard.step(lambda x=x, y=y, model=model: nn.functional.mse_loss(model(x), y))
                largest = max(largest, float(model.weight.detach().norm()))
                if guard.momentum < 0.95:
                    break
            found.append(guard.report().step)
            probed.append(probed_of(guard) / guard.report().step)
            far.append(largest)
        print(
            f"  budget {budget:5.2f}: lowered at step {np.median(found):5.0f} (median), "
            f"{max(found):5.0f} (last), probed {np.mean(probed):4.0%} until then, "
            f"distance up to {np.median(far):.3g} (median), {max(far):.3g}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=["cost", "delay"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = [options.part] if options.part else ["cost", "delay"]
    if "cost" in parts:
        cost(400 if options.quick else 4800)
    if "delay" in parts:
        delay(1500, 2) if options.quick else delay(3000, 5)


if __name__ == "__main__":
    main()
