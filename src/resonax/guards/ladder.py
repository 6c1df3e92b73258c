"""Snapshots of a run at growing ages, and the batches since the oldest of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from resonax.guards import window as windows
from resonax.guards.window import Window

__all__ = [
    "EMPTY",
    "Ladder",
    "Snapshot",
    "drop_after",
    "from_step",
    "push",
    "since",
    "with_batches",
]


class Snapshot(NamedTuple):
    """A copy of a learner, made before it was trained on the batch of a step."""

    step: int
    saved: Any


class Ladder(NamedTuple):
    """Snapshots from the oldest to the newest, and every batch since the oldest.

    ``size`` is the bytes of all batches, ``sizes`` of each.
    """

    snapshots: tuple[Snapshot, ...] = ()
    batches: Window = windows.EMPTY
    sizes: Window = windows.EMPTY
    size: int = 0


EMPTY = Ladder()  # of a run that begins


def push(ladder: Ladder, snapshot: Snapshot, spacing: int, rungs: int) -> Ladder:
    r"""Return the ladder with a new snapshot, thinned.

    Snapshots come every ``spacing`` steps. One of step :math:`s` stays while a rung :math:`j` of
    ``rungs`` holds it: :math:`s` is a multiple of :math:`2^j` spacings, and not older than twice
    that. So ages double from rung to rung, and once the run is long enough the oldest snapshot is
    between :math:`2^{rungs - 1}` and :math:`2^{rungs}` spacings old.

    Examples
    --------
    >>> ladder = EMPTY
    >>> for step in range(0, 1001):
    ...     if step % 32 == 0:
    ...         ladder = push(ladder, Snapshot(step, None), 32, rungs=4)
    ...     ladder = with_batches(ladder, [step], [1], limit=1000)
    >>> [one.step for one in ladder.snapshots], len(ladder.batches)
    ([512, 768, 896, 960, 992], 489)
    """

    def is_held(step: int) -> bool:
        spacings = (spacing << rung for rung in range(rungs))
        return any(step % each == 0 and snapshot.step - step < 2 * each for each in spacings)

    kept = tuple(one for one in (*ladder.snapshots, snapshot) if is_held(one.step))
    return _cut(ladder, kept, snapshot.step)


def _cut(ladder: Ladder, kept: tuple[Snapshot, ...], now: int) -> Ladder:
    """Keep these snapshots, and the batches since the oldest of them; ``now`` is the next step."""
    first = len(ladder.batches) - (now - kept[0].step)
    gone = sum(ladder.sizes[:first])
    return Ladder(kept, ladder.batches.drop(first), ladder.sizes.drop(first), ladder.size - gone)


def with_batches(
    ladder: Ladder, batches: Sequence[Any], sizes: Sequence[int], limit: int
) -> Ladder:
    """Return the ladder with the batches of more steps.

    While all batches together exceed ``limit`` bytes the oldest snapshots go, all but the newest.
    """
    ladder = ladder._replace(
        batches=ladder.batches.extend(batches),
        sizes=ladder.sizes.extend(sizes),
        size=ladder.size + sum(sizes),
    )
    now = ladder.snapshots[0].step + len(ladder.batches)
    while ladder.size > limit and len(ladder.snapshots) > 1:
        ladder = _cut(ladder, ladder.snapshots[1:], now)
    return ladder


def from_step(ladder: Ladder, oldest: int) -> Ladder:
    """Return the ladder without the snapshots before a step."""
    kept = tuple(one for one in ladder.snapshots if one.step >= oldest)
    return _cut(ladder, kept, ladder.snapshots[0].step + len(ladder.batches))


def since(ladder: Ladder, snapshot: Snapshot) -> tuple[Any, ...]:
    """Return the batches of a snapshot's step and of all later ones."""
    return ladder.batches[snapshot.step - ladder.snapshots[0].step :]


def drop_after(ladder: Ladder, snapshot: Snapshot) -> Ladder:
    """Return the ladder without the snapshots after one that the run went back to."""
    kept = tuple(one for one in ladder.snapshots if one.step <= snapshot.step)
    return ladder._replace(snapshots=kept)
