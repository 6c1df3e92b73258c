"""Jobs on any executor of `concurrent.futures`, and a pool of processes on this machine.

A job must be safe to run again, as tasks of a store are: if a worker is killed, the whole run ends
with one sentence, and the same call goes on with what is missing.
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
    "ProcessPool",
    "as_executor",
    "count_workers",
    "is_elsewhere",
    "local_processes",
    "run_jobs",
    "visible_gpus",
    "workers_per_gpu",
]

Advance = Callable[[float], None]  # told the share of the work just finished

THREADS = ("PJRT_NPROC", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")  # of jax, NumPy and SciPy
# XLA then runs the loops of a program as CUDA graphs: the kernels of a simulation are small, and
# starting them one by one takes longer than they do.
_CUDA_GRAPHS = (
    "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL --xla_gpu_graph_min_graph_size=1"
)
_MOST = 16  # processes: more would ask for more memory than they save time
_SMALL = 2**26  # bytes of a task that leaves most of a GPU idle
_MOST_PER_GPU = 4  # processes that a GPU gets by itself
_POLL = 0.2  # seconds between two looks at the progress of jobs

_one_at_a_time = threading.Lock()  # threads of one process, such as those of a Dask worker
_progress: Any = None  # in a process of the pool: the queue to the process that started it


def is_elsewhere(executor: Executor | None) -> bool:
    """Return whether an executor is one of Dask, whose workers may be on other machines."""
    return type(executor).__module__.startswith("distributed.")


def count_workers(jobs: int | None = None) -> int:
    """Return how many processes to use for some jobs, or for a number that is not known yet."""
    return min(_MOST if jobs is None else jobs, count_cores(), _MOST)


def as_executor(given: Executor | Client | None) -> Executor | None:
    """Return an executor of `concurrent.futures`, also for a client of Dask.

    Examples
    --------
    >>> as_executor(3)
    Traceback (most recent call last):
    resonax.ArgumentError: executor must be one of concurrent.futures, or a Dask Client, got int
    """
    if given is None or isinstance(given, Executor):
        return given
    if hasattr(given, "get_executor"):
        return given.get_executor(pure=False)  # a job is run again although it has the same name
    raise ArgumentError(
        f"executor must be one of concurrent.futures, or a Dask Client, got {type(given).__name__}"
    )


def run_jobs(
    executor: Executor | None,
    function: Callable[[Any, Advance], Any],
    jobs: Sequence[Any],
    advance: Callable[[Any, float], None],
    then: Callable[[Any, Any], Sequence[Any]],
) -> None:
    """Run jobs, and those that follow from them; an error of a job is raised here.

    Parameters
    ----------
    executor
        Who runs them; this thread, one after the other, if None.
    function
        Called with a job and a function that it tells the share just finished.
    jobs
        The jobs, in the order in which they are begun.
    advance
        Called here with a job and the share of it just finished.
    then
        Called here with a job and its result; the jobs that it returns are run too.

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
    numbers, running = itertools.count(), dict[int, Future]()
    given, told = dict[int, Any](), dict[int, float]()
    finished = queue.SimpleQueue[int]()

    def submit(some: Sequence[Any]) -> None:
        for job in some:
            number = next(numbers)
            given[number], told[number] = job, 0.0
            running[number] = executor.submit(_call, function, job, number)
            running[number].add_done_callback(lambda _, number=number: finished.put(number))

    def tell(number: int, share: float) -> None:
        told[number] += share
        advance(given[number], share)

    try:
        submit(jobs)
        while running:
            for number, share in _new_progress(executor):
                if number in running:
                    tell(number, share)
            with contextlib.suppress(queue.Empty):
                number = finished.get(timeout=_POLL)
                result, total = running.pop(number).result()
                tell(number, total - told[number])
                submit(then(given[number], result))
    except Exception as error:
        raise _explain(error) or error from None
    finally:
        for future in running.values():
            future.cancel()


def _call(function: Callable[[Any, Advance], Any], job: Any, number: int) -> tuple[Any, float]:
    """Return the result of a job, and the sum of the shares that it told."""
    total = 0.0

    def tell(share: float) -> None:
        nonlocal total
        total += share
        if _progress is not None:
            _progress.put((number, share))

    with _one_at_a_time:
        return function(job, tell), total


def _new_progress(executor: Executor) -> Iterator[tuple[int, float]]:
    if isinstance(executor, ProcessPool):
        while not executor.progress.empty():
            yield executor.progress.get()


def _explain(error: Exception) -> Exception | None:
    """Return what to raise for an error of an executor; None for one of a job."""
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
    """Processes that share the cores of this machine and tell of their progress.

    Make it with `local_processes`. The processes read from a pipe whose other end this process
    holds: when that is closed, because this process has ended or wants it, they exit at once.

    Parameters
    ----------
    workers
        How many processes.
    prepare
        Called first in each of them; it must be possible to send it there.
    devices
        The names of GPUs, which are given to the processes in turn: each sees one of them.
    is_gpu
        Whether they compute on a GPU.
    """

    def __init__(
        self,
        workers: int,
        prepare: Callable[[], object],
        devices: Sequence[str] = (),
        *,
        is_gpu: bool = False,
    ) -> None:
        # On a GPU every process takes the memory it needs, and not three quarters of all.
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        context = multiprocessing.get_context("spawn")
        self.progress = context.SimpleQueue()
        until, self._open_end = context.Pipe(duplex=False)
        settings = context.SimpleQueue()
        threads = dict.fromkeys(THREADS, str(max(count_cores() // workers, 1)))
        for number in range(workers):
            own = {**threads, "XLA_FLAGS": _CUDA_GRAPHS} if is_gpu else threads
            if devices:
                own = {**own, "CUDA_VISIBLE_DEVICES": devices[number % len(devices)]}
            settings.put(own)
        given = until, self.progress, settings, prepare
        super().__init__(workers, context, initializer=_begin, initargs=given)

    def submit(self, *args: Any, **kwargs: Any) -> Future:
        """Submit a call; a process that is started for it does not hear Ctrl-C."""
        with _blocked_interrupts():
            return super().submit(*args, **kwargs)

    def end(self) -> None:
        """Let all processes exit at once."""
        self._open_end.close()


@contextlib.contextmanager
def local_processes(
    workers: int,
    prepare: Callable[[], object] = bool,
    devices: Sequence[str] = (),
    *,
    is_gpu: bool = False,
) -> Iterator[ProcessPool]:
    """Give a `ProcessPool` whose processes are started; none of them is left in the end."""
    pool = ProcessPool(workers, prepare, devices, is_gpu=is_gpu)
    with clean_up_on_exit(pool.end):
        try:
            for _ in range(workers):
                pool.submit(bool)
            yield pool
        finally:
            pool.end()
            pool.shutdown(cancel_futures=True)


def _begin(until: Any, progress: Any, settings: Any, prepare: Callable[[], object]) -> None:
    """Begin a process of a pool."""
    global _progress
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def follow() -> None:
        with contextlib.suppress(EOFError, OSError):
            until.recv_bytes()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    _progress = progress
    own = settings.get()
    given = ("CUDA_VISIBLE_DEVICES",)  # replaces what the user has set, the others do not
    os.environ.update({k: text for k, text in own.items() if k in given or k not in os.environ})
    prepare()


@contextlib.contextmanager
def _blocked_interrupts() -> Iterator[None]:
    """Block Ctrl-C, which reaches all processes of a terminal, in those that are started here.

    A process cannot ignore it before its first line, but it inherits what is blocked.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    old = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, old)


def _ask() -> str:
    """Return what the driver says of its GPUs, one line for each; nothing if there is none."""
    command = ["nvidia-smi", "--query-gpu=index", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def visible_gpus(
    environment: Mapping[str, str] | None = None, ask: Callable[[], str] = _ask
) -> tuple[str, ...]:
    r"""Return the names of the GPUs that this process may use, for ``CUDA_VISIBLE_DEVICES``.

    A queue that gives a job some of the GPUs of a machine says so in that variable.

    Examples
    --------
    >>> visible_gpus({}, lambda: "0\n1\n")
    ('0', '1')
    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "2,GPU-5a"})
    ('2', 'GPU-5a')
    >>> visible_gpus({"CUDA_VISIBLE_DEVICES": "0,-1,1"})  # it ends where it is not a name
    ('0',)
    """
    given = (os.environ if environment is None else environment).get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return tuple(line.strip() for line in ask().splitlines() if line.strip().isdigit())
    found: list[str] = []
    for name in map(str.strip, given.split(",")):
        if not name or name.startswith("-"):
            break
        found.append(name)
    return tuple(found)


def workers_per_gpu(task_bytes: int, gpus: Sequence[str], cores: int) -> int:
    """Return how many processes share a GPU: several where a task leaves most of it idle.

    A rule of thumb: tasks of half a size, twice as many, up to four, and a core for each.

    Examples
    --------
    >>> [workers_per_gpu(size, ["0", "1"], cores=16) for size in (2**24, 2**25, 2**27)]
    [4, 2, 1]
    >>> workers_per_gpu(2**20, ["0", "1"], cores=4)
    2
    """
    fit = _SMALL // max(task_bytes, 1)
    return max(min(fit, _MOST_PER_GPU, cores // max(len(gpus), 1)), 1)
