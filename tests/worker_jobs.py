"""What the tests of workers have done in them.

A worker loads the module of its job: this one loads neither jax nor pytest.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from made_up_experiment import compute
from resonax.core.errors import ArgumentError


def square(job, advance):
    advance(0.5)
    if job < 0:
        raise ArgumentError(f"{job} must be at least 0")
    advance(0.5)
    return job**2, os.getpid()


def unsendable(job, advance):
    return lambda: job


def sleep(job, advance):
    advance(0.25)
    Path(job).write_text(str(os.getpid()))
    time.sleep(120)


def see_devices(job, advance):
    time.sleep(0.2)  # so that each worker has one
    return os.environ["CUDA_VISIBLE_DEVICES"]


def see_threads(job, advance):
    from resonax.core.threads import count_threads

    return count_threads(), [os.environ[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS")]


def compute_slowly(folder, region, *rest):
    """Compute a task of the small experiment; that of the third place says who does, and hangs."""
    mark = Path(folder) / "worker"
    if region["place"].start == 2 and not mark.exists():
        mark.write_text(str(os.getpid()))
        time.sleep(120)
    return compute(region, *rest)


def compute_killed(folder, region, *rest):
    """The same, but the worker is killed."""
    mark = Path(folder) / "worker"
    if region["place"].start == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return compute(region, *rest)
