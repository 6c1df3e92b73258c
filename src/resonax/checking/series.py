"""Several series in one table: each is a run of its own, and the worst of them is looked into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from resonax.checking.confirm import Remedy
from resonax.core.errors import ArgumentError
from resonax.recordings.recording import Recording
from resonax.recordings.table import listed
from resonax.rows.answers import factor
from resonax.rows.subject import Subject

__all__ = ["Series", "worst_series"]


@dataclass(frozen=True)
class Series:
    """The series where an error grows most, the others, and what there is to say of them."""

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
        f"from the best weights ends larger than it was. All that is said is of {name}, where it "
        f"grows most, {factor(growth[place])}-fold."
    ]
    if len(long) < len(parts):
        notes.append(
            f"{len(parts) - len(long):,} series of fewer than {least:,} rows were left out."
        )
    others = tuple(pair for i, pair in enumerate(subjects) if i != place)
    return Series(worst, name, others, tuple(notes))
