"""How long a sweep takes, measured: a few tasks are run for a few steps, and nothing is stored.

The steps of a run all take the same time, so that a task of N steps takes N/n times what n of them
take. What is not measured, tasks of other panels and the theory, is taken from the estimate of
`resonax.sweeps.cost`, scaled by how that compares with what was measured.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from resonax.spec.sweep_checks import resolve
from resonax.spec.sweeps import Run, Sweep
from resonax.sweeps.cost import task_seconds
from resonax.sweeps.devices import chosen_device
from resonax.sweeps.experiment import from_sweep
from resonax.sweeps.sweep import compute_sweep

__all__ = ["Sample", "join", "measure_sample"]

_SHARE, _LEAST = 50, 400  # of the steps, one in so many is run, and at least so many


@dataclass(frozen=True)
class Sample:
    """What a few tasks took.

    Attributes
    ----------
    tasks, steps
        How many tasks were measured, and for how many steps at most.
    compile
        Seconds to compile the program of a task, or to load it: the mean over those measured.
    programs
        How many different programs there are.
    seconds
        About how long each of all tasks takes on one worker.
    """

    tasks: int
    steps: int
    compile: float
    programs: int
    seconds: tuple[float, ...]

    def wall(self, workers: int) -> float:
        """Return about how long it takes some workers, each of which compiles what it runs."""
        longest = max(self.seconds)
        compiling = self.compile * max(self.programs / workers, 1.0)
        return compiling + max(sum(self.seconds) / workers, longest)


def join(samples: Sequence[Sample]) -> Sample:
    """Return one sample of all tasks of several.

    Examples
    --------
    >>> join([Sample(1, 400, 2.0, 3, (1.0, 1.0)), Sample(2, 40, 6.0, 1, (5.0,))])
    Sample(tasks=3, steps=400, compile=3.0, programs=4, seconds=(1.0, 1.0, 5.0))
    """
    programs = sum(one.programs for one in samples)
    return Sample(
        tasks=sum(one.tasks for one in samples),
        steps=max(one.steps for one in samples),
        compile=sum(one.compile * one.programs for one in samples) / max(programs, 1),
        programs=programs,
        seconds=tuple(seconds for one in samples for seconds in one.seconds),
    )


def _shorten(sweep: Sweep, steps: int) -> Sweep:
    """Return a sweep of runs with few steps, without theory."""
    run = Run(runs=sweep.run.runs, steps=steps, window=min(sweep.run.window, steps // 40 * 20))
    panels = tuple(panel.model_copy(update={"run": {}}) for panel in sweep.panels)
    return sweep.model_copy(update={"run": run, "panels": panels, "theory": None})


def measure_sample(
    sweep: Sweep,
    *,
    seed: int = 0,
    double: bool = False,
    device: str | None = None,
    most: int = 3,
) -> Sample:
    """Run a few tasks of a sweep for a few steps, and return how long all of it takes.

    ``most`` is how many tasks are measured, of different programs.

    Examples
    --------
    >>> from resonax.spec.sweep_checks import parse_sweep
    >>> sample = measure_sample(parse_sweep({
    ...     "id": "mine",
    ...     "process": {"kind": "sinusoid"},
    ...     "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    ...     "run": {"runs": 2},
    ...     "axes": {"momentum": {"values": [0.9, 0.95]}, "period": {"values": [20, 30]}},
    ... }))
    >>> sample.tasks, sample.steps, len(sample.seconds)
    (1, 400, 1)
    """
    experiment = from_sweep(sweep)
    tasks = experiment.layout.tasks()
    bare = task_seconds(sweep.model_copy(update={"theory": None}), len(tasks))
    programs = sorted(experiment.groups, key=lambda group: -sum(bare[task] for task in group))
    compiling, measured, known, longest = 0.0, 0.0, 0.0, 0
    with chosen_device(device):
        for group in programs[:most]:
            task = tasks[group[0]]
            number = task.region["panel"].start if "panel" in task.region else 0
            steps = resolve(sweep, number).run.steps
            few = min(max(steps // _SHARE // 40 * 40, _LEAST), steps)
            short, times = _shorten(sweep, few), []
            for _ in range(3):
                began = time.perf_counter()
                compute_sweep(short, task.region, seed=seed, double=double)
                times.append(time.perf_counter() - began)
            compiling += max(times[0] - times[1], 0.0)
            measured += min(times[1:]) * steps / few
            known += bare[group[0]]
            longest = max(longest, few)
    count = min(len(programs), most)
    factor = measured / known if known else 1.0
    pairs = zip(experiment.seconds, bare, strict=True)
    seconds = tuple(factor * simulated + (whole - simulated) for whole, simulated in pairs)
    return Sample(count, longest, compiling / count, len(programs), seconds)
