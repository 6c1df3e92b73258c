"""A setting by the names of its parts: checked before jax is loaded, then built.

The command line and `resonax explore` ask for a setting in the same words, as a flat mapping like
``{"process": "sinusoid", "period": 22, "lr": 0.01, "momentum": 0.97}``. A name that is left out has
its default. Numbers that vary are arrays, which are checked as a whole and stand for their first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from resonax.core.errors import RANGES, ArgumentError, check_range, shorten
from resonax.registry import KINDS, Kind, check_kind, find_kind, kinds, without_zeros

if TYPE_CHECKING:
    from resonax.dynamics import Problem
    from resonax.learners import Features
    from resonax.streams import Process

__all__ = [
    "AXES",
    "check_optimizer",
    "features_of",
    "is_adaptive",
    "numbers",
    "process_of",
    "setting_of",
]

AXES = (
    "momentum",
    "beta1",
    "period",
    "lr",
    "amplitude",
    "batch",
    "variance",
    "swing",
    "phase",
    "innovation",
    "dampening",
    "weight_decay",
    "beta2",
    "noise",
)  # that may be ranges, in this order

Place = Callable[[str], str]  # how a parameter is spelled to who gave it
_OPTIMIZER = "heavy_ball"  # if none is named


def _fields(family: str) -> set[str]:
    return {name for kind in KINDS[family].values() for name in kind.fields}


def is_adaptive(asked: Mapping[str, Any]) -> bool:
    """Return whether the optimizer has a level in place of a growth rate."""
    return asked.get("optimizer", _OPTIMIZER) in kinds("optimizer", "level")


def check_optimizer(
    asked: Mapping[str, Any], use: str, place: Place = str
) -> tuple[Kind, dict[str, Any]]:
    """Return an optimizer and its numbers, which can be.

    Examples
    --------
    >>> check_optimizer({"lr": 0.1, "momentum": 0.9, "period": 22}, "stability")[1]
    {'lr': 0.1, 'momentum': 0.9}
    """
    name = asked.get("optimizer", _OPTIMIZER)
    kind, known = find_kind("optimizer", name, use), _fields("optimizer")
    own = without_zeros(kind, {key: number for key, number in asked.items() if key in known})
    check_kind("optimizer", name, own, use=use, place=place)
    return kind, own


def numbers(name: str, text: str) -> list[float]:
    """Return numbers separated by commas.

    Examples
    --------
    >>> numbers("direction", "1,0,2")
    [1.0, 0.0, 2.0]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"{name} must be numbers separated by commas, got {shorten(text)}"
        ) from None


def features_of(asked: Mapping[str, Any], place: Place = str) -> Callable[[int], Features]:
    """Return what makes the basis, ``name`` or ``name:numbers``, for a number of inputs.

    Numbers of a Fourier or a radial basis go along each coordinate.
    """
    basis = asked.get("basis", "linear")
    if not isinstance(basis, str):
        raise ArgumentError(f"{place('basis')} must be a name, got {shorten(basis)}")
    name, colon, text = basis.partition(":")
    kind = find_kind("model", name, "stability", "basis")
    own = next(iter(kind.fields))  # what the numbers are
    if colon and not text.strip():
        raise ArgumentError(
            f"{place('basis')} {shorten(basis)} names no numbers: write {name} alone, or one of "
            "polynomial:2, fourier:1,2 and radial:-1,0,1 with numbers of yours"
        )
    for key in ("bias", "width"):
        if key in asked and key not in kind.fields:
            raise ArgumentError(f"{place(key)} is not for the basis {name}")
    extra: dict[str, Any] = {key: asked[key] for key in ("bias", "width") if key in asked}
    if name == "linear" and text:
        raise ArgumentError(f"the linear basis takes no numbers, got {shorten(basis)}")
    if name == "polynomial" and text:
        if not text.isdecimal() or len(text) > 9:
            raise ArgumentError(
                f"the degree of a polynomial must be a whole number from 1 to 8, "
                f"got {shorten(text)}"
            )
        extra[own] = int(text)
    points = numbers(place("basis"), text or "1") if kind.fields[own].needed else None
    rows = {own: [[point] for point in points]} if points else {}
    check_kind("model", name, extra | rows, use="stability", place=place)

    def make(dim: int) -> Features:
        import numpy as np

        grid = {key: np.kron(np.eye(dim), np.array(column)) for key, column in rows.items()}
        return kind.load()(**extra, **grid)

    return make


def process_of(
    asked: Mapping[str, Any], place: Place = str
) -> Callable[[], tuple[Process, tuple[str, ...]]]:
    """Return what makes the process, with notes on a file's rows."""
    name, known = asked.get("process"), _fields("process")
    if not name:
        choices = ", ".join(kinds("process", "stability"))
        raise ArgumentError(f"name a process first: one of {choices}")
    own = {key: value for key, value in asked.items() if key in known}
    if isinstance(own.get("direction"), list | tuple):
        own.setdefault("dim", len(own["direction"]))
    if isinstance(own.get("variance"), list | tuple) and len(own["variance"]) == 1:
        own["variance"] = own["variance"][0]
    if hasattr(own.get("variance"), "shape"):  # a range, where a list is one for each input
        _check_axis("variance", own["variance"], place)
        own["variance"] = _first(own)["variance"]
    kind = check_kind("process", name, own, use="stability", place=place)

    def make() -> tuple[Process, tuple[str, ...]]:
        if name != "recorded":
            return kind.load()(**_first(own)), ()
        from resonax.recordings.recording import read_recording

        how = {key: value for key, value in own.items() if key not in ("repeat", "data")}
        recording = read_recording(own["data"], **how)
        repeat = own.get("repeat", False)
        return kind.load()(data=recording.inputs, repeat=repeat), recording.notes

    return make


def setting_of(
    asked: Mapping[str, Any], place: Place = str
) -> Callable[[], tuple[Problem, tuple[str, ...]]]:
    """Return what makes the setting that some words and numbers describe, with notes on its rows.

    With an adaptive optimizer, whose dynamics are not linear, it is a plain problem. A mistake is
    an `ArgumentError` at once.

    Parameters
    ----------
    asked
        Words and numbers, by the names of the options of the command line.
    place
        How a name is spelled to who gave it.

    Examples
    --------
    >>> asked = {"process": "sinusoid", "period": 22, "lr": 0.01, "momentum": 0.97, "batch": 20}
    >>> setting, notes = setting_of(asked)()
    >>> setting.process.period, setting.batch, notes
    (22.0, 20, ())
    """
    make_process = process_of(asked, place)
    optimizer, rates = check_optimizer(asked, "level" if is_adaptive(asked) else "stability", place)
    basis = features_of(asked, place)
    rest = {"batch": asked.get("batch", 1), "noise": asked.get("noise", 1.0)}
    for name, number in rest.items():
        _check_axis(name, number, place)

    def make() -> tuple[Problem, tuple[str, ...]]:
        made, notes = make_process()
        from resonax.dynamics import Problem, Setting

        kind: type[Problem] = Problem if is_adaptive(asked) else Setting
        method = optimizer.load()(**_first(rates))
        return kind(made, method, **_first(rest), model=basis(made.dim)), notes

    return make


def _check_axis(name: str, number: Any, place: Place) -> None:
    try:
        check_range(name, number)
    except ArgumentError as error:
        raise ArgumentError(f"{place(name)}{str(error).removeprefix(name)}") from None


def _first(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the first point of every range, and the rest as it is."""
    return {
        name: float(value[0]) if name in RANGES and hasattr(value, "shape") else value
        for name, value in values.items()
    }
