"""Clusters that others run: a Dask scheduler that is there, or workers as jobs of a queue.

The queue is asked through dask-jobqueue, which reads the site's own configuration: the section
``jobqueue`` of Dask's, in ``~/.config/dask/*.yaml`` or ``/etc/dask``.
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
WORKERS = 10  # that a queue is asked for, if nothing is said
_ADDRESS = re.compile(r"dask://(\[[0-9a-fA-F:]+\]|[^\s:/\[\]]+):([0-9]{1,5})/?")
_WAIT = 5.0  # seconds that a scheduler has to answer
_LOG = logging.getLogger("resonax")


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
        _check_scheduler(on)
    elif shutil.which(_QUEUES[on][1]) is None:
        raise ArgumentError(
            f"on {on} needs the command {_QUEUES[on][1]}, which is not here: run this on a machine "
            "from which jobs are submitted"
        )


def _check_scheduler(on: str) -> None:
    """Raise `ArgumentError` unless a scheduler of Dask answers there.

    A client of Dask would wait without end for a server that says nothing. A scheduler speaks
    first: 8 bytes that say how many parts its greeting has.
    """
    found = _ADDRESS.fullmatch(on)
    if not found or not 0 < int(found[2]) < 2**16:
        raise ArgumentError(f"on must be as dask://HOST:PORT, got {shorten(on)}")
    try:
        with socket.create_connection((found[1].strip("[]"), int(found[2])), _WAIT) as server:
            greeting = server.recv(8, socket.MSG_WAITALL)
    except (OSError, UnicodeError):
        greeting = b""
    if not 0 < int.from_bytes(greeting, "little") < 100:
        raise ArgumentError(
            f"no Dask scheduler answers at {on}: start one there with `dask scheduler --port "
            f"{found[2]}`, or name another"
        )


@contextlib.contextmanager
def cluster_executor(
    on: str, *, workers: int | None = None, prepare: Callable[[], None]
) -> Iterator[Executor]:
    """Give the executor of a cluster, and leave that in the end.

    Parameters
    ----------
    on
        ``dask://HOST:PORT``, or the name of a queue such as ``slurm``.
    workers
        How many processes the queue is asked for; a Dask cluster has as many as it has.
    prepare
        Called first by each worker; it must be possible to send it there.
    """
    check_place(on)
    # Dask says only what went wrong: lost connections are said in our words.
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
    """Return a plugin of Dask that lets all workers, also those that come later, prepare."""
    from distributed import WorkerPlugin

    class Preparation(WorkerPlugin):
        def setup(self, worker: Any) -> None:
            for name in THREADS:  # otherwise jax starts a thread for each core of the machine
                os.environ.setdefault(name, str(worker.state.nthreads))
            prepare()

    return Preparation()


@contextlib.contextmanager
def _scheduler(on: str) -> Iterator[Any]:
    """Give a client of a scheduler that is there."""
    from distributed import Client

    address = f"tcp://{on.removeprefix('dask://').rstrip('/')}"
    try:
        client: Any = Client(address, timeout=_WAIT, set_as_default=False)
    except (OSError, RuntimeError, ValueError) as error:
        words = " ".join(str(error).split())[:300]
        raise ArgumentError(f"the Dask scheduler at {on} takes no clients: {words}") from None
    with client:
        if not client.nthreads():
            _LOG.warning("the scheduler %s has no workers: waiting for one", on)
        yield client


@contextlib.contextmanager
def _queue(on: str, workers: int) -> Iterator[Any]:
    """Give a client of workers that are jobs of a queue, which end with it."""
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
