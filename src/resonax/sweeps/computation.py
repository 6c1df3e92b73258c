"""A computation: an experiment and the store that it goes to, whose tasks any process may make."""

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
from resonax.store import Place, Store
from resonax.sweeps.devices import chosen_device
from resonax.sweeps.experiment import Arrays, Experiment

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Computation", "Done", "Failure", "Growing", "Job", "TasksFailed", "do"]

_LOG = logging.getLogger("resonax")


class Growing(NamedTuple):
    """How many cells of a sweep surely grow, surely shrink, and how many there are."""

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
    """An experiment and the store it goes to, ``<folder>/<id>.zarr``.

    One process opens it, and then any may make some of the tasks that are missing. The bits of a
    result depend on seed, precision and device, which are part of its specification.
    """

    experiment: Experiment
    folder: Place
    seed: int
    device: str
    double: bool

    def __reduce__(self) -> Any:
        # A process elsewhere may have another working directory.
        folder = self.folder.absolute() if isinstance(self.folder, Path) else self.folder
        return Computation, (self.experiment, folder, self.seed, self.device, self.double)

    @property
    def path(self) -> Place:
        """Where the results are."""
        return self.folder / f"{self.experiment.id}.zarr"

    @cached_property
    def _specification(self) -> dict[str, Any]:
        """All that the numbers depend on."""
        found = {
            **self.experiment.specification,
            "seed": self.seed,
            "precision": "double" if self.double else "single",
            "device": self.device,
        }
        if self.experiment.networks:
            from resonax.simulation import network_loop

            found["networks"] = network_loop(self.device)
        return found

    @cached_property
    def tasks(self) -> int:
        """How many tasks there are."""
        return self.experiment.layout.count()

    @cached_property
    def _store(self) -> Store:
        return Store.at(self.path, self.experiment.layout, self._specification, versions())

    def open(self, among: Iterable[int] | None = None) -> tuple[int, ...]:
        """Make the store or take it up; return the tasks, ``among`` some, that are missing."""
        words = {"title": self.experiment.title, "paper": self.experiment.paper}
        attributes = {**self.experiment.attributes, **words}
        layout = self.experiment.layout
        store = Store.open(self.path, layout, self._specification, attributes, versions())
        missing = store.missing(among)
        if damaged := len(store.marked().intersection(missing)):
            share = f"{damaged} of {self.tasks} tasks"
            _LOG.warning("%s: %s damaged or missing, computed again", self.path, share)
        return tuple(missing)

    def marked(self) -> set[int]:
        """Return the tasks that were stored once, by one listing, without a look at the numbers."""
        return self._store.marked()

    def make(self, number: int, advance: Advance) -> None:
        """Compute and store a task, unless it is stored by now: another process may have made it.

        ``advance`` is told the share of the whole experiment that was just finished.
        """
        task, told = self._store.tasks[number], 0.0

        def tell(share: float) -> None:
            nonlocal told
            told += share
            advance(share / self.tasks)

        if not self._store.is_finished(task):
            found: Arrays = {}
            try:
                for compute in self.experiment.parts:
                    found |= compute(task.region, self.seed, self.double, tell)
            except ArgumentError:  # what only the computation can tell
                self._discard()
                raise
            self._store.write(task, found)
        tell(1.0 - told)

    def _discard(self) -> None:
        """Remove a store without any result: it would refuse the sweep once that is corrected."""
        if self.path.exists() and not self._store.marked():
            self._store.remove()

    def count_growing(self) -> Growing:
        """Return how many cells grow and shrink, part by part.

        A cell does if the interval of its rate, Student's over the runs, excludes 0. The chance
        that any of the intervals is wrong is at most 5%: cells along the first axis share random
        numbers, so that errors would come several at once.
        """
        total, grow, shrink, cells = self.experiment.cells, 0, 0, 0
        for rates in self._store.parts("run_rate"):
            with np.errstate(invalid="ignore"):
                means, half = mean_interval(rates, 0.025 / total)
                grow += int((means > half).sum())
                shrink += int((means < -half).sum())
            cells += int((means == means).sum())  # not nan
        return Growing(grow, shrink, cells)

    def load(self, names: Iterable[str] | None = None, most: int | None = None) -> xr.Dataset:
        """Return what is stored, with the labels of its panels; it must be complete.

        ``names`` and ``most`` are those of `Store.load`: of many results, what is needed.
        """
        dataset = self._store.load(names, most)
        if labels := self.experiment.labels:
            words = [labels.get(str(name), str(name)) for name in dataset.panel.values]
            dataset = dataset.assign_coords(label=("panel", words))
        return dataset


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
    finish: Callable[[Computation], None] | None = None


class Done(NamedTuple):
    """What a job gives: the seconds that it took, and the tasks that failed."""

    seconds: float
    failures: tuple[Failure, ...]


def do(job: Job, advance: Advance) -> Done:
    """Do a job; a task that fails leaves the others to be done.

    What a person can mend, a setting or a full disk, is raised: it would be the same for all.
    """
    began, failures, computation = time.perf_counter(), [], job.computation
    if job.finish:
        job.finish(computation)
    with chosen_device(computation.device if job.tasks else "cpu"):
        for task in job.tasks:
            try:
                computation.make(task, advance)
            except ResonaxError:
                raise
            except Exception as error:
                words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                name = computation.experiment.id
                failures.append(Failure(name, task, words, traceback.format_exc()))
    return Done(time.perf_counter() - began if job.tasks else 0.0, tuple(failures))
