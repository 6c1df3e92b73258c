"""From the tables of a specification to the values that simulation and theory take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any

import optax

from resonax.checks import ArgumentError, suggest
from resonax.dynamics import Setting
from resonax.experiments.specification import Panel, Sweep
from resonax.learners import (
    Features,
    Fourier,
    Linear,
    Momentum,
    Polynomial,
    Radial,
    heavy_ball,
    nesterov,
    sgd,
)
from resonax.processes import PROCESSES, Process
from resonax.simulation import Network, Training, Transform, adam

__all__ = ["build_setting", "build_training"]

_MODELS: dict[str, Any] = {
    "linear": Linear,
    "polynomial": Polynomial,
    "fourier": Fourier.of,
    "radial": Radial.of,
    "network": Network,
}
_OPTIMIZERS: dict[str, Any] = {
    "heavy_ball": heavy_ball,
    "nesterov": nesterov,
    "sgd": sgd,
    "adam": adam,
}
_PERIOD = 2.0  # until an axis sets it


def _call(where: str, function: Any, table: Mapping[str, Any], filled: Mapping[str, Any]) -> Any:
    """Call a constructor with the entries of a table; ``filled`` are those that axes set."""
    given = {name: part for name, part in table.items() if name != "kind"}
    known = inspect.signature(function).parameters
    for name in given:
        if name not in known:
            raise suggest(f"{where} key", f"{where}.{name}", [f"{where}.{key}" for key in known])
    given.update({name: number for name, number in filled.items() if name in known})
    for name, parameter in known.items():
        if parameter.default is inspect.Parameter.empty and name not in given:
            raise ArgumentError(f"{where}.{name} is missing: give it, or make it an axis")
    return function(**given)


def _process(table: Mapping[str, Any], axes: Mapping[str, float]) -> Process:
    kind = table.get("kind")
    if kind not in PROCESSES or kind == "recorded":
        raise suggest("process.kind", str(kind), [name for name in PROCESSES if name != "recorded"])
    built = PROCESSES[kind]
    required = [item.name for item in fields(built) if item.default is MISSING]  # pyright: ignore
    filled = {name: axes[name] for name in axes if name in {item.name for item in fields(built)}}  # pyright: ignore
    if "dim" in filled:
        filled["dim"] = int(filled["dim"])
    for name in required:
        if name not in table and name not in filled:
            raise ArgumentError(f"process.{name} is missing: give it, or make it an axis")
    return _call("process", built, table, filled)


def _model(table: Mapping[str, Any]) -> Features | Network:
    kind = table.get("kind", "linear")
    if kind not in _MODELS:
        raise suggest("model.kind", kind, _MODELS)
    tidy = {name: tuple(v) if name == "hidden" else v for name, v in table.items()}
    return _call("model", _MODELS[kind], tidy, {})


def _optimizer(table: Mapping[str, Any], axes: Mapping[str, float]) -> Any:
    kind = str(table.get("kind"))
    if kind.startswith("optax."):
        make = getattr(optax, kind.removeprefix("optax."), None)
        if make is None:
            raise ArgumentError(f"optimizer.kind {kind} is not in optax")
        numbers = {name: part for name, part in table.items() if name != "kind"}
        known = inspect.signature(make).parameters
        numbers.update({name: axes[name] for name in axes if name in known or name == "lr"})
        if "lr" in numbers:
            numbers["learning_rate"] = numbers.pop("lr")
        for name in numbers:
            if name not in known:
                raise suggest(
                    "optimizer key", f"optimizer.{name}", [f"optimizer.{k}" for k in known]
                )
        return Transform(numbers, make)
    if kind not in _OPTIMIZERS:
        raise suggest("optimizer.kind", kind, [*_OPTIMIZERS, "optax.<name>"])
    return _call("optimizer", _OPTIMIZERS[kind], table, axes)


def build_training(sweep: Sweep, panel: Panel) -> Training:
    """Return what a panel simulates; numbers that an axis sets have the axis' largest value."""
    axes = {name: float(points.max()) for name, points in sweep.points().items()}
    if "period" in axes:
        axes["period"] = _PERIOD
    train = sweep.merged(panel, "train")
    training = Training(
        process=_process(sweep.merged(panel, "process"), axes),
        optimizer=_optimizer(sweep.merged(panel, "optimizer"), axes),
        model=_model(sweep.merged(panel, "model")),
        **train,
    )
    for name in axes:
        training.at({name: axes[name]})  # says what may vary where this may not
    return training


def build_setting(sweep: Sweep, panel: Panel, *, theory: bool = False) -> Setting:
    """Return what the theory judges in a panel, on its own process or on that of ``theory``."""
    training = build_training(sweep, panel)
    if not isinstance(training.optimizer, Momentum) or isinstance(training.model, Network):
        raise ArgumentError(f"{sweep.id}: theory needs a linear model and SGD with momentum")
    process = training.process
    if theory and sweep.theory:
        process = _process(sweep.theory.process, {"period": _PERIOD})
    return Setting(
        process=process,
        optimizer=training.optimizer,
        batch=training.batch,
        noise=training.noise,
        features=training.model,
        reduction=training.reduction,
    )
