"""Run experiments into stores: what is stored is kept, what is missing is computed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.algebra import on_the_cpu
from resonax.experiments.catalogue import Experiment
from resonax.labels import versions
from resonax.results import Store
from resonax.results.whole import load_whole, save_whole

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Outcome", "run_experiment"]


@dataclass(frozen=True)
class Outcome:
    """What an experiment gave, and the seconds that were computed now (None: all was stored)."""

    experiment: Experiment
    dataset: xr.Dataset
    seconds: float | None


def _record(experiment: Experiment) -> dict[str, Any]:
    """Return what is written beside the numbers."""
    return {
        "title": experiment.title,
        "paper": experiment.paper,
        **{f"version_{name}": number for name, number in versions().items()},
    }


def run_experiment(
    experiment: Experiment,
    folder: Path,
    *,
    seed: int,
    device: str,
    double: bool,
    advance: Callable[[float], None],
) -> Outcome:
    """Compute what is missing of an experiment; ``advance`` is told the share just finished.

    The bits of a result depend on seed, precision and device, which are part of its specification.
    """
    specification = {
        **experiment.specification,
        "seed": seed,
        "precision": "double" if double else "single",
        "device": device,
    }
    path = folder / f"{experiment.id}.zarr"
    began = time.perf_counter()
    if experiment.whole is not None:
        stored = load_whole(path, specification)
        if stored is None:
            stored = on_the_cpu(experiment.whole)(seed)
            save_whole(stored, path, specification, _record(experiment))
            advance(1.0)
            return Outcome(experiment, stored, time.perf_counter() - began)
        advance(1.0)
        return Outcome(experiment, stored, None)
    assert experiment.layout is not None
    assert experiment.compute is not None
    store = Store.open(path, experiment.layout, specification, _record(experiment))
    pending = store.pending()
    share = 1 / len(store.tasks)
    advance(share * (len(store.tasks) - len(pending)))
    for task in pending:
        told = 0.0

        def tell(part: float) -> None:
            nonlocal told
            told += part
            advance(share * part)

        values = experiment.compute(task.region, seed, double, tell)
        store.write(task, values)
        advance(share * (1.0 - told))
    seconds = time.perf_counter() - began if pending else None
    return Outcome(experiment, store.dataset(), seconds)
