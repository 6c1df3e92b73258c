"""Jobs on any executor of `concurrent.futures`, and a pool of processes on this machine.

Jobs must be idempotent, as tasks of a store are: if a worker is killed, the run ends with an error
of one sentence, and the same call can be repeated to do what is missing.
"""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
import queue
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ProcessPoolExecutor
from typing import TYPE_CHECKING, Any

from resonax.core.errors import ArgumentError, Interrupted
from resonax.core.threads import count_cores
from resonax.run.interrupts import clean_up_on_exit

if TYPE_CHECKING:
    from distributed import Client

__all__ = [
    "THREADS",
    "Advance",
    "as_executor",
    "count_workers",
    "is_elsewhere",
    "local_processes",
    "run_jobs",
    "visible_gpus",
    "workers_per_gpu",
]

Advance = Callable[[float], None]  # called with the share of the work just finished

# Environment variables for the numbers of threads of jax, NumPy and SciPy.
THREADS = ("PJRT_NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
# XLA then runs loops as CUDA graphs: the kernels of a simulation are so small that to launch each
# of them would take longer than to run it.
_CUDA_GRAPHS = (
    "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL --xla_gpu_graph_min_graph_size=1"
)
_MAX_WORKERS = 16  # more need too much memory for the time they save
_GPU_BYTES = 2**26  # size of a task that makes full use of a GPU
_MAX_PER_GPU = 4  # processes
_POLL = 0.2  # seconds between two checks of the progress of jobs

# Held during a job, as a worker of Dask may have several threads.
_job_lock = threading.Lock()
_progress: Any = None  # in a process of a pool: queue to the process that started it


def is_elsewhere(executor: Executor | None) -> bool:
    """Return whether an executor is one of Dask, whose workers may be on other machines."""
    return type(executor).__module__.startswith("distributed.")


def count_workers(jobs: int | None = None) -> int:
    """Return how many processes to use for a number of jobs, which may be unknown."""
    return min(_MAX_WORKERS if jobs is None else jobs, count_cores(), _MAX_WORKERS)


def as_executor(executor: Executor | Client | None) -> Executor | None:
    """Return an executor of `concurrent.futures`, given one or a client of Dask.

    Examples
    --------
    >>> as_executor(3)
    Traceback (most recent call last):
    resonax.ArgumentError: executor must be one of concurrent.futures, or a Dask Client, got int
    """
    if executor is None or isinstance(executor, Executor):
        return executor
    if hasattr(executor, "get_executor"):
        return executor.get_executor(pure=False)  # else Dask would return the result of an old job
    kind = type(executor).__name__
    raise ArgumentError(f"executor must be one of concurrent.futures, or a Dask Client, got {kind}")


def run_jobs(
    executor: Executor | None,
    function: Callable[[Any, Advance], Any],
    jobs: Sequence[Any],
    advance: Callable[[Any, float], None],
    then: Callable[[Any, Any], Sequence[Any]],
) -> None:
    """Run jobs and the further jobs that their results require; raise the error of any job.

    Parameters
    ----------
    executor
        Executor of the jobs; by default they run in this thread, one after the other.
    function
        Called with a job and an `Advance`, which it calls with the share just finished.
    jobs
        Jobs in the order in which they start.
    advance
        Called in this process with a job and the share of it just finished.
    then
        Called in this process with a job and its result; returns further jobs to run.

    Examples
    --------
    >>> found = []
    >>> run_jobs(None, lambda job, _: job**2, [3, 4], print, lambda *pair: found.append(pair) or [])
    >>> found
    [(3, 9), (4, 16)]
    """
    if executor is not None:
        _run_futures(executor, function, jobs, advance, then)
        return
    waiting = deque(jobs)
    while waiting:
        job = waiting.popleft()
        result = function(job, lambda share, job=job: advance(job, share))
        waiting.extendleft(reversed(then(job, result)))


def _run_futures(
    executor: Executor,
    function: Callable[[Any, Advance], Any],
    jobs: Sequence[Any],
    advance: Callable[[Any, float], None],
    then: Callable[[Any, Any], Sequence[Any]],
) -> None:
    numbers = itertools.count()
    submitted: dict[int, Any] = {}  # jobs by their numbers
    reported: dict[int, float] = {}  # shares by the numbers of their jobs
    running: dict[int, Future] = {}
    finished = queue.SimpleQueue[int]()

    def submit(new_jobs: Sequence[Any]) -> None:
        for job in new_jobs:
            number = next(numbers)
            submitted[number], reported[number] = job, 0.0
            running[number] = executor.submit(_call, function, job, number)
            running[number].add_done_callback(lambda _, number=number: finished.put(number))

    def report(number: int, share: float) -> None:
        reported[number] += share
        advance(submitted[number], share)

    try:
        submit(jobs)
        while running:
            for number, share in _new_progress(executor):
                if number in running:
                    report(number, share)
            with contextlib.suppress(queue.Empty):
                number = finished.get(timeout=_POLL)
                result, total = running.pop(number).result()
                report(number, total - reported[number])
                submit(then(submitted[number], result))
    except Exception as error:
        raise _executor_error(error) or error from None
    finally:
        for future in running.values():
            future.cancel()


def _call(function: Callable[[Any, Advance], Any], job: Any, number: int) -> tuple[Any, float]:
    """Run a job in a worker; return its result and the sum of the shares that it reported."""
    total = 0.0

    def report(share: float) -> None:
        nonlocal total
        total += share
        if _progress is not None:
            _progress.put((number, share))

    with _job_lock:
        return function(job, report), total


def _new_progress(executor: Executor) -> Iterator[tuple[int, float]]:
    """Yield numbers of jobs and the shares just finished; only a `ProcessPool` reports them."""
    if isinstance(executor, ProcessPool):
        while not executor.progress.empty():
            yield executor.progress.get()


def _executor_error(error: Exception) -> Exception | None:
    """Return the error to raise if an executor failed; None if a job did."""
    if isinstance(error, BrokenExecutor):
        return Interrupted(
            "a worker was ended from outside, perhaps for want of memory: run the same command "
            "again, with fewer workers if there is too little memory; what was stored is kept"
        )
    if isinstance(error, ImportError):
        return ArgumentError(
            f"a worker cannot load its job ({error}): install the same version of resonax there "
            "as here"
        )
    if isinstance(error, CancelledError) or type(error).__module__.startswith("distributed."):
        words = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        return Interrupted(
            f"the workers or their scheduler were lost ({words}): run the same command again; "
            "what was stored is kept"
        )
    return None


class ProcessPool(ProcessPoolExecutor):
    """Processes that share the cores of this machine and report their progress.

    Make it with `local_processes`. Each process reads from a pipe whose other end this process
    holds, and exits at once when that is closed: by `end`, or because this process ended.

    Parameters
    ----------
    workers
        Number of processes.
    prepare
        Called first in each process; must be picklable.
    devices
        Names of GPUs, assigned to the processes in turn; each process sees one of them.
    is_gpu
        Whether the processes compute on a GPU.
    """

    def __init__(
        self,
        workers: int,
        prepare: Callable[[], object],
        devices: Sequence[str] = (),
        *,
        is_gpu: bool = False,
    ) -> None:
        # By default jax takes three quarters of the memory of a GPU in each process.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        context = multiprocessing.get_context("spawn")
        self.progress = context.SimpleQueue()
        until_closed, self._open_end = context.Pipe(duplex=False)
        environments = context.SimpleQueue()
        threads = dict.fromkeys(THREADS, str(max(count_cores() // workers, 1)))
        for number in range(workers):
            environment = {**threads, "XLA_FLAGS": _CUDA_GRAPHS} if is_gpu else dict(threads)
            if devices:
                environment["CUDA_VISIBLE_DEVICES"] = devices[number % len(devices)]
            environments.put(environment)
        arguments = until_closed, self.progress, environments, prepare
        super().__init__(workers, context, initializer=_start_worker, initargs=arguments)

    def submit(self, *args: Any, **kwargs: Any) -> Future:
        """Submit a call; a process that is started for it ignores Ctrl-C."""
        with _blocked_interrupts():
            return super().submit(*args, **kwargs)

    def end(self) -> None:
        """Make all processes exit at once."""
        self._open_end.close()


@contextlib.contextmanager
def local_processes(
    workers: int,
    prepare: Callable[[], object] = bool,
    devices: Sequence[str] = (),
    *,
    is_gpu: bool = False,
) -> Iterator[ProcessPool]:
    """Yield a `ProcessPool` whose processes are started, and end them afterwards."""
    pool = ProcessPool(workers, prepare, devices, is_gpu=is_gpu)
    with clean_up_on_exit(pool.end):
        try:
            for _ in range(workers):
                pool.submit(bool)
            yield pool
        finally:
            pool.end()
            pool.shutdown(cancel_futures=True)


def _start_worker(
    until_closed: Any, progress: Any, environments: Any, prepare: Callable[[], object]
) -> None:
    """Initialise a process of a pool."""
    global _progress
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def exit_when_closed() -> None:
        with contextlib.suppress(EOFError, OSError):
            until_closed.recv_bytes()
        os._exit(1)

    threading.Thread(target=exit_when_closed, daemon=True).start()
    _progress = progress
    for name, value in environments.get().items():
        # Settings of the user stay, but each process has its own GPU.
        if name == "CUDA_VISIBLE_DEVICES" or name not in os.environ:
            os.environ[name] = value
    prepare()


@contextlib.contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Block Ctrl-C, which reaches all processes of a terminal, in processes started meanwhile.

    They inherit the blocked signals, and could not ignore the signal before their first line runs.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _query_driver() -> str:
    """Return the output of nvidia-smi, the index of one GPU on each line; empty if it fails."""
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def visible_gpus(
    environment: Mapping[str, str] | None = None, query: Callable[[], str] = _query_driver
) -> tuple[str, ...]:
    r"""Return the names of the GPUs that this process may use, for ``CUDA_VISIBLE_DEVICES``.

    A job of a cluster's queue may have only some GPUs of a machine; the variable then names them.

    Examples
    --------
    >>> visible_gpus({}, lambda: "0\n1\n")
    ('0', '1')
    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "2,GPU-5a"})
    ('2', 'GPU-5a')
    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "0,-1,1"})  # CUDA stops at an invalid name
    ('0',)
    """
    variable = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if variable is None:
        return tuple(line.strip() for line in query().splitlines() if line.strip().isdigit())
    found: list[str] = []
    for name in map(str.strip, variable.split(",")):
        if not name or name.startswith("-"):
            break
        found.append(name)
    return tuple(found)


def workers_per_gpu(task_bytes: int, gpus: Sequence[str], cores: int) -> int:
    """Return how many processes share a GPU: several if one task leaves most of it idle.

    A rule of thumb: the number is inversely proportional to the size of a task, at most four, and
    at most the number of cores for each GPU.

    Examples
    --------
    >>> [workers_per_gpu(size, ["0", "1"], cores=16) for size in (2**24, 2**25, 2**27)]
    [4, 2, 1]
    >>> workers_per_gpu(2**20, ["0", "1"], cores=4)
    2
    """
    fit = _GPU_BYTES // max(task_bytes, 1)
    return max(min(fit, _MAX_PER_GPU, cores // max(len(gpus), 1)), 1)
