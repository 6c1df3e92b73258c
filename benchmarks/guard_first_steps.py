"""What a guard by replay costs in the first steps of a run, on harmless rows and on harmful ones.

Run: python benchmarks/guard_first_steps.py [--steps N] [--seeds N]

Four learners, each on rows in random order and on the same kind of rows in an order that harms.
Printed are the extra steps for each step of the run, as the guard counts them (a judged batch is a
third of a step), and the processor time of the guarded run over that of the plain one: the least,
the median and the largest over the seeds. Work does not depend on the machine, time does.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from resonax.torch import Guard

Rows = Iterator[tuple[Tensor, Tensor]]
IMAGES, LABELS = (torch.tensor(part) for part in load_digits(return_X_y=True))
IMAGES = (IMAGES / 16).float()


def digits(steps: int, seed: int, in_order: bool) -> Rows:
    """Return digits, all of one class for four steps, or at random."""
    rng = np.random.default_rng(seed)
    for step in range(steps):
        pool = np.flatnonzero(LABELS.numpy() == step % 40 // 4) if in_order else len(LABELS)
        rows = rng.choice(pool, 16)
        yield IMAGES[rows], LABELS[rows]


def switching(steps: int, seed: int, in_order: bool) -> Rows:
    """Return rows whose mean changes every six steps, or at every row."""
    rng, mean = np.random.default_rng(seed), np.zeros(5)
    for step in range(steps):
        if not in_order or step % 6 == 0:
            mean = 0.5 * rng.standard_normal(5)
        x = np.append(mean + 0.5 * rng.standard_normal((1, 5)), [[1.0]], axis=1)
        yield torch.tensor(x).float(), torch.tensor(0.3 * rng.standard_normal((1, 1))).float()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


LEARNERS: dict[str, tuple[Callable[..., nn.Module], Callable[..., Rows], Callable, Callable]] = {
    "digits, SGD 0.95": (
        network, digits, nn.functional.cross_entropy,
        lambda weights: torch.optim.SGD(weights, lr=0.05, momentum=0.95),
    ),
    "digits, Adam": (
        network, digits, nn.functional.cross_entropy,
        lambda weights: torch.optim.Adam(weights, lr=0.01),
    ),
    "line, SGD 0.95": (
        lambda: nn.Linear(6, 1, bias=False), switching, nn.functional.mse_loss,
        lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.95),
    ),
    "line, Adam": (
        lambda: nn.Linear(6, 1, bias=False), switching, nn.functional.mse_loss,
        lambda weights: torch.optim.Adam(weights, lr=0.01),
    ),
}  # fmt: skip


def train(name: str, policy: str | None, rows: list[tuple[Tensor, Tensor]]) -> tuple[float, float]:
    """Return the processor time of a run, and its extra steps for each step."""
    make, _, loss_fn, optimizer_of = LEARNERS[name]
    torch.manual_seed(0)
    model = make()
    optimizer = optimizer_of(model.parameters())
    guard = None if policy is None else Guard(model, optimizer, policy)
    start = time.process_time()
    for x, y in rows:
        if guard is not None:
            guard.step(lambda x, y: loss_fn(model(x), y), x, y)
            continue
        optimizer.zero_grad()
        loss_fn(model(x), y).backward()
        optimizer.step()
    taken = time.process_time() - start
    return taken, 0.0 if guard is None else guard.report().to_dict()["work"]


def shown(numbers: list[float]) -> str:
    return f"{min(numbers):5.1f} {statistics.median(numbers):5.1f} {max(numbers):5.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("resonax").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    print(f"{'':18}{'rows':10}{'policy':8}{'extra steps a step':20}{'time, times plain':20}")
    for name in LEARNERS:
        for in_order in (False, True):
            for policy in ("safe", "watch"):
                work, times = [], []
                for seed in range(given.seeds):
                    rows = list(LEARNERS[name][1](given.steps, seed, in_order))
                    plain, _ = train(name, None, rows)
                    guarded, extra = train(name, policy, rows)
                    work.append(extra)
                    times.append(guarded / plain)
                order = "in order" if in_order else "shuffled"
                print(f"{name:18}{order:10}{policy:8}{shown(work):20}{shown(times):20}", flush=True)


if __name__ == "__main__":
    main()
