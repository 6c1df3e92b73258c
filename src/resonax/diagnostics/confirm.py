"""A remedy, and whether a model that is trained with it stays bounded."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from resonax.diagnostics.subject import Advance, Subject
from resonax.diagnostics.surrogates import buffered

__all__ = ["Remedy", "cells", "confirmed", "rounded_down"]

BEYOND = 0.1  # how far past a safe value the boundary is tried
_RETREATS = 6
_BOUNDED = 1000.0  # times the size of the solution: a learner beyond it is not bounded


@dataclass(frozen=True)
class Remedy:
    """One thing to change, up to which value it is safe, and what a run with it did."""

    name: str  # momentum, lr, batch, shuffle_buffer or fastest_momentum
    value: float | None  # None: no such value
    rate: float | None = None  # at the value
    soft: bool = False  # whether the error need not grow just beyond it
    confirmed: bool | None = None  # whether the model, trained with it, stayed bounded
    needed: bool = True  # whether what was asked for is unsafe
    least: bool = False  # whether the search ended there, and more may be safe

    @property
    def past(self) -> float | None:
        """A value 10% beyond, or a smaller step where that does not exist."""
        if self.value is None:
            return None
        if self.name in ("batch", "shuffle_buffer"):
            past = min(self.value - 1, math.floor(self.value * (1 - BEYOND)))
            return past if past >= 1 else None
        past = self.value * (1 + BEYOND)
        # So near to 1 there is no 10% more: halfway to it, the friction is half of what it was.
        return past if self.name == "lr" or past < 1 else (1 + self.value) / 2


def cells(subject: Subject, changes: list[tuple[str, float]]) -> Subject:
    """Return the subject with one number changed, each change in a cell of its own."""
    numbers = {
        name: np.full(len(changes), float(getattr(subject.optimizer, name)))
        for name in ("momentum", "lr")
    }
    for place, (name, value) in enumerate(changes):
        numbers["lr" if name == "lr" else "momentum"][place] = value
    return subject.with_optimizer(**numbers)


def rounded_down(value: float) -> float:
    """Round towards zero to four digits, so that a safe value stays safe."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.floor(value / unit) * unit:.4g}")


def confirmed(
    subject: Subject, remedies: list[Remedy], advance: Advance | None
) -> tuple[Remedy, ...]:
    """Train the model with each remedy, from zero weights, and see whether it stays bounded.

    One that does not is taken back a little, a few times, and then given up.
    """
    limit = math.log(_BOUNDED * (1.0 + solution_size(subject)))

    def bounded(tried: Subject, orders: list[np.ndarray] | None = None) -> np.ndarray:
        sizes = tried.train(orders, advance).sizes
        assert sizes is not None
        return sizes.max(axis=0) < limit

    def tried(open_ones: list[Remedy]) -> dict[str, bool]:
        outcome: dict[str, bool] = {}
        changes: list[tuple[str, float]] = []
        for remedy in open_ones:
            assert remedy.value is not None
            if remedy.name == "batch":
                outcome["batch"] = bool(bounded(replace(subject, batch=int(remedy.value)))[0])
            elif remedy.name == "shuffle_buffer":
                rng = np.random.default_rng([subject.seed, 4])
                rows = len(subject.recording.inputs)
                orders = [buffered(rows, int(remedy.value), subject.epochs, rng)]
                outcome["shuffle_buffer"] = bool(bounded(subject, orders)[0])
            else:
                changes.append((remedy.name, remedy.value))
        if changes:
            found = bounded(cells(subject, changes))
            outcome |= {name: bool(ok) for (name, _), ok in zip(changes, found, strict=True)}
        return outcome

    current = {remedy.name: remedy for remedy in remedies}
    for _ in range(_RETREATS):
        waiting = [r for r in current.values() if r.value is not None and not r.confirmed]
        if not waiting:
            break
        outcome = tried(waiting)
        for remedy in waiting:
            kept = replace(remedy, confirmed=True)
            current[remedy.name] = kept if outcome[remedy.name] else _taken_back(remedy, subject)
    return tuple(
        remedy if remedy.confirmed or remedy.value is None else Remedy(remedy.name, None)
        for remedy in current.values()
    )


def _taken_back(remedy: Remedy, subject: Subject) -> Remedy:
    """Return a safer value; what was measured at the other no longer holds."""
    value = remedy.value
    assert value is not None
    if remedy.name == "batch":
        value = math.ceil(1.25 * value)
        value = value if subject.enough(value) else None
    elif remedy.name == "shuffle_buffer":
        value = min(2 * value, len(subject.recording.inputs))
    elif remedy.name == "lr":
        value = rounded_down(0.8 * value)
    else:
        value = rounded_down(max(1 - 1.25 * (1 - value), 0.0))
    return replace(remedy, value=value, rate=None, soft=True, least=False)


def solution_size(subject: Subject, piece: int = 16384) -> float:
    """Return the norm of the least-squares weights."""
    recording = subject.recording
    assert recording.target is not None
    right = np.zeros(len(subject.second))
    for start in range(0, len(recording.inputs), piece):
        rows = subject.model.apply(recording.inputs[start : start + piece]).astype(float)
        right += rows.T @ recording.target[start : start + piece]
    right /= len(recording.inputs)
    return float(np.linalg.norm(np.linalg.lstsq(subject.second, right, rcond=1e-9)[0]))
