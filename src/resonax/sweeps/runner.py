"""Run experiments into stores, part by part: what is stored is kept, the rest is computed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from resonax.algebra import on_the_cpu
from resonax.checks import ArgumentError, StoreError
from resonax.labels import versions
from resonax.results import Store
from resonax.results.whole import load_whole, save_whole
from resonax.sweeps.experiment import Experiment

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Missing", "Outcome", "Run"]


@dataclass(frozen=True)
class Outcome:
    """What an experiment gave, and the seconds that were computed now (None: all was stored)."""

    experiment: Experiment
    dataset: xr.Dataset
    seconds: float | None


class Missing(NamedTuple):
    """The parts of a run that are to be made, and how many of them were there and are damaged."""

    parts: tuple[int, ...]
    damaged: int


@dataclass(frozen=True)
class Run:
    """An experiment and the store it goes to.

    One process opens it, and then any may make some of the parts that are missing. The bits of a
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
    def specification(self) -> dict[str, Any]:
        """All that the numbers depend on."""
        return {
            **self.experiment.specification,
            "seed": self.seed,
            "precision": "double" if self.double else "single",
            "device": self.device,
        }

    @property
    def parts(self) -> int:
        """How many parts there are."""
        return sum(map(len, self.experiment.groups))

    @cached_property
    def _store(self) -> Store:
        layout = self.experiment.layout
        assert layout is not None
        return Store.at(self.path, layout, self.specification, versions())

    def open(self) -> Missing:
        """Make the store or take it up; return what is missing in it."""
        layout = self.experiment.layout
        if layout is None:
            if load_whole(self.path, self.specification) is not None:
                return Missing((), 0)
            return Missing((0,), int(self.path.exists()))
        store = Store.open(self.path, layout, self.specification, self._record(), versions())
        pending = store.pending()
        damaged = sum(store.is_marked(task) for task in pending)
        return Missing(tuple(task.number for task in pending), damaged)

    def make(self, part: int, advance: Callable[[float], None]) -> float:
        """Compute and store a part; ``advance`` is told the share of the whole just finished."""
        began = time.perf_counter()
        if self.experiment.whole is not None:
            dataset = on_the_cpu(self.experiment.whole)(self.seed)
            record = {**self._record(), "versions": versions()}
            save_whole(dataset, self.path, self.specification, record)
            advance(1.0)
            return time.perf_counter() - began
        assert self.experiment.compute is not None
        share, told = 1 / self.parts, 0.0

        def tell(done: float) -> None:
            nonlocal told
            told += done
            advance(share * done)

        task = self._store.tasks[part]
        try:
            values = self.experiment.compute(task.region, self.seed, self.double, tell)
        except ArgumentError:  # what only the computation can tell, as that a flow is too stiff
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
        """Return what is stored; it must be complete."""
        if self.experiment.layout is not None:
            return self._store.load()
        dataset = load_whole(self.path, self.specification)
        if dataset is None:
            raise StoreError(f"{self.path} was damaged or removed: run the same command again")
        return dataset

    def _record(self) -> dict[str, Any]:
        """Return what is written beside the numbers."""
        return {"title": self.experiment.title, "paper": self.experiment.paper}
