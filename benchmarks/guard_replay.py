"""The guard by replay on networks that learn from data in order, against other remedies.

Run: python benchmarks/guard_replay.py [--seeds FIRST:LAST] [--processes N] [--tasks NAME ...]
    [--kinds plain guard] [--results FILE.jsonl] [--show]

Digits come one class after the other, all ten classes in a cycle of steps; text one kind after the
other; a recording of electricity demand as time goes. A cycle of 0 is the same examples at random.
Printed are the share of digits told right, or the loss on held-out examples of all kinds, at the
end: median and worst over the seeds, and how many runs ended with weights that are not finite. Of
the guard also its extra work, memory and time. Methods without a guard are trained side by side, on
a GPU if there is one. The constants of the guard were chosen on seeds below 100.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from network_tasks import BATCH, TASKS, Task
from side_by_side import BUFFER, METHODS, shuffled, train

GUARDS = ("guard", "guard, averaged")
TIMED = 50  # steps without a guard that its time is compared with


def is_judged(task: Task, cycle: int, step: int) -> bool:
    return step >= task.steps - max(cycle, 100) and step % 10 == 0


def plain(name: str, cycle: int, seeds: list[int], methods: list[str]) -> list[dict[str, Any]]:
    """Train all methods without a guard."""
    torch.set_num_threads(1)
    task = TASKS[name]
    pool = task.pool()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    runs = [(method, seed) for method in methods for seed in seeds]
    orders = {seed: task.order(pool, cycle, task.steps, seed) for seed in seeds}
    rows = [shuffled(orders[s], s) if m == "shuffle" else orders[s] for m, s in runs]
    tests, truth, ends = pool.tests.to(device), pool.truth.to(device), []

    def judge(output: Any, step: int) -> None:
        if is_judged(task, cycle, step):
            with torch.no_grad():
                made = output(tests)
                ends.append(torch.stack([task.judge(one, truth) for one in made]).cpu())

    begun = time.perf_counter()
    is_lost = train(
        [task.model(seed) for _, seed in runs],
        [method for method, _ in runs],
        task.loss,
        (pool.x.to(device), pool.y.to(device)),
        np.stack(rows),
        (task.optimizer, task.lr, task.momentum),
        judge,
    )
    mean, seconds = torch.stack(ends).mean(0).tolist(), time.perf_counter() - begun
    return [
        found(name, cycle, method, seed, mean[place], bool(is_lost[place])) | {"seconds": seconds}
        for place, (method, seed) in enumerate(runs)
    ]


def found(name: str, cycle: int, method: str, seed: int, end: float, is_lost: bool) -> Any:
    made = {"task": name, "cycle": cycle, "method": method, "seed": seed, "is_lost": is_lost}
    return made | {"end": end if np.isfinite(end) else 1e300}


def optimizer_of(task: Task, model: torch.nn.Module) -> torch.optim.Optimizer:
    made = getattr(torch.optim, task.optimizer)
    if task.optimizer.startswith("Adam"):
        return made(model.parameters(), lr=task.lr, betas=(task.momentum, 0.999))
    return made(model.parameters(), lr=task.lr, momentum=task.momentum)


def time_of_a_step(task: Task, rows: np.ndarray, seed: int) -> float:
    """Return the seconds of a step without a guard."""
    pool, model = task.pool(), task.model(seed)
    optimizer, begun = optimizer_of(task, model), time.perf_counter()
    for batch in rows[:TIMED]:
        optimizer.zero_grad()
        task.loss(model(pool.x[batch]), pool.y[batch]).backward()
        optimizer.step()
    return (time.perf_counter() - begun) / TIMED


def guarded(name: str, cycle: int, seed: int, **options: Any) -> list[dict[str, Any]]:
    """Train one guarded run."""
    from resonax.guards.replay_report import ReplayReport
    from resonax.torch import Guard

    torch.set_num_threads(1)
    logging.getLogger("resonax").setLevel(logging.ERROR)
    task = TASKS[name]
    pool = task.pool()
    rows = task.order(pool, cycle, task.steps, seed)
    usual = time_of_a_step(task, rows, seed)
    model = task.model(seed)
    guard = Guard(model, optimizer_of(task, model), average=True, **options)
    ends, seconds = [], 0.0
    for step, batch in enumerate(rows):
        begun = time.perf_counter()
        guard.step(lambda x, y: task.loss(model(x), y), pool.x[batch], pool.y[batch])
        seconds += time.perf_counter() - begun
        if is_judged(task, cycle, step):
            with torch.no_grad():
                both = [task.judge(one(pool.tests), pool.truth) for one in (model, guard.offered())]
            ends.append([float(one) for one in both])
    is_lost = not all(bool(torch.isfinite(one).all()) for one in model.parameters())
    report = guard.report()
    assert isinstance(report, ReplayReport)
    more = {"work": report.work, "memory": report.memory, "setting": report.setting}
    more |= {"slower": seconds / task.steps / usual}
    more |= {"decisions": [(d.step, d.why, str(d.after)) for d in report.decisions]}
    return [
        found(name, cycle, method, seed, end, is_lost) | more
        for method, end in zip(GUARDS, np.mean(ends, axis=0).tolist(), strict=True)
    ]


def show(rows: list[dict[str, Any]]) -> None:
    """Print the tables."""
    for name in dict.fromkeys(row["task"] for row in rows):
        task = TASKS[name]
        what = "told right" if task.is_share else "loss on held-out examples"
        print(f"\n{name}: {what} at the end: median (worst), * runs that were lost")
        mine = [row for row in rows if row["task"] == name]
        seen = [one for one in (*METHODS, *GUARDS) if any(row["method"] == one for row in mine)]
        print(f"{'cycle':>6}" + "".join(f"{method:>17}" for method in seen))
        for cycle in sorted({row["cycle"] for row in mine}):
            line = f"{cycle:6d}"
            for method in seen:
                here = [r for r in mine if r["cycle"] == cycle and r["method"] == method]
                line += f"{_cell(task, here):>17}"
            print(line)
        _show_cost(task, mine)


def _cell(task: Task, here: list[dict[str, Any]]) -> str:
    ends, lost = [row["end"] for row in here], sum(row["is_lost"] for row in here)
    if not ends:
        return "-"
    if task.is_share:
        text = f"{np.median(ends):.0%} ({min(ends):.0%})"
    else:
        text = f"{np.median(ends):.3g} ({max(ends):.3g})"
    return text + (f" {lost}*" if lost else "")


def _show_cost(task: Task, mine: list[dict[str, Any]]) -> None:
    """Print what the guard costs, and how many runs at random were left alone."""
    guarded = [row for row in mine if row["method"] == GUARDS[0]]
    if not guarded:
        return
    calm = [row for row in guarded if row["cycle"] == 0]
    kept = sum(not row["decisions"] for row in calm)
    pool = task.pool()
    row = pool.x[0].numel() * pool.x.element_size() + pool.y[0].numel() * pool.y.element_size()
    work, slower = (np.median([one[key] for one in guarded]) for key in ("work", "slower"))
    print(
        f"  guard: {work:.1f} steps of extra work a step, {slower:.1f} times the time, "
        f"{max(one['memory'] for one in guarded) / 2**20:.1f} MiB of snapshots and batches "
        f"(shuffle buffer {BUFFER * BATCH * row / 2**20:.1f} MiB); of {len(calm)} runs at random "
        f"{kept} were left alone"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="100:110", help="first and one after the last")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), help="those that begin so")
    parser.add_argument("--cycles", type=int, nargs="*", help="only these")
    parser.add_argument("--methods", nargs="*", default=list(METHODS))
    parser.add_argument("--kinds", nargs="*", default=["plain", "guard"])
    parser.add_argument("--options", default="{}", help="of the guard, as JSON, for trials")
    parser.add_argument("--results", help="where rows are kept as they come; those there are read")
    parser.add_argument("--show", action="store_true", help="print what is there, train nothing")
    given = parser.parse_args()
    seeds = list(range(*(int(part) for part in given.seeds.split(":"))))
    store = Path(given.results) if given.results else None
    has = store is not None and store.exists()
    rows = [json.loads(line) for line in store.read_text().splitlines()] if store and has else []
    done = {(row["task"], row["cycle"], row["method"], row["seed"]) for row in rows}
    cells = [
        (name, cycle)
        for name, task in TASKS.items()
        if any(name.startswith(one) for one in given.tasks)
        for cycle in task.cycles
        if given.cycles is None or cycle in given.cycles
    ]
    asked = [(method, seed) for method in given.methods for seed in seeds]
    work: list[tuple[Any, ...]] = [
        (plain, *cell, seeds, given.methods)
        for cell in (cells if "plain" in given.kinds else [])
        if any((*cell, *one) not in done for one in asked)
    ]
    for seed in seeds if "guard" in given.kinds else []:
        work += [(guarded, *cell, seed) for cell in cells if (*cell, "guard", seed) not in done]
    if not given.show:
        options = json.loads(given.options)
        with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
            jobs = [pool.submit(*one, **(options if one[0] is guarded else {})) for one in work]
            for place, job in enumerate(as_completed(jobs)):
                rows += job.result()
                if store is not None:
                    with store.open("a") as file:
                        file.writelines(json.dumps(row) + "\n" for row in job.result())
                print(f"\r{place + 1} of {len(jobs)} parts", end="", flush=True)
    show(rows)


if __name__ == "__main__":
    main()
