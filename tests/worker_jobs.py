"""What the tests of workers have done in them.

A worker loads the module of its job: this one loads neither jax nor pytest.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from resonax.core.errors import ArgumentError


def square(job, advance):
    advance(0.5)
    if job < 0:
        raise ArgumentError(f"{job} must be at least 0")
    advance(0.5)
    return job**2, os.getpid()


def nothing():
    pass


def unsendable(job, advance):
    return lambda: job


def sleep(job, advance):
    Path(job).write_text(str(os.getpid()))
    time.sleep(120)


def stop_at_first(number_of_signal, job, advance):
    """Send the worker a signal the first time that the job is done; the file says that it was."""
    number, folder = job
    mark = Path(folder) / str(number)
    if number == 2 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), number_of_signal)
    return number


def end_worker():
    os._exit(1)


def see_devices(job, advance):
    time.sleep(0.2)  # so that each worker has one
    return os.environ["CUDA_VISIBLE_DEVICES"]


def see_threads(job, advance):
    from resonax.core.threads import count_threads

    return count_threads(), [os.environ[f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS")]


class DeviceJob(NamedTuple):
    on_device: bool


def see_process(job, advance):
    if job.on_device:
        import jax

        assert jax.devices()  # it would end here if XLA did not know one of its options
    return os.environ.get("JAX_PLATFORMS"), os.environ.get("XLA_FLAGS"), os.getpid()
