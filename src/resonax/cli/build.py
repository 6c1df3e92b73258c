"""From the options of a command to a setting; mistakes are found before jax is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from resonax.checks import ArgumentError, check_range, shorten
from resonax.cli.groups import given
from resonax.cli.options import Learner, Reading, Stream
from resonax.cli.parsers import OptionError, numbers, spelled
from resonax.registry import KINDS, Kind, check_kind, find_kind, kinds, without_zeros

if TYPE_CHECKING:
    from collections.abc import Callable

    from resonax.dynamics import Problem
    from resonax.learners import Features
    from resonax.processes import Process

AXES = (
    "momentum",
    "beta1",
    "period",
    "lr",
    "amplitude",
    "batch",
)  # that may be ranges, in this order

__all__ = ["AXES", "build_setting", "check_optimizer", "features_of", "is_adaptive", "process_of"]


def is_adaptive(learner: Learner) -> bool:
    """Return whether the optimizer has a level in place of a growth rate."""
    return learner.optimizer in kinds("optimizer", "level")


def check_optimizer(learner: Learner, use: str) -> tuple[Kind, dict[str, float]]:
    """Return an optimizer and its numbers, which can be."""
    kind = find_kind("optimizer", learner.optimizer, use)
    known = {name for each in KINDS["optimizer"].values() for name in each.fields}
    asked = {name: number for name, number in given(learner).items() if name in known}
    asked = without_zeros(kind, asked)
    check_kind("optimizer", learner.optimizer, asked, use=use, place=spelled)
    return kind, asked


def features_of(learner: Learner) -> Callable[[int], Features]:
    """Return what makes the basis, ``name`` or ``name:numbers``, for a number of inputs.

    Numbers of a Fourier or a radial basis go along each coordinate.
    """
    name, _, text = learner.basis.partition(":")
    kind = find_kind("model", name, "stability", "basis")
    own = next(iter(kind.fields))  # what the numbers are
    extra = given(learner)
    for key in ("bias", "width"):
        if key in extra and key not in kind.fields:
            shown = "--no-bias" if key == "bias" else spelled(key)
            raise ArgumentError(f"{shown} is not for the basis {name}")
    asked: dict[str, Any] = {key: extra[key] for key in ("bias", "width") if key in extra}
    if name == "linear" and text:
        raise ArgumentError(f"the linear basis takes no numbers, got {shorten(learner.basis)}")
    if name == "polynomial" and text:
        if not text.isdecimal() or len(text) > 9:
            raise OptionError(
                f"the degree of a polynomial must be a whole number from 1 to 8, "
                f"got {shorten(text)}"
            )
        asked[own] = int(text)
    points = numbers("--basis", text or "1") if kind.fields[own].needed else None
    rows = {own: [[point] for point in points]} if points else {}
    check_kind("model", name, asked | rows, use="stability", place=spelled)

    def make(dim: int) -> Features:
        import numpy as np

        grid = {key: np.kron(np.eye(dim), np.array(column)) for key, column in rows.items()}
        return kind.load()(**asked, **grid)

    return make


def process_of(stream: Stream, reading: Reading) -> Callable[[], tuple[Process, tuple[str, ...]]]:
    """Return what makes the process of a command, with notes on a file's rows.

    A range is checked as a whole, and stands for its first point.
    """
    if not stream.process:
        known = ", ".join(kinds("process", "stability"))
        raise ArgumentError(f"name a process first: one of {known}")
    asked = given(stream) | given(reading)
    asked.pop("process")
    if "direction" in asked:
        asked.setdefault("dim", len(asked["direction"]))
    if len(asked.get("variance", ())) == 1:
        asked["variance"] = asked["variance"][0]
    process = check_kind("process", stream.process, asked, use="stability", place=spelled)

    def make() -> tuple[Process, tuple[str, ...]]:
        if stream.process != "recorded":
            return process.load()(**_first(asked)), ()
        from resonax.recordings.recording import read_recording

        how = {name: value for name, value in asked.items() if name not in ("repeat", "data")}
        recording = read_recording(asked["data"], **how)
        repeat = asked.get("repeat", False)
        return process.load()(data=recording.inputs, repeat=repeat), recording.notes

    return make


def build_setting(
    stream: Stream, learner: Learner, reading: Reading, noise: float
) -> tuple[Problem, tuple[str, ...]]:
    """Return the setting that the options of a command describe, and notes on a file's rows.

    With an adaptive optimizer, whose dynamics are not linear, it is a plain problem.
    """
    make_process = process_of(stream, reading)
    optimizer, rates = check_optimizer(learner, "level" if is_adaptive(learner) else "stability")
    basis = features_of(learner)
    check_range("batch", learner.batch)
    check_range("noise", noise)
    made, notes = make_process()
    from resonax.dynamics import Problem, Setting

    kind: type[Problem] = Problem if is_adaptive(learner) else Setting
    batch = _first({"batch": learner.batch})["batch"]
    method = optimizer.load()(**_first(rates))
    return kind(made, method, batch=batch, noise=noise, model=basis(made.dim)), notes


def _first(numbers: dict[str, Any]) -> dict[str, Any]:
    return {
        name: float(number[0]) if name in AXES and hasattr(number, "shape") else number
        for name, number in numbers.items()
    }
