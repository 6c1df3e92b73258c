"""What a guard trains: settings to choose from, and what it asks of a learner."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from resonax.core.errors import suggest
from resonax.guards.phases import Phases

__all__ = [
    "MOST_COPIES",
    "Candidate",
    "Replayable",
    "as_candidates",
    "check_mix",
    "default_candidates",
    "mean_loss",
    "mixed_places",
]

MOST_COPIES = 4  # of a learner that a replay holds, beyond those of the snapshots
_MOMENTA = (0.99, 0.98, 0.95, 0.9, 0.85, 0.75, 0.5, 0.0)
_FACTORS = (0.3, 0.1, 0.03)


class Candidate(NamedTuple):
    """How to train: a momentum, a factor on the user's step size, and in which order.

    ``is_mixed`` trains on rows of recent batches in random order.
    """

    momentum: float
    lr: float = 1.0
    is_mixed: bool = False

    def __str__(self) -> str:
        """Return it in words."""
        parts = [f"momentum {self.momentum:g}"]
        if self.lr != 1:
            parts.append(f"{self.lr:g} of the step size")
        return ", ".join(parts) + (", recent rows mixed" if self.is_mixed else "")


class Replayable(Protocol):
    """A model with its optimizer that can be copied, set back and trained again."""

    def save(self) -> Any:
        """Return a copy of all that a step changes, random state included."""
        ...

    def load(self, saved: Any) -> None:
        """Become what `save` returned; the copy stays as it is."""
        ...

    def set(self, candidate: Candidate) -> None:
        """Train with this momentum and step size from now on."""
        ...

    def step(self, batch: Any) -> Any:
        """Train on a batch; the loss before the update, which may be lazy."""
        ...

    def loss(self, batches: Sequence[Any]) -> float:
        """Return the mean loss on batches, without training; infinity if it is not finite."""
        ...

    def losses(self, batches: Sequence[Any]) -> Sequence[float]:
        """Return the loss on each batch, without training."""
        ...

    def mix(
        self, batches: Sequence[Any], rng: np.random.Generator, like: Sequence[Any] | None = None
    ) -> Sequence[Any]:
        """Return the rows of all batches in random order, in batches of the sizes of ``like``.

        What else a batch carries, such as the step size of its step, is that of ``like``, by
        default of the batches themselves.
        """
        ...

    def size(self, batch: Any) -> int:
        """Return the bytes that a batch takes."""
        ...

    def saved_size(self, saved: Any) -> int:
        """Return the bytes that a copy takes."""
        ...

    def replay_size(self, saved: Sequence[Any], batches: Sequence[Any]) -> int:
        """Return the bytes that a replay takes beyond the copies of snapshots.

        ``batches`` are those that it is judged on.
        """
        ...

    def rhythm(self, batches: Sequence[Any]) -> Phases:
        """Return order and rhythm of batches, without work such as that of gradients."""
        ...

    def phases(self, batches: Sequence[Any]) -> Phases:
        """Return the rhythm of batches, and the parts of their order; see `Phased`."""
        ...


def mean_loss(losses: Sequence[float]) -> float:
    """Return the mean of losses; infinity if it is not finite.

    Examples
    --------
    >>> mean_loss([1.0, 2.0]), mean_loss([1.0, math.nan])
    (1.5, inf)
    """
    mean = sum(losses) / len(losses)
    return mean if math.isfinite(mean) else math.inf


def mixed_places(
    rows: Sequence[int], wanted: Sequence[int], rng: np.random.Generator
) -> list[np.ndarray]:
    """Return places of rows in random order, none twice, in pieces of the wanted sizes.

    Parameters
    ----------
    rows
        The number of rows of each batch, which follow one another.
    wanted
        The size of each piece.
    rng
        Draws the order.

    Examples
    --------
    >>> pieces = mixed_places([2, 2], [3, 1], np.random.default_rng(0))
    >>> [len(piece) for piece in pieces], sorted(np.concatenate(pieces).tolist())
    ([3, 1], [0, 1, 2, 3])
    """
    ends = np.cumsum(wanted)
    order = rng.permutation(sum(rows))[: ends[-1]]
    return np.split(order, ends[:-1])


def as_candidates(given: Iterable[float | Candidate]) -> tuple[Candidate, ...]:
    """Return candidates, where a number is a momentum."""
    return tuple(one if isinstance(one, Candidate) else Candidate(float(one)) for one in given)


def check_mix(mix: object, words: Sequence[str]) -> None:
    """Raise `ArgumentError` for a ``mix`` that is neither true, false nor one of some words.

    Examples
    --------
    >>> check_mix("aask", ("ask", "batches"))
    Traceback (most recent call last):
    resonax.ArgumentError: unknown mix 'aask', did you mean 'ask'? ...
    """
    if not isinstance(mix, bool) and mix not in words:
        raise suggest("mix", str(mix), words)


def default_candidates(momentum: float, *, mix: bool = True) -> tuple[Candidate, ...]:
    """Return the user's setting and others, from the mildest to the strongest.

    Smaller momenta first, then the user's own on mixed rows, then smaller steps, then both.

    Examples
    --------
    >>> [str(one) for one in default_candidates(0.9)][:3]
    ['momentum 0.9', 'momentum 0.85', 'momentum 0.75']
    >>> [str(one) for one in default_candidates(0.9)][5:7]
    ['momentum 0.9, recent rows mixed', 'momentum 0.5, recent rows mixed']
    """
    smaller = [one for one in _MOMENTA if one < momentum]
    low = min(momentum, 0.5)
    made = [Candidate(momentum), *(Candidate(one) for one in smaller)]
    if mix:
        made += [Candidate(one, 1.0, is_mixed=True) for one in dict.fromkeys((momentum, low))]
    made += [Candidate(momentum, factor) for factor in _FACTORS]
    return (*made, *(Candidate(low, factor, is_mixed=mix) for factor in _FACTORS))
