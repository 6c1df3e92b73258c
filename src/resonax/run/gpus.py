"""The GPUs of this machine, found without jax, and how many processes each of them gets."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence

__all__ = ["GRAPHS", "visible_gpus", "workers_per_gpu"]

# Options of XLA by which a GPU runs the loops of a program by itself, as CUDA graphs: kernels of a
# simulation are small, and to start them one by one takes longer than they do.
GRAPHS = "--xla_gpu_enable_command_buffer=+WHILE,+CONDITIONAL --xla_gpu_graph_min_graph_size=1"

_SMALL = 2**26  # bytes of a task that leaves most of a GPU idle
_MOST = 4  # processes that a GPU gets by itself


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
    return max(min(fit, _MOST, cores // max(len(gpus), 1)), 1)
