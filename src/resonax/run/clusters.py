"""Executors of clusters: a running Dask scheduler, or workers submitted as jobs to a queue.

Jobs are submitted by dask-jobqueue, which reads the configuration of the site: the section
``jobqueue`` of Dask's configuration, in ``~/.config/dask/*.yaml`` or ``/etc/dask``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
import re
import shutil
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

from resonax.core.errors import ArgumentError, Interrupted, shorten
from resonax.run.executors import THREADS

__all__ = ["PLACES", "WORKERS", "check_place", "cluster_executor"]

# Queues of dask-jobqueue: its class, and the command that submits a job.
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
WORKERS = 10  # jobs submitted to a queue by default
_ADDRESS = re.compile(r"dask://(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):([0-9]{1,5})/?")
_TIMEOUT = 5.0  # seconds that a scheduler has to answer
_LOG = logging.getLogger("resonax")


def check_place(on: str) -> None:
    """Raise `ArgumentError` if jobs cannot run at a place; imports no library."""
    if on == "local":
        return
    is_dask = on.startswith("dask://")
    if not is_dask and on not in _QUEUES:
        raise ArgumentError(f"on must be one of {', '.join(PLACES)}, got {shorten(on)}")
    for name in ("distributed",) if is_dask else ("distributed", "dask_jobqueue"):
        if importlib.util.find_spec(name) is None:
            raise ArgumentError(f"on {on} needs Dask: install resonax[cluster]")
    if is_dask:
        _check_scheduler(on)
    elif shutil.which(_QUEUES[on][1]) is None:
        raise ArgumentError(
            f"on {on} needs the command {_QUEUES[on][1]}, which is not here: run this on a machine "
            "from which jobs are submitted"
        )


def _check_scheduler(on: str) -> None:
    """Raise `ArgumentError` unless a Dask scheduler answers.

    A Dask client would wait forever for a server that sends nothing. A scheduler sends first: 8
    bytes with the number of parts of its greeting.
    """
    match = _ADDRESS.fullmatch(on)
    if not match or not 0 < int(match[2]) < 2**16:
        raise ArgumentError(f"on must be as dask://HOST:PORT, got {shorten(on)}")
    host, port = match[1].strip("[]"), int(match[2])
    try:
        with socket.create_connection((host, port), _TIMEOUT) as server:
            greeting = server.recv(8, socket.MSG_WAITALL)
    except (OSError, UnicodeError):
        greeting = b""
    if not 0 < int.from_bytes(greeting, "little") < 100:
        raise ArgumentError(
            f"no Dask scheduler answers at {on}: start one there with `dask scheduler --port "
            f"{port}`, or name another"
        )


@contextlib.contextmanager
def cluster_executor(
    on: str, *, workers: int | None = None, prepare: Callable[[], None]
) -> Iterator[Executor]:
    """Yield the executor of a cluster, and disconnect afterwards.

    Parameters
    ----------
    on
        ``dask://HOST:PORT``, or the name of a queue such as ``slurm``.
    workers
        Number of workers submitted to a queue; ignored for a Dask scheduler.
    prepare
        Called first in each worker; must be picklable.
    """
    check_place(on)
    # Silence Dask's log of lost connections: `run_jobs` raises an error for them.
    for name in ("distributed", "distributed.client", "distributed.core", "distributed.batched"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    with _queue(on, workers or WORKERS) if on in _QUEUES else _scheduler(on) as client:
        try:
            client.register_plugin(_preparation(prepare), name="resonax")
        except ImportError as error:
            raise ArgumentError(
                f"the workers at {on} cannot load resonax ({error}): install the same version "
                "there as here"
            ) from None
        yield client.get_executor(pure=False)


def _preparation(prepare: Callable[[], None]) -> Any:
    """Return a Dask plugin that calls ``prepare`` in all present and future workers."""
    from distributed import WorkerPlugin

    class Preparation(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            for name in THREADS:  # else jax starts a thread for each core
                os.environ.setdefault(name, str(worker.state.nthreads))
            prepare()

    return Preparation()


@contextlib.contextmanager
def _scheduler(on: str) -> Iterator[Any]:
    """Yield a client of a running scheduler."""
    from distributed import Client

    address = f"tcp://{on.removeprefix('dask://').rstrip('/')}"
    try:
        client: Any = Client(address, timeout=_TIMEOUT, set_as_default=False)
    except (OSError, RuntimeError, ValueError) as error:
        words = " ".join(str(error).split())[:300]
        raise ArgumentError(f"the Dask scheduler at {on} takes no clients: {words}") from None
    with client:
        if not client.nthreads():
            _LOG.warning("the scheduler %s has no workers: waiting for one", on)
        yield client


@contextlib.contextmanager
def _queue(on: str, workers: int) -> Iterator[Any]:
    """Yield a client whose workers are jobs of a queue, and end them afterwards."""
    import dask_jobqueue
    from distributed import Client

    name, command = _QUEUES[on]
    try:
        cluster = getattr(dask_jobqueue, name)()
    except ValueError as error:
        words = " ".join(str(error).split())
        raise ArgumentError(
            f"the section jobqueue.{on} of Dask's configuration is not complete ({words}): write "
            "cores, memory and what else your site asks for to ~/.config/dask/jobqueue.yaml"
        ) from None
    with cluster, Client(cluster, set_as_default=False) as client:
        try:
            cluster.scale(workers)
        except (OSError, RuntimeError) as error:
            words = " ".join(str(error).split())[:300]
            raise Interrupted(f"{command} did not take the jobs: {words}") from None
        yield client
