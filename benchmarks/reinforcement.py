"""Deep Q-learning over the period of its target network and beta1: is there a band that harms?

    python benchmarks/reinforcement.py sweep [--tasks TASK ...] [--seeds FIRST:LAST] [--out FILE]
    python benchmarks/reinforcement.py guard [--tasks TASK ...] [--seeds FIRST:LAST] [--out FILE]
    python benchmarks/reinforcement.py table [--tasks TASK ...] [--out FILE]

``sweep`` trains every beta1, period and seed on a task; all periods and seeds are trained side by
side. ``guard`` trains single runs, without a guard and with it. Both add what they find to the
file, leave out what is there, and end with its tables; ``docs/pictures/reinforcement.py`` draws
the same file. Step size, buffer and network were chosen on seeds from 100 on.

The return is that of greedy episodes over the last third of the updates. What momentum adds is the
return less that of the same seed at the lowest beta1. A period lies in a band that harms if less is
added there than at the shortest and at the longest period; the p of the weaker comparison counts.
Intervals and p are Student's over seeds, for all comparisons of their kind together (Bonferroni).
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from dqn import PHASES, Batch, Learner, Outcome, Schedule, train
from scipy import stats
from torch import Tensor

from resonax.core.intervals import mean_interval, tail_of
from resonax.torch import Guard

TASKS = ("CartPole-v1", "Acrobot-v1")
PERIODS = (50, 100, 200, 500, 1000, 2500, 5000)
BETA1 = (0.5, 0.9, 0.95)
# Single runs, with a guard and without: periods of a task, and what a guarded step is given.
GUARDED = {"CartPole-v1": (50, 200), "Acrobot-v1": (50,)}
GUARDED_BETA1, KINDS = 0.95, ("none", "targets", "transitions")
STORED = Path(__file__).parents[1] / "docs" / "pictures" / "reinforcement.json"
Run = dict[str, Any]


class Stored:
    """Runs in a file; what was finished is written at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.parts: dict[str, list[Run]] = {"sweep": [], "guard": []}
        if path.exists():
            self.parts |= json.loads(path.read_text())

    def add(self, part: str, runs: Iterable[Run]) -> None:
        self.parts[part] += runs
        lines = [
            f'"{name}": [\n' + ",\n".join(map(json.dumps, rows)) + "\n]"
            for name, rows in self.parts.items()
        ]
        self.path.write_text("{" + ",\n".join(lines) + "}\n")

    def has(self, part: str, **wanted: Any) -> bool:
        return any(wanted.items() <= run.items() for run in self.parts[part])


def numbers(outcome: Outcome, place: int) -> Run:
    """Return what is kept of a run."""

    def few(values: Any) -> list[float | None]:
        return [float(f"{one:.4g}") if np.isfinite(one) else None for one in values]

    late = outcome.training[place, -len(outcome.training[place]) // 4 :]
    return {
        "greedy": float(outcome.greedy[place]),
        "training": few([np.nanmean(late)])[0],
        "value_error": few([outcome.value_error[place]])[0],
        "curve": few(outcome.training[place]),
        "phases": few(outcome.phases[place]),
    }


def sweep(
    stored: Stored,
    tasks: Sequence[str],
    periods: Sequence[int],
    seeds: Sequence[int],
    schedule: Schedule,
) -> None:
    """Train all settings; a beta1 of a task at once."""
    work = [
        (task, beta1)
        for task, beta1 in itertools.product(tasks, BETA1)
        if not stored.has("sweep", task=task, beta1=beta1)
    ]
    periods, numbered = zip(*itertools.product(periods, seeds), strict=True)
    for place, (task, beta1) in enumerate(work):

        def tell(update: int, seconds: float, at: int = place, name: str = f"{task}, {beta1}"):
            whole = seconds * schedule.updates / update
            left = (whole - seconds + whole * (len(work) - at - 1)) / 60
            text = f"{name}: update {update} of {schedule.updates}, about {left:.0f} min left"
            print(text, file=sys.stderr, flush=True)

        outcome = train(task, beta1, periods, numbered, schedule, progress=tell)
        stored.add(
            "sweep",
            [
                {"task": task, "beta1": beta1, "period": period, "seed": seed}
                | numbers(outcome, run)
                for run, (period, seed) in enumerate(zip(periods, numbered, strict=True))
            ],
        )


class GuardedLearner(Learner):
    """A single run that a guard trains.

    The guard may train on a batch again. Given ``targets``, a batch holds the numbers that the run
    was fitted to; given ``transitions``, its targets are computed by the target network of today.
    """

    def __init__(self, *given: Any, kind: str, policy: str) -> None:
        super().__init__(*given)
        self.kind, self.guard = kind, Guard(self.networks, self.optimizer, policy=policy)

    def step(self, batch: Batch) -> Tensor:
        """Make a guarded step; rows come first in what the guard is given, as it mixes them."""
        if self.kind == "targets":
            rows = batch.states[0], batch.actions[0], self.targets(batch)[0]
            return self.guard.step(self._fitted, *rows)[None]
        return self.guard.step(self._bootstrapped, *(part[0] for part in batch))[None]

    def _fitted(self, *rows: Tensor) -> Tensor:
        return self.losses(*(part[None] for part in rows)).sum()

    def _bootstrapped(self, *rows: Tensor) -> Tensor:
        batch = Batch(*(part[None] for part in rows))
        return self.losses(batch.states, batch.actions, self.targets(batch)).sum()


def guarded_run(
    task: str, beta1: float, period: int, seed: int, schedule: Schedule, kind: str, policy: str
) -> Run:
    """Return what came of a single run, and what its guard said."""
    made: list[Learner] = []

    def make(*given: Any) -> Learner:
        guarded = functools.partial(GuardedLearner, kind=kind, policy=policy)
        made.append(Learner(*given) if kind == "none" else guarded(*given))
        return made[-1]

    outcome = train(task, beta1, [period], [seed], schedule, make)
    run: Run = {"task": task, "beta1": beta1, "period": period, "seed": seed, "kind": kind}
    run |= numbers(outcome, 0) | {"seconds": round(outcome.seconds, 1), "policy": policy}
    run["updates"] = schedule.updates
    del run["phases"]
    if isinstance(made[0], GuardedLearner):
        report = made[0].guard.report()
        run["decisions"] = [
            [one.step, one.cause or one.why, str(one.after)] for one in report.decisions
        ]
        run["work"], run["tests"] = round(report.work, 3), report.tests
        made[0].guard.close()
    return run


def guard(
    stored: Stored, tasks: Sequence[str], seeds: Sequence[int], schedule: Schedule, given: Any
) -> None:
    """Train single runs without a guard and with it, seed by seed."""
    logging.getLogger("resonax").setLevel(logging.ERROR)
    work = [
        {"task": task, "period": period, "seed": seed, "kind": kind, "policy": given.policy}
        for seed in seeds
        for task in tasks
        for period in GUARDED[task]
        for kind in ("none", *given.kinds)
    ]
    work = [one for one in work if not stored.has("guard", **one)]
    began = time.monotonic()
    for done, one in enumerate(work, 1):
        run = guarded_run(beta1=GUARDED_BETA1, schedule=schedule, **one)
        stored.add("guard", [run])
        left = (time.monotonic() - began) / done * (len(work) - done) / 60
        words = " ".join(str(value) for value in one.values())
        found = f"{run['greedy']:.0f} in {run['seconds']:.0f} s, {run.get('decisions', '')}"
        print(f"{words}: {found}; about {left:.0f} min left", file=sys.stderr, flush=True)


def cube(runs: Sequence[Run], task: str, key: str = "greedy") -> tuple[Any, Any, np.ndarray]:
    """Return the values of beta1 and period of a task, and a number of its runs over them."""
    ours = [run for run in runs if run["task"] == task]
    beta1, periods, seeds = (
        sorted({run[name] for run in ours}) for name in ("beta1", "period", "seed")
    )
    at = {(run["beta1"], run["period"], run["seed"]): run[key] for run in ours}
    flat = np.array([at[place] for place in itertools.product(beta1, periods, seeds)], float)
    return beta1, periods, flat.reshape(len(beta1), len(periods), len(seeds), *flat.shape[1:])


def student(samples: np.ndarray) -> np.ndarray:
    """Return Student's t of the mean over the last axis; 0 where all are 0."""
    mean, error = samples.mean(-1), samples.std(-1, ddof=1) / np.sqrt(samples.shape[-1])
    alike = np.where(mean == 0, 0.0, np.copysign(np.inf, mean))
    return np.divide(mean, error, out=alike, where=error > 0)


def band(added: np.ndarray) -> np.ndarray:
    """Return the p with which less is added at an inner period than at both ends, (beta1, period).

    Examples
    --------
    >>> added = np.random.default_rng(0).normal(size=(1, 3, 10)) - [[[0], [9], [0]]]
    >>> bool(band(added)[0, 0] < 1e-4), bool(band(-added)[0, 0] > 0.9)
    (True, True)
    """
    inner, freedom = added[:, 1:-1], added.shape[-1] - 1
    least = np.maximum(student(inner - added[:, :1]), student(inner - added[:, -1:]))
    return stats.t.cdf(least, freedom)


def slopes(beta1: Sequence[float], returns: np.ndarray) -> np.ndarray:
    """Return how much a halving of 1 - beta1 adds to the return, (period, seed)."""
    halvings = -np.log2(1 - np.array(beta1))
    centred = halvings - halvings.mean()
    return np.tensordot(centred, returns, 1) / (centred**2).sum()


def row(head: object, cells: Iterable[str]) -> str:
    return f"| {head} | " + " | ".join(cells) + " |"


def sweep_table(runs: Sequence[Run], tasks: Sequence[str], key: str) -> list[str]:
    """Return the tables of a sweep in Markdown: returns, what momentum adds, and the band."""
    lines: list[str] = []
    for task in tasks:
        beta1, periods, returns = cube(runs, task, key)
        count, every = len(tasks) * (len(beta1) - 1) * len(periods), len(tasks) * len(periods)
        head = [row(f"{task}, beta1", map(str, periods)), "|---" * (len(periods) + 1) + "|"]
        error = returns.std(-1, ddof=1) / np.sqrt(returns.shape[-1])
        lines += [f"\n{key} return, mean and standard error of {returns.shape[-1]} seeds\n", *head]
        for b, mean, around in zip(beta1, returns.mean(-1), error, strict=True):
            cells = [f"{m:.0f} ± {e:.0f}" for m, e in zip(mean, around, strict=True)]
            lines.append(row(b, cells))
        added = returns[1:] - returns[0]
        lines += [
            f"\nwhat momentum adds to that of {beta1[0]}; * not 0 at 95%, {count} comparisons\n",
            *head,
        ]
        for b, some in zip(beta1[1:], added, strict=True):
            lines.append(row(b, (cell(one, count) for one in some)))
        slope = slopes(beta1, returns)
        lines.append(row(f"halving of 1 - beta1 ({every})", (cell(one, every) for one in slope)))
        lines += band_lines(beta1, periods, returns, len(tasks))
    return lines


def yardsticks(runs: Sequence[Run], tasks: Sequence[str]) -> list[str]:
    """Return tables of how the value at the first state errs, and of the rhythm of the loss."""
    lines: list[str] = []
    for task in tasks:
        beta1, periods, errors = cube(runs, task, "value_error")
        head = [row(f"{task}, beta1", map(str, periods)), "|---" * (len(periods) + 1) + "|"]
        lines += ["\nvalue of the first state less the discounted return, median\n", *head]
        for b, some in zip(beta1, np.median(errors, -1), strict=True):
            lines.append(row(b, (f"{one:+.3g}" for one in some)))
        losses = cube(runs, task, "phases")[2]
        rhythm = losses[..., 0] / losses[..., PHASES // 2 :].mean(-1)
        lines += ["\nloss in the first tenth of a period over its second half, median\n", *head]
        for b, some in zip(beta1, np.median(rhythm, -1), strict=True):
            lines.append(row(b, (f"{one:.2f}" for one in some)))
        count, slope = len(tasks) * len(periods), slopes(beta1, np.log(rhythm))
        cells = (cell(100 * one, count) for one in slope)
        lines.append(
            row(f"hundredths of its logarithm for each halving of 1 - beta1 ({count})", cells)
        )
    return lines


def band_lines(
    beta1: Sequence[float], periods: Sequence[int], returns: np.ndarray, tasks: int
) -> list[str]:
    """Return where a band that harms is most likely, of what momentum adds and of the returns."""
    lines = [""]
    added = returns[1:] - returns[0]
    for name, values in (("what momentum adds", added), ("the return", returns)):
        found = band(values)
        (row_of, column), tried = divmod(int(np.argmin(found)), found.shape[1]), tasks * found.size
        at = f"beta1 {beta1[len(beta1) - len(values) + row_of]}, period {periods[1 + column]}"
        p = min(1.0, tried * found.min())
        lines.append(f"least p of a band of {name}: {found.min():.2g} at {at}, of {tried}: {p:.2g}")
    return lines


def cell(samples: np.ndarray, comparisons: int) -> str:
    """Return a mean with its interval; a star where it does not include 0."""
    mean, half = mean_interval(samples, tail_of(0.95) / comparisons)
    return (
        f"{mean:+.0f} ({mean - half:+.0f} to {mean + half:+.0f}){'*' if abs(mean) > half else ''}"
    )


def guard_table(runs: Sequence[Run], tasks: Sequence[str]) -> list[str]:
    """Return the table of guarded runs in Markdown."""
    heads = ("seeds", "without", "guarded", "difference", "training", "time", "work", "causes")
    lines = ["\n" + row("task, period, given", heads), "|---" * 9 + "|"]
    for task, kind in itertools.product(tasks, KINDS[1:]):
        for period in GUARDED[task]:
            ours = [run for run in runs if (run["task"], run["period"]) == (task, period)]
            pairs = [
                (plain, one)
                for plain in ours
                for one in ours
                if plain["kind"] == "none" and one["kind"] == kind and plain["seed"] == one["seed"]
            ]
            if len(pairs) < 2:
                continue

            def both(key: str, given: Any = pairs) -> Any:
                return np.array([[run[key] for run in pair] for pair in given], float).T

            greedy, training, seconds = map(both, ("greedy", "training", "seconds"))
            said = Counter(what for _, one in pairs for _, what, _ in one["decisions"])
            words = ", ".join(f"{what} {count}" for what, count in said.most_common())
            silent = sum(not one["decisions"] for _, one in pairs)
            cells = (
                str(len(pairs)),
                *(f"{mean:.0f}" for mean in greedy.mean(1)),
                cell(greedy[1] - greedy[0], 1),
                cell(training[1] - training[0], 1),
                f"{np.median(seconds[1] / seconds[0]):.2f}",
                f"{np.mean([one['work'] for _, one in pairs]):.2f}",
                f"{words or 'none'}; silent in {silent}",
            )
            lines.append(row(f"{task}, {period}, {kind}", cells))
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("command", choices=("sweep", "guard", "table"))
    parser.add_argument("--tasks", nargs="*", choices=TASKS, default=TASKS)
    parser.add_argument("--seeds", default="0:10", help="first and one after the last")
    parser.add_argument("--periods", nargs="*", type=int, help="of the sweep")
    parser.add_argument("--policy", choices=("safe", "watch"), default="safe")
    parser.add_argument("--kinds", nargs="*", choices=KINDS[1:], default=KINDS[1:])
    parser.add_argument("--updates", type=int, default=Schedule.updates)
    parser.add_argument("--out", type=Path, default=STORED)
    given = parser.parse_args()
    torch.set_num_threads(1)
    seeds = range(*(int(part) for part in given.seeds.split(":")))
    stored, schedule = Stored(given.out), Schedule(updates=given.updates)
    if given.command == "sweep":
        sweep(stored, given.tasks, given.periods or PERIODS, seeds, schedule)
    if given.command == "guard":
        guard(stored, given.tasks, seeds, schedule, given)
    swept = stored.parts["sweep"]
    done = [task for task in given.tasks if stored.has("sweep", task=task)]
    for key in ("greedy", "training"):
        print("\n".join(sweep_table(swept, done, key)))
    print("\n".join(yardsticks(swept, done)))
    print("\n".join(guard_table(stored.parts["guard"], given.tasks)))


if __name__ == "__main__":
    main()
