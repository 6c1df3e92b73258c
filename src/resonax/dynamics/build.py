"""From the parts of a setting, as `resonax.spec` checked them, to the setting itself."""

from __future__ import annotations

from typing import Any

import numpy as np

from resonax.dynamics.problem import Problem
from resonax.dynamics.setting import Setting
from resonax.learners import Features, Omitted
from resonax.spec.kinds import SettingPart
from resonax.spec.settings import SettingParts, first_points
from resonax.streams import Process

__all__ = ["build_basis", "build_process", "build_setting"]


def build_process(part: SettingPart) -> tuple[Process, tuple[str, ...]]:
    """Return a process, with notes on the rows of a file."""
    if part.kind.name != "recorded":
        return part.kind.load()(**first_points(part.given)), ()
    from resonax.recordings.recording import read_recording

    reading = {name: value for name, value in part.given.items() if name not in ("repeat", "data")}
    recording = read_recording(part.given["data"], **reading)
    repeat = part.given.get("repeat", False)
    return part.kind.load()(data=recording.inputs, repeat=repeat), recording.notes


def build_basis(part: SettingPart, dim: int) -> Features:
    """Return the features for a number of inputs; columns of numbers go along each of them."""
    given: dict[str, Any] = {
        name: np.kron(np.eye(dim), np.array(value)) if isinstance(value, list) else value
        for name, value in part.given.items()
    }
    return part.kind.load()(**given)


def build_setting(parts: SettingParts) -> tuple[Problem, tuple[str, ...]]:
    """Return a setting, with notes on the rows of a file.

    With an adaptive optimizer, whose dynamics are not linear, it is a plain problem.

    Examples
    --------
    >>> from resonax.spec.settings import check_setting
    >>> options = {"process": "sinusoid", "period": 22, "lr": 0.01, "momentum": 0.97, "batch": 20}
    >>> setting, notes = build_setting(check_setting(options))
    >>> setting.process.period, setting.batch, notes
    (22.0, 20, ())
    """
    process, notes = build_process(parts.process)
    kind: type[Problem] = Setting if parts.optimizer.kind.is_linear else Problem
    optimizer = parts.optimizer.kind.load()(**first_points(parts.optimizer.given))
    rest = first_points({"batch": parts.batch, "noise": parts.noise, "drift": parts.drift})
    if parts.drift_direction is not None:
        rest["drift_direction"] = parts.drift_direction
    if parts.omitted is not None:
        features = build_basis(parts.omitted, process.dim)
        rest["omitted"] = Omitted.of(features, parts.omitted_weights)
    return kind(process, optimizer, **rest, model=build_basis(parts.basis, process.dim)), notes
