"""What is looked for in the rows, one after the other: verdict, cause, remedies, pictures."""

from __future__ import annotations

import functools
import math
from typing import Any

from resonax.checking.cause import Rhythm, Shuffles, find_rhythm, shuffle, strongest_stretch
from resonax.checking.confirm import holds
from resonax.checking.dataset import Findings, check_dataset
from resonax.checking.describe import ask_for_batch, facts_of, model_of, notes_of, settings_of
from resonax.checking.every_order import in_every_order
from resonax.checking.remedies import find_remedies, line_cells, safe
from resonax.checking.result import Check
from resonax.checking.series import Series
from resonax.checking.stages import Stage, Tell, silent, untold
from resonax.recordings.recording import Recording
from resonax.rows.answers import OnTheseRows, judge
from resonax.rows.intervals import BURST, measure

__all__ = ["examine"]


def examine(
    series: Series,
    recording: Recording,
    *,
    name: str,
    assumed: bool,
    grid: int,
    learner: Any = None,
    stage: Stage | None = None,
    tell: Tell | None = None,
) -> Check:
    """Return the check of the worst of some series.

    ``name`` is what the optimizer is called, and ``assumed`` says that nobody gave the batch.
    """
    stage, tell, subject = stage or silent, tell or untold, series.worst
    along = subject.at(line_cells(subject))
    with stage("following the rows", subject.steps) as advance:
        passed = along.follow(along.feed(), advance)
    lines = measure(passed, subject.level, subject.epochs)
    with stage("multiplying the updates", 0):
        exact, on_rows, on_more = judge(subject)
    tell("verdict", (on_rows, on_more))
    rows = strongest_stretch(subject, passed)
    with stage("shuffling", 0):
        shuffles = shuffle(subject)
    tell("shuffled", shuffles.rates)
    rhythm = None
    if on_rows.verdict == "diverges" and shuffles.low <= 0 and shuffles.above:
        with stage("looking for the rhythm", 0):
            rhythm = find_rhythm(subject, rows)
    tell("rhythm", (rhythm.period, rhythm.kind) if rhythm else (None, None))
    cause = _cause(on_rows, shuffles, rhythm)
    with stage("looking for what would help", 3 * subject.steps) as advance:
        own = holds(exact) and bool(safe(lines)[-1])
        remedies = find_remedies(subject, lines, own, shuffles, rows, advance)
    tell("remedies", remedies)
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
