"""How far results are: what is done, what is being computed, and what was lost on the way."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from resonax.core.errors import StoreError
from resonax.store import Place, Remote
from resonax.store.folder import folder_at
from resonax.store.layout import TASKS
from resonax.store.metadata import open_metadata, read_layout
from resonax.sweeps.heartbeat import Sign, read_signs

__all__ = ["Status", "read_status"]

_RECENT = 20  # tasks from which the pace is taken


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
    running, lost
        Signs of the processes that compute a task of it; and of those that began one, do not say
        anything any more, and have not stored it.
    pace
        Tasks a second of late, None where that is not known.
    trouble
        Why the store cannot be read, None if it can.
    """

    id: str
    tasks: int = 0
    done: int = 0
    running: tuple[Sign, ...] = ()
    lost: tuple[Sign, ...] = ()
    pace: float | None = None
    trouble: str | None = None

    @property
    def seconds_left(self) -> float | None:
        """About how long the rest takes at the pace of late, if anything runs."""
        if not self.pace or not self.running:
            return None
        return (self.tasks - self.done) / self.pace


def read_status(out: Place) -> list[Status]:
    """Return how far the results in a folder or at a URL are, without a look at the numbers."""
    if isinstance(out, Remote):
        out.reach()
    names = sorted(name for name in folder_at(out / "results").names() if name.endswith(".zarr"))
    if not names:
        raise StoreError(f"there are no results in {out}: name a folder or URL that --out wrote to")
    signs = list(read_signs(out).values())
    return [_status(out, name, signs) for name in names]


def _status(out: Place, name: str, signs: list[Sign]) -> Status:
    store, own_id = out / "results" / name, name.removesuffix(".zarr")
    try:
        with open_metadata(store) as dataset:
            tasks = read_layout(dataset).count()
    except StoreError as error:  # the others can be read
        return Status(own_id, trouble=str(error))
    markers = [name for name in folder_at(store / TASKS).names() if name[:-5].isdecimal()]
    done = {int(name[:-5]) for name in markers}
    own = [sign for sign in signs if sign.id == own_id and sign.task not in done and sign.task >= 0]
    own.sort(key=lambda sign: (sign.task, sign.age))
    running = {sign.task: sign for sign in reversed(own) if not sign.is_lost}
    lost = {sign.task: sign for sign in reversed(own) if sign.task not in running}
    return Status(
        own_id,
        tasks,
        len(done),
        tuple(running[task] for task in sorted(running)),
        tuple(lost[task] for task in sorted(lost)),
        _pace(store, markers),
    )


def _pace(store: Place, markers: list[str]) -> float | None:
    """Return how many tasks a second were stored of late, where files have times."""
    if not isinstance(store, Path) or len(markers) < 2:
        return None
    times = sorted(entry.stat().st_mtime for entry in os.scandir(store / TASKS))[-_RECENT:]
    return (len(times) - 1) / (times[-1] - times[0]) if times[-1] > times[0] else None
