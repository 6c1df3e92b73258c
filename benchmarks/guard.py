"""What the guard costs on a network of about a million parameters, and how soon it speaks.

Run: python benchmarks/guard.py [--quick] [--part cost|delay|cycles]
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from resonax.torch import Guard, ResonanceWarning

BATCH = 16


class Residual(nn.Module):
    """A block of two convolutions with a way around them."""

    def __init__(self, channels: int):
        super().__init__()
        self.one = nn.Conv2d(channels, channels, 3, padding=1)
        self.two = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.two(torch.relu(self.one(x)))


def network() -> nn.Module:
    """Return a residual network for digits of 8 x 8 pixels, 0.94 million parameters."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, stride=2, padding=1), nn.ReLU(), Residual(32),
        nn.Conv2d(32, 128, 3, stride=2, padding=1), nn.ReLU(), Residual(128),
        nn.Flatten(), nn.Linear(512, 1100), nn.ReLU(), nn.Linear(1100, 10),
    )  # fmt: skip


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    from sklearn.datasets import load_digits

    rows, labels = load_digits(return_X_y=True)
    images = torch.tensor(np.asarray(rows), dtype=torch.float32).reshape(-1, 1, 8, 8) / 16
    return images, torch.tensor(np.asarray(labels))


def ordered(cycle: int, steps: int, seed: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Return batches of one class after the other, all ten in a cycle of steps; 0 is iid."""
    images, labels = digits()
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(labels.numpy() == label) for label in range(10)]
    for step in range(steps):
        pool = places[int(step % cycle * 10 / cycle)] if cycle else np.arange(len(labels))
        rows = rng.choice(pool, BATCH)
        yield images[rows], labels[rows]


def timed(guarded: bool, steps: int, options: dict) -> tuple[float, int, int]:
    """Return seconds, probed steps and the largest number of numbers held by shadows."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    guard = Guard(model, optimizer, **options) if guarded else None
    batches, held = list(ordered(0, 200)), 0
    begun = time.process_time()
    for step in range(steps):
        x, y = batches[step % 200]
        if guard is not None:
            guard.step(lambda x=x, y=y: nn.functional.cross_entropy(model(x), y))
            if guard._burst.shadows is not None:
                held = max(held, sum(2 * part.numel() for part in guard._burst.shadows.places))
            continue
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    seconds = time.process_time() - begun
    return seconds, guard.report().probed if guard is not None else 0, held


def cost(steps: int) -> None:
    size = sum(weight.numel() for weight in network().parameters())
    print(f"cost on {size:,} parameters, batch {BATCH}, {steps} steps, shuffled digits")
    timed(False, 50, {})
    few = min(steps, 600)
    plain = timed(False, few, {})[0] / few * steps
    print(f"  plain            {plain / steps * 1e3:7.2f} ms a step", flush=True)
    for policy in ("safe",):
        seconds, probed, held = timed(True, steps, {"policy": policy})
        print(
            f"  {policy:8} default {seconds / steps * 1e3:7.2f} ms a step, "
            f"{seconds / plain - 1:+.1%}, {probed} steps probed, "
            f"shadows of {held / size:.1f} x the parameters",
            flush=True,
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
            probed.append(guard.report().probed / guard.report().step)
            far.append(largest)
        print(
            f"  budget {budget:5.2f}: lowered at step {np.median(found):5.0f} (median), "
            f"{max(found):5.0f} (last), probed {np.mean(probed):4.0%} until then, "
            f"distance up to {np.median(far):.3g} (median), {max(far):.3g}",
            flush=True,
        )


def cycles(steps: int, lr: float, momentum: float) -> None:
    print(f"digits by class in cycles, lr {lr}, momentum {momentum}, {steps} steps")
    for cycle in (0, 10, 40):
        row = []
        for policy in ("watch", "safe"):
            model = network()
            optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
            guard = Guard(model, optimizer, policy=policy)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResonanceWarning)
                for x, y in ordered(cycle, steps):
                    guard.step(
                        lambda x=x, y=y, model=model: nn.functional.cross_entropy(model(x), y)
                    )
            with torch.no_grad():
                images, labels = digits()
                output = model(images)
                test = float(nn.functional.cross_entropy(output, labels))
                right = float((output.argmax(1) == labels).float().mean())
            found = guard.report()
            warned = [event.step for event in found.events if event.kind == "resonance"]
            moved = [event.momentum for event in found.events if event.kind == "momentum"]
            told = (
                f"warned at {warned[0]}" if warned else f"moved to {moved}" if moved else "silent"
            )
            period = f", period {found.period:.0f}" if found.period else ""
            row.append(f"{policy}: {told}{period}, loss {test:.3g}, right {right:.0%}")
        print(f"  cycle {cycle or 'iid':>4}: {'; '.join(row)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=["cost", "delay", "cycles"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    parts = [options.part] if options.part else ["cost", "delay", "cycles"]
    if "cost" in parts:
        cost(400 if options.quick else 4800)
    if "delay" in parts:
        delay(1500, 2) if options.quick else delay(3000, 5)
    if "cycles" in parts:
        cycles(100 if options.quick else 300, 0.02, 0.95)


if __name__ == "__main__":
    main()
