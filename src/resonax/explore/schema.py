"""The schema of the page: the parts of a setting with their numbers, for its controls.

It is made of the tables of `resonax.spec` and the labels alone, without jax.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from resonax.core.labels import CRITERIA, LABELS, versions
from resonax.spec.kinds import KINDS, kinds
from resonax.spec.settings import AXES

__all__ = ["DEFAULT", "LIMITS", "NAMES", "OPTIONS", "describe"]

DEFAULT: dict[str, Any] = {
    "process": "sinusoid",
    "period": 22.0,
    "amplitude": 0.5,
    "variance": 1.0,
    "optimizer": "heavy_ball",
    "lr": 0.01,
    "momentum": 0.97,
    "batch": 20,
    "basis": "linear",
}
_DEFAULT_AXES = {
    "x": {"name": "period", "first": 12.0, "last": 60.0, "log": False},
    "y": {"name": "momentum", "first": 0.95, "last": 0.999, "log": False},
}
LIMITS = {
    "cells": 40_000,  # of a map
    "upload_bytes": 64 * 2**20,
    "runs": 16,
    "steps": 20_000,
}


class _Slider(NamedTuple):
    """A number as a control: ends of its slider, not of what is allowed."""

    about: str
    default: float
    minimum: float
    maximum: float
    log: bool = False
    integer: bool = False
    depth: bool = False  # whether what counts is the distance from 1


_SLIDERS = {
    "period": _Slider("Steps after which the inputs come again.", 22, 2, 120),
    "amplitude": _Slider("How far the mean of the inputs moves.", 0.5, 0, 3),
    "variance": _Slider("Variance of the inputs around their mean.", 1, 0, 4),
    "swing": _Slider("How far the variance moves too, by factors up to e^swing.", 0, 0, 3),
    "phase": _Slider("Where in its period the rhythm starts.", 0, -3.1416, 3.1416),
    "innovation": _Slider("How noisy the rhythm is, as a share.", 1e-4, 1e-6, 0.1, log=True),
    "dim": _Slider("Number of inputs.", 1, 1, 10, integer=True),
    "lr": _Slider("How far one update moves the weights.", 0.01, 1e-4, 1, log=True),
    "momentum": _Slider("How much of the last move is kept.", 0.97, 0, 0.999, depth=True),
    "beta1": _Slider("Adam's decay of the mean gradient.", 0.9, 0, 0.999, depth=True),
    "beta2": _Slider("Adam's decay of the squared gradient.", 0.999, 0.9, 0.9999, depth=True),
    "dampening": _Slider("Share of the gradient that the velocity leaves out.", 0, 0, 0.99),
    "weight_decay": _Slider("How strongly weights are pulled to zero.", 0, 0, 1),
    "batch": _Slider("Samples of one update.", 20, 1, 256, log=True, integer=True),
    "noise": _Slider("Variance of the observation noise.", 1, 0, 10),
    "drift": _Slider("How far the best weights move with the inputs.", 0, 0, 3),
    "width": _Slider("Width of the radial functions.", 1, 0.1, 5, log=True),
}
_LABELS = {  # where `LABELS` has none
    "width": ("width of the radial basis", "w", "1"),
    "beta2": ("decay of the squares of Adam", "β₂", "1"),
}
_PROCESSES = {
    "iid": ("independent inputs", "Every input is drawn on its own: no order at all."),
    "sinusoid": ("sinusoid", "The mean of the inputs swings like a sine."),
    "square": ("square wave", "The mean of the inputs jumps between two values."),
    "ar2": ("noisy rhythm, AR(2)", "The mean swings with a period that is not quite regular."),
    "switching": ("switching", "The mean is drawn anew every period and held in between."),
}
_OPTIMIZERS = {
    "heavy_ball": ("SGD with momentum", "As torch and optax have it."),
    "nesterov": ("Nesterov momentum", "The gradient is taken ahead of the move."),
    "sgd": ("plain SGD", "No momentum."),
    "adam": (
        "Adam",
        "Its steps adapt: theory says whether and where it settles, or is undecided.",
    ),
    "adamw": ("AdamW", "Adam with decoupled weight decay."),
    "amsgrad": ("AMSGrad", "Adam that keeps the largest squared gradient."),
    "rmsprop": ("RMSProp", "Steps divided by the root of the mean squared gradient."),
}
_BASES = {  # label, sentence, what stands behind the colon, the word to begin with
    "linear": ("linear", "The inputs themselves.", None, "linear"),
    "polynomial": ("polynomial", "Powers of the inputs.", "degree", "polynomial:2"),
    "fourier": ("Fourier", "Sines and cosines of the inputs.", "frequencies", "fourier:1,2"),
    "radial": ("radial", "Bumps around some centres.", "centers", "radial:-1,0,1"),
}
_MAPS = ("map", "flow", "mean_square", "lyapunov")  # the quickest first
_EVERYWHERE = ("batch", "noise")
_FIXED = {("rmsprop", "beta2")}  # optax has another name for it there, which is no axis


def _numbers(family: str, name: str) -> list[str]:
    return [key for key in KINDS[family][name].names if key in _SLIDERS]


def _axes(names: list[str]) -> list[str]:
    return [key for key in names if key in AXES]


def _process(name: str) -> dict[str, Any]:
    label, about = _PROCESSES[name]
    numbers = _numbers("process", name)
    repeats = name not in ("ar2", "switching")
    return {
        "name": name,
        "label": label,
        "about": about,
        "numbers": numbers,
        "axes": _axes(numbers),
        # The level of ar2 takes too long for a map.
        "criteria": [*(_MAPS if repeats else _MAPS[-1:]), *(["level"] if name != "ar2" else [])],
    }


def _optimizer(name: str) -> dict[str, Any]:
    label, about = _OPTIMIZERS[name]
    numbers = _numbers("optimizer", name)
    adaptive = name in kinds("optimizer", "level")
    varying = [key for key in numbers if (name, key) not in _FIXED]
    own = _EVERYWHERE if adaptive else (*_EVERYWHERE, "drift")
    return {
        "name": name,
        "label": label,
        "about": about,
        "numbers": [*numbers, *own],
        "axes": _axes([*varying, *own]),
        "criteria": ["level"] if adaptive else [*_MAPS, "level"],
    }


def _basis(name: str) -> dict[str, Any]:
    label, about, takes, word = _BASES[name]
    numbers = [key for key in KINDS["model"][name].names if key in ("bias", "width")]
    return {
        "name": name,
        "label": label,
        "about": about,
        "takes": takes,
        "default": word,
        "numbers": numbers,
    }


def _number(name: str) -> dict[str, Any]:
    label, symbol, unit = LABELS.get(name) or _LABELS[name]
    content = {"label": label, "symbol": symbol, "unit": "" if unit == "1" else unit}
    return {**content, **_SLIDERS[name]._asdict(), "axis": name in AXES}


# What a setting may have: all that the command line has but files.
NAMES = frozenset({"process", "optimizer", "basis", "bias", "direction", *_SLIDERS})
# What a check may have besides.
OPTIONS = frozenset({"target", "features", "order_by", "group_by", "horizon", "epochs", "loss"})


def describe(data: str | None = None, results: str | None = None) -> dict[str, Any]:
    """Return the schema; the names of a file and of a folder are those of the command line."""
    criteria = [
        {"name": name, "label": name.replace("_", " "), "about": about, "quantity": "rate"}
        for name, about in CRITERIA.items()
    ]
    level = {
        "name": "level",
        "label": "level",
        "about": "distance from the best weights at which the error settles, if it does",
        "quantity": "distance",
    }
    flag = {"label": "bias", "about": "Whether a linear model has one.", "default": True}
    return {
        "version": versions()["resonax"],
        "processes": [_process(name) for name in _PROCESSES],
        "optimizers": [_optimizer(name) for name in _OPTIMIZERS],
        "bases": [_basis(name) for name in _BASES],
        "numbers": {**{name: _number(name) for name in _SLIDERS}, "bias": {**flag, "flag": True}},
        "criteria": [*criteria, level],
        "default": DEFAULT,
        "default_axes": _DEFAULT_AXES,
        "limits": LIMITS,
        "data": None if data is None else {"name": data},
        "results": None if results is None else {"name": results},
    }
