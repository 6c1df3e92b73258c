"""A computation: an experiment and its store, whose tasks any process may compute."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError, ResonaxError
from resonax.core.intervals import mean_interval
from resonax.core.labels import versions
from resonax.run.executors import Advance
from resonax.store import Location, Store
from resonax.sweeps.devices import chosen_device
from resonax.sweeps.experiment import Arrays, Experiment

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Computation", "Failure", "Growing", "Job", "JobResult", "TasksFailed", "run_job"]

_LOG = logging.getLogger("resonax")


class Growing(NamedTuple):
    """Numbers of cells of a sweep whose error significantly grows or shrinks, and of all cells."""

    grow: int
    shrink: int
    cells: int

    def __str__(self) -> str:
        undecided = self.cells - self.grow - self.shrink
        return (
            f"{self.grow:,} of {self.cells:,} cells grow, {self.shrink:,} shrink, {undecided:,} "
            "undecided"
        )


@dataclass(frozen=True)
class Computation:
    """An experiment and its store, ``<folder>/<id>.zarr``.

    After one process has opened it, any process may compute missing tasks. Results depend on seed,
    precision and device, which are part of the specification of the store.
    """

    experiment: Experiment
    folder: Location
    seed: int
    device: str
    double: bool

    def __reduce__(self) -> Any:
        # Another process may have another working directory.
        folder = self.folder.absolute() if isinstance(self.folder, Path) else self.folder
        return Computation, (self.experiment, folder, self.seed, self.device, self.double)

    @property
    def path(self) -> Location:
        """Folder or URL of the store."""
        return self.folder / f"{self.experiment.id}.zarr"

    @cached_property
    def _specification(self) -> dict[str, Any]:
        """All that the results depend on."""
        specification = {
            **self.experiment.specification,
            "seed": self.seed,
            "precision": "double" if self.double else "single",
            "device": self.device,
        }
        if self.experiment.networks:
            from resonax.simulation import network_loop

            specification["networks"] = network_loop(self.device)
        return specification

    @cached_property
    def tasks(self) -> int:
        """Number of tasks."""
        return self.experiment.layout.count()

    @cached_property
    def _store(self) -> Store:
        return Store.at(self.path, self.experiment.layout, self._specification, versions())

    def open(self, among: Iterable[int] | None = None) -> tuple[int, ...]:
        """Create the store or open an existing one; return missing tasks, by default of all."""
        titles = {"title": self.experiment.title, "paper": self.experiment.paper}
        attributes = {**self.experiment.attributes, **titles}
        layout = self.experiment.layout
        store = Store.open(self.path, layout, self._specification, attributes, versions())
        missing = store.missing(among)
        if damaged := len(store.marked().intersection(missing)):
            share = f"{damaged} of {self.tasks} tasks"
            _LOG.warning("%s: %s damaged or missing, computed again", self.path, share)
        return tuple(missing)

    def marked(self) -> set[int]:
        """Return the numbers of the tasks marked as stored; their arrays are not read."""
        return self._store.marked()

    def is_marked_complete(self) -> bool:
        """Return whether all tasks are marked as stored."""
        return len(self.marked()) == self.tasks

    def compute_task(self, number: int, advance: Advance) -> None:
        """Compute and store a task, unless another process has stored it meanwhile.

        ``advance`` is called with the share of the whole experiment just finished.
        """
        task, reported = self._store.tasks[number], 0.0

        def report(share: float) -> None:
            nonlocal reported
            reported += share
            advance(share / self.tasks)

        if not self._store.is_finished(task):
            arrays: Arrays = {}
            try:
                for compute in self.experiment.parts:
                    arrays |= compute(task.region, self.seed, self.double, report)
            except ArgumentError:  # the specification has an error that no earlier check could find
                self._remove_if_empty()
                raise
            self._store.write(task, arrays)
        report(1.0 - reported)

    def _remove_if_empty(self) -> None:
        """Remove a store without results, which would refuse the corrected specification."""
        if self.path.exists() and not self._store.marked():
            self._store.remove()

    def count_growing(self) -> Growing:
        """Return in how many cells the error significantly grows or shrinks.

        A cell counts if Student's confidence interval of its rate over the runs excludes 0, or if
        a run overflowed, which makes its mean rate infinite. The probability that any of the
        intervals is wrong is at most 5%, by Bonferroni's correction: cells along the first axis
        share random numbers, so that errors are not independent.
        """
        total, grow, shrink, cells = self.experiment.cells, 0, 0, 0
        for rates in self._store.parts("run_rate"):
            with np.errstate(invalid="ignore"):
                means, half = mean_interval(rates, 0.025 / total)
                grow += int(((means > half) | (means == np.inf)).sum())
                shrink += int(((means < -half) | (means == -np.inf)).sum())
            cells += int((means == means).sum())  # not nan
        return Growing(grow, shrink, cells)

    def load(self, names: Iterable[str] | None = None, most: int | None = None) -> xr.Dataset:
        """Return the results of a complete store, with the labels of its panels.

        ``names`` and ``most`` select a part of them, as in `Store.load`.
        """
        dataset = self._store.load(names, most)
        if labels := self.experiment.labels:
            words = [labels.get(str(name), str(name)) for name in dataset.panel.values]
            dataset = dataset.assign_coords(label=("panel", words))
        return dataset


class Failure(NamedTuple):
    """A task that failed, and why."""

    id: str  # of its experiment
    task: int
    reason: str
    traceback: str = ""

    def __str__(self) -> str:
        return f"{self.id}, task {self.task}: {self.reason}"


class TasksFailed(ResonaxError):  # noqa: N818
    """Raised if tasks failed, after all others are stored."""

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
    """Some tasks of a computation; or no tasks, but a function to call when all are stored."""

    computation: Computation
    tasks: tuple[int, ...]
    finish: Callable[[Computation], None] | None = None


class JobResult(NamedTuple):
    """The seconds that a job took, and the tasks that failed."""

    seconds: float
    failures: tuple[Failure, ...]


def run_job(job: Job, advance: Advance) -> JobResult:
    """Run a job. If a task fails, the others are still computed.

    A `ResonaxError`, such as that of a full disk, is raised, as all other tasks would fail as well.
    """
    start, failures, computation = time.perf_counter(), [], job.computation
    if job.finish:
        job.finish(computation)
    with chosen_device(computation.device if job.tasks else "cpu"):
        for task in job.tasks:
            try:
                computation.compute_task(task, advance)
            except ResonaxError:
                raise
            except Exception as error:
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                name = computation.experiment.id
                failures.append(Failure(name, task, reason, traceback.format_exc()))
    seconds = time.perf_counter() - start if job.tasks else 0.0
    return JobResult(seconds, tuple(failures))
