"""The guard by replay on digits that come one class after the other, against other remedies.

Run: python benchmarks/guard_replay.py [--seeds FIRST:LAST] [--processes N] [--tasks NAME ...]
    [--results FILE.jsonl]

A residual network of 0.93 million parameters (`digits.py`) learns from batches of one class, all
ten classes in a cycle of steps; a cycle of 0 is the same images in random order. Printed are the
share of all images told right at the end, its median and least over the seeds, how many runs ended
with weights that are not finite, and of the guard its extra work, memory and time. The constants of
the guard were chosen on seeds 0 to 2.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from digits import digits, network, ordered
from torch import Tensor, nn

BUFFER = 64  # batches of the shuffle buffer
WARM = 100  # steps over which the step size rises
GUARD = "guard"
METHODS = ("own", "0.85", "0.5", "clipping", "reset", "lr warm-up", "shuffle", GUARD)
CYCLES = (0, 20, 30, 40, 60)


class Task(NamedTuple):
    """A loss and an optimizer."""

    loss: str
    optimizer: str
    lr: float
    momentum: float
    steps: int
    cycles: tuple[int, ...] = CYCLES


TASKS = {
    "cross-entropy, SGD": Task("ce", "SGD", 0.02, 0.95, 600),
    "least squares, SGD": Task("sq", "SGD", 0.005, 0.95, 800),
    "cross-entropy, Adam": Task("ce", "Adam", 0.003, 0.9, 600),
    "cross-entropy, AdamW": Task("ce", "AdamW", 0.003, 0.9, 600, (0, 40)),
    "cross-entropy, RMSprop": Task("ce", "RMSprop", 0.0005, 0.9, 600, (0, 40)),
}


def squared(output: Tensor, target: Tensor) -> Tensor:
    return torch.sum((output - torch.eye(10)[target]) ** 2, 1).mean()


def build(task: Task, model: nn.Module, momentum: float) -> torch.optim.Optimizer:
    made = getattr(torch.optim, task.optimizer)
    if task.optimizer.startswith("Adam"):
        return made(model.parameters(), lr=task.lr, betas=(momentum, 0.999))
    return made(model.parameters(), lr=task.lr, momentum=momentum)


def shuffled(batches: Iterator[Any], seed: int) -> Iterator[Any]:
    """Return batches of rows that leave a buffer in random order."""
    rng = np.random.default_rng(seed)
    kept: list[tuple[Tensor, Tensor]] = []
    for x, y in batches:
        kept += zip(x, y, strict=True)
        rows = rng.permutation(len(kept))[: len(x)]
        yield (
            torch.stack([kept[row][0] for row in rows]),
            torch.stack([kept[row][1] for row in rows]),
        )
        gone = set(rows.tolist()) if len(kept) > BUFFER * len(x) else set()
        kept = [row for place, row in enumerate(kept) if place not in gone]


def trainer(
    method: str, task: Task, model: nn.Module, loss_fn: Callable[[Tensor, Tensor], Tensor]
) -> tuple[Callable[[Tensor, Tensor], float], Any]:
    """Return a function that trains on a batch, and the guard if there is one."""
    from resonax.torch import Guard

    momentum = float(method) if method in ("0.85", "0.5") else task.momentum
    optimizer = build(task, model, momentum)
    guard = Guard(model, optimizer, instrument="replay") if method == GUARD else None
    mean = math.inf

    def plain(x: Tensor, y: Tensor) -> float:
        nonlocal mean
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        if method == "clipping":
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if method == "reset":
            if float(loss.detach()) > 10 * mean:
                optimizer.state.clear()
            mean = (
                float(loss.detach())
                if math.isinf(mean)
                else 0.99 * mean + 0.01 * float(loss.detach())
            )
        optimizer.step()
        if schedule is not None:
            schedule.step()
        return float(loss.detach())

    def guarded(x: Tensor, y: Tensor) -> float:
        assert guard is not None
        return float(guard.step(lambda x, y: loss_fn(model(x), y), x, y))

    warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=WARM)
    schedule = warm if method == "lr warm-up" else None
    if schedule is None:
        for group in optimizer.param_groups:
            group["lr"] = task.lr
    return (plain if guard is None else guarded), guard


def run(name: str, cycle: int, method: str, seed: int) -> dict[str, Any]:
    """Train one run."""
    torch.set_num_threads(1)
    logging.getLogger("resonax").setLevel(logging.ERROR)
    task = TASKS[name]
    model = network(seed)
    images, labels = digits()
    loss_fn = nn.functional.cross_entropy if task.loss == "ce" else squared
    step, guard = trainer(method, task, model, loss_fn)
    batches = ordered(cycle, task.steps, seed)
    if method == "shuffle":
        batches = shuffled(batches, seed)
    right, begun = [], time.perf_counter()
    for place, (x, y) in enumerate(batches):
        step(x, y)
        if place >= task.steps - max(cycle, 100) and place % 10 == 0:
            with torch.no_grad():
                right.append(float((model(images[::3]).argmax(1) == labels[::3]).float().mean()))
    is_lost = not all(bool(torch.isfinite(one).all()) for one in model.parameters())
    found = {"task": name, "cycle": cycle, "method": method, "seed": seed, "is_lost": is_lost}
    found |= {"right": float(np.mean(right)), "seconds": time.perf_counter() - begun}
    if guard is not None:
        report = guard.report()
        found |= {"work": report.work, "memory": report.memory, "setting": report.setting}
    return found


def show(rows: list[dict[str, Any]]) -> None:
    """Print the tables."""
    for name in dict.fromkeys(row["task"] for row in rows):
        print(f"\n{name}, told right at the end: median (least), * runs that were lost")
        mine = [row for row in rows if row["task"] == name]
        print(f"{'cycle':>6}" + "".join(f"{method:>17}" for method in METHODS))
        for cycle in sorted({row["cycle"] for row in mine}):
            line = f"{cycle:6d}"
            for method in METHODS:
                here = [r for r in mine if r["cycle"] == cycle and r["method"] == method]
                right = [row["right"] for row in here]
                lost = sum(row["is_lost"] for row in here)
                text = f"{np.median(right):.0%} ({min(right):.0%})" if right else "-"
                line += f"{text + (f' {lost}*' if lost else ''):>17}"
            print(line)
        guarded = [row for row in mine if row["method"] == GUARD]
        own = [row["seconds"] for row in mine if row["method"] == "own"]
        if guarded and own:
            calm = [row for row in guarded if row["cycle"] == 0]
            kept = sum("mixed" not in row["setting"] for row in calm)
            work, seconds = (
                np.median([row[key] for row in guarded]) for key in ("work", "seconds")
            )
            memory = max(row["memory"] for row in guarded) / 2**20
            print(
                f"  guard: {work:.1f} steps of extra work a step, {seconds / np.median(own):.1f} "
                f"times the time, {memory:.0f} MiB; of {len(calm)} runs in random order {kept} "
                "were left alone"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="100:110", help="first and one after the last")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS))
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--results", help="where rows are kept as they come; those there are read")
    options = parser.parse_args()
    first, last = (int(part) for part in options.seeds.split(":"))
    store = Path(options.results) if options.results else None
    rows = (
        [json.loads(line) for line in store.read_text().splitlines()]
        if store and store.exists()
        else []
    )
    done = {(row["task"], row["cycle"], row["method"], row["seed"]) for row in rows}
    jobs = [
        (name, cycle, method, seed)
        for seed in range(first, last)
        for name in options.tasks
        for cycle in TASKS[name].cycles
        for method in options.methods
        if (name, cycle, method, seed) not in done
    ]
    with ProcessPoolExecutor(options.processes, get_context("spawn")) as pool:
        for place, job in enumerate(as_completed([pool.submit(run, *job) for job in jobs])):
            rows.append(job.result())
            if store is not None:
                with store.open("a") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
            print(f"\r{place + 1} of {len(jobs)} runs", end="", flush=True)
    show(rows)


if __name__ == "__main__":
    main()
