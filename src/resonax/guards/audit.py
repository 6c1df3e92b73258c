"""The audit of a loader: order, harm, cause and cures of its batches, and how they are said.

What reads a loader and makes copies of what is trained is the adapter of a framework, such as
`resonax.torch.audit`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from resonax.core.errors import ArgumentError, check_number, check_whole
from resonax.core.objects import Result, plain_values
from resonax.guards.batch_order import BatchOrder, parts_of
from resonax.guards.cause import find_cause, most_work
from resonax.guards.learner import Candidate
from resonax.guards.lost_steps import LostSteps, level_of, lost_steps
from resonax.guards.trials import Trials

__all__ = [
    "LEAST", "MIXED", "Audit", "Cure", "audit_order", "audit_trials", "check_options",
    "planned_work",
]  # fmt: skip

LEAST = 64  # batches
MIXED = 8  # runs on mixed rows, of batches in an order
_RANDOM = 4  # of batches in none
_FOLDS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0)  # of 1 - momentum that are tried as a cure
_FACTORS = (0.5, 0.25, 0.1, 0.05)  # of the step size


@dataclass(frozen=True)
class Cure:
    """A change with which a run on the same rows lost no more steps than chance explains.

    ``kind`` is ``momentum`` (``value`` in place of one's own, at ``lr``), ``lr`` (the step size),
    ``buffer`` (shuffle within so many batches) or ``interleaving`` (batches of the parts of the
    order in turn; there are ``value`` of them). ``lost`` are steps against mixed rows with one's
    own setting, ``high`` the upper end of their interval; None where mixed rows fail.
    """

    kind: str
    value: float
    text: str
    lr: float | None = None
    lost: float | None = None
    high: float | None = None


@dataclass(frozen=True, eq=False, repr=False)
class Audit(Result):
    """The order of the batches of a loader, whether it harms, why, and what ends that.

    Attributes
    ----------
    order
        ``random``, ``ordered``, or ``repeated``: random, but the same in all epochs.
    harm
        ``none`` of a random order, ``harmless`` if the run cannot be told from those on mixed rows,
        ``harmful`` if it can, or if training fails; None without a model.
    cause
        ``resonance``, ``forgetting``, ``step``, ``phase`` or ``unclear``, see
        `resonax.guards.cause`; None if nothing harms.
    period
        Steps after which the batches repeat, if they do.
    lost_steps
        What the order costs, with its interval.
    cures
        What ends the harm, each confirmed by a run.
    found
        The order in more detail.
    reason
        What the cause was told from.
    same_ranks
        Whether several ranks see the same batches; None if there is one.
    by_rows
        Whether rows were mixed; if not, whole batches came in another order.
    marks, own, mixed
        Steps at which runs were judged, and the losses of the run and of those on mixed rows.
    series
        Numbers of each batch in which the order was looked for.
    work
        Steps that were trained on copies.
    notes
        What a reader has to know before relying on it.
    """

    order: str
    harm: str | None
    cause: str | None
    period: float | None
    lost_steps: LostSteps | None
    cures: tuple[Cure, ...]
    found: BatchOrder
    reason: str
    same_ranks: bool | None
    by_rows: bool
    steps: int
    marks: tuple[int, ...]
    own: tuple[float, ...]
    mixed: tuple[tuple[float, ...], ...]
    series: np.ndarray
    settings: dict[str, Any]
    work: float
    notes: tuple[str, ...]

    figure: ClassVar[str] = "resonax.figures.audit:plot_audit"

    @property
    def is_harmful(self) -> bool:
        """Whether the order harms, or training fails."""
        return self.harm == "harmful"

    def summary(self) -> dict[str, Any]:
        """Return order, harm, cause, period and lost steps."""
        lost = None if self.lost_steps is None else round(self.lost_steps.lost)
        values = {
            "order": self.order,
            "harm": self.harm,
            "cause": self.cause,
            "period": self.period,
            "lost_steps": lost,
            "steps": self.steps,
        }
        return {name: value for name, value in values.items() if value is not None}

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON; without the paths that the pictures show."""
        names = ("order", "harm", "cause", "period", "lost_steps", "cures", "found", "reason")
        names += ("same_ranks", "by_rows", "steps", "settings", "work", "notes")
        return {name: plain_values(getattr(self, name)) for name in names}

    def loss_limits(self) -> tuple[float, float]:
        """Return the losses between which the runs are drawn: what diverges leaves the picture."""
        paths = np.array([self.own, *self.mixed], dtype=float)
        finite = paths[np.isfinite(paths)]
        low, top, start = finite.min(), finite.max(), self.own[0]
        high = start + 1.5 * max(start - low, 1e-9)
        return float(low - 0.05 * (min(top, high) - low)), float(min(top * 1.02, high))

    def verdict(self) -> str:
        """Return order and harm in one sentence."""
        order = _ORDERS[self.order]
        if self.harm is None:
            return f"{self.order}: {order}"
        if self.harm == "none":
            return f"{self.order}: {order}; no harm was found"
        lost = self.lost_steps
        if self.cause == "step" or lost is None:
            return f"{self.order}, {self.harm}: {order}; {self.reason}"
        return f"{self.order}, {self.harm}: {order}; {lost}"

    def details(self) -> list[tuple[str, str]]:
        """Return all that was found, as name and text."""
        found = self.found
        lines: list[tuple[str, str]] = []
        if self.cause is not None:
            lines.append(("cause", f"{self.cause}: {self.reason}"))
        if self.period is not None:
            lines.append(("rhythm", f"the batches repeat about every {self.period:.3g} steps"))
        if found.buffer is not None:
            within = f"no order was found within {found.buffer} batches in a row"
            text = within if found.buffer > 1 else "neighbours are in order as well"
            lines.append(("shuffling", text))
        if found.repeats is not None:
            text = "the same order in each" if found.repeats else "another order in each"
            lines.append(("epochs", text))
        if self.same_ranks is not None:
            text = "see the same batches" if self.same_ranks else "see different batches"
            lines.append(("ranks", text))
        lines += [("cure", cure.text) for cure in self.cures]
        return [*lines, *(("note", note) for note in self.notes)]

    def __str__(self) -> str:
        """Return the verdict, then a line for each thing that was found."""
        return "\n".join([f"{self.verdict()}.", *(f"{a}: {b}." for a, b in self.details())])


_ORDERS = {
    "random": "the batches cannot be told from batches in random order",
    "ordered": "the batches come in an order",
    "repeated": "each epoch has the batches of the last one, in the same order",
}


def check_options(steps: int, budget: float, confidence: float) -> None:
    """Raise `ArgumentError` unless an audit can be asked for with these."""
    check_whole("steps", steps, low=LEAST)
    check_number("budget", budget, low=16.0)
    check_number("confidence", confidence, low=0.8, high=0.999)


def audit_order(
    found: BatchOrder,
    series: np.ndarray,
    *,
    same_ranks: bool | None = None,
    notes: Sequence[str] = (),
    settings: dict[str, Any] | None = None,
) -> Audit:
    """Return the audit of a loader without a model: its order alone."""
    return Audit(
        order=found.order, harm=None, cause=None, period=found.period, lost_steps=None, cures=(),
        found=found, reason="", same_ranks=same_ranks, by_rows=True, steps=len(series), marks=(),
        own=(), mixed=(), series=series, settings=settings or {}, work=0.0, notes=tuple(notes),
    )  # fmt: skip


def planned_work(order: str, steps: int) -> float:
    """Return the most steps that the runs of an audit train; a judged batch counts a third.

    Examples
    --------
    >>> planned_work("random", 512) < planned_work("ordered", 512)
    True
    """
    if order == "random":
        return 1.4 * (1 + _RANDOM + 2) * steps
    cures = len(_FOLDS) + len(_FACTORS) + 4 + 1
    return 1.4 * (1 + MIXED + cures) * steps + 1.4 * most_work(8, steps)


def audit_trials(
    trials: Trials,
    found: BatchOrder,
    series: np.ndarray,
    *,
    budget: float = 64.0,
    lr: float = 1.0,
    momentum_name: str = "momentum",
    same_ranks: bool | None = None,
    notes: Sequence[str] = (),
    settings: dict[str, Any] | None = None,
) -> Audit:
    """Return the audit of batches that a learner can be trained on.

    Parameters
    ----------
    trials
        Runs of copies of the learner on the batches.
    found
        The order of the batches.
    series
        The numbers of each batch in which it was found.
    budget
        Work of all runs at most, as a multiple of the steps; what does not fit is left out, and
        said.
    lr, momentum_name
        The step size, and what the optimizer calls its momentum, for the words of the cures.
    """
    steps, notes = len(trials.batches), list(notes)
    if found.period is not None:
        trials.window = min(steps, max(steps / 4, float(found.period)))
    own = trials.run(trials.candidate, trials.batches).losses
    if not math.isfinite(own[0]):
        raise ArgumentError(
            "the loss is not finite at the weights as they are: begin the audit at others, or look "
            "at the loss function and the inputs"
        )
    mixed = trials.mixed(trials.candidate, _RANDOM if found.order == "random" else MIXED)
    lost = lost_steps(trials.marks, own, mixed, window=trials.window)
    parts = parts_of(series, found.period)
    most = budget * steps
    if found.order == "random":
        parts = []
    cause = find_cause(trials, lost, parts, most, momentum_name)
    if not trials.by_rows:
        notes.append(
            "the batches cannot be mixed row by row, as they have different shapes or hold more "
            "than tensors: whole batches came in random order instead"
        )
    word = cause.word
    if found.order == "random":
        # Nothing but the step can harm, and it does if no run trains: one may fail by chance.
        fails = not min(lost.own, *lost.mixed) < lost.start
        harm = "harmful" if word == "step" and fails else "none"
    else:
        harm = "harmful" if word is not None else "harmless"
    if harm != "harmful":
        word = None
    cures: list[Cure] = []
    if word is not None:
        search = _Search(trials, lost, mixed, most, lr, momentum_name)
        cures, tried = search.all(word, parts)
        notes += tried
    return Audit(
        order=found.order, harm=harm, cause=word, period=found.period,
        lost_steps=None if harm == "none" else lost, cures=tuple(cures), found=found,
        reason=cause.text if word is not None else "", same_ranks=same_ranks,
        by_rows=trials.by_rows, steps=steps, marks=tuple(trials.marks), own=tuple(own.tolist()),
        mixed=tuple(map(tuple, mixed.tolist())), series=series, settings=settings or {},
        work=trials.work, notes=tuple(notes),
    )  # fmt: skip


@dataclass
class _Search:
    """Cures of a harm, each confirmed by a run on the same rows."""

    trials: Trials
    lost: LostSteps
    mixed: np.ndarray
    most: float
    lr: float
    momentum_name: str

    def all(self, cause: str, parts: Sequence[Sequence[int]]) -> tuple[list[Cure], list[str]]:
        """Return the cures that were found, and what was tried in vain."""
        wanted: list[tuple[str, Callable[[], Cure | None]]] = []
        # Less momentum does not end forgetting: the cause was told by that.
        if cause in ("resonance", "unclear") and self.trials.candidate.momentum > 0:
            wanted.append((f"a smaller {self.momentum_name} at the same step", self.momentum))
        if cause != "step":
            wanted.append(("a shuffle buffer", self.buffer))
            if len(parts) > 1:
                wanted.append(("interleaving", lambda: self.interleaving(parts)))
        if cause != "resonance":
            wanted.append(("a smaller step size", lambda: self.step(cause)))
        found, vain = [], []
        for name, search in wanted:
            if self.trials.work > self.most:
                vain.append(f"{name} was not tried, as the budget was spent")
                continue
            cure = search()
            if cure is None:
                vain.append(f"{name} was tried, and does not end the harm")
            else:
                found.append(cure)
        return found, vain

    def try_run(self, candidate: Candidate, batches: Sequence[Any]) -> LostSteps | None:
        """Return what a run loses against mixed rows, None if it is harmed."""
        losses = self.trials.run(candidate, batches).losses
        lost = lost_steps(self.trials.marks, losses, self.mixed, window=self.trials.window)
        return None if lost.is_harm() or not lost.own < lost.start else lost

    def momentum(self) -> Cure | None:
        """Return the largest momentum at the same effective step that ends the harm."""
        own = self.trials.candidate.momentum
        for fold in _FOLDS:
            if fold * (1 - own) > 1:
                break
            candidate = self.trials.with_momentum(round(1 - fold * (1 - own), 4))
            lost = self.try_run(candidate, self.trials.batches)
            if lost is not None:
                lr, value = self.lr * candidate.lr, candidate.momentum
                text = f"{self.momentum_name} {value:.3g}"
                if candidate.lr != 1:
                    text += f" with lr {lr:.3g}, which is the same effective step"
                return Cure("momentum", value, _with(text, lost), lr, lost.lost, lost.high)
        return None

    def step(self, cause: str) -> Cure | None:
        """Return the largest step size with which the run trains, or loses nothing."""
        used = self.trials.candidate
        for factor in _FACTORS:
            candidate, lr = used._replace(lr=used.lr * factor), self.lr * factor
            if cause == "step":
                losses = self.trials.run(candidate, self.trials.batches).losses
                window = self.trials.window or len(self.trials.batches) / 4
                if level_of(self.trials.marks, losses, window) < losses[0]:
                    return Cure("lr", lr, f"lr {lr:.3g}, with which it trains", lr)
                continue
            lost = self.try_run(candidate, self.trials.batches)
            if lost is not None:
                return Cure("lr", lr, _with(f"lr {lr:.3g}", lost), lr, lost.lost, lost.high)
        return None

    def buffer(self) -> Cure | None:
        """Return the smallest shuffle buffer, a power of 2, by bisection."""
        used, count = self.trials.candidate, len(self.trials.batches)
        sizes = [2**power for power in range(1, 20) if 2**power <= count // 2]
        best, found, low, high = None, None, 0, len(sizes)
        while low < high:
            middle = (low + high) // 2
            lost = self.try_run(used, self.trials.buffered(sizes[middle]))
            if lost is None:
                low = middle + 1
            else:
                best, found, high = sizes[middle], lost, middle
        if best is None or found is None:
            return None
        what = "rows" if self.trials.by_rows else "whole batches"
        text = _with(f"a shuffle buffer of {best} batches, {what} drawn at random", found)
        return Cure("buffer", best, text, None, found.lost, found.high)

    def interleaving(self, parts: Sequence[Sequence[int]]) -> Cure | None:
        """Return to take batches of the parts of the order in turn, if that ends the harm."""
        lost = self.try_run(self.trials.candidate, self.trials.alternating(parts))
        if lost is None:
            return None
        text = _with(f"batches of the {len(parts)} parts of the order in turn", lost)
        return Cure("interleaving", len(parts), text, None, lost.lost, lost.high)


def _with(text: str, lost: LostSteps) -> str:
    if lost.low <= 0:
        return f"{text}: cannot be told from mixed rows (at most {lost.high:.0f} steps lost)"
    return f"{text}: {lost.lost:.0f} steps lost (interval {lost.low:.0f} to {lost.high:.0f})"
