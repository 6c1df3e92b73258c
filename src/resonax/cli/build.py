"""From the words of the command line to a setting."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from resonax.checks import (
    RANGES,
    ArgumentError,
    check_range,
    is_number,
    shorten,
    suggest,
)

if TYPE_CHECKING:
    import numpy as np

    from resonax.dynamics import Setting
    from resonax.learners import Features, Momentum
    from resonax.processes import Process

__all__ = [
    "BASES",
    "OPTIMIZERS",
    "PROCESSES",
    "build_features",
    "build_setting",
    "check_basis",
    "parse_axis",
    "parse_list",
]

OPTIMIZERS = ("heavy_ball", "nesterov", "sgd")
# What each process takes, the first where it must be given; kept here, as to load the processes
# takes seconds, and a slip is told at once. A test compares them.
_MOVING = ("period", "amplitude", "variance", "swing")
PROCESSES: dict[str, tuple[str, ...]] = {
    "iid": ("amplitude", "variance", "direction", "dim"),
    "sinusoid": (*_MOVING, "phase", "direction", "dim"),
    "square": (*_MOVING, "phase", "direction", "dim"),
    "ar2": (*_MOVING, "innovation", "direction", "dim"),
    "switching": (*_MOVING, "dim"),
    "recorded": ("data", "repeat"),
}
NEEDED = ("period", "data")
BASES = ("linear", "polynomial", "fourier", "radial")
_MAX_POINTS = 100_000


def parse_list(name: str, text: str) -> np.ndarray:
    """Return numbers separated by commas.

    Examples
    --------
    >>> parse_list("direction", "1,0,2").tolist()
    [1.0, 0.0, 2.0]
    """
    import numpy as np

    try:
        return np.array([float(part) for part in text.split(",")])
    except ValueError:
        raise ArgumentError(
            f"{name} must be numbers separated by commas, got {shorten(text)}"
        ) from None


def parse_axis(name: str, text: str) -> np.ndarray:
    """Return one number, or the points of a range ``first:last:count[:log]``.

    Examples
    --------
    >>> parse_axis("period", "15:60:4").tolist()
    [15.0, 30.0, 45.0, 60.0]
    """
    import numpy as np

    parts = text.split(":")
    form = f"{name} must be a number or a range first:last:count[:log], got {shorten(text)}"
    try:
        if len(parts) == 1:
            return np.array([float(parts[0])])
        first, last, count = float(parts[0]), float(parts[1]), int(parts[2])
    except (ValueError, IndexError):
        raise ArgumentError(form) from None
    if len(parts) > 4 or (len(parts) == 4 and parts[3] != "log"):
        raise ArgumentError(form)
    if not 1 <= count <= _MAX_POINTS:
        raise ArgumentError(f"{name} must have 1 to {_MAX_POINTS} points, got {shorten(count)}")
    if not (np.isfinite(first) and np.isfinite(last) and (first < last or count == 1)):
        raise ArgumentError(
            f"{name} must run from a smaller to a larger number, got {shorten(text)}"
        )
    if len(parts) == 4:
        if first <= 0:
            raise ArgumentError(f"{name} must start above 0 for a log range, got {first:g}")
        return np.geomspace(first, last, count)
    return np.linspace(first, last, count)


def read_recording(path: Path) -> np.ndarray:
    """Return the rows of a .npy or .csv file (a header line is allowed)."""
    import numpy as np

    ending = path.suffix.lower()
    if ending not in (".npy", ".csv", ".txt"):
        raise ArgumentError(f"data must be a .npy or .csv file, got {path}")
    try:
        if path.is_dir():
            raise ArgumentError(f"data must be a file, but {path} is a folder")
        if not path.is_file():
            raise ArgumentError(f"data must name a file that exists, got {path}")
        return np.load(path, allow_pickle=False) if ending == ".npy" else _read_csv(path)
    except (OSError, ValueError, EOFError) as error:
        if isinstance(error, ArgumentError):
            raise
        text = " ".join(str(error).split())
        raise ArgumentError(f"data could not be read from {path}: {text}") from None


def _read_csv(path: Path) -> np.ndarray:
    """Return the numbers of a file with commas; a first line without any number is a header."""
    import csv

    import numpy as np

    rows: list[list[float]] = []
    with path.open(encoding="utf-8-sig", newline="") as file:
        for line, fields in enumerate(csv.reader(file), start=1):
            if not fields or (line == 1 and not any(is_number(field) for field in fields)):
                continue
            bad = next((field for field in fields if not is_number(field)), None)
            if bad is not None:
                raise ArgumentError(
                    f"data must be numbers, got {shorten(bad)} in line {line} of {path}"
                )
            if rows and len(fields) != len(rows[0]):
                raise ArgumentError(
                    f"data must have {len(rows[0])} columns in every line, got {len(fields)} "
                    f"in line {line} of {path}"
                )
            rows.append([float(field) for field in fields])
    if not rows:
        raise ArgumentError(f"data must not be empty, got no row of numbers in {path}")
    return np.array(rows)


def _read_process(name: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a process, checked as far as it can be done before jax is loaded."""
    if name not in PROCESSES:
        raise suggest("process", name, PROCESSES)
    takes = PROCESSES[name]
    given = {key: option for key, option in given.items() if option is not None}
    for key in given:
        if key not in takes:
            options = ", ".join(f"--{option}" for option in takes)
            raise ArgumentError(f"the process {name} has no --{key}, it takes {options}")
    if name == "recorded":
        if "data" not in given:
            raise ArgumentError("the process recorded needs --data FILE, a .npy or .csv file")
        return {**given, "data": read_recording(given["data"])}
    for key in NEEDED:
        if key in takes and key not in given:
            raise ArgumentError(f"the process {name} needs --{key}")
    if "direction" in given:
        given["direction"] = parse_list("direction", given["direction"])
        given.setdefault("dim", len(given["direction"]))
    if "variance" in given:
        variance = parse_list("variance", given["variance"])
        given["variance"] = float(variance[0]) if len(variance) == 1 else variance
        if len(variance) not in (1, given.get("dim", 1)):
            raise ArgumentError(
                f"variance must be one number, or one for each of the --dim inputs, "
                f"got {len(variance)} for --dim {given.get('dim', 1)}"
            )
    for key in given.keys() & RANGES.keys():
        check_range(key, given[key])
    return given


def _build_process(name: str, given: dict[str, Any]) -> Process:
    from resonax.processes import PROCESSES, Recorded

    if name == "recorded":
        return Recorded.of(given["data"], repeat=given.get("repeat", False))
    return PROCESSES[name](**given)


def _check_optimizer(
    kind: str, lr: float, momentum: float | None, dampening: float, weight_decay: float
) -> None:
    """Raise `ArgumentError` for an optimizer that cannot be; nothing heavy is loaded for it."""
    if kind not in OPTIMIZERS:
        raise suggest("optimizer", kind, OPTIMIZERS)
    if kind == "sgd" and momentum:
        raise ArgumentError(f"momentum must be 0 for the optimizer sgd, got {momentum:g}")
    if kind != "heavy_ball" and dampening:
        raise ArgumentError(f"dampening must be 0 for the optimizer {kind}, got {dampening:g}")
    if kind != "sgd" and momentum is None:
        raise ArgumentError(f"the optimizer {kind} needs --momentum, at least 0 and below 1")
    numbers = {"lr": lr, "momentum": momentum or 0.0, "dampening": dampening}
    for name, value in {**numbers, "weight_decay": weight_decay}.items():
        check_range(name, value)


def _build_optimizer(
    kind: str, lr: float, momentum: float | None, dampening: float, weight_decay: float
) -> Momentum:
    from resonax.learners import heavy_ball, nesterov, sgd

    if kind == "sgd":
        return sgd(lr, weight_decay=weight_decay)
    if kind == "nesterov":
        return nesterov(lr, momentum or 0.0, weight_decay=weight_decay)
    return heavy_ball(lr, momentum or 0.0, dampening=dampening, weight_decay=weight_decay)


def check_basis(text: str, bias: bool, width: float | None) -> None:
    """Raise `ArgumentError` for a basis that cannot be; nothing heavy is loaded for it."""
    name, _, numbers = text.partition(":")
    if name not in BASES:
        raise suggest("basis", name, BASES)
    if name != "radial" and width is not None:
        raise ArgumentError(f"width belongs to the radial basis, the basis is {name}")
    if name == "linear" and numbers:
        raise ArgumentError(f"the linear basis takes no numbers, got {shorten(text)}")
    if name != "linear" and not bias:
        raise ArgumentError(f"--no-bias belongs to the linear basis, the basis is {name}")
    if name == "polynomial" and (not (numbers or "2").isdecimal() or len(numbers) > 9):
        raise ArgumentError(
            f"the degree of a polynomial must be a whole number from 1 to 8, got {shorten(numbers)}"
        )
    if name in ("fourier", "radial"):
        parse_list("basis", numbers or "1")


def build_features(text: str, bias: bool, width: float | None, dim: int) -> Features:
    """Return a basis given as ``name`` or ``name:numbers``; numbers go along each coordinate."""
    import numpy as np

    from resonax.learners import Fourier, Linear, Polynomial, Radial

    check_basis(text, bias, width)
    name, _, numbers = text.partition(":")
    if name == "linear":
        return Linear(bias)
    if name == "polynomial":
        return Polynomial(int(numbers or "2"))
    grid = np.kron(np.eye(dim), parse_list("basis", numbers or "1")[:, None])
    return (
        Fourier.of(grid) if name == "fourier" else Radial.of(grid, 1.0 if width is None else width)
    )


def build_setting(
    process: str,
    process_options: dict[str, Any],
    *,
    lr: float,
    momentum: float | None,
    optimizer: str = "heavy_ball",
    dampening: float = 0.0,
    weight_decay: float = 0.0,
    batch: int = 1,
    noise: float = 1.0,
    basis: str = "linear",
    bias: bool = True,
    width: float | None = None,
) -> Setting:
    """Return the setting that the options of a command describe.

    What can be seen to be wrong without it is told before jax is loaded.
    """
    fields = _read_process(process, process_options)
    learner = (optimizer, lr, momentum, dampening, weight_decay)
    _check_optimizer(*learner)
    check_basis(basis, bias, width)
    check_range("batch", batch)
    check_range("noise", noise)
    from resonax.dynamics import Setting

    stream = _build_process(process, fields)
    return Setting(
        stream,
        _build_optimizer(*learner),
        batch=batch,
        noise=noise,
        model=build_features(basis, bias, width, stream.dim),
    )
