"""How tasks are shared out: among processes, between a GPU and its host, and among commands."""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from resonax.sweeps.jobs import Job, seconds_of

if TYPE_CHECKING:
    from resonax.sweeps.experiment import Experiment

__all__ = ["schedule", "schedule_parts", "shard_tasks"]


def schedule(jobs: Sequence[Job], workers: int) -> list[Job]:
    """Return jobs for all workers, those that take longest first.

    One that takes more than a worker's share of the work is cut, although each piece compiles anew.
    So is the one that ends last, in halves, as long as all is done a twentieth sooner by it.
    """
    if not jobs:
        return []
    share = sum(job.seconds for job in jobs) / workers
    pieces: list[Job] = []
    for job in jobs:
        pieces += _cut(job, min(math.ceil(job.seconds / share) if share else 1, len(job.tasks)))
    pieces = _longest_first(pieces)
    end, last = _end(pieces, workers)
    while len(last.tasks) > 1:
        tried = _longest_first([one for one in pieces if one is not last] + _cut(last, 2))
        sooner, last = _end(tried, workers)
        if sooner >= 0.95 * end:
            break
        pieces, end = tried, sooner
    return pieces


def _cut(job: Job, count: int) -> list[Job]:
    count = max(count, 1)
    return [job.of(job.tasks[start::count]) for start in range(count)]


def _longest_first(jobs: Sequence[Job]) -> list[Job]:
    return sorted(jobs, key=lambda job: -job.seconds)


def _end(jobs: Sequence[Job], workers: int) -> tuple[float, Job]:
    """Return when all is done, and the job that ends then, if each worker takes the next."""
    free = [0.0] * workers
    ends = []
    for job in jobs:
        ends.append(heapq.heappop(free) + job.seconds)
        heapq.heappush(free, ends[-1])
    return max(zip(ends, jobs, strict=True), key=lambda one: one[0])


def schedule_parts(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs where some processes have the device, and others compute what needs none.

    A job of the device has the tasks that are computed as one, or run the same program; those of an
    experiment come together, so that it is drawn while others are computed. The other jobs have a
    part of one task each. In both, those that take longest are first.
    """
    found, simulations = [job for job in jobs if not job.tasks], []
    theory: dict[tuple[str, int], Job] = {}
    for job in jobs:
        experiment = job.computation.experiment
        for part in range(len(experiment.parts)) if job.tasks else ():
            of_part = job._replace(part=part, on_device=experiment.uses_device(part))
            if not of_part.on_device:
                found += [of_part.of((task,)) for task in job.tasks]
            elif part:
                before = theory[job.id, part].tasks if (job.id, part) in theory else ()
                theory[job.id, part] = of_part.of((*before, *job.tasks))
            else:
                simulations.append(of_part)
    found += [*theory.values(), *_joined(simulations)]
    total: dict[str, float] = defaultdict(float)
    for job in found:
        total[job.id] += job.part_seconds if job.on_device and job.tasks else 0.0

    def order(job: Job) -> tuple[float, float]:
        if not job.tasks:
            return 0.0, 0.0
        return -total[job.id] if job.on_device else -job.part_seconds, -job.part_seconds

    return sorted(found, key=order)


def _joined(jobs: Sequence[Job]) -> list[Job]:
    """Return jobs of a device with the tasks that are computed as one, wherever these are known."""
    found, left = [], list(jobs)
    while left:
        first = left[0]
        same = [job for job in left if job.computation is first.computation]
        left = [job for job in left if job.computation is not first.computation]
        missing = {task for job in same for task in job.tasks}
        groups = (sorted(missing & set(group)) for group in first.computation.experiment.joined)
        joined = [first.of(group) for group in groups if group]
        found += joined or same
    return found


def shard_tasks(
    experiments: Iterable[Experiment], part: int, parts: int
) -> Mapping[str, frozenset[int]]:
    """Return the tasks of one of several parts of some experiments, by their ids.

    All tasks stand in a row, those that share a compiled program side by side, each as long as it
    takes. The row is cut into equal lengths, and a task belongs to where its middle is. So each
    part takes the mean of all parts, and at most a task more; and no task is in two of them.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> one = SimpleNamespace(id="a", groups=((0, 2), (1, 3)), seconds=(3.0, 1.0, 1.0, 1.0))
    >>> [sorted(shard_tasks([one], part, 2)["a"]) for part in (1, 2)]
    [[0], [1, 2, 3]]
    """
    row = [
        (one.id, task, seconds_of(one, task))
        for one in experiments
        for group in one.groups
        for task in group
    ]
    least = min((seconds for *_, seconds in row if seconds > 0), default=1.0)
    lengths = [max(seconds, least) for *_, seconds in row]
    ends = list(itertools.accumulate(lengths))
    found: dict[str, set[int]] = {name: set() for name, *_ in row}
    for (name, task, _), length, end in zip(row, lengths, ends, strict=True):
        place = int(parts * (end - length / 2) / ends[-1])
        if min(place, parts - 1) == part - 1:  # a tiny last one may be rounded to the very end
            found[name].add(task)
    return {name: frozenset(tasks) for name, tasks in found.items()}
