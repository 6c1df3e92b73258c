"""What would help, and the tests that it must pass.

A cell is safe where no stretch of the recording lets an error grow more than `BURST` fold, where it
ends smaller than it began, and where more of the same would not let it grow, as far as these rows
can tell. Of the safe values the one nearest to what was asked for is given: where that is safe
itself, how far it could go. What is given has passed the exact test (`holds_exactly`), over many
passes too, and the training of the model with it. The boundary is sharp where just beyond it the
error certainly grows; otherwise the value is called conservative.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace

import numpy as np

from resonax.checking.cause import Shuffles, stretch_of
from resonax.learners import Momentum
from resonax.recordings.recording import Recording
from resonax.rows.answers import factor
from resonax.rows.exact import PASSES, Exact
from resonax.rows.intervals import BURST, MIN_STEPS, Rates
from resonax.rows.logistic import BOUND
from resonax.rows.subject import Advance, Subject
from resonax.rows.surrogates import buffered
from resonax.theory.circle_criterion import holds, largest_momentum
from resonax.theory.order_proof import OrderProof, judge_every_order, longest_row

__all__ = [
    "Remedy",
    "find_remedies",
    "holds_exactly",
    "in_every_order",
    "line_cells",
    "order_proof_line",
    "safe_cells",
    "with_changes",
]


def _curvature(subject: Subject, longest: float) -> float:
    return (BOUND if subject.is_logistic else 2.0) * longest


def in_every_order(subject: Subject, recording: Recording) -> OrderProof:
    """Return what holds in every order of all rows of a recording, those of every series."""
    longest = longest_row(subject.model, recording.inputs)
    return judge_every_order(
        subject.optimizer, _curvature(subject, longest), subject.model.intercept_lr
    )


def order_proof_line(subject: Subject, lrs: np.ndarray) -> np.ndarray:
    """Return the largest momentum that every order allows at each step size, NaN for none."""
    curvature = _curvature(subject, subject.model.largest**2)
    plain = subject.model.intercept_lr
    if plain and not holds(Momentum(plain), curvature):
        return np.full(len(lrs), np.nan)
    return largest_momentum(subject.optimizer.at({"lr": lrs}), curvature)


BEYOND = 0.1  # how far past a safe value the boundary is tried
_MAX_RETRIES = 6
_MAX_NORM_RATIO = 1000.0  # times the size of the solution: a learner beyond it is not bounded
# Rows over which tests go on for more passes than were asked for: of random orders, and of
# training, which only adds the noise of the targets to a growth over passes that is known exactly.
_MAX_ROWS, _MAX_TRAINED = 2**17, 2**15
_ORDERS = 4  # of each shuffle buffer


@dataclass(frozen=True)
class Remedy:
    """One thing to change, up to which value it is safe, and what a run with it did."""

    name: str  # momentum, lr, batch, shuffle_buffer or fastest_momentum
    value: float | None  # None: no such value
    rate: float | None = None  # at the value
    is_conservative: bool = False  # whether the error need not grow just beyond it
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


def holds_exactly(found: Exact) -> bool:
    """Whether an error never grows by much on these rows, nor ends larger after many passes."""
    return found.log_rise < math.log(BURST) and found.never_grows


def confirm_remedies(
    subject: Subject, remedies: list[Remedy], is_safe: bool, advance: Advance | None
) -> tuple[Remedy, ...]:
    """Test each remedy: the growth of an error exactly, and the model trained from zero weights.

    One that does not pass is made safer and tried again up to `_MAX_RETRIES` times, and is then
    given up. Both tests cover `PASSES` passes over a short recording, training fewer over a long
    one; ``is_safe`` says whether what was asked for is safe, so that no remedy has to be safer.
    """
    passes, training = (
        max(subject.epochs, min(PASSES, most // max(subject.rows, 1)))
        for most in (_MAX_ROWS, _MAX_TRAINED)
    )
    trained = subject.recording.target is not None
    limit = math.log(_MAX_NORM_RATIO * (1.0 + solution_size(subject))) if trained else math.inf

    def bounded(tried: Subject, orders: list[np.ndarray] | None = None) -> np.ndarray:
        sizes = replace(tried, epochs=training).train(orders, advance).log_norm
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
            return holds_exactly(subject.with_batch(int(remedy.value)).follow_exactly())
        name = "lr" if remedy.name == "lr" else "momentum"
        return holds_exactly(subject.at({name: float(remedy.value)}).follow_exactly())

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
    for _ in range(_MAX_RETRIES):
        outcome = tried(list(waiting.values())) if waiting else {}
        for name, ok in outcome.items():
            remedy = waiting.pop(name)
            if ok:
                passed[name] = replace(remedy, confirmed=True if trained else None)
            elif (safer := _made_safer(remedy, subject, is_safe)).value is not None:
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


def _made_safer(remedy: Remedy, subject: Subject, is_safe: bool) -> Remedy:
    """Return a safer value; what was measured at the other no longer holds.

    Where what was asked for ``is_safe`` itself, the value does not go past it.
    """
    value = remedy.value
    assert value is not None
    if remedy.name == "batch":
        value = math.ceil(1.25 * value)
        value = value if subject.has_enough_steps(value) else None
    elif remedy.name == "shuffle_buffer":
        value = min(2 * value, len(subject.recording.inputs))
    elif remedy.name == "lr":
        value = rounded_down(0.8 * value)
    else:
        value = rounded_down(max(1 - 1.25 * (1 - value), 0.0))
    if is_safe and remedy.name in ("lr", "momentum"):
        value = max(value or 0.0, float(getattr(subject.optimizer, remedy.name)))
    return replace(remedy, value=value, rate=None, is_conservative=True, is_lower_bound=False)


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


_UNDECIDED_REASON = (
    "some are safe on these rows, but whether further data like this would converge is undecided"
)
_NO_VALUE_REASONS = {
    "momentum": "no momentum is safe with this step size: lower the step size first",
    "lr": "no step size that was tried is safe with this momentum: lower the momentum first",
}
_LATER = 2.0  # fold: growth on as many rows more that these cannot exclude
_MOMENTA = 1.0 - np.geomspace(1.0, 1e-3, 56)
# Times the step size that was asked for, which is one of them.
_LRS = np.concatenate([np.geomspace(1 / 400, 1.0, 48), np.geomspace(1.0, 40.0, 25)[1:]])
_OWN_LR = 47  # where 1 stands among these
_FINE_POINTS = 32
_MAX_ROWS = 2**17  # in which batch and buffer are looked for
_BATCHES = sorted({round(2 ** (k / 3)) for k in range(37)})  # 1 to 4096


def safe_cells(found: Rates) -> np.ndarray:
    """Return which cells are safe."""
    return safe_on_rows(found) & (found.later < math.log(_LATER))


def safe_on_rows(found: Rates) -> np.ndarray:
    """Return which cells are safe on these rows, whatever more of them would do."""
    return (found.rise < math.log(BURST)) & (found.total < 0)


def line_cells(subject: Subject) -> dict[str, np.ndarray]:
    """Return momentum and step size of the cells along both axes through the user's point.

    The last cell is that point.
    """
    momentum, lr = float(subject.optimizer.momentum), float(subject.optimizer.lr)
    momenta, lrs = _momenta(momentum), lr * _LRS
    return {
        "momentum": np.concatenate([momenta, np.full(len(lrs), momentum), [momentum]]),
        "lr": np.concatenate([np.full(len(momenta), lr), lrs, [lr]]),
    }


def _momenta(own: float) -> np.ndarray:
    return np.sort(np.append(_MOMENTA, own))


def find_remedies(
    subject: Subject,
    lines: Rates,
    is_safe: bool,
    shuffles: Shuffles,
    rows: tuple[int, int],
    advance: Advance | None = None,
) -> tuple[Remedy, ...]:
    """Return every remedy, confirmed by training the model with it where there is a target.

    ``lines`` are the rates of `line_cells`, and ``is_safe`` says whether what was asked for is
    safe; batch and buffer of a long recording are looked for where the growth is strongest, around
    ``rows``.
    """
    found = _on_lines(subject, lines, is_safe, advance)
    part = subject
    if subject.rows > _MAX_ROWS:
        length = min(_MAX_ROWS, len(subject.recording.inputs))
        first = min(rows[0], len(subject.recording.inputs) - length)
        part = stretch_of(subject, (first, first + length))
    found.insert(2, _batch(part, is_safe))
    found.insert(3, _buffer(part, is_safe, shuffles))
    return confirm_remedies(subject, found, is_safe, advance)


def _first_unsafe(fine: np.ndarray) -> int:
    """Return how many values from the first on are safe."""
    return len(fine) if fine.all() else int(np.argmin(fine))


def _nearest(ok: np.ndarray, own: int) -> int | None:
    """Return the place up to which values are safe: from the own one on, or next below it.

    Where none is below, the end of the first ones that are safe above; None where none is.
    """
    if not ok.any():
        return None
    start = own if ok[own] else None
    if start is None:
        below = np.flatnonzero(ok[:own])
        if len(below):
            return int(below[-1])
        start = own + int(np.argmax(ok[own:]))
    return start + _first_unsafe(ok[start:]) - 1


def _on_lines(
    subject: Subject, lines: Rates, is_safe: bool, advance: Advance | None
) -> list[Remedy]:
    """Search both axes once more between the neighbours that were found."""
    momentum, lr = float(subject.optimizer.momentum), float(subject.optimizer.lr)
    axes = {"momentum": _momenta(momentum), "lr": lr * _LRS}
    count, ok, needed = len(axes["momentum"]), safe_cells(lines), not is_safe
    good = {"momentum": ok[:count], "lr": ok[count:-1]}
    own = {"momentum": int(np.searchsorted(axes["momentum"], momentum)), "lr": _OWN_LR}
    for name in axes:
        good[name][own[name]] = is_safe
    on_rows = {
        "momentum": safe_on_rows(lines)[:count].any(),
        "lr": safe_on_rows(lines)[count:-1].any(),
    }
    places = {name: _nearest(good[name], own[name]) for name in axes}
    best = int(np.argmin(np.where(good["momentum"], lines.rate[:count], np.inf)))

    def between(name: str, place: int | None) -> np.ndarray:
        values = axes[name]
        first = values[place or 0]
        last = values[min((place or 0) + 1, len(values) - 1)]
        if name == "lr":
            return np.geomspace(first, last, _FINE_POINTS)
        return 1 - np.geomspace(1 - first, 1 - last, _FINE_POINTS)

    around = axes["momentum"][max(best - 1, 0)], axes["momentum"][min(best + 1, count - 1)]
    momenta, lrs = (between(name, places[name]) for name in axes)
    fastest = np.linspace(*around, _FINE_POINTS)
    cells = {
        "momentum": np.concatenate([momenta, np.full(_FINE_POINTS, momentum), fastest]),
        "lr": np.concatenate([np.full(_FINE_POINTS, lr), lrs, np.full(_FINE_POINTS, lr)]),
    }
    fine = subject.at(cells).measure(advance)
    by = [fine[part * _FINE_POINTS : (part + 1) * _FINE_POINTS] for part in range(3)]
    remedies = [
        Remedy(name, None, reason=_UNDECIDED_REASON if on_rows[axis] else _NO_VALUE_REASONS[axis])
        for name, axis in (("momentum", "momentum"), ("lr", "lr"), ("fastest_momentum", "momentum"))
    ]
    for number, (name, values) in enumerate((("momentum", momenta), ("lr", lrs))):
        place = places[name]
        if place is None:
            continue
        last = max(_first_unsafe(safe_cells(by[number])) - 1, 0)
        remedies[number] = Remedy(
            name,
            rounded_down(values[last]),
            float(by[number].rate[last]),
            needed=needed,
            is_lower_bound=place == len(axes[name]) - 1,
        )
    if good["momentum"][best]:
        below = safe_cells(by[2])
        if remedies[0].value is not None and remedies[0].value >= around[0]:
            below &= fastest <= remedies[0].value
        place = int(np.argmin(np.where(below, by[2].rate, np.inf)))
        value = round(float(fastest[place]), 4)
        remedies[2] = Remedy("fastest_momentum", value, float(by[2].rate[place]), needed=needed)
    return _sharpened(subject, remedies, advance)


def _sharpened(subject: Subject, remedies: list[Remedy], advance: Advance | None) -> list[Remedy]:
    """Say of momentum and step size whether 10% more certainly diverge."""
    past = [
        None if remedy.name == "fastest_momentum" else remedy.just_beyond for remedy in remedies
    ]
    tried = [(remedy.name, value) for remedy, value in zip(remedies, past, strict=True) if value]
    if not tried:
        return remedies
    words = iter(with_changes(subject, tried).measure(advance).verdicts)
    return [
        replace(remedy, is_conservative=bool(next(words) != "diverges")) if value else remedy
        for remedy, value in zip(remedies, past, strict=True)
    ]


def _batch(subject: Subject, is_safe: bool) -> Remedy:
    """Return the least batch that is safe: the next one above the own, or how far below it."""

    @functools.cache  # just beyond a small batch is one that was tried
    def judge(batch: int) -> Rates:
        return subject.with_batch(batch).measure()

    found, batch, unsafe = judge(subject.batch), subject.batch, 0
    ladder = [size for size in _BATCHES if (size < batch if is_safe else size > batch)]
    if is_safe:
        for size in reversed(ladder):
            tried = judge(size)
            if not safe_cells(tried)[0]:
                unsafe = size
                break
            batch, found = size, tried
    else:
        unsafe = batch
        for size in ladder:
            if not subject.has_enough_steps(size):
                few = f"a batch of {size:,} rows or more leaves fewer than {MIN_STEPS} steps"
                return Remedy("batch", None, reason=f"{few}, which are too few to judge it")
            found, batch = judge(size), size
            if safe_cells(found)[0]:
                break
            unsafe = size
        else:
            return Remedy("batch", None, reason=f"none up to {_BATCHES[-1]:,} rows is safe")
    while batch - unsafe > 1 and unsafe:  # between one that is not safe and one that is
        middle = (batch + unsafe) // 2
        between = judge(middle)
        if safe_cells(between)[0]:
            batch, found = middle, between
        else:
            unsafe = middle
    remedy = Remedy("batch", batch, float(found.rate[0]), needed=not is_safe)
    if remedy.just_beyond is None:
        return remedy
    return replace(
        remedy, is_conservative=str(judge(int(remedy.just_beyond)).verdicts[0]) != "diverges"
    )


def _buffer(subject: Subject, is_safe: bool, shuffles: Shuffles) -> Remedy:
    """Return the least shuffle buffer that is safe, and all larger ones with it.

    How a buffer mixes is a matter of chance, so that the value is always conservative: each size
    must be safe in several orders.
    """
    name, rows = "shuffle_buffer", len(subject.recording.inputs)
    if is_safe:
        return Remedy(name, 1, needed=False)
    if shuffles.low > 0:
        return Remedy(name, None, reason="even shuffled rows diverge")
    if shuffles.log_rise > math.log(BURST):
        most = factor(shuffles.log_rise)
        reason = f"even shuffled rows diverge for a while: the distance rises up to {most}-fold"
        return Remedy(name, None, reason=reason)
    if shuffles.high > 0:
        reason = "it is undecided whether shuffled rows converge (the interval includes 0)"
        return Remedy(name, None, reason=reason)

    def judge(sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        orders = [
            buffered(rows, int(size), subject.epochs, np.random.default_rng([subject.seed, 3, i]))
            for size in sizes
            for i in range(_ORDERS)
        ]
        found = subject.measure_orders(orders)
        good = np.all(safe_cells(found).reshape(-1, _ORDERS), axis=1)
        return np.asarray(good), found.rate.reshape(-1, _ORDERS).max(axis=1)

    sizes = 2 ** np.arange(1, math.floor(math.log2(rows)) + 1)
    good, worst = judge(sizes)
    if not good[-1]:
        return Remedy(name, None, reason="no buffer was safe in all orders that were tried")
    place = len(good) - _first_unsafe(good[::-1])  # first of the safe ones at the end
    low, high, rate = int(sizes[place]) // 2, int(sizes[place]), float(worst[place])
    between = np.unique(np.linspace(low, high, 9).round().astype(int))[1:-1]
    if len(between):
        good, worst = judge(between)
        count = _first_unsafe(good[::-1])
        if count:
            high, rate = int(between[-count]), float(worst[-count])
    return Remedy(name, high, rate, is_conservative=True)
