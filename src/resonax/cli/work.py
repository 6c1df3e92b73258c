"""Where the work of a command is done: the options that say so, and the executor they stand for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from resonax.cli.options import option
from resonax.cli.parsers import number, whole
from resonax.core.errors import ArgumentError, check_whole
from resonax.core.threads import count_cores
from resonax.run.clusters import (
    PLACES,
    WORKERS,
    check_place,
    cluster_executor,
    parse_shard,
)
from resonax.run.executor import Executor
from resonax.run.gpus import visible_gpus, workers_per_gpu
from resonax.run.processes import start_executor

__all__ = ["Work", "check_work", "started"]

_PANEL = "Work"
_CACHE = "RESONAX_CACHE"
_MOST = 10_000
_OWNERS = 4  # processes of a GPU: while one loads its programs or waits, others compute
_BESIDE = 4  # processes at least where there is a GPU: one figure has theory beside it


@dataclass(frozen=True)
class Work:
    """Who does the work."""

    on: Annotated[
        str,
        option(
            "--on",
            _PANEL,
            f"Where: {', '.join(PLACES)}.",
            names=("local", *PLACES[2:]),
            metavar="PLACE",
        ),
    ] = "local"
    workers: Annotated[
        int | None,
        option(
            "--workers",
            _PANEL,
            "Processes at once: if left out, what the cores or GPUs here allow; "
            f"{WORKERS} of a queue.",
            whole,
        ),
    ] = None
    shard: Annotated[
        str | None,
        option(
            "--shard",
            _PANEL,
            "Do one part only, as 3/10: one job of an array. The parts share a store.",
            metavar="PART/PARTS",
        ),
    ] = None
    task_limit: Annotated[
        float | None,
        option(
            "--task-limit",
            _PANEL,
            "Seconds without progress after which a worker is replaced; never if left out.",
            number,
        ),
    ] = None

    @property
    def part(self) -> tuple[int, int] | None:
        """Which part of the work is done, of how many."""
        return None if self.shard is None else parse_shard(self.shard)

    def count(self, usual: int) -> int:
        """Return how many work at once, if so many do by themselves on this machine."""
        if self.part:
            return self.part[1]
        return self.workers or (usual if self.is_local else WORKERS)

    @property
    def is_local(self) -> bool:
        """Whether this machine does it."""
        return self.on == "local"


def check_work(work: Work) -> None:
    """Raise `ArgumentError` for what cannot be, before anything is loaded or written."""
    check_place(work.on)
    if work.workers is not None:
        check_whole("workers", work.workers, low=1, high=_MOST)
    if work.task_limit is not None and not 1 <= work.task_limit < 1e9:
        raise ArgumentError(f"task_limit must be at least 1, got {work.task_limit:g}")
    if work.part and not work.is_local:
        raise ArgumentError(f"shard is for a job that works by itself: leave out --on {work.on}")


def _prepare_there(cache: str | None, prepare: Callable[[], None]) -> None:
    """Prepare a worker of a cluster, which keeps what it compiles where this process does."""
    if cache:
        os.environ[_CACHE] = cache
    prepare()


@contextlib.contextmanager
def started(
    work: Work,
    *,
    usual: int,
    device: str | None,
    task_bytes: int | None = None,
    prepare: Callable[[], None],
    libraries: Sequence[str] = (),
    describe: Callable[[], Any] | None = None,
) -> Iterator[Executor]:
    """Give the executor that was asked for; all that work call ``prepare`` first.

    Parameters
    ----------
    work
        What was asked for.
    usual
        How many processes of this machine do it if nothing was said.
    device
        ``cpu``, ``gpu`` or None.
    task_bytes
        What a task takes of the memory of a GPU, if it computes on one from begin to end.
    prepare, libraries
        Those of `start_executor`.
    describe
        If given, some of several processes own the GPUs, and say what they are by this function.
    """
    if not work.is_local:
        shared = partial(_prepare_there, os.environ.get(_CACHE), prepare)
        with cluster_executor(
            work.on, workers=work.workers, prepare=shared, limit=work.task_limit
        ) as executor:
            yield executor
        return
    gpus = () if device == "cpu" else visible_gpus()
    if gpus and task_bytes and usual > 1:
        usual = len(gpus) * workers_per_gpu(task_bytes, gpus, count_cores())
    # Who chooses the platforms of jax does so for all processes.
    is_owned = bool(gpus) and describe is not None and "JAX_PLATFORMS" not in os.environ
    owners = 0
    if is_owned:
        usual = max(usual, min(_BESIDE, count_cores()))
        count = work.workers or usual
        owners = len(gpus) * max(min(_OWNERS, count // 2 // len(gpus) - 1), 1)
        usual += owners // 2  # they wait for the GPU as long as they compute
    count = work.workers or usual
    owners = owners if owners < count else 0
    with start_executor(
        count,
        prepare,
        libraries,
        devices=gpus if len(gpus) > 1 else (),
        limit=work.task_limit,
        owners=owners,
        describe=describe,
    ) as executor:
        yield executor
