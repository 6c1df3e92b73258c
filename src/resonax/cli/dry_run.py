"""What a command would take, from a short sample; nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console

from resonax.cli.show import say_time, show_line

if TYPE_CHECKING:
    from resonax.sweeps.experiment import Experiment
    from resonax.sweeps.sample import Sample

__all__ = ["say_sample"]

_MOST = 3  # tasks of an experiment that are measured; of several experiments one of each
_FACTOR = 3.0  # by which an estimate may be wrong, and a machine be faster or slower than it says


def say_sample(
    experiments: Sequence[Experiment], workers: int, *, seed: int, double: bool, device: str | None
) -> None:
    """Measure a few steps of a few tasks, and print what all would take."""
    from resonax.sweeps.cost import LIBRARIES, estimate_cost
    from resonax.sweeps.sample import join, measure_sample

    console, is_one = Console(), len(experiments) == 1
    samples: dict[str, Sample] = {}
    for one in experiments:
        if one.sweep is not None:
            samples[one.id] = measure_sample(
                one.sweep, seed=seed, double=double, device=device, most=_MOST if is_one else 1
            )
            if not is_one:
                show_line(f"{one.id}: {_size(samples[one.id])}", console)
    measured = sum(sum(sample.seconds) for sample in samples.values())
    known = sum(sum(one.seconds) for one in experiments if one.id in samples)
    speed = min(max(measured / known, 1 / _FACTOR), _FACTOR) if known else 1.0
    for one in experiments:
        if one.id not in samples:
            samples[one.id] = _guess(one, speed)
            show_line(f"{one.id}: {_size(samples[one.id])}, not measured", console)
    whole = join([samples[one.id] for one in experiments])
    count, mean = len(whole.seconds), sum(whole.seconds) / len(whole.seconds)
    cells = sum(one.cells for one in experiments)
    stored = sum(one.layout.nbytes for one in experiments)
    memory = max(
        estimate_cost(one.sweep, double=double, streams=is_one).bytes
        if one.sweep
        else LIBRARIES + 2 * one.layout.nbytes
        for one in experiments
    )
    for line in (
        f"tasks: {count:,}, of {cells / count:,.0f} cells and {say_time(mean)} each, the longest "
        f"{say_time(max(whole.seconds))} ({_measured(whole)})",
        f"memory: {memory / 1e9:.2g} GB for each worker; results: {stored / 1e6:.2g} MB",
        f"time: about {say_time(whole.wall(1))} for one worker"
        + (f", {say_time(whole.wall(workers))} for {workers}" if workers > 1 else ""),
        "nothing was written",
    ):
        show_line(line, console)


def _size(sample: Sample) -> str:
    count = len(sample.seconds)
    return f"{count} task{'s' if count > 1 else ''}, {say_time(sum(sample.seconds))}"


def _measured(sample: Sample) -> str:
    if not sample.tasks:
        return "none measured"
    compiling = f"and {say_time(sample.compile)} to compile"
    return f"{sample.tasks} measured, {sample.steps:,} steps of each, {compiling}"


def _guess(experiment: Experiment, speed: float) -> Sample:
    """Return what an experiment takes that is no sweep: as estimated, at the speed of the others.

    What it takes to compile is in the estimate.
    """
    from resonax.sweeps.jobs import seconds_of
    from resonax.sweeps.sample import Sample

    tasks = range(experiment.layout.count())
    seconds = tuple(speed * seconds_of(experiment, task) for task in tasks)
    return Sample(tasks=0, steps=0, compile=0.0, programs=0, seconds=seconds)
