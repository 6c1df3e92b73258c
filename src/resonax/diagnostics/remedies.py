"""What would help: the largest momentum, step size, the least batch and buffer that are safe.

A cell is safe where no stretch of the recording lets an error grow more than `SAFE` fold, and the
whole lets it fall. The boundary is sharp where just beyond it the error certainly grows, and soft
otherwise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from resonax.diagnostics.cause import stretch_of
from resonax.diagnostics.intervals import BURST, Measured
from resonax.diagnostics.subject import Advance, Subject
from resonax.diagnostics.surrogates import buffered

__all__ = ["Remedy", "find_remedies", "line_cells", "safe"]

SAFE = 30.0  # fold: room below BURST, as a learner is also driven by the noise of its targets
BEYOND = 0.1  # how far past a safe value the boundary is tried
_MOMENTA = 1.0 - np.geomspace(1.0, 1e-3, 56)
_LRS = np.geomspace(1 / 400, 40.0, 72)  # times the step size that was asked for
_FINE = 32
_MOST_ROWS = 2**17  # in which batch and buffer are looked for
_SEEDS = 4  # orders that each buffer is tried with
_BATCHES = sorted({round(2 ** (k / 3)) for k in range(37)})  # 1 to 4096
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


def safe(found: Measured, fold: float = SAFE) -> np.ndarray:
    """Return which cells are safe."""
    return (found.rise < math.log(fold)) & (found.rate <= 0)


def line_cells(subject: Subject) -> tuple[np.ndarray, np.ndarray]:
    """Return momentum and step size of the cells along both axes through the user's point."""
    momentum, lr = float(subject.optimizer.momentum), float(subject.optimizer.lr)
    momenta, lrs = _MOMENTA, lr * _LRS
    return (
        np.concatenate([momenta, np.full(len(lrs), momentum), [momentum]]),
        np.concatenate([np.full(len(momenta), lr), lrs, [lr]]),
    )


def find_remedies(
    subject: Subject,
    lines: Measured,
    shuffled_safe: bool,
    rows: tuple[int, int],
    advance: Advance | None = None,
) -> tuple[Remedy, ...]:
    """Return every remedy, confirmed by training the model with it where there is a target.

    ``lines`` are the rates of `line_cells`; batch and buffer of a long recording are looked for
    where the growth is strongest, around ``rows``.
    """
    found = _on_lines(subject, lines, advance)
    part = subject
    if subject.rows > _MOST_ROWS:
        length = min(_MOST_ROWS, len(subject.recording.inputs))
        first = min(rows[0], len(subject.recording.inputs) - length)
        part = stretch_of(subject, (first, first + length))
    own = bool(safe(lines)[-1])
    found.insert(2, _batch(part, own))
    found.insert(3, _buffer(part, own, shuffled_safe))
    if subject.recording.target is None:
        return tuple(found)
    return _confirmed(subject, found, advance)


def _first_unsafe(fine: np.ndarray) -> int:
    """Return how many values from the first on are safe."""
    return len(fine) if fine.all() else int(np.argmin(fine))


def _on_lines(subject: Subject, lines: Measured, advance: Advance | None) -> list[Remedy]:
    """Search both axes once more between the neighbours that were found."""
    momentum, lr = float(subject.optimizer.momentum), float(subject.optimizer.lr)
    count, ok = len(_MOMENTA), safe(lines)
    needed = not ok[-1]
    on_momentum, on_lr = ok[:count], ok[count:-1]
    best = int(np.argmin(np.where(on_momentum, lines.rate[:count], np.inf)))
    around = (_MOMENTA[max(best - 1, 0)], _MOMENTA[min(best + 1, count - 1)])
    # The safe momenta that hang together with the best one: a large step size can need some.
    last = best + _first_unsafe(on_momentum[best:]) - 1
    top = (_MOMENTA[max(last, 0)], _MOMENTA[min(last + 1, count - 1)])
    steps = _first_unsafe(on_lr)
    ladder = lr * _LRS
    edge = (ladder[max(steps - 1, 0)], ladder[min(steps, len(ladder) - 1)])

    momenta = 1 - np.geomspace(1 - top[0], 1 - top[1], _FINE)
    fastest, lrs = np.linspace(*around, _FINE), np.geomspace(*edge, _FINE)
    fine = subject.with_optimizer(
        momentum=np.concatenate([momenta, fastest, np.full(_FINE, momentum)]),
        lr=np.concatenate([np.full(2 * _FINE, lr), lrs]),
    ).measure(advance)
    by_momentum, by_fastest, by_lr = (fine[part * _FINE : (part + 1) * _FINE] for part in range(3))

    def edge_of(name: str, values: np.ndarray, found: Measured) -> Remedy:
        place = max(_first_unsafe(safe(found)) - 1, 0)
        return Remedy(name, _down(values[place]), float(found.rate[place]), needed=needed)

    remedies = [Remedy(name, None) for name in ("momentum", "lr", "fastest_momentum")]
    if on_momentum[best]:
        remedies[0] = edge_of("momentum", momenta, by_momentum)
        below = safe(by_fastest) & (fastest <= (remedies[0].value or 0.0))
        place = int(np.argmin(np.where(below, by_fastest.rate, np.inf)))
        value, rate = round(float(fastest[place]), 4), float(by_fastest.rate[place])
        remedies[2] = Remedy("fastest_momentum", value, rate, needed=needed)
    if steps:
        remedies[1] = edge_of("lr", lrs, by_lr)
    return _sharpened(subject, remedies, advance)


def _down(value: float) -> float:
    """Round towards zero to four digits, so that a safe value stays safe."""
    if value <= 0:
        return 0.0
    unit = 10.0 ** (math.floor(math.log10(value)) - 3)
    return float(f"{math.floor(value / unit) * unit:.4g}")


def _sharpened(subject: Subject, remedies: list[Remedy], advance: Advance | None) -> list[Remedy]:
    """Say of momentum and step size whether 10% more certainly diverge."""
    past = [None if remedy.name == "fastest_momentum" else remedy.past for remedy in remedies]
    tried = [(remedy.name, value) for remedy, value in zip(remedies, past, strict=True) if value]
    if not tried:
        return remedies
    words = iter(_cells(subject, tried).measure(advance).words)
    return [
        replace(remedy, soft=bool(next(words) != "diverges")) if value else remedy
        for remedy, value in zip(remedies, past, strict=True)
    ]


def _cells(subject: Subject, changes: list[tuple[str, float]]) -> Subject:
    """Return the subject with one number changed, each change in a cell of its own."""
    numbers = {
        name: np.full(len(changes), float(getattr(subject.optimizer, name)))
        for name in ("momentum", "lr")
    }
    for place, (name, value) in enumerate(changes):
        numbers["lr" if name == "lr" else "momentum"][place] = value
    return subject.with_optimizer(**numbers)


def _batch(subject: Subject, own: bool) -> Remedy:
    """Return the least batch that is safe; larger ones are tried until one is."""

    def judge(batch: int) -> Measured:
        return replace(subject, batch=batch, filled=True).measure()

    last, found = 0, None
    for batch in _BATCHES:
        if not subject.enough(batch):
            return Remedy("batch", None)
        found = judge(batch)
        if safe(found)[0]:
            break
        last = batch
    else:
        return Remedy("batch", None)
    while batch - last > 1:  # between one that is not safe and one that is
        middle = (batch + last) // 2
        between = judge(middle)
        if safe(between)[0]:
            batch, found = middle, between
        else:
            last = middle
    remedy = Remedy("batch", batch, float(found.rate[0]), needed=not own)
    if remedy.past is None:
        return remedy
    return replace(remedy, soft=str(judge(int(remedy.past)).words[0]) != "diverges")


def _buffer(subject: Subject, own: bool, shuffled_safe: bool) -> Remedy:
    """Return the least shuffle buffer that is safe, and all larger ones with it.

    How a buffer mixes is a matter of chance, so that its boundary is always soft: each size must
    be safe in several orders.
    """
    name, rows = "shuffle_buffer", len(subject.recording.inputs)
    if own:
        return Remedy(name, 1, needed=False)
    if not shuffled_safe:
        return Remedy(name, None)

    def judge(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        orders = [
            buffered(rows, int(size), subject.epochs, np.random.default_rng([subject.seed, 3, i]))
            for size in sizes
            for i in range(_SEEDS)
        ]
        found = subject.measure_orders(orders)
        good = np.all(safe(found, BURST).reshape(-1, _SEEDS), axis=1)
        return np.asarray(good), found.rate.reshape(-1, _SEEDS).max(axis=1)

    sizes = 2 ** np.arange(1, math.floor(math.log2(rows)) + 1)
    good, worst = judge(sizes)
    if not good[-1]:
        return Remedy(name, None)
    place = len(good) - _first_unsafe(good[::-1])  # first of the safe ones at the end
    low, high, rate = int(sizes[place]) // 2, int(sizes[place]), float(worst[place])
    between = np.unique(np.linspace(low, high, 9).round().astype(int))[1:-1]
    if len(between):
        good, worst = judge(between)
        count = _first_unsafe(good[::-1])
        if count:
            high, rate = int(between[-count]), float(worst[-count])
    return Remedy(name, high, rate, soft=True)


def _confirmed(
    subject: Subject, remedies: list[Remedy], advance: Advance | None
) -> tuple[Remedy, ...]:
    """Train the model with each remedy, from zero weights, and see whether it stays bounded."""
    limit = math.log(_BOUNDED * (1.0 + solution_size(subject)))

    def bounded(tried: Subject, orders: list[np.ndarray] | None = None) -> np.ndarray:
        sizes = tried.train(orders, advance).sizes
        assert sizes is not None
        return sizes.max(axis=0) < limit

    outcome: dict[str, bool] = {}
    changes: list[tuple[str, float]] = []
    for remedy in remedies:
        if remedy.value is None:
            continue
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
        found = bounded(_cells(subject, changes))
        outcome |= {name: bool(ok) for (name, _), ok in zip(changes, found, strict=True)}
    return tuple(replace(remedy, confirmed=outcome.get(remedy.name)) for remedy in remedies)


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
