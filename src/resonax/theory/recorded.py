"""A setting on a recording: the same engine, interval and words as `resonax.check`."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from resonax.core.errors import check_number, check_whole
from resonax.dynamics import Setting
from resonax.recordings.recording import Recording
from resonax.rows.answers import OnTheseRows, judge
from resonax.rows.intervals import measure
from resonax.rows.subject import Subject, prepare
from resonax.streams import Recorded
from resonax.theory.discrete import discrete_rates

__all__ = ["RESOLUTION", "Interval", "judge_recording", "recorded_rates"]

RESOLUTION = 1e-7  # no interval is claimed to be narrower than this, on either side


class Interval(NamedTuple):
    """A rate per step with its confidence interval."""

    rate: float
    low: float
    high: float


def _subject(setting: Setting, level: float, seed: int) -> Subject:
    """Return the problem that a check of the same rows, as they are, would be about."""
    assert isinstance(setting.process, Recorded)
    check_number("level", level, low=0, high=1, open_low=True, open_high=True)
    check_whole("seed", seed, low=0, high=2**63 - 1)
    rows = np.asarray(setting.process.data).reshape(-1, setting.process.dim)
    recording = Recording(rows, None, (), None, "the recording", ())
    # The sum of gradients is their mean with a larger step, to which the decay is the smaller.
    scale, optimizer = float(setting.gradient_scale), setting.optimizer
    optimizer = replace(
        optimizer, lr=scale * optimizer.lr, weight_decay=optimizer.weight_decay / scale
    )
    made = prepare(recording, setting.model, optimizer, int(setting.batch))
    return replace(made, level=level, seed=seed)


def judge_recording(setting: Setting, level: float, seed: int) -> tuple[OnTheseRows, Interval]:
    """Return what these rows do in one pass, exactly, and the rate on more of the same."""
    _, rows, more = judge(_subject(setting, level, seed))
    return rows, Interval(more.rate, more.low, more.high)


def recorded_rates(
    setting: Setting, values: dict[str, np.ndarray], level: float, seed: int
) -> list[Interval]:
    """Return the rates of many cells along a recording, each from one random start.

    If it is replayed again and again nothing is random: the growth of a pass is exact.
    """
    assert isinstance(setting.process, Recorded)
    if setting.process.repeat:
        rates = discrete_rates(setting, values)
        return [Interval(float(r), float(r) - RESOLUTION, float(r) + RESOLUTION) for r in rates]
    scale = float(setting.gradient_scale)
    scaled = {"lr": scale, "weight_decay": 1 / scale}
    subject = _subject(setting, level, seed)
    cells = subject.at({name: scaled.get(name, 1.0) * array for name, array in values.items()})
    found = measure(cells.follow(cells.feed()), level)
    return [
        Interval(*map(float, ends)) for ends in zip(found.rate, found.low, found.high, strict=True)
    ]
