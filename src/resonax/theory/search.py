"""Searches: critical momentum and step size, best momentum, resonant periods."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy  # its parts are loaded where they are used

from resonax.core.errors import ArgumentError, check_number
from resonax.dynamics import Setting, check_problem
from resonax.theory.flow import why_missing
from resonax.theory.period import Advance, Values
from resonax.theory.verdict import MARGIN, rates

__all__ = [
    "Best",
    "Nearest",
    "Tongue",
    "best_momentum",
    "critical_lr",
    "critical_momentum",
    "growing_bands",
    "nearest_safe",
    "tongues",
]

# Momenta from 0 to 1 - 1e-5, dense near 1, where the tongues are.
_MOMENTA = 1.0 - np.geomspace(1.0, 1e-5, 241)
_POINTS = 241
_EVEN_MOMENTA = 1000  # momenta from 0 to 1 besides, for the one that converges fastest
_MAX_DIPS, _FINE_POINTS, _ROUNDS = 8, 33, 5

_LINE_POINTS = 64  # along each line
_SAMPLED_LINE_POINTS = 16  # where each point is a simulation
_MIN_FRICTION = 1e-4  # how near to 1 momentum is tried
_LR_FACTORS = 1e-4, 10.0  # times the step size
_MAX_BATCH = 2**16


class Best(NamedTuple):
    """The momentum of least rate, and that rate."""

    momentum: float
    rate: float


class Tongue(NamedTuple):
    """A band of periods that diverges, with the period of largest rate."""

    low: float
    high: float
    peak: float
    rate: float


def _rate(setting: Setting, name: str, criterion: str):
    return lambda number: float(rates(setting, {name: np.array([number])}, criterion)[0])


def _check_known(setting: Setting, values: Values, criterion: str, found: np.ndarray) -> None:
    """Raise the reason of a rate that is missing: past it a search would only guess."""
    if reason := why_missing(setting, values, criterion, found):
        raise ArgumentError(reason)


def _first_crossing(setting: Setting, name: str, grid: np.ndarray, criterion: str) -> float | None:
    """Return the least value at which the rate turns positive; None where it never does."""
    found = rates(setting, {name: grid}, criterion)
    above = np.flatnonzero(found > 0)
    before = slice(above[0] if len(above) else len(grid))
    _check_known(setting, {name: grid[before]}, criterion, found[before])
    if len(above) == 0:
        return None
    if above[0] == 0:
        return float(grid[0])
    low, high = grid[above[0] - 1], grid[above[0]]
    return float(scipy.optimize.brentq(_rate(setting, name, criterion), low, high, xtol=1e-9))  # pyrefly: ignore[bad-argument-type]


def critical_momentum(setting: Setting, criterion: str = "map") -> float | None:
    """Return the least momentum that diverges; None where every momentum below 1 converges.

    Examples
    --------
    >>> from resonax import Setting, Sinusoid, heavy_ball
    >>> setting = Setting(Sinusoid(period=22), heavy_ball(lr=0.01, momentum=0.97), batch=20)
    >>> print(f"{critical_momentum(setting):.4f}")
    0.9660
    """
    return _first_crossing(setting, "momentum", _MOMENTA, criterion)


def critical_lr(
    setting: Setting, criterion: str = "map", *, low: float = 1e-6, high: float = 10.0
) -> float | None:
    """Return the least step size from ``low`` to ``high`` that diverges; None where none does."""
    check_number("low", low, low=0, open_low=True)
    check_number("high", high, low=low, open_low=True)
    return _first_crossing(setting, "lr", np.geomspace(low, high, 2 * _POINTS), criterion)


def best_momentum(setting: Setting, criterion: str = "map") -> Best:
    """Return the momentum with the least growth rate, and the rate.

    The rate has a dip wherever two modes change places, so that there are several local minima:
    all momenta are scanned, and the lowest dips are refined together. A dip narrower than the
    distance of two neighbouring points, 0.001, may be missed.

    Examples
    --------
    >>> from resonax import Setting, Sinusoid, heavy_ball
    >>> best_momentum(Setting(Sinusoid(period=60), heavy_ball(lr=0.1, momentum=0.9)))
    Best(momentum=0.392..., rate=-0.467...)
    """
    grid = np.union1d(_MOMENTA, np.linspace(0.0, 1.0, _EVEN_MOMENTA, endpoint=False))
    found = rates(setting, {"momentum": grid}, criterion)
    if np.isnan(found).all():
        _check_known(setting, {"momentum": grid}, criterion, found)
    found = np.where(np.isnan(found), np.inf, found)
    best = Best(float(grid[np.argmin(found)]), float(np.min(found)))
    padded = np.concatenate([[np.inf], found, [np.inf]])
    is_dip = (found <= padded[:-2]) & (found <= padded[2:]) & (found < np.inf)
    dips = np.flatnonzero(is_dip)
    dips = dips[np.argsort(found[dips], kind="stable")[:_MAX_DIPS]]
    low, high = grid[np.maximum(dips - 1, 0)], grid[np.minimum(dips + 1, len(grid) - 1)]
    for _ in range(_ROUNDS):  # each narrows all dips by 16
        lines = np.linspace(low, high, _FINE_POINTS, axis=1)
        fine = rates(setting, {"momentum": lines.ravel()}, criterion).reshape(lines.shape)
        fine = np.where(np.isnan(fine), np.inf, fine)
        least = fine.argmin(axis=1)
        row = int(fine.min(axis=1).argmin())
        if fine[row, least[row]] < best.rate:
            best = Best(float(lines[row, least[row]]), float(fine[row, least[row]]))
        rows = np.arange(len(dips))
        low, high = (lines[rows, np.clip(least + side, 0, lines.shape[1] - 1)] for side in (-1, 1))
    return best


def tongues(
    setting: Setting, low: float, high: float, criterion: str = "map", *, points: int = 481
) -> list[Tongue]:
    """Return the bands of periods between ``low`` and ``high`` that diverge, in rising order.

    A band narrower than the distance of two neighbouring points may be missed.

    Examples
    --------
    >>> from resonax import Setting, Sinusoid, heavy_ball
    >>> setting = Setting(Sinusoid(period=22), heavy_ball(lr=0.01, momentum=0.999), batch=20)
    >>> [round(tongue.peak) for tongue in tongues(setting, 15, 60)]
    [22, 45]
    """
    check_problem(setting, Setting)
    if setting.process.name in ("iid", "recorded"):
        raise ArgumentError(f"period cannot vary: the process {setting.process.name} has none")
    check_number("points", points, low=2)
    check_number("high", high, low=low, open_low=True)
    periods = np.linspace(low, high, points)
    found = rates(setting, {"period": periods}, criterion)
    _check_known(setting, {"period": periods}, criterion, found)
    rate = _rate(setting, "period", criterion)
    bands = []
    inside = np.concatenate([[False], found > 0, [False]])
    for start, stop in zip(
        np.flatnonzero(inside[1:] & ~inside[:-1]),
        np.flatnonzero(inside[:-1] & ~inside[1:]),
        strict=True,
    ):
        edges = [
            float(periods[at])
            if beyond < 0 or beyond >= points
            else float(scipy.optimize.brentq(rate, periods[beyond], periods[at], xtol=1e-6))  # pyrefly: ignore[bad-argument-type]
            for at, beyond in ((start, start - 1), (stop - 1, stop))
        ]
        peak = start + int(np.argmax(found[start:stop]))
        bands.append(Tongue(edges[0], edges[1], float(periods[peak]), float(found[peak])))
    return bands


def growing_bands(values: np.ndarray, rate: np.ndarray) -> list[tuple[float, float]]:
    """Return the bands of increasing values in which a rate is above 0, to a picture's accuracy.

    An edge lies where the line between two neighbours crosses 0.

    Examples
    --------
    >>> growing_bands(np.arange(5.0), np.array([-1.0, 1.0, 1.0, -3.0, 1.0]))
    [(0.5, 2.25), (3.75, 4.0)]
    """
    turns = np.flatnonzero((rate[:-1] > 0) != (rate[1:] > 0))
    edges = values[turns] - rate[turns] * np.diff(values)[turns] / np.diff(rate)[turns]
    first, last = [float(values[0])] * bool(rate[0] > 0), [float(values[-1])] * bool(rate[-1] > 0)
    every = first + edges.tolist() + last
    return list(zip(every[::2], every[1::2], strict=True))


class Nearest(NamedTuple):
    """The nearest safe value of each number, None where none was found; and who says so."""

    criterion: str
    is_safe: bool  # as it is
    values: dict[str, float | None]


def _lines(setting: Setting, names: tuple[str, ...], count: int) -> dict[str, np.ndarray]:
    """Return the values that are tried of each number, its own among them."""
    own = _own(setting)
    every = {
        "momentum": 1 - np.geomspace(1.0, _MIN_FRICTION, count - 1),
        "lr": np.minimum(own["lr"] * np.geomspace(*_LR_FACTORS, count - 1), 1e6),
        "batch": np.round(np.geomspace(1, max(_MAX_BATCH, own["batch"]), count - 1)),
    }
    return {name: np.sort(np.append(every[name], own[name])) for name in names}


def _own(setting: Setting) -> dict[str, float]:
    """Return the numbers of a setting that `nearest_safe` changes."""
    optimizer = setting.optimizer
    numbers = {"momentum": optimizer.momentum, "lr": optimizer.lr, "batch": setting.batch}
    return {name: float(number) for name, number in numbers.items()}


def _judge(
    setting: Setting, lines: dict[str, np.ndarray], criterion: str, advance: Advance | None
) -> dict[str, np.ndarray]:
    """Return which points of each line converge; all lines are one compiled call."""
    own = _own(setting)
    cells = {
        name: np.concatenate(
            [
                line if along == name else np.full(len(line), own[name])
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
    count = _LINE_POINTS if exact else _SAMPLED_LINE_POINTS
    lines = _lines(setting, names, count)
    own = _own(setting)
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
