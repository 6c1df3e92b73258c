"""Run experiments into stores, task by task: what is stored is kept, the rest is computed."""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from resonax.checks import ArgumentError
from resonax.executors.executor import Advance, Executor, Serial
from resonax.labels import versions
from resonax.results import Store
from resonax.sweeps.devices import chosen_device
from resonax.sweeps.experiment import Experiment

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Computation", "Outcome", "run_experiments"]

_LOG = logging.getLogger("resonax")


@dataclass(frozen=True)
class Outcome:
    """What an experiment gave, and the seconds that were computed now (None: all was stored)."""

    experiment: Experiment
    dataset: xr.Dataset
    seconds: float | None


@dataclass(frozen=True)
class Computation:
    """An experiment and the store it goes to, ``<folder>/<id>.zarr``.

    One process opens it, and then any may make some of the tasks that are missing. The bits of a
    result depend on seed, precision and device, which are part of its specification.
    """

    experiment: Experiment
    folder: Path
    seed: int
    device: str
    double: bool

    @property
    def path(self) -> Path:
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

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        return sum(map(len, self.experiment.groups))

    @cached_property
    def _store(self) -> Store:
        return Store.at(self.path, self.experiment.layout, self._specification, versions())

    def open(self) -> tuple[int, ...]:
        """Make the store or take it up; return the tasks that are missing in it."""
        words = {"title": self.experiment.title, "paper": self.experiment.paper}
        attributes = {**self.experiment.attributes, **words}
        layout = self.experiment.layout
        store = Store.open(self.path, layout, self._specification, attributes, versions())
        pending = store.pending()
        if damaged := sum(store.is_marked(task) for task in pending):
            share = f"{damaged} of {self.tasks} tasks"
            _LOG.warning("%s: %s damaged or missing, computed again", self.path, share)
        return tuple(task.number for task in pending)

    def make(self, number: int, advance: Advance) -> float:
        """Compute and store a task; return the seconds that it took.

        ``advance`` is told the share of the whole experiment that was just finished.
        """
        began = time.perf_counter()
        share, told = 1 / self.tasks, 0.0

        def tell(done: float) -> None:
            nonlocal told
            told += done
            advance(share * done)

        task = self._store.tasks[number]
        try:
            values = self.experiment.compute(task.region, self.seed, self.double, tell)
        except ArgumentError:  # what only the computation can tell
            self._discard()
            raise
        self._store.write(task, values)
        advance(share * (1.0 - told))
        return time.perf_counter() - began

    def _discard(self) -> None:
        """Remove a store without any result: it would refuse the sweep once that is corrected."""
        if not any(self._store.is_marked(task) for task in self._store.tasks):
            shutil.rmtree(self.path, ignore_errors=True)

    def load(self) -> xr.Dataset:
        """Return what is stored, with the labels of its panels; it must be complete."""
        dataset, labels = self._store.load(), self.experiment.labels
        if labels:
            words = [labels.get(str(name), str(name)) for name in dataset.panel.values]
            dataset = dataset.assign_coords(label=("panel", words))
        return dataset


class _Job(NamedTuple):
    """Some tasks of a computation; without any, what is to be done when all are made."""

    computation: Computation
    tasks: tuple[int, ...]
    finish: Callable[[Computation], None] | None

    @property
    def id(self) -> str:
        return self.computation.experiment.id

    @property
    def seconds(self) -> float:
        """About how long its tasks take."""
        known = dict(enumerate(self.computation.experiment.seconds))
        return sum(known.get(task, 1.0) for task in self.tasks)


def _do(job: _Job, advance: Advance) -> float:
    """Do a job; return the seconds that were computed."""
    advance(0.0)  # it has begun
    with chosen_device(job.computation.device):
        if not job.tasks and job.finish:
            job.finish(job.computation)
        return sum(job.computation.make(task, advance) for task in job.tasks)


def run_experiments(
    experiments: Iterable[Experiment],
    out: str | Path,
    *,
    seed: int = 0,
    device: str | None = None,
    double: bool = False,
    executor: Executor | None = None,
    progress: Callable[[str, float], None] | None = None,
    finish: Callable[[Computation], None] | None = None,
    done: Callable[[str], None] | None = None,
) -> list[Outcome]:
    """Run experiments into stores below a folder, and return what is stored.

    What is stored already is kept. An interrupt loses the tasks that are being computed, and the
    same call goes on with them.

    Parameters
    ----------
    experiments
        What is run; those that take longest are begun first.
    out
        The folder; results go to its folder ``results``.
    seed, device, double
        What the bits depend on: the seed, ``cpu`` or ``gpu`` (what jax chooses if None), and
        whether simulations have 64 bits.
    executor
        Who does it; one task after the other in this process if None.
    progress
        Told the id of an experiment and the share of it just finished.
    finish
        Called with a computation when all its tasks are made, by the executor: it must be possible
        to send it to other processes, if that has any.
    done
        Told the id of an experiment that is finished.
    """
    executor = executor or Serial()
    progress, done = progress or (lambda *_: None), done or (lambda _: None)
    wanted = list(experiments)
    with chosen_device(device) as (kind, _):
        pass
    made = {
        item.id: Computation(item, Path(out) / "results", seed, kind, double) for item in wanted
    }
    jobs: list[_Job] = []
    left, seconds = {}, {}
    for name in made:
        missing = made[name].open()
        left[name] = len(missing)
        progress(name, 1 - left[name] / made[name].tasks)
        groups = (set(missing).intersection(group) for group in made[name].experiment.groups)
        parts = [tuple(sorted(group)) for group in groups if group] or [()]
        jobs += [_Job(made[name], part, finish) for part in parts]

    def then(job: _Job, taken: float) -> list[_Job]:
        """Finish an experiment after the last of its tasks."""
        if not job.tasks:
            done(job.id)
            return []
        seconds[job.id] = seconds.get(job.id, 0.0) + taken
        left[job.id] -= len(job.tasks)
        return [] if left[job.id] else [job._replace(tasks=())]

    # Processes take turns on a GPU: more pieces there are more to compile, and nothing is gained.
    jobs = _schedule(jobs, executor.workers if kind == "cpu" else 1)
    executor.run(_do, jobs, lambda job, share: progress(job.id, share), then)
    return [Outcome(item, made[item.id].load(), seconds.get(item.id)) for item in wanted]


def _schedule(jobs: Sequence[_Job], workers: int) -> list[_Job]:
    """Return jobs for all workers, those that take longest first.

    One that takes more than a worker's share of the work is cut, although each piece compiles anew.
    """
    share = sum(job.seconds for job in jobs) / workers
    pieces = []
    for job in jobs:
        count = min(math.ceil(job.seconds / share) if share else 1, len(job.tasks)) or 1
        pieces += [job._replace(tasks=job.tasks[start::count]) for start in range(count)]
    return sorted(pieces, key=lambda job: -job.seconds)
