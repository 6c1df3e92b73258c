"""Run experiments into stores, task by task: what is stored is kept, the rest is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from resonax.run.executor import Executor, Serial
from resonax.store import Place, as_place
from resonax.sweeps.computation import Computation
from resonax.sweeps.devices import find_device
from resonax.sweeps.experiment import Experiment
from resonax.sweeps.heartbeat import forget_signs
from resonax.sweeps.jobs import Job, Ledger, TasksFailed, do
from resonax.sweeps.sharing import schedule, schedule_parts, shard_tasks

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Outcome", "run_experiments"]

_PIECES = 4  # that a worker of a cluster gets of the work, or more


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
    executor: Executor | None = None,
    shard: tuple[int, int] | None = None,
    progress: Callable[[str, float], None] | None = None,
    finish: Callable[[Computation], None] | None = None,
    done: Callable[[str], None] | None = None,
    read: Callable[[str, xr.Dataset], None] | None = None,
) -> list[Outcome]:
    """Run experiments into stores below a folder, and return what is stored.

    What is stored already is kept. An interrupt loses the tasks that are being computed, and the
    same call goes on with them. Tasks that fail are raised in the end, as `TasksFailed`, when all
    others are stored.

    Parameters
    ----------
    experiments
        What is run; those that take longest are begun first.
    out
        The folder or its URL; results go to its folder ``results``.
    seed, device, double
        What the bits depend on: the seed, ``cpu`` or ``gpu`` (what jax chooses if None, and
        ``cpu`` for the workers of a cluster), and whether simulations have 64 bits.
    executor
        Who does it; one task after the other in this process if None.
    shard
        ``(3, 10)`` for the third of ten parts, which may be run at once, anywhere. Then only the
        experiments are returned of which no part is missing.
    progress
        Told the id of an experiment and the share of it just finished.
    finish
        Called with a computation when all its tasks are made, by the executor: it must be possible
        to send it to other processes, if that has any. Those of a cluster leave it to this one.
    done
        Told the id of an experiment that is finished.
    read
        Told the id of an experiment that is finished and all that is stored of it, in this process,
        while the executor goes on with others.
    """
    executor = executor or Serial()
    is_remote = getattr(executor, "is_remote", False)

    def finished(name: str) -> None:
        if done:
            done(name)
        if read:
            read(name, made[name].load())

    ledger = Ledger(progress or (lambda *_: None), finished, shard is None)
    wanted = list(experiments)
    kind, _ = find_device(executor, device)
    is_owned = kind != "cpu" and getattr(executor, "owners", 0) > 0
    place = as_place(out)
    if isinstance(place, Path) and is_remote:
        place = place.absolute()  # workers have been started elsewhere
    made = {item.id: Computation(item, place / "results", seed, kind, double) for item in wanted}
    own = shard_tasks(wanted, *shard) if shard else {}
    jobs: list[Job] = []
    for name, computation in made.items():
        if is_owned and shard is None and not computation.path.exists():
            missing, marked = set(range(computation.tasks)), set()  # made when there is a result
        else:
            missing, marked = set(computation.open(own.get(name))), computation.marked()
        ledger.progress(name, len(marked - missing) / computation.tasks)
        ledger.left[name] = len(missing)
        job = Job(computation, (), None if is_remote else finish, on_device=kind != "cpu")
        groups = (tuple(sorted(missing & set(group))) for group in computation.experiment.groups)
        jobs += [job.of(group) for group in groups if group]
        if len(marked - missing) == computation.tasks:
            jobs += ledger.end(job)
    # Processes take turns on a GPU: more pieces there are more to compile, and nothing is gained.
    workers = executor.workers if kind == "cpu" else getattr(executor, "gpus", 1)
    # Workers of a cluster come and go: smaller pieces are shared out anew more often.
    pieces = _PIECES * executor.workers if is_remote else workers
    jobs = schedule_parts(jobs) if is_owned else schedule(jobs, pieces)
    executor.run(do, jobs, ledger.advance, ledger.then)
    if ledger.failures:
        raise TasksFailed(sorted(ledger.failures))
    is_whole = {name: len(one.marked()) == one.tasks for name, one in made.items()}
    whole = [item.id for item in wanted if is_whole[item.id]]
    for name in whole:
        forget_signs(place, name)
        if finish and is_remote:
            finish(made[name])
    return [Outcome(made[name], ledger.seconds.get(name)) for name in whole]
