"""Run experiments and sweeps into stores, task by task."""

from __future__ import annotations

import contextlib
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.core.errors import check_whole
from resonax.run.executors import as_executor, is_elsewhere, local_processes, run_jobs
from resonax.spec.sweep_checks import parse_sweep, read_sweep
from resonax.spec.sweeps import Sweep
from resonax.store import Location, as_location
from resonax.sweeps.computation import (
    Computation,
    Failure,
    Job,
    JobResult,
    TasksFailed,
    run_job,
)
from resonax.sweeps.cost import check_cost
from resonax.sweeps.devices import describe_device
from resonax.sweeps.experiment import Experiment, from_sweep

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

__all__ = ["Outcome", "run_experiments", "run_sweep", "shard_tasks"]

_MAX_JOBS = 4_000  # of an experiment; if it has more tasks, a job has several


@dataclass(frozen=True)
class Outcome:
    """Results of an experiment, and the seconds they took to compute; None if all were stored."""

    computation: Computation
    seconds: float | None

    @property
    def experiment(self) -> Experiment:
        """The experiment that was run."""
        return self.computation.experiment

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All stored results, read at first access."""
        return self.computation.load()


def run_experiments(
    experiments: Iterable[Experiment],
    out: str | Location,
    *,
    seed: int = 0,
    device: str | None = None,
    double: bool = False,
    executor: Executor | Client | None = None,
    shard: tuple[int, int] | None = None,
    progress: Callable[[str, float], None] | None = None,
    finish: Callable[[Computation], None] | None = None,
    done: Callable[[str], None] | None = None,
    read: Callable[[str, xr.Dataset], None] | None = None,
) -> list[Outcome]:
    """Run experiments into stores below a folder, and return the results.

    Stored tasks are kept. If the run is interrupted or a worker is killed, only unfinished tasks
    are lost, and the same call computes them. If tasks fail, `TasksFailed` is raised after all
    others are stored.

    Parameters
    ----------
    experiments
        Experiments; those with the longest tasks are started first.
    out
        Folder or URL; results are stored in its folder ``results``.
    seed, device, double
        Seed of the random numbers; device, ``cpu`` or ``gpu`` (by default that of jax, and ``cpu``
        on the workers of a cluster); and whether simulations use double precision. Results depend
        on all three.
    executor
        Any executor of `concurrent.futures`, or a Dask ``Client``; by default tasks run in this
        thread, one after the other.
    shard
        ``(3, 10)`` for the third of ten parts of the tasks, which may run on different machines at
        the same time. Only experiments that are complete are returned.
    progress
        Called with the id of an experiment and the share of it just finished.
    finish
        Called by the executor with a computation whose tasks are all stored; must be picklable if
        the executor has other processes.
    done
        Called with the id of an experiment that is finished.
    read
        Called in this process with the id of an experiment whose tasks are all stored and with its
        results, while the executor computes others.
    """
    executor, experiments = as_executor(executor), list(experiments)
    kind, _ = describe_device(device, is_elsewhere=is_elsewhere(executor))
    folder = as_location(out) / "results"
    computations = {
        experiment.id: Computation(experiment, folder, seed, kind, double)
        for experiment in experiments
    }
    shards = shard_tasks(experiments, *shard) if shard else {}
    missing_tasks: dict[str, int] = {}  # numbers of tasks
    seconds: dict[str, float] = {}
    failures: list[Failure] = []
    advance = progress or (lambda *_: None)

    def complete(name: str) -> list[Job]:
        """Handle an experiment whose tasks are all stored; return further jobs."""
        if read:
            read(name, computations[name].load())
        if finish:
            return [Job(computations[name], (), finish)]
        if done:
            done(name)
        return []

    def then(job: Job, result: JobResult) -> list[Job]:
        name = job.computation.experiment.id
        if not job.tasks:
            if done:
                done(name)
            return []
        failures.extend(result.failures)
        seconds[name] = seconds.get(name, 0.0) + result.seconds
        missing_tasks[name] -= len(job.tasks)
        if missing_tasks[name] or any(failure.id == name for failure in failures):
            return []
        is_complete = shard is None or computations[name].is_marked_complete()
        return complete(name) if is_complete else []

    jobs: list[Job] = []
    for name, computation in computations.items():
        missing = computation.open(shards.get(name))
        stored = len(computation.marked().difference(missing))
        advance(name, stored / computation.tasks)
        missing_tasks[name] = len(missing)
        tasks_per_job = max(math.ceil(len(missing) / _MAX_JOBS), 1)
        jobs += [
            Job(computation, missing[start : start + tasks_per_job])
            for start in range(0, len(missing), tasks_per_job)
        ]
        if stored == computation.tasks:
            jobs += complete(name)
    # The sort is stable, so that tasks of one compiled program follow each other.
    jobs.sort(key=lambda job: -job.computation.experiment.seconds if job.tasks else 0.0)
    run_jobs(
        executor,
        run_job,
        jobs,
        lambda job, share: advance(job.computation.experiment.id, share),
        then,
    )
    if failures:
        raise TasksFailed(sorted(failures))
    return [
        Outcome(computation, seconds.get(name))
        for name, computation in computations.items()
        if computation.is_marked_complete()
    ]


def shard_tasks(
    experiments: Iterable[Experiment], part: int, parts: int
) -> Mapping[str, frozenset[int]]:
    """Return the tasks of one of several parts of some experiments, by the experiments' ids.

    The tasks of all experiments are numbered; part p of n has every n-th task, from the p-th on.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> one = SimpleNamespace(id="a", layout=SimpleNamespace(count=lambda: 5))
    >>> [sorted(shard_tasks([one], part, 2)["a"]) for part in (1, 2)]
    [[0, 2, 4], [1, 3]]
    """
    before, found = 0, {}
    for one in experiments:
        count = one.layout.count()
        found[one.id] = frozenset(range((part - 1 - before) % parts, count, parts))
        before += count
    return found


def run_sweep(
    spec: str | Path | Mapping[str, Any] | Sweep,
    *,
    out: str | Location | None = None,
    executor: Executor | Client | None = None,
    processes: int = 1,
    seed: int = 0,
    scale: str = "paper",
    device: str | None = None,
    double: bool = False,
    progress: Callable[[float], None] | None = None,
) -> xr.Dataset:
    """Run a sweep: a simulated response over two axes, for one or more panels.

    Parameters
    ----------
    spec
        The sweep: the path of a TOML file, a mapping with the same content, or a `Sweep`.
    out
        Folder, or URL of fsspec such as ``s3://bucket/mine``, in which the results are stored as
        ``results/<id>.zarr``, as by ``resonax sweep --out``. Tasks stored by an earlier call are
        kept. By default nothing is kept.
    executor
        Any executor of `concurrent.futures`, or a Dask ``Client``. The results do not depend on it.
    processes
        Number of processes, if no executor is given. Tasks are the panels, each cut along the
        second axis into parts of ``chunk`` points. With more than one process a script needs
        ``if __name__ == "__main__":``, as always with `multiprocessing`.
    seed
        Seed of all random numbers.
    scale
        ``paper`` for the sweep itself, ``smoke`` for a small version as its tables ``smoke`` say.
    device
        ``cpu`` or ``gpu``; by default that of jax.
    double
        Whether simulations use double precision.
    progress
        Called with the share of the sweep just finished.

    Returns
    -------
    xarray.Dataset
        ``log_response``, the logarithm of the mean response over the last steps, ``rate``, the
        growth per step, and more, over ``(panel, first axis, second axis)``; those of single runs
        have the further dimension ``run``.

    Examples
    --------
    >>> found = run_sweep({
    ...     "id": "two-by-two",
    ...     "process": {"kind": "sinusoid"},
    ...     "optimizer": {"kind": "heavy_ball", "lr": 0.01},
    ...     "train": {"batch": 20},
    ...     "run": {"runs": 2, "steps": 2000, "window": 200},
    ...     "axes": {"momentum": {"values": [0.9, 0.98]}, "period": {"values": [22, 60]}},
    ... })
    >>> (found.rate.isel(panel=0) > 0).values.tolist()
    [[False, False], [True, False]]
    """
    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_whole("processes", processes, low=1)
    if isinstance(spec, str | Path):
        spec = read_sweep(Path(spec), scale=scale)
    elif not isinstance(spec, Sweep):
        spec = parse_sweep(spec, scale=scale)
    check_cost(spec, double=double)
    with contextlib.ExitStack() as stack:
        folder = out or stack.enter_context(tempfile.TemporaryDirectory())
        if executor is None and processes > 1:
            executor = stack.enter_context(local_processes(processes))
        (outcome,) = run_experiments(
            [from_sweep(spec)],
            folder,
            seed=seed,
            device=device,
            double=double,
            executor=executor,
            progress=(lambda _, share: progress(share)) if progress else None,
        )
        return outcome.dataset
