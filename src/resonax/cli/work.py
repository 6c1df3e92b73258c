"""Where the work of a command is done: the options that say so, and their executor."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from resonax.cli.options import option
from resonax.cli.parsers import whole
from resonax.core.errors import ArgumentError, check_whole, shorten
from resonax.core.threads import count_cores
from resonax.run.clusters import PLACES, WORKERS, check_place, cluster_executor
from resonax.run.executors import local_processes, visible_gpus, workers_per_gpu

__all__ = ["Work", "check_work", "started"]

_PANEL = "Work"
_CACHE = "RESONAX_CACHE"
_MAX_JOBS = 10_000


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
        check_whole("workers", work.workers, low=1, high=_MAX_JOBS)
    if work.part and not work.is_local:
        raise ArgumentError(f"shard is for a job that works by itself: leave out --on {work.on}")


def parse_shard(text: str) -> tuple[int, int]:
    """Return the number of a part, and of how many.

    Examples
    --------
    >>> parse_shard("3/10")
    (3, 10)
    """
    found = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ArgumentError(f"shard must be as 3/10, from 1/10 to 10/10, got {shorten(text)}")
    return int(found[1]), int(found[2])


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
) -> Iterator[Executor | None]:
    """Give the executor that was asked for, None for this process; all call ``prepare`` first.

    Parameters
    ----------
    work
        What was asked for.
    usual
        How many processes of this machine do it if nothing was said.
    device
        ``cpu``, ``gpu`` or None.
    task_bytes
        What a task takes of the memory of a GPU, if that decides how many processes share one.
    prepare
        Called first by all that work, and by this process.
    """
    if not work.is_local:
        shared = partial(_prepare_there, os.environ.get(_CACHE), prepare)
        with cluster_executor(work.on, workers=work.workers, prepare=shared) as executor:
            yield executor
        return
    gpus = () if device == "cpu" else visible_gpus()
    if gpus and task_bytes and usual > 1:
        usual = len(gpus) * workers_per_gpu(task_bytes, gpus, count_cores())
    count = work.workers or usual
    if count < 2:
        prepare()
        yield None
        return
    devices = gpus if len(gpus) > 1 else ()
    with local_processes(count, prepare, devices, is_gpu=bool(gpus)) as pool:
        prepare()
        yield pool
