"""How far results are: what is done, what is being computed, and what was lost on the way."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from resonax.core.errors import StoreError
from resonax.store import TASKS, Place, Remote, check_reachable, file_names, read_metadata
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
        check_reachable(out)
    names = sorted(name for name in file_names(out / "results") if name.endswith(".zarr"))
    if not names:
        raise StoreError(f"there are no results in {out}: name a folder or URL that --out wrote to")
    signs = list(read_signs(out).values())
    return [_status(out, name, signs) for name in names]


def _status(out: Place, name: str, signs: list[Sign]) -> Status:
    store, own_id = out / "results" / name, name.removesuffix(".zarr")
    try:
        metadata = read_metadata(store)
    except StoreError as error:  # the others can be read
        return Status(own_id, trouble=str(error))
    done = metadata.finished
    own = [sign for sign in signs if sign.id == own_id and sign.task not in done and sign.task >= 0]
    own.sort(key=lambda sign: (sign.task, sign.age))
    running = {sign.task: sign for sign in reversed(own) if not sign.is_lost}
    lost = {sign.task: sign for sign in reversed(own) if sign.task not in running}
    return Status(
        own_id,
        metadata.layout.count(),
        len(done),
        tuple(running[task] for task in sorted(running)),
        tuple(lost[task] for task in sorted(lost)),
        _pace(store),
    )


def _pace(store: Place) -> float | None:
    """Return how many tasks a second were stored of late, where files have times."""
    if not isinstance(store, Path):
        return None
    markers = (store / TASKS).glob("[0-9]*.json")
    times = sorted(marker.stat().st_mtime for marker in markers)[-_RECENT:]
    if len(times) < 2 or times[-1] == times[0]:
        return None
    return (len(times) - 1) / (times[-1] - times[0])
