"""Run experiments and sweeps into stores, task by task: what is stored is kept."""

from __future__ import annotations

import contextlib
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
from resonax.store import Place, as_place
from resonax.sweeps.computation import Computation, Done, Failure, Job, TasksFailed, do
from resonax.sweeps.cost import check_cost
from resonax.sweeps.devices import describe_device
from resonax.sweeps.experiment import Experiment, from_sweep

if TYPE_CHECKING:
    import xarray as xr
    from distributed import Client

__all__ = ["Outcome", "run_experiments", "run_sweep", "shard_tasks"]

_JOBS = 4_000  # of an experiment at most: of more tasks each has several


@dataclass(frozen=True)
class Outcome:
    """What an experiment gave, and the seconds that were computed now (None: all was stored)."""

    computation: Computation
    seconds: float | None

    @property
    def experiment(self) -> Experiment:
        """What was run."""
        return self.computation.experiment

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All that is stored, read when it is asked for."""
        return self.computation.load()


def run_experiments(
    experiments: Iterable[Experiment],
    out: str | Place,
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
    """Run experiments into stores below a folder, and return what is stored.

    What is stored already is kept. An interrupt, or a worker that is killed, loses the tasks that
    are being computed, and the same call goes on with them. Tasks that fail are raised in the end,
    as `TasksFailed`, when all others are stored.

    Parameters
    ----------
    experiments
        What is run; those whose tasks take longest are begun first.
    out
        The folder or its URL; results go to its folder ``results``.
    seed, device, double
        What the bits depend on: the seed, ``cpu`` or ``gpu`` (what jax chooses if None, and
        ``cpu`` for the workers of a cluster), and whether simulations have 64 bits.
    executor
        Who runs the tasks: any executor of `concurrent.futures`, or a ``Client`` of Dask; this
        thread, one after the other, if None.
    shard
        ``(3, 10)`` for the third of ten parts, which may be run at once, anywhere. Then only the
        experiments are returned of which no part is missing.
    progress
        Told the id of an experiment and the share of it just finished.
    finish
        Called with a computation when all its tasks are made, by the executor: it must be possible
        to send it to other processes, if that has any.
    done
        Told the id of an experiment that is finished.
    read
        Told the id of an experiment whose tasks are all made and all that is stored of it, in this
        process, while the executor goes on with others.
    """
    executor, wanted = as_executor(executor), list(experiments)
    kind, _ = describe_device(device, is_elsewhere=is_elsewhere(executor))
    folder = as_place(out) / "results"
    made = {item.id: Computation(item, folder, seed, kind, double) for item in wanted}
    own = shard_tasks(wanted, *shard) if shard else {}
    left, failures = dict[str, int](), list[Failure]()
    seconds = dict[str, float]()
    advance = progress or (lambda *_: None)

    def end(name: str) -> list[Job]:
        """Return what is left to do for an experiment whose tasks are all stored."""
        if read:
            read(name, made[name].load())
        if finish:
            return [Job(made[name], (), finish)]
        if done:
            done(name)
        return []

    def then(job: Job, result: Done) -> list[Job]:
        name = job.computation.experiment.id
        if not job.tasks:
            if done:
                done(name)
            return []
        failures.extend(result.failures)
        seconds[name] = seconds.get(name, 0.0) + result.seconds
        left[name] -= len(job.tasks)
        if left[name] or any(failure.id == name for failure in failures):
            return []
        is_whole = shard is None or len(made[name].marked()) == made[name].tasks
        return end(name) if is_whole else []

    jobs: list[Job] = []
    for name, computation in made.items():
        missing, marked = computation.open(own.get(name)), computation.marked()
        stored = len(marked.difference(missing))
        advance(name, stored / computation.tasks)
        left[name], each = len(missing), -(-len(missing) // _JOBS)
        jobs += [
            Job(computation, missing[start : start + each])
            for start in range(0, len(missing), each or 1)
        ]
        if stored == computation.tasks:
            jobs += end(name)
    # Sorting keeps the order of equals, so that tasks of one compiled program follow each other.
    jobs.sort(key=lambda job: -job.computation.experiment.seconds if job.tasks else 0.0)
    run_jobs(
        executor,
        do,
        jobs,
        lambda job, share: advance(job.computation.experiment.id, share),
        then,
    )
    if failures:
        raise TasksFailed(sorted(failures))
    whole = [name for name, one in made.items() if len(one.marked()) == one.tasks]
    return [Outcome(made[name], seconds.get(name)) for name in whole]


def shard_tasks(
    experiments: Iterable[Experiment], part: int, parts: int
) -> Mapping[str, frozenset[int]]:
    """Return the tasks of one of several parts of some experiments, by their ids.

    All tasks stand in a row, of which every part takes each so many-th.

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
    out: str | Place | None = None,
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
        The sweep: the path of a TOML file, a mapping with the same content, or one that was read.
    out
        A folder that keeps the results, in ``results/<id>.zarr``, as ``resonax sweep --out`` does,
        or a URL of fsspec such as ``s3://bucket/mine``.
        What is stored there is kept, so that the same call goes on where an earlier one was
        stopped. Nothing is kept if it is not given.
    executor
        Who does the work: any executor of `concurrent.futures`, or a ``Client`` of Dask. The
        results do not depend on it.
    processes
        How many processes share the work, if no executor is given. They share out tasks, which are
        the panels, each cut along the second axis into parts of ``chunk`` points. A script that
        asks for more than one needs ``if __name__ == "__main__":``, as `multiprocessing` does.
    seed
        Of all random numbers.
    scale
        ``paper`` for the sweep as it stands, ``smoke`` for what its tables ``smoke`` make of it.
    device
        ``cpu`` or ``gpu``; what jax chooses if it is not given.
    double
        Whether simulations have 64 bits, not 32.
    progress
        Told the share of the sweep that was just finished.

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
