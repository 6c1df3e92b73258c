"""Progress of the experiments in a results folder: tasks stored, and the estimated time left."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from resonax.core.errors import StoreError
from resonax.store import TASKS, Location, Remote, check_reachable, file_names, read_metadata

__all__ = ["Status", "read_status"]

_WINDOW = 20  # the speed is measured over so many of the last stored tasks
# A run counts as stopped if nothing was stored for the usual time of 10 tasks, and for a minute.
_STOPPED_TASKS = 10.0
_STOPPED_SECONDS = 60.0


@dataclass(frozen=True)
class Status:
    """Progress of one experiment.

    Attributes
    ----------
    id
        Name of the experiment.
    tasks
        Number of tasks.
    done
        Number of tasks marked as stored. Their arrays are not read, so damaged ones count as well;
        the command that computes the experiment finds these and computes them again.
    age
        Seconds since the last task was stored; None for a URL, where no times are known.
    speed
        Tasks stored per second, over the last 20 tasks; None if it is not known.
    error
        Why the store cannot be read, None if it can.
    """

    id: str
    tasks: int = 0
    done: int = 0
    age: float | None = None
    speed: float | None = None
    error: str | None = None

    @property
    def seconds_left(self) -> float | None:
        """Estimated time until all tasks are stored; None if the run has stopped or is complete."""
        if not self.speed or self.age is None or self.done == self.tasks:
            return None
        if self.age > max(_STOPPED_TASKS / self.speed, _STOPPED_SECONDS):
            return None
        return (self.tasks - self.done) / self.speed


def read_status(out: Location) -> list[Status]:
    """Return the progress of each experiment in a results folder, from its metadata alone."""
    if isinstance(out, Remote):
        check_reachable(out)
    names = sorted(name for name in file_names(out / "results") if name.endswith(".zarr"))
    if not names:
        raise StoreError(f"there are no results in {out}: name a folder or URL that --out wrote to")
    return [_read_store(out / "results" / name, name.removesuffix(".zarr")) for name in names]


def _read_store(store: Location, name: str) -> Status:
    try:
        metadata = read_metadata(store)
    except StoreError as error:  # the status of the other stores is still shown
        return Status(name, error=str(error))
    times = _last_times(store)
    age = speed = None
    if times:
        age = max(time.time() - times[-1], 0.0)
        elapsed = times[-1] - times[0]
        speed = (len(times) - 1) / elapsed if elapsed > 0 else None
    return Status(name, metadata.layout.count(), len(metadata.finished), age, speed)


def _last_times(store: Location) -> list[float]:
    """Return the modification times of the last markers, in order; none for a URL."""
    if not isinstance(store, Path):
        return []
    markers = (store / TASKS).glob("[0-9]*.json")
    return sorted(marker.stat().st_mtime for marker in markers)[-_WINDOW:]
