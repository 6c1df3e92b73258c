"""The nearest momentum, step size and batch with which training converges."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from resonax.dynamics import Setting
from resonax.theory.cells import Advance
from resonax.theory.criteria import MARGIN, rates

__all__ = ["Nearest", "nearest_safe"]

_POINTS = 64  # along each line
_SAMPLED = 16  # where each point is a simulation
_MOMENTA = 1e-4  # how near to 1 momentum is tried
_LRS = 1e-4, 10.0  # times the step size
_BATCHES = 2**16


class Nearest(NamedTuple):
    """The nearest safe value of each number, None where none was found; and who says so."""

    criterion: str
    is_safe: bool  # as it is
    values: dict[str, float | None]


def _lines(setting: Setting, names: tuple[str, ...], count: int) -> dict[str, np.ndarray]:
    """Return the values that are tried of each number, its own among them."""
    lr, momentum = float(setting.optimizer.lr), float(setting.optimizer.momentum)
    batch = int(setting.batch)
    every = {
        "momentum": 1 - np.geomspace(1.0, _MOMENTA, count - 1),
        "lr": np.minimum(lr * np.geomspace(*_LRS, count - 1), 1e6),
        "batch": np.round(np.geomspace(1, max(_BATCHES, batch), count - 1)),
    }
    own = {"momentum": momentum, "lr": lr, "batch": float(batch)}
    return {name: np.sort(np.append(every[name], own[name])) for name in names}


def _judge(
    setting: Setting, lines: dict[str, np.ndarray], criterion: str, advance: Advance | None
) -> dict[str, np.ndarray]:
    """Return which points of each line converge; all lines are one compiled call."""
    own = {"momentum": setting.optimizer.momentum, "lr": setting.optimizer.lr}
    own |= {"batch": setting.batch}
    cells = {
        name: np.concatenate(
            [
                line if along == name else np.full(len(line), float(own[name]))
                for along, line in lines.items()
            ]
        )
        for name in lines
    }
    found = rates(setting, cells, criterion, advance) < -MARGIN
    parts = np.split(found, np.cumsum([len(line) for line in lines.values()])[:-1])
    return dict(zip(lines, parts, strict=True))


def nearest_safe(setting: Setting, advance: Advance | None = None) -> Nearest:
    """Return the nearest momentum, step size and batch with which training converges.

    The criterion is the mean square where the law of the inputs repeats, else lyapunov, which has
    no search for the batch. Each number is moved alone, along a line through the setting; a band
    narrower than the distance of two neighbouring points may be missed. A safe step size may be
    larger than the own: it lies on the other side of a resonance.

    Examples
    --------
    >>> from resonax import Setting, Sinusoid, heavy_ball
    >>> setting = Setting(Sinusoid(period=22), heavy_ball(lr=0.01, momentum=0.97), batch=20)
    >>> found = nearest_safe(setting)
    >>> found.is_safe, found.values["momentum"]
    (False, 0.96559)
    """
    exact = setting.process.periodic
    criterion = "mean_square" if exact else "lyapunov"
    has_momentum = "momentum" in setting.optimizer.axes and setting.optimizer.momentum > 0
    names = tuple(
        name for name, on in (("momentum", has_momentum), ("lr", True), ("batch", exact)) if on
    )
    count = _POINTS if exact else _SAMPLED
    lines = _lines(setting, names, count)
    own = {"momentum": float(setting.optimizer.momentum), "lr": float(setting.optimizer.lr)}
    own |= {"batch": float(setting.batch)}
    safe = _judge(setting, lines, criterion, advance)
    places = {name: int(np.searchsorted(line, own[name])) for name, line in lines.items()}
    if all(safe[name][places[name]] for name in names):
        return Nearest(criterion, True, {name: own[name] for name in names})
    edges = {name: _edge(lines[name], safe[name], places[name], name) for name in names}
    between = {
        name: np.linspace(*edge, count) if edge else np.full(count, own[name])
        for name, edge in edges.items()
    }
    if "batch" in between:
        between["batch"] = np.round(between["batch"])
    fine = _judge(setting, between, criterion, advance)
    values: dict[str, float | None] = {}
    for name in names:
        if edges[name] is None:
            values[name] = None
            continue
        # From the safe end on towards the setting, up to the first that is not safe.
        run = int(np.argmin(fine[name])) if not fine[name].all() else count
        values[name] = _rounded(float(between[name][max(run - 1, 0)]), edges[name], name)
    return Nearest(criterion, False, values)


def _edge(line: np.ndarray, safe: np.ndarray, own: int, name: str) -> tuple[float, float] | None:
    """Return the nearest safe value and its neighbour towards the setting."""
    found = np.flatnonzero(safe)
    if not len(found):
        return None
    size = np.log1p(-line) if name == "momentum" else np.log(line)
    best = int(found[np.argmin(np.abs(size[found] - size[own]))])
    towards = best + int(np.sign(own - best))
    return float(line[best]), float(line[towards])


def _rounded(value: float, edge: tuple[float, float] | None, name: str) -> float:
    """Round to four digits, away from the setting: towards what is safer."""
    assert edge is not None
    if name == "batch" or value == 0:
        return value
    gap = 1 - value if name == "momentum" else value
    unit = 10.0 ** (math.floor(math.log10(min(gap, value))) - 3)
    round_to = math.floor if edge[0] < edge[1] else math.ceil
    return float(f"{round_to(value / unit) * unit:.10g}")
