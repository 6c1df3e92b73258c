"""A remedy, and the tests it must pass: an exact one, and the training of the model with it."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from resonax.rows.exact import PASSES, Exact
from resonax.rows.intervals import BURST
from resonax.rows.subject import Advance, Subject
from resonax.rows.surrogates import buffered

__all__ = ["Remedy", "confirmed", "holds", "rounded_down", "with_changes"]

BEYOND = 0.1  # how far past a safe value the boundary is tried
_RETREATS = 6
_BOUNDED = 1000.0  # times the size of the solution: a learner beyond it is not bounded
# Rows over which tests go on for more passes than were asked for: of random orders, and of
# training, which only adds the noise of the targets to a growth over passes that is known exactly.
_MOST_ROWS, _MOST_TRAINED = 2**17, 2**15
_ORDERS = 4  # of each shuffle buffer


@dataclass(frozen=True)
class Remedy:
    """One thing to change, up to which value it is safe, and what a run with it did."""

    name: str  # momentum, lr, batch, shuffle_buffer or fastest_momentum
    value: float | None  # None: no such value
    rate: float | None = None  # at the value
    soft: bool = False  # whether the error need not grow just beyond it
    confirmed: bool | None = None  # whether the model, trained with it, stayed bounded
    needed: bool = True  # whether what was asked for is unsafe
    is_lower_bound: bool = False  # whether the search ended there, and more may be safe
    reason: str = ""  # without a value: why none was found

    @property
    def just_beyond(self) -> float | None:
        """A value 10% beyond, or a smaller step where that does not exist."""
        if self.value is None:
            return None
        if self.name in ("batch", "shuffle_buffer"):
            past = min(self.value - 1, math.floor(self.value * (1 - BEYOND)))
            return past if past >= 1 else None
        past = self.value * (1 + BEYOND)
        # So near to 1 there is no 10% more: halfway to it, the friction is half of what it was.
        return past if self.name == "lr" or past < 1 else (1 + self.value) / 2


def with_changes(subject: Subject, changes: list[tuple[str, float]]) -> Subject:
    """Return the subject with one number changed, each change in a cell of its own."""
    numbers = {
        name: np.full(len(changes), float(getattr(subject.optimizer, name)))
        for name in ("momentum", "lr")
    }
    for place, (name, value) in enumerate(changes):
        numbers["lr" if name == "lr" else "momentum"][place] = value
    return subject.at(numbers)


def rounded_down(value: float) -> float:
    """Round towards zero to four digits, so that a safe value stays safe."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.floor(value / unit) * unit:.4g}")


def holds(found: Exact) -> bool:
    """Whether an error never grows by much on these rows, nor ends larger after many passes."""
    return found.log_rise < math.log(BURST) and found.never_grows


def confirmed(
    subject: Subject, remedies: list[Remedy], own: bool, advance: Advance | None
) -> tuple[Remedy, ...]:
    """Test each remedy: the growth of an error exactly, and the model trained from zero weights.

    One that does not pass is made safer and tried again up to `_RETREATS` times, and is then given
    up. Both tests cover `PASSES` passes over a short recording, training fewer over a long one;
    ``own`` says whether what was asked for is safe, so that no remedy has to be safer.
    """
    passes, training = (
        max(subject.epochs, min(PASSES, most // max(subject.rows, 1)))
        for most in (_MOST_ROWS, _MOST_TRAINED)
    )
    trained = subject.recording.target is not None
    limit = math.log(_BOUNDED * (1.0 + solution_size(subject))) if trained else math.inf

    def bounded(tried: Subject, orders: list[np.ndarray] | None = None) -> np.ndarray:
        sizes = replace(tried, epochs=training).train(orders, advance).sizes
        assert sizes is not None
        return sizes.max(axis=0) < limit

    def buffer_orders(size: int, seed: int, passes: int) -> list[np.ndarray]:
        rows = len(subject.recording.inputs)
        rngs = [np.random.default_rng([subject.seed, seed, i]) for i in range(_ORDERS)]
        return [buffered(rows, size, passes, rng) for rng in rngs]

    def exact(remedy: Remedy) -> bool:
        assert remedy.value is not None
        if remedy.name == "shuffle_buffer":
            found = subject.measure_orders(buffer_orders(int(remedy.value), 4, passes))
            return bool(np.all((found.total < 0) & (found.rise < math.log(BURST))))
        if remedy.name == "batch":
            return holds(subject.with_batch(int(remedy.value)).follow_exactly())
        name = "lr" if remedy.name == "lr" else "momentum"
        return holds(subject.at({name: float(remedy.value)}).follow_exactly())

    def tried(open_ones: list[Remedy]) -> dict[str, bool]:
        outcome: dict[str, bool] = {}
        changes: list[tuple[str, float]] = []
        for remedy in open_ones:
            assert remedy.value is not None
            outcome[remedy.name] = ok = exact(remedy)
            if not ok or not trained:
                continue
            if remedy.name == "batch":
                outcome["batch"] = bool(bounded(subject.with_batch(int(remedy.value)))[0])
            elif remedy.name == "shuffle_buffer":
                outcome["shuffle_buffer"] = bool(
                    bounded(subject, buffer_orders(int(remedy.value), 5, training)).all()
                )
            else:
                changes.append((remedy.name, remedy.value))
        if changes:
            filled = changes + [changes[-1]] * (3 - len(changes))  # one compiled loop for all
            found = bounded(with_changes(subject, filled))
            outcome |= {name: bool(ok) for (name, _), ok in zip(filled, found, strict=True)}
        return outcome

    waiting = {remedy.name: remedy for remedy in remedies if remedy.value is not None}
    passed: dict[str, Remedy] = {}
    for _ in range(_RETREATS):
        outcome = tried(list(waiting.values())) if waiting else {}
        for name, ok in outcome.items():
            remedy = waiting.pop(name)
            if ok:
                passed[name] = replace(remedy, confirmed=True if trained else None)
            elif (safer := _taken_back(remedy, subject, own)).value is not None:
                waiting[name] = safer
    return tuple(
        passed.get(remedy.name, replace(_failed(trained), name=remedy.name))
        if remedy.value is not None
        else remedy
        for remedy in remedies
    )


def _failed(trained: bool) -> Remedy:
    """Return what is said of values that were found, and did not pass the tests."""
    training = " and the training of the model" if trained else ""
    reason = f"no value that was tried passed the exact test over many passes{training}"
    return Remedy("", None, reason=reason)


def _taken_back(remedy: Remedy, subject: Subject, own: bool) -> Remedy:
    """Return a safer value; what was measured at the other no longer holds.

    Where what was asked for is safe itself, ``own``, it is not passed.
    """
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
    if own and remedy.name in ("lr", "momentum"):
        value = max(value or 0.0, float(getattr(subject.optimizer, remedy.name)))
    return replace(remedy, value=value, rate=None, soft=True, is_lower_bound=False)


def solution_size(subject: Subject, piece: int = 16384) -> float:
    """Return the norm of the least-squares weights."""
    recording = subject.recording
    assert recording.target is not None
    right = np.zeros(len(subject.model.second_moment))
    for start in range(0, len(recording.inputs), piece):
        rows = subject.model.apply(recording.inputs[start : start + piece]).astype(float)
        right += rows.T @ recording.target[start : start + piece]
    right /= len(recording.inputs)
    return float(np.linalg.norm(np.linalg.lstsq(subject.model.second_moment, right, rcond=1e-9)[0]))
