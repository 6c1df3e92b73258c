"""How far results are: which tasks are stored, and how long the rest takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from resonax.core.errors import StoreError
from resonax.store import TASKS, Place, Remote, check_reachable, file_names, read_metadata

__all__ = ["Status", "read_status"]

_RECENT = 20  # tasks from which the pace is taken
_LATE = 10.0  # a run has stopped if nothing was stored for as long as so many tasks take
_PATIENCE = 60.0  # seconds that no run has to be late by


@dataclass(frozen=True)
class Status:
    """How far one experiment is.

    Attributes
    ----------
    id
        Its name.
    tasks, done
        How many tasks there are, and are marked as stored. Their numbers are not read: the command
        that made them, run again, reads all and computes those anew that were damaged.
    age
        Seconds since the last task was stored, where files have times.
    pace
        Tasks a second of late, None where that is not known.
    trouble
        Why the store cannot be read, None if it can.
    """

    id: str
    tasks: int = 0
    done: int = 0
    age: float | None = None
    pace: float | None = None
    trouble: str | None = None

    @property
    def seconds_left(self) -> float | None:
        """About how long the rest takes at the pace of late, if tasks are still being stored."""
        if not self.pace or self.age is None or self.done == self.tasks:
            return None
        if self.age > max(_LATE / self.pace, _PATIENCE):
            return None
        return (self.tasks - self.done) / self.pace


def read_status(out: Place) -> list[Status]:
    """Return how far the results in a folder or at a URL are, without a look at the numbers."""
    if isinstance(out, Remote):
        check_reachable(out)
    names = sorted(name for name in file_names(out / "results") if name.endswith(".zarr"))
    if not names:
        raise StoreError(f"there are no results in {out}: name a folder or URL that --out wrote to")
    return [_status(out / "results" / name, name.removesuffix(".zarr")) for name in names]


def _status(store: Place, name: str) -> Status:
    try:
        metadata = read_metadata(store)
    except StoreError as error:  # the others can be read
        return Status(name, trouble=str(error))
    times = _times(store)
    return Status(
        name,
        metadata.layout.count(),
        len(metadata.finished),
        age=max(time.time() - times[-1], 0.0) if times else None,
        pace=(len(times) - 1) / (times[-1] - times[0]) if times and times[-1] > times[0] else None,
    )


def _times(store: Place) -> list[float]:
    """Return when the last tasks were stored, where files have times."""
    if not isinstance(store, Path):
        return []
    markers = (store / TASKS).glob("[0-9]*.json")
    return sorted(marker.stat().st_mtime for marker in markers)[-_RECENT:]
