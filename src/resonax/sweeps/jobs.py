"""Jobs are some tasks of a computation: how they are cut, done, given again and counted."""

from __future__ import annotations

import itertools
import math
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from resonax.checks import ResonaxError
from resonax.executors.executor import Advance, Lost
from resonax.sweeps.devices import chosen_device
from resonax.sweeps.heartbeat import signs_of_life

if TYPE_CHECKING:
    from resonax.sweeps.experiment import Experiment
    from resonax.sweeps.runner import Computation

__all__ = [
    "Failure",
    "Job",
    "Ledger",
    "TasksFailed",
    "do",
    "schedule",
    "seconds_of",
    "shard_tasks",
]

_TRIES = 3  # that a task has whose worker is lost
_numbers = itertools.count()


def seconds_of(experiment: Experiment, task: int) -> float:
    """Return about how long a task takes, 1 where nothing is known of it."""
    return experiment.seconds[task] if task < len(experiment.seconds) else 1.0


class Failure(NamedTuple):
    """A task that could not be computed, and why."""

    id: str  # of its experiment
    task: int
    reason: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.id}, task {self.task}: {self.reason}"


class TasksFailed(ResonaxError):  # noqa: N818
    """Tasks that could not be computed, while all others were; ``failures`` names them."""

    def __init__(self, failures: Sequence[Failure]) -> None:
        self.failures = tuple(failures)
        count = len(self.failures)
        words = "1 task" if count == 1 else f"{count} tasks"
        super().__init__(
            f"{words} failed, first {self.failures[0]}; all others are stored: run the same "
            "command again, which tries only what is missing"
        )

    def __reduce__(self) -> tuple:
        return TasksFailed, (self.failures,)


class Job(NamedTuple):
    """Some tasks of a computation; without any, what is to be done when all are made."""

    computation: Computation
    tasks: tuple[int, ...]
    finish: Callable[[Computation], None] | None
    number: int = -1  # no two are the same

    @property
    def id(self) -> str:
        return self.computation.experiment.id

    @property
    def seconds(self) -> float:
        """About how long its tasks take."""
        return sum(seconds_of(self.computation.experiment, task) for task in self.tasks)

    def of(self, tasks: Iterable[int]) -> Job:
        """Return a job of other tasks of the same computation."""
        return self._replace(tasks=tuple(tasks), number=next(_numbers))


class Done(NamedTuple):
    """What a job gives: the seconds that were computed, and the tasks that failed."""

    seconds: float
    failures: tuple[Failure, ...] = ()


def do(job: Job, advance: Advance) -> Done:
    """Do a job; a task that fails leaves the others to be done.

    What a person can mend, a setting or a full disk, is raised: it would be the same for all.
    """
    advance(0.0)  # it has begun
    seconds, failures = 0.0, []
    out = job.computation.folder.parent
    with chosen_device(job.computation.device), signs_of_life(out, job.id) as sign:

        def tell(share: float) -> None:
            sign.share += share * job.computation.tasks
            advance(share)

        if not job.tasks and job.finish:
            job.finish(job.computation)
        for task in job.tasks:
            sign.begin(task)
            try:
                seconds += job.computation.make(task, tell)
            except ResonaxError:
                raise
            except Exception as error:
                words = " ".join(f"{type(error).__name__}: {error}".split())
                failures.append(Failure(job.id, task, words[:300], traceback.format_exc()))
    return Done(seconds, tuple(failures))


@dataclass
class Ledger:
    """What became of the jobs of some computations.

    Attributes
    ----------
    progress, done
        Told the id of an experiment and the share just finished; and that it is finished.
    left
        How many tasks of each experiment are still to be done here.
    is_whole
        Whether these are all that are missing, so that the experiment is finished with them.
    """

    progress: Callable[[str, float], None]
    done: Callable[[str], None]
    is_whole: bool = True
    left: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    _told: dict[int, float] = field(default_factory=dict)
    _losses: dict[tuple[str, int], int] = field(default_factory=dict)

    def advance(self, job: Job, share: float) -> None:
        """Note the share of an experiment that a job has just finished."""
        self._told[job.number] = self._told.get(job.number, 0.0) + share
        self.progress(job.id, share)

    def then(self, job: Job, result: Done | Lost) -> list[Job]:
        """Return what follows from a job: its rest, if it was lost, or the experiment's end."""
        if isinstance(result, Lost):
            return self._again(job, result)
        self._told.pop(job.number, None)
        if not job.tasks:
            self.done(job.id)
            return []
        self.seconds[job.id] = self.seconds.get(job.id, 0.0) + result.seconds
        self.failures += result.failures
        return self._count(job, len(job.tasks))

    def _count(self, job: Job, tasks: int) -> list[Job]:
        self.left[job.id] -= tasks
        if self.left[job.id] or any(failure.id == job.id for failure in self.failures):
            return []
        if not self.is_whole and len(job.computation.marked()) < job.computation.tasks:
            return []
        return self.end(job)

    def end(self, job: Job) -> list[Job]:
        """Return what is left to do for an experiment whose tasks are all stored."""
        if job.finish is not None:
            return [job.of(())]
        self.done(job.id)
        return []

    def _again(self, job: Job, lost: Lost) -> list[Job]:
        """Give what a lost job has not stored again; a task that is lost too often has failed."""
        if not job.tasks:
            return [job]
        pending = [task for task in job.tasks if not job.computation.is_finished(task)]
        made = (len(job.tasks) - len(pending)) / job.computation.tasks
        self.progress(job.id, made - self._told.pop(job.number, 0.0))
        if pending and lost.is_suspect:  # tasks are made in order: it was lost with the first
            key = job.id, pending[0]
            self._losses[key] = self._losses.get(key, 0) + 1
            if self._losses[key] >= _TRIES:
                self.failures.append(Failure(*key, f"{lost.reason}, {_TRIES} times"))
                pending = pending[1:]
        follow = self._count(job, len(job.tasks) - len(pending))
        return [job.of(pending)] if pending else follow


def schedule(jobs: Sequence[Job], workers: int) -> list[Job]:
    """Return jobs for all workers, those that take longest first.

    One that takes more than a worker's share of the work is cut, although each piece compiles anew.
    """
    share = sum(job.seconds for job in jobs) / workers
    pieces = []
    for job in jobs:
        count = min(math.ceil(job.seconds / share) if share else 1, len(job.tasks)) or 1
        pieces += [job.of(job.tasks[start::count]) for start in range(count)]
    return sorted(pieces, key=lambda job: -job.seconds)


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
