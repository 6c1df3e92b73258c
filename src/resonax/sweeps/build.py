"""Build the objects of simulation and theory from the validated tables of a specification."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from resonax.dynamics import Setting
from resonax.learners import Features, Network, make_optimizer
from resonax.simulation import Training
from resonax.spec.sweep_checks import Cell, kind_of, resolve
from resonax.spec.sweeps import Sweep
from resonax.streams import Process

__all__ = ["build_setting", "build_training"]

_PERIOD = 2.0  # replaced by the values of an axis


def _parameters(part: str, table: Mapping[str, Any], axes: Mapping[str, float]) -> dict[str, Any]:
    """Return the entries of a table, and the values of axes that belong to it."""
    entries = {name: entry for name, entry in table.items() if name != "kind"}
    return entries | {name: axes[name] for name in kind_of(part, table).varying if name in axes}


def _process(table: Mapping[str, Any], axes: Mapping[str, float]) -> Process:
    given = _parameters("process", table, axes)
    if "dim" in given:
        given["dim"] = int(given["dim"])
    return kind_of("process", table).load()(**given)


def _model(table: Mapping[str, Any]) -> Features | Network:
    given = _parameters("model", table, {})
    if "hidden" in given:
        given["hidden"] = tuple(given["hidden"])
    return kind_of("model", table).load()(**given)


def _optimizer(table: Mapping[str, Any], axes: Mapping[str, float]) -> Any:
    return make_optimizer(kind_of("optimizer", table), _parameters("optimizer", table, axes))


def build_training(sweep: Sweep, number: int) -> Training:
    """Return the training of a panel, with the largest value of each axis."""
    return _training(resolve(sweep, number), sweep)


def _training(cell: Cell, sweep: Sweep) -> Training:
    axes = {name: float(points.max()) for name, points in sweep.points().items()}
    if "period" in axes:
        axes["period"] = _PERIOD
    return Training(
        process=_process(cell.process, axes),
        optimizer=_optimizer(cell.optimizer, axes),
        model=_model(cell.model),
        **cell.train.model_dump(),
    )


def build_setting(sweep: Sweep, number: int, *, theory: bool = False) -> Setting:
    """Return the setting of a panel, with its own process or that of the table ``theory``."""
    training = build_training(sweep, number)
    process = training.process
    if theory and sweep.theory:
        process = _process(sweep.theory.process, {"period": _PERIOD})
    return Setting.of(training, process=process)
