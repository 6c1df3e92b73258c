"""Clusters that others run: a Dask scheduler that is there, or workers as jobs of a queue.

The queue is asked through dask-jobqueue, which reads the site's own configuration: the section
``jobqueue`` of Dask's, in ``~/.config/dask/*.yaml`` or ``/etc/dask``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import Any

from resonax.core.errors import ArgumentError, Interrupted, shorten
from resonax.run.executor import Executor

__all__ = ["PLACES", "WORKERS", "check_place", "cluster_executor", "parse_shard"]

# The queues that dask-jobqueue speaks with: its class, and the command that submits a job.
_QUEUES = {
    "slurm": ("SLURMCluster", "sbatch"),
    "pbs": ("PBSCluster", "qsub"),
    "sge": ("SGECluster", "qsub"),
    "lsf": ("LSFCluster", "bsub"),
    "htcondor": ("HTCondorCluster", "condor_submit"),
    "oar": ("OARCluster", "oarsub"),
    "moab": ("MoabCluster", "msub"),
}
PLACES = ("local", "dask://HOST:PORT", *_QUEUES)
_ADDRESS = re.compile(r"dask://(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):([0-9]{1,5})/?")
_WAIT = 5.0  # seconds that a scheduler has to answer
WORKERS = 10  # that a queue is asked for, if nothing is said


def check_place(on: str) -> None:
    """Raise `ArgumentError` for a place where jobs cannot run; no library is loaded for that."""
    if on == "local":
        return
    is_dask = on.startswith("dask://")
    if not is_dask and on not in _QUEUES:
        raise ArgumentError(f"on must be one of {', '.join(PLACES)}, got {shorten(on)}")
    for name in ("distributed",) if is_dask else ("distributed", "dask_jobqueue"):
        if importlib.util.find_spec(name) is None:
            raise ArgumentError(f"on {on} needs Dask: install resonax[cluster]")
    if is_dask:
        _check_address(on)
    if on in _QUEUES and shutil.which(_QUEUES[on][1]) is None:
        raise ArgumentError(
            f"on {on} needs the command {_QUEUES[on][1]}, which is not here: run this on a machine "
            "from which jobs are submitted"
        )


def _check_address(on: str) -> None:
    """Raise `ArgumentError` unless Dask answers there.

    Without Dask, which takes a second to load, and waits for ever for a server that says nothing.
    A scheduler speaks first: 8 bytes that say how many parts its greeting has.
    """
    found = _ADDRESS.fullmatch(on)
    if not found or not 0 < int(found[2]) < 2**16:
        raise ArgumentError(f"on must be as dask://HOST:PORT, got {shorten(on)}")
    try:
        with socket.create_connection((found[1].strip("[]"), int(found[2])), _WAIT) as server:
            greeting = server.recv(8, socket.MSG_WAITALL)
    except (OSError, UnicodeError):
        raise _no_scheduler(on) from None
    if not 0 < int.from_bytes(greeting, "little") < 100:
        raise _no_scheduler(on)


def _no_scheduler(on: str) -> ArgumentError:
    port = on.rstrip("/").rpartition(":")[2]
    return ArgumentError(
        f"no Dask scheduler answers at {on}: start one there with `dask scheduler --port {port}`, "
        "or name another"
    )


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


@contextlib.contextmanager
def cluster_executor(
    on: str,
    *,
    workers: int | None = None,
    prepare: Callable[[], None],
    limit: float | None = None,
) -> Iterator[Executor]:
    """Give an executor on a cluster, and leave that in the end.

    Parameters
    ----------
    on
        ``dask://HOST:PORT``, or the name of a queue such as ``slurm``.
    workers
        How many processes the queue is asked for; a Dask cluster has as many as it has.
    prepare, limit
        Those of `resonax.run.dask.Dask`.
    """
    check_place(on)
    from resonax.run.dask import Dask

    if on not in _QUEUES:
        with _scheduler(on) as client:
            yield Dask(client, prepare, limit=limit)
        return
    count = workers or WORKERS
    with _queue(on) as (client, cluster):

        def submit() -> None:
            try:
                cluster.scale(count)
            except (OSError, RuntimeError) as error:
                words = " ".join(str(error).split())[:300]
                raise Interrupted(f"{_QUEUES[on][1]} did not take the jobs: {words}") from None

        yield Dask(client, prepare, workers=count, begin=submit, limit=limit)


@contextlib.contextmanager
def _scheduler(on: str) -> Iterator[Any]:
    """Give a client of a scheduler that is there."""
    from distributed import Client

    _quiet()
    try:
        address = f"tcp://{on.removeprefix('dask://').rstrip('/')}"
        client = Client(address, timeout=_WAIT, set_as_default=False)
    except (OSError, RuntimeError, ValueError):  # something else is there
        raise _no_scheduler(on) from None
    with client:
        yield client


@contextlib.contextmanager
def _queue(on: str) -> Iterator[tuple[Any, Any]]:
    """Give a client and a cluster whose workers are jobs of a queue, which end with it."""
    import dask_jobqueue
    from distributed import Client

    _quiet()
    try:
        cluster = getattr(dask_jobqueue, _QUEUES[on][0])()
    except ValueError as error:
        words = " ".join(str(error).split())
        raise ArgumentError(
            f"the section jobqueue.{on} of Dask's configuration is not complete ({words}): write "
            "cores, memory and what else your site asks for to ~/.config/dask/jobqueue.yaml"
        ) from None
    with cluster, Client(cluster, set_as_default=False) as client:
        yield client, cluster


def _quiet() -> None:
    """Let Dask say only what went wrong: what it tells of lost connections is said in our words.

    In asyncio it leaves tasks behind whose errors it has seen to elsewhere.
    """
    parts = ("distributed", "distributed.client", "distributed.core", "distributed.batched")
    for name in (*parts, "asyncio"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
