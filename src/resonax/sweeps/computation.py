"""A computation: an experiment and the store that it goes to, whose tasks any process may make."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from resonax.core.errors import ArgumentError
from resonax.core.intervals import mean_interval
from resonax.core.labels import versions
from resonax.run.executor import Advance
from resonax.store import Place, Store
from resonax.sweeps.experiment import Arrays, Experiment
from resonax.sweeps.regions import is_box, join_regions, split_arrays
from resonax.sweeps.stored_results import StoredResults

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Computation"]

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


@lru_cache(maxsize=64)
def _unpack(packed: bytes) -> Computation:
    """Return a computation that was sent here, the same one for all of its jobs."""
    return Computation(*pickle.loads(packed))


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
    def _packed(self) -> bytes:
        """What a worker needs of it, made once: the costs of all tasks are not of it."""
        also = tuple(part._replace(seconds=()) for part in self.experiment.also)
        experiment = replace(self.experiment, groups=(), seconds=(), judges=(), also=also)
        return pickle.dumps((experiment, self.folder, self.seed, self.device, self.double))

    def __reduce__(self) -> Any:
        return _unpack, (self._packed,)

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

    def is_finished(self, number: int) -> bool:
        """Return whether a task is stored, whoever made it."""
        return self._store.is_finished(self._store.tasks[number])

    def compute(self, numbers: Sequence[int], part: int, advance: Advance) -> dict[int, Arrays]:
        """Return some variables of tasks: those that one of their parts computes.

        Several tasks must be such as `is_joined` says. ``advance`` is told the share of the whole
        experiment that was just finished.
        """
        parts, told = self.experiment.parts, 0.0
        share = len(numbers) / self.tasks / len(parts)

        def tell(done: float) -> None:
            nonlocal told
            told += done
            advance(share * done)

        regions = [self._store.tasks[number].region for number in numbers]
        try:
            found = parts[part](join_regions(regions), self.seed, self.double, tell)
        except ArgumentError:  # what only the computation can tell
            self._discard()
            raise
        advance(share * (1.0 - told))
        return dict(zip(numbers, split_arrays(found, self.experiment.dims, regions), strict=True))

    def is_joined(self, numbers: Sequence[int]) -> bool:
        """Return whether tasks are computed as one."""
        if not any(set(numbers) <= set(group) for group in self.experiment.joined):
            return False
        return is_box([self._store.tasks[number].region for number in numbers])

    def store(self, number: int, found: Arrays) -> None:
        """Store the variables of a task, unless another process has done so by now."""
        if not self.is_finished(number):
            self._store.write(self._store.tasks[number], found)

    def make(self, number: int, advance: Advance) -> None:
        """Compute and store a task, unless it is stored.

        A task that is stored by now is left alone: another process may have made it, or this one
        before it was told to do its job again.
        """
        if self.is_finished(number):
            advance(1 / self.tasks)
            return
        found: Arrays = {}
        for part in range(len(self.experiment.parts)):
            found.update(self.compute([number], part, advance)[number])
        self._store.write(self._store.tasks[number], found)

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

    @property
    def results(self) -> StoredResults:
        """What is stored, to be read by any process."""
        return StoredResults(self._store, self.experiment.labels)

    def load(self, names: Iterable[str] | None = None, most: int | None = None) -> xr.Dataset:
        """Return what is stored, with the labels of its panels; it must be complete.

        ``names`` and ``most`` are those of `Store.load`: of many results, what is needed.
        """
        return self.results.load(names, most)
