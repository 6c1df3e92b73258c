"""What a guard remembers: snapshots, the batches since the oldest of them, and a reservoir."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

__all__ = ["EMPTY", "History", "Snapshot", "sampled"]

_BLOCK = 64  # steps whose random numbers are drawn by one generator


class Snapshot(NamedTuple):
    """A copy of a learner, made before it was trained on the batch of a step."""

    step: int
    saved: Any


class History(NamedTuple):
    """Snapshots from the oldest to the newest, and every batch since the oldest.

    ``size`` is the bytes of all batches, ``sizes`` of each.
    """

    snapshots: tuple[Snapshot, ...] = ()
    batches: tuple[Any, ...] = ()
    sizes: tuple[int, ...] = ()
    size: int = 0

    @property
    def oldest(self) -> int:
        """The step of the oldest snapshot, and of the first batch."""
        return self.snapshots[0].step

    def with_snapshot(self, snapshot: Snapshot, spacing: int, doublings: int) -> History:
        r"""Return the history with a new snapshot, without those that are not needed any more.

        Snapshots come every ``spacing`` steps. One of step :math:`s` is kept while, for some
        :math:`j` below ``doublings``, :math:`s` is a multiple of :math:`2^j` spacings and not older
        than twice that. So ages double, and once the run is long enough the oldest snapshot is
        between :math:`2^{d - 1}` and :math:`2^d` spacings old, with :math:`d` doublings.

        Examples
        --------
        >>> history = EMPTY
        >>> for step in range(0, 1001):
        ...     if step % 32 == 0:
        ...         history = history.with_snapshot(Snapshot(step, None), 32, doublings=4)
        ...     history = history.with_batch(step, size=1, limit=1000)
        >>> [one.step for one in history.snapshots], len(history.batches)
        ([512, 768, 896, 960, 992], 489)
        """

        def is_held(step: int) -> bool:
            spacings = (spacing << power for power in range(doublings))
            return any(step % each == 0 and snapshot.step - step < 2 * each for each in spacings)

        kept = tuple(one for one in (*self.snapshots, snapshot) if is_held(one.step))
        return self._with_only(kept, snapshot.step)

    def with_batch(self, batch: Any, size: int, limit: int) -> History:
        """Return the history with the batch of one more step.

        While all batches together exceed ``limit`` bytes the oldest snapshots are dropped, all but
        the newest.
        """
        batches, sizes = (*self.batches, batch), (*self.sizes, size)
        made = self._replace(batches=batches, sizes=sizes, size=self.size + size)
        now = made.oldest + len(batches)
        while made.size > limit and len(made.snapshots) > 1:
            made = made._with_only(made.snapshots[1:], now)
        return made

    def from_step(self, oldest: int) -> History:
        """Return the history without the snapshots before a step."""
        kept = tuple(one for one in self.snapshots if one.step >= oldest)
        return self._with_only(kept, self.oldest + len(self.batches))

    def since(self, snapshot: Snapshot) -> tuple[Any, ...]:
        """Return the batches of a snapshot's step and of all later ones."""
        return self.batches[snapshot.step - self.oldest :]

    def without_snapshots_after(self, snapshot: Snapshot) -> History:
        """Return the history without the snapshots after one that the run went back to."""
        kept = tuple(one for one in self.snapshots if one.step <= snapshot.step)
        return self._replace(snapshots=kept)

    def _with_only(self, kept: tuple[Snapshot, ...], now: int) -> History:
        """Keep these snapshots, and the batches since the oldest; ``now`` is the next step."""
        first = len(self.batches) - (now - kept[0].step)
        gone = sum(self.sizes[:first])
        return History(kept, self.batches[first:], self.sizes[first:], self.size - gone)


EMPTY = History()  # of a run that begins


def sampled(
    kept: tuple[Any, ...], size: int, batch: Any, step: int, seed: int | None
) -> tuple[Any, ...]:
    """Return a reservoir, a uniform sample of all batches, with the batch of one more step.

    Algorithm R (Vitter, 1985): each batch so far is kept with the same probability. Without a seed
    the reservoir is only filled.

    Examples
    --------
    >>> kept = ()
    >>> for step in range(100):
    ...     kept = sampled(kept, 3, step, step, seed=0)
    >>> len(kept), max(kept) > 10
    (3, True)
    """
    if len(kept) < size:
        return (*kept, batch)
    if seed is None:
        return kept
    block, inside = divmod(step, _BLOCK)
    place = int(_uniform(seed, block)[inside] * (step + 1))  # uniform from 0 to the step
    return (*kept[:place], batch, *kept[place + 1 :]) if place < size else kept


@lru_cache(maxsize=2)
def _uniform(seed: int, block: int) -> tuple[float, ...]:
    return tuple(np.random.default_rng([seed, 1, block]).random(_BLOCK).tolist())
