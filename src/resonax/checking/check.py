"""The check of a recording: whether momentum diverges on these data, and what would help.

Verdict, cause, remedies and the data of the pictures are computed one after the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from resonax.checking.arguments import (
    OnFinding,
    Stage,
    build_optimizer,
    choose_basis,
    ignore_finding,
    ignore_progress,
)
from resonax.checking.cause import Rhythm, Shuffles, find_rhythm, shuffle, strongest_stretch
from resonax.checking.describe import (
    Findings,
    ask_for_batch,
    check_dataset,
    facts_of,
    model_of,
    notes_of,
    settings_of,
)
from resonax.checking.remedies import (
    Remedy,
    find_remedies,
    holds_exactly,
    in_every_order,
    line_cells,
    safe_cells,
)
from resonax.checking.result import Check
from resonax.core.errors import ArgumentError
from resonax.learners import Features, Momentum
from resonax.probing.adapters import adapt
from resonax.recordings.recording import Recording, read_recording
from resonax.recordings.table import listed
from resonax.rows.answers import OnTheseRows, factor, judge
from resonax.rows.intervals import BURST, MIN_STEPS, measure
from resonax.rows.subject import Subject, prepare
from resonax.spec.checks import check_numbers

if TYPE_CHECKING:
    from resonax.recordings.sources import Source, Values

__all__ = ["Series", "check", "examine"]


@dataclass(frozen=True)
class Series:
    """The series where an error grows most, the others, and notes on them."""

    worst: Subject
    name: str | None = None  # None: there is only one
    others: tuple[tuple[str, Subject], ...] = ()
    notes: tuple[str, ...] = ()

    def notes_on(self, remedies: tuple[Remedy, ...]) -> tuple[str, ...]:
        """Say which remedies do not help in another series: they were found in the worst one."""
        notes = []
        for remedy in remedies:
            if remedy.name not in ("momentum", "lr") or remedy.value is None:
                continue
            changed = {remedy.name: remedy.value}
            growing = [
                name
                for name, subject in self.others
                if subject.at(changed).follow_exactly().log_growth > 0
            ]
            if growing:
                word = "momentum" if remedy.name == "momentum" else "step size"
                notes.append(
                    f"With the {word} {remedy.value:g} the distance still grows in {len(growing)} "
                    f"of the other series ({listed(growing, 4)}): check these alone."
                )
        return tuple(notes)


def worst_series(recording: Recording, make: Callable[[Recording], Subject], least: int) -> Series:
    """Follow an error through each series, from its own start, and return them by growth.

    Parameters
    ----------
    recording
        All series, one after the other.
    make
        Makes the subject of one.
    least
        Rows that a series needs; shorter ones are left out, which is noted.
    """
    if not recording.series:
        return Series(make(recording))
    edges = np.append(recording.starts, len(recording.inputs)).tolist()
    parts = list(zip(recording.series, edges[:-1], edges[1:], strict=True))
    long = [
        (name, recording.part(first, last)) for name, first, last in parts if last - first >= least
    ]
    if not long:
        most = max(last - first for _, first, last in parts)
        raise ArgumentError(
            f"the longest series of {recording.source} has {most:,} rows, and at least {least:,} "
            "are needed: group by another column, or by none"
        )
    subjects = [(name, make(part)) for name, part in long]
    growth = [subject.follow_exactly().log_growth for _, subject in subjects]
    place = int(np.argmax(growth))
    name, worst = subjects[place]
    count = sum(log > 0 for log in growth)
    notes = [
        f"Each of {len(long):,} series is a run of its own, and in {count:,} of them the distance "
        f"from the best weights ends larger than it was. All results are those of {name}, where it "
        f"grows most, {factor(growth[place])}-fold."
    ]
    if len(long) < len(parts):
        notes.append(
            f"{len(parts) - len(long):,} series of fewer than {least:,} rows were left out."
        )
    others = tuple(pair for i, pair in enumerate(subjects) if i != place)
    return Series(worst, name, others, tuple(notes))


def examine(
    series: Series,
    recording: Recording,
    *,
    name: str,
    assumed: bool,
    grid: int,
    learner: Any = None,
    stage: Stage | None = None,
    on_finding: OnFinding | None = None,
) -> Check:
    """Return the check of the worst of some series.

    ``name`` is what the optimizer is called, and ``assumed`` says that no batch was given.
    """
    stage, on_finding, subject = (
        stage or ignore_progress,
        on_finding or ignore_finding,
        series.worst,
    )
    along = subject.at(line_cells(subject))
    with stage("following the rows", subject.steps) as advance:
        passed = along.follow(along.feed(), advance)
    lines = measure(passed, subject.confidence, subject.epochs)
    with stage("multiplying the updates", 0):
        exact, on_rows, on_more = judge(subject)
    on_finding("verdict", (on_rows, on_more))
    rows = strongest_stretch(subject, passed)
    with stage("shuffling", 0):
        shuffles = shuffle(subject)
    on_finding("shuffled", shuffles.rates)
    rhythm = None
    if on_rows.verdict == "diverges" and shuffles.low <= 0 and shuffles.above:
        with stage("looking for the rhythm", 0):
            rhythm = find_rhythm(subject, rows)
    on_finding("rhythm", (rhythm.period, rhythm.kind) if rhythm else (None, None))
    cause = _cause(on_rows, shuffles, rhythm)
    with stage("looking for what would help", 3 * subject.steps) as advance:
        is_safe = holds_exactly(exact) and bool(safe_cells(lines)[-1])
        remedies = find_remedies(subject, lines, is_safe, shuffles, rows, advance)
    on_finding("remedies", remedies)
    dataset = functools.partial(
        check_dataset, subject, Findings(grid, shuffles, rhythm, rows), learner, stage
    )
    return Check(
        on_these_rows=on_rows,
        on_more=on_more,
        cause=cause,
        period=rhythm.period if rhythm else None,
        rhythm=rhythm.kind if rhythm else None,
        shuffled_rate=shuffles.rate,
        shuffled_low=shuffles.low,
        shuffled_high=shuffles.high,
        log_shuffled_rise=shuffles.log_rise,
        remedies=remedies,
        order_proof=in_every_order(subject, recording),
        model=model_of(subject, name, assumed),
        question=ask_for_batch(remedies) if assumed else "",
        settings=settings_of(subject, name),
        facts=(*facts_of(subject), *([("series", series.name)] if series.name else [])),
        notes=(
            *series.notes,
            *notes_of(subject, on_rows, on_more, rows),
            *series.notes_on(remedies),
        ),
        dataset=dataset if learner is None else dataset(),  # pyrefly: ignore[bad-argument-type]
    )


def _cause(found: OnTheseRows, shuffles: Shuffles, rhythm: Rhythm | None) -> str:
    if found.verdict == "converges":
        return "none"
    if found.verdict == "rises":
        rare = shuffles.log_rise < math.log(BURST) and shuffles.is_unusual_rise(found.log_rise)
        return "order" if rare else "generic"
    named = rhythm is not None and rhythm.period is not None
    return "order" if shuffles.low <= 0 and (shuffles.order_matters or named) else "generic"


def check(
    source: Source | Recording,
    target: str | int | Values | None = None,
    *,
    lr: float,
    momentum: float,
    batch: int | None = None,
    features: str | Iterable[str | int] | None = None,
    order_by: str | int | None = None,
    group_by: str | int | None = None,
    horizon: int | None = None,
    drop_missing: bool = False,
    separator: str | None = None,
    decimal: str | None = None,
    loss: str = "squared",
    optimizer: str | Momentum = "heavy_ball",
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    basis: Features | Callable[[int], Features] | None = None,
    bias: bool = True,
    intercept_lr: float | None = None,
    standardise: bool = True,
    epochs: int = 1,
    grid: int = 32,
    confidence: float = 0.95,
    seed: int = 0,
    learner: Any = None,
    stage: Stage | None = None,
    on_finding: OnFinding | None = None,
) -> Check:
    r"""Say whether a linear model trained by SGD with momentum diverges on these rows, and why.

    The loss is the squared error, with the gradient :math:`2(\hat y - y)\,\phi`. The growth does
    not depend on the target; with one, the model is also trained, to confirm what is predicted.
    With the logistic loss, :math:`(\sigma(z) - y)\,\phi`, it does: the curvature is that along the
    trained run.

    Parameters
    ----------
    source
        A CSV, TSV, Parquet, NPY or NPZ file; a table or series of pandas, polars or pyarrow, or a
        dataset of Hugging Face; an array of rows x columns or a tensor; a dataset or a loader of
        torch that does not shuffle; or what `read_recording` made of one of them; then all that is
        said of the data is said there.
    target
        Name or index of the column to predict, or its values.
    lr, momentum
        Step size and momentum.
    batch
        Rows of one update; by default those of a loader. Otherwise one is assumed, which is said,
        as the verdict depends on it.
    features
        Columns to learn from; all but the target by default.
    order_by
        Column of numbers or dates to sort the rows by.
    group_by
        Column that tells several series apart. Each is a run of its own, from the start: neither
        a difference nor a batch nor a target crosses from one to the next. All that is found is of
        the one where an error grows most, and a note says of how many it grows.
    horizon
        Predict the target column this many rows later; the column is then a feature as well.
    drop_missing
        Leave out rows with missing values.
    separator, decimal
        Of a text file: one character, and ``.`` or ``,``; guessed by default, which is noted.
    loss
        ``squared``, or ``logistic`` for a target of two values, of any kind.
    optimizer
        ``heavy_ball`` (also ``torch`` and ``optax``, which are the same without dampening),
        ``nesterov``, ``sgd``, ``river``, whose linear models train the bias without momentum, or
        a `Momentum`.
    dampening, weight_decay
        Of optimizers that have them.
    basis
        Features of the columns, or what makes them for a number of columns; `Linear` by default.
    bias
        Whether a linear model has one.
    intercept_lr
        Step size of a bias that is trained without momentum; for ``river`` 0.01, as there.
    standardise
        Bring all columns to mean 0 and variance 1 first.
    epochs
        Passes over the rows.
    grid
        Points along each axis of the map over momentum and step size.
    confidence
        Confidence of the interval.
    seed
        Of shuffles and surrogates.
    learner
        One of your own, as for `replay`: it is trained on the prepared rows, in their order and
        shuffled, and its curves are drawn over the prediction.
    stage
        ``stage(name, steps)`` gives a context in which progress is shown.
    on_finding
        ``on_finding(name, finding)`` is called with each finding as soon as it is known:
        ``verdict`` (on these rows, and on more), ``shuffled`` (the growth of random orders),
        ``rhythm`` (its period and kind) and ``remedies``.

    Examples
    --------
    >>> import numpy as np
    >>> hours = np.arange(4000)
    >>> rng = np.random.default_rng(0)
    >>> x = 1.2 * np.sin(2 * np.pi * hours / 24) + 0.5 * rng.normal(size=4000)
    >>> found = check(x, lr=0.01, momentum=0.95, grid=8)
    >>> found.verdict, found.cause, round(found.period)
    ('diverges', 'order', 24)
    """
    check_numbers(
        optimizer,
        lr=lr,
        momentum=momentum,
        batch=1 if batch is None else batch,
        epochs=epochs,
        grid=grid,
        seed=seed,
        confidence=confidence,
        intercept_lr=intercept_lr,
        dampening=dampening,
        weight_decay=weight_decay,
        loss=loss,
    )
    chosen, intercept_lr, name = build_optimizer(
        optimizer, lr, momentum, intercept_lr, dampening=dampening, weight_decay=weight_decay
    )
    recording = (
        source
        if isinstance(source, Recording)
        else read_recording(
            source,
            target,
            features=features,
            order_by=order_by,
            group_by=group_by,
            horizon=horizon,
            drop_missing=drop_missing,
            separator=separator,
            decimal=decimal,
            standardise=standardise,
            labels=loss == "logistic",
        )
    )
    if (loss == "logistic") != bool(recording.classes):
        raise ArgumentError("the logistic loss needs a recording that was read with labels")
    batch = recording.batch if batch is None else batch
    assumed, batch = batch is None, 1 if batch is None else batch
    model, intercept_lr = choose_basis(basis, bias, recording, intercept_lr)
    if learner is not None:
        adapt(learner)  # an unusable one fails before the work
        if recording.target is None:
            raise ArgumentError("a learner needs a target to learn: name one")

    def make(part: Recording) -> Subject:
        made = prepare(part, model, chosen, batch, epochs, intercept_lr=intercept_lr)
        return replace(made, confidence=confidence, seed=seed, loss=loss)

    series = worst_series(recording, make, batch * max(8, math.ceil(MIN_STEPS / epochs)))
    return examine(
        series,
        recording,
        name=name,
        assumed=assumed,
        grid=grid,
        learner=learner,
        stage=stage,
        on_finding=on_finding,
    )
