"""Jobs are some tasks of a computation: how they are cut, done, given again and counted."""

from __future__ import annotations

import itertools
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from resonax.core.errors import ResonaxError
from resonax.run.executor import Advance, Lost
from resonax.sweeps.devices import chosen_device
from resonax.sweeps.heartbeat import signs_of_life

if TYPE_CHECKING:
    from resonax.sweeps.computation import Computation
    from resonax.sweeps.experiment import Arrays, Experiment, Part

__all__ = ["Failure", "Job", "Ledger", "TasksFailed", "do", "seconds_of"]

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
    """Some tasks of a computation; without any, what is to be done when all are made.

    Where a process of its own has the device, a job is one part of its tasks; or it stores what the
    parts of a task have found.
    """

    computation: Computation
    tasks: tuple[int, ...]
    finish: Callable[[Computation], None] | None
    number: int = -1  # no two are the same
    on_device: bool = True  # whether it uses the device of the computation, or a CPU
    part: int | None = None
    found: Mapping[int, Arrays] | None = None  # of each task, to be stored

    @property
    def id(self) -> str:
        return self.computation.experiment.id

    @property
    def seconds(self) -> float:
        """About how long its tasks take."""
        return sum(seconds_of(self.computation.experiment, task) for task in self.tasks)

    @property
    def part_seconds(self) -> float:
        """About how long its part of the tasks takes."""
        others = [sum(one.seconds[task] for task in self.tasks) for one in self._also]
        if not self.part:
            return self.seconds - sum(others)
        return others[self.part - 1]

    @property
    def _also(self) -> tuple[Part, ...]:
        return self.computation.experiment.also

    def of(self, tasks: Iterable[int]) -> Job:
        """Return a job of other tasks of the same computation."""
        return self._replace(tasks=tuple(tasks), number=next(_numbers))


class Done(NamedTuple):
    """What a job gives: the seconds that were computed, and the tasks that failed."""

    seconds: float
    failures: tuple[Failure, ...] = ()
    found: Mapping[int, Arrays] | None = None  # by a part of each task


def do(job: Job, advance: Advance) -> Done:
    """Do a job; a task that fails leaves the others to be done.

    What a person can mend, a setting or a full disk, is raised: it would be the same for all.
    """
    advance(0.0)  # it has begun
    telling = threading.Lock()  # simulation and theory may be computed by threads of their own
    began, failures, found = time.perf_counter(), [], {}
    computation, out = job.computation, job.computation.folder.parent
    device = computation.device if job.on_device else "cpu"
    with chosen_device(device), signs_of_life(out, job.id) as sign:

        def tell(share: float) -> None:
            with telling:
                sign.share += share * computation.tasks
                advance(share)

        if not job.tasks and job.finish:
            job.finish(computation)
        is_joined = job.part == 0 and job.on_device and computation.is_joined(job.tasks)
        for tasks in [job.tasks] if is_joined else [(task,) for task in job.tasks]:
            sign.begin(tasks[0])
            try:
                if job.found is not None:
                    computation.store(tasks[0], job.found[tasks[0]])
                elif job.part is not None:
                    found |= computation.compute(tasks, job.part, tell)
                else:
                    computation.make(tasks[0], tell)
            except ResonaxError:
                raise
            except Exception as error:
                words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                failures += [Failure(job.id, n, words, traceback.format_exc()) for n in tasks]
    seconds = time.perf_counter() - began if job.tasks else 0.0
    return Done(seconds, tuple(failures), found)


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
    _found: dict[tuple[str, int], dict[int, Arrays]] = field(default_factory=dict)

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
        if job.part is not None:
            return self._join(job, result)
        self.failures += result.failures
        return self._count(job, len(job.tasks))

    def _join(self, job: Job, result: Done) -> list[Job]:
        """Keep a part of some tasks; return what stores those of which all parts are there."""
        lost = [failure for failure in result.failures if not self._has_failed(job, failure.task)]
        self.failures += lost
        follow = self._count(job, len(lost)) if lost else []
        for task, arrays in (result.found or {}).items():
            if self._has_failed(job, task):
                continue
            parts = self._found.setdefault((job.id, task), {})
            parts[job.part or 0] = arrays
            if len(parts) == len(job.computation.experiment.parts):
                del self._found[job.id, task]
                if not job.computation.path.exists():
                    job.computation.open(())
                stored = job.of((task,))._replace(part=None, on_device=False)
                whole = {name: array for part in parts.values() for name, array in part.items()}
                follow.append(stored._replace(found={task: whole}))
        return follow

    def _has_failed(self, job: Job, task: int) -> bool:
        """Return whether a task has failed, perhaps by another of its parts."""
        return any(failure[:2] == (job.id, task) for failure in self.failures)

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
            return [job.of(())._replace(on_device=False, part=None, found=None)]
        self.done(job.id)
        return []

    def _again(self, job: Job, lost: Lost) -> list[Job]:
        """Give what a lost job has not stored again; a task that is lost too often has failed."""
        if not job.tasks:
            return [job]
        job = job._replace(tasks=tuple(n for n in job.tasks if not self._has_failed(job, n)))
        is_there = job.computation.path.exists()
        pending = [n for n in job.tasks if not (is_there and job.computation.is_finished(n))]
        made = (len(job.tasks) - len(pending)) / job.computation.tasks
        self.progress(job.id, made - self._told.pop(job.number, 0.0))
        if (
            job.part is not None and len(pending) > 1
        ):  # alone, to know which of them it is lost with
            return [job.of((task,)) for task in pending]
        if pending and lost.is_suspect:  # tasks are made in order: it was lost with the first
            key = job.id, pending[0]
            self._losses[key] = self._losses.get(key, 0) + 1
            if self._losses[key] >= _TRIES:
                self.failures.append(Failure(*key, f"{lost.reason}, {_TRIES} times"))
                pending = pending[1:]
        follow = self._count(job, len(job.tasks) - len(pending))
        return [job.of(pending)] if pending else follow
