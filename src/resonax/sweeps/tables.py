"""The tables of a sweep that have a kind: which kinds there are, and what each may hold.

Nothing is imported that takes time, and nothing is looked up by a name from the file except here:
a file that cannot be run is refused before jax is loaded.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from resonax.checks import (
    RANGES,
    ArgumentError,
    as_array,
    check_covariance,
    check_direction,
    check_number,
    check_numbers,
    check_range,
    check_whole,
    shorten,
    suggest,
)

__all__ = [
    "KINDS",
    "MOMENTUM_KINDS",
    "TRAIN_AXES",
    "Key",
    "check_table",
    "count_weights",
    "varying",
]

_LAYERS, _WIDTH = 8, 4096  # of a network, at most
Table = Mapping[str, Any]


class Key(NamedTuple):
    """What a key of a table may hold."""

    check: Callable[[str, Any], None]  # told the name and the value
    varies: bool = False  # whether it may be an axis
    needed: bool = False  # whether it must be given, unless it is an axis


def _whole(name: str, value: Any) -> None:
    check_whole(name, value, low=int(RANGES[name].low), high=RANGES[name].high)


def _flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        raise ArgumentError(f"{name} must be true or false, got {shorten(value)}")


def _plain_numbers(name: str, value: Any) -> None:
    """Check a number, a list of numbers or a list of such lists: no words, dates or flags."""
    for row in value if isinstance(value, list | tuple) else [value]:
        for number in row if isinstance(row, list | tuple) else [row]:
            check_number(name, number)


def _points(name: str, value: Any) -> None:
    _plain_numbers(name, value)
    array = as_array(name, value)
    check_numbers(name, array, (None, None))


def _widths(name: str, value: Any) -> None:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= _LAYERS:
        raise ArgumentError(
            f"{name} must be a list of 1 to {_LAYERS} widths of layers, got {shorten(value)}"
        )
    for width in value:
        check_whole(name, width, low=1, high=_WIDTH)


def _slow(name: str, value: Any) -> None:
    check_number(name, value, low=2, high=RANGES[name].high)  # no frequency is above 1/2


_PERIOD = {"period": Key(check_range, varies=True, needed=True)}
_INPUTS = {
    "amplitude": Key(check_range, varies=True),
    "variance": Key(_plain_numbers, varies=True),
    "dim": Key(_whole, varies=True),
}
_DIRECTION = {"direction": Key(_plain_numbers)}
_SWING = {"swing": Key(check_range, varies=True)}
_WAVE = {
    **_PERIOD,
    **_INPUTS,
    **_SWING,
    **_DIRECTION,
    "phase": Key(check_range, varies=True),
}


def _knobs(*names: str, needed: Collection[str] = ("lr",)) -> dict[str, Key]:
    return {name: Key(check_range, varies=True, needed=name in needed) for name in names}


_BOTH = ("lr", "momentum")
_ADAM = ("lr", "beta1", "beta2", "eps")

# part -> kind -> key. Optimizers of optax are those whose update of a weight is a function of that
# weight and its gradients alone: a norm over a layer has no meaning for weights kept one by one.
KINDS: dict[str, dict[str, dict[str, Key]]] = {
    "process": {
        "iid": {**_INPUTS, **_DIRECTION},
        "sinusoid": _WAVE,
        "square": _WAVE,
        "ar2": {
            "period": Key(_slow, varies=True, needed=True),
            **_INPUTS,
            **_SWING,
            **_DIRECTION,
            "innovation": Key(check_range, varies=True),
        },
        "switching": {**_PERIOD, **_INPUTS, **_SWING},
    },
    "model": {
        "linear": {"bias": Key(_flag)},
        "polynomial": {"degree": Key(_whole)},
        "fourier": {"frequencies": Key(_points, needed=True)},
        "radial": {"centers": Key(_points, needed=True), "width": Key(check_range)},
        "network": {"hidden": Key(_widths)},
    },
    "optimizer": {
        "heavy_ball": _knobs(*_BOTH, "dampening", "weight_decay", needed=_BOTH),
        "nesterov": _knobs(*_BOTH, "weight_decay", needed=_BOTH),
        "sgd": _knobs("lr", "weight_decay"),
        "adam": _knobs("lr", "beta1", "beta2"),
        "optax.adabelief": _knobs(*_ADAM, "eps_root"),
        "optax.adadelta": _knobs("lr", "rho", "eps", "weight_decay"),
        "optax.adagrad": _knobs("lr", "initial_accumulator_value", "eps"),
        "optax.adam": _knobs(*_ADAM, "eps_root"),
        "optax.adamax": _knobs(*_ADAM),
        "optax.adamaxw": _knobs(*_ADAM, "weight_decay"),
        "optax.adamw": _knobs(*_ADAM, "eps_root", "weight_decay"),
        "optax.adan": _knobs("lr", "eps", "weight_decay"),
        "optax.amsgrad": _knobs(*_ADAM, "eps_root"),
        "optax.lion": _knobs("lr", "beta1", "beta2", "weight_decay"),
        "optax.nadam": _knobs(*_ADAM, "eps_root"),
        "optax.nadamw": _knobs(*_ADAM, "eps_root", "weight_decay"),
        "optax.optimistic_gradient_descent": _knobs("lr", "alpha", "beta"),
        "optax.radam": _knobs(*_ADAM, "eps_root", "threshold"),
        "optax.rmsprop": _knobs("lr", "decay", "eps", "initial_scale", "momentum"),
        "optax.rprop": _knobs("lr", "eta_minus", "eta_plus", "min_step_size", "max_step_size"),
        "optax.sgd": _knobs("lr", "momentum"),
        "optax.sign_sgd": _knobs("lr"),
        "optax.yogi": _knobs(*_ADAM),
    },
}
MOMENTUM_KINDS = ("heavy_ball", "nesterov", "sgd")  # the optimizers that the theory knows
TRAIN_AXES = ("batch", "noise", "start")  # numbers of the table train that may be axes


def varying(part: str, kind: str) -> tuple[str, ...]:
    """Return the keys of a kind that may be axes.

    Examples
    --------
    >>> varying("optimizer", "nesterov")
    ('lr', 'momentum', 'weight_decay')
    """
    return tuple(name for name, key in KINDS[part][kind].items() if key.varies)


def check_table(
    part: str, table: Table, axes: Collection[str], place: Callable[[str], str]
) -> None:
    """Raise `ArgumentError` unless a table is one of its part's kinds.

    Parameters
    ----------
    part
        ``process``, ``model`` or ``optimizer``.
    table
        What the file has, panels merged.
    axes
        The names of the axes, which stand for keys that are not given.
    place
        From a key to its path in the file, for the message.
    """
    kinds = KINDS[part]
    kind = table.get("kind", "linear" if part == "model" else None)
    if kind is None:
        raise ArgumentError(f"{place('kind')} is missing: one of {', '.join(kinds)}")
    if not isinstance(kind, str) or kind not in kinds:
        raise suggest(place("kind"), kind if isinstance(kind, str) else shorten(kind), kinds)
    keys = kinds[kind]
    for name, value in table.items():
        if name == "kind":
            continue
        if name not in keys:
            known = ", ".join(keys)
            raise ArgumentError(f"{place(name)} is not a known key of {kind}, use one of {known}")
        if name in axes and keys[name].varies:
            raise ArgumentError(f"{place(name)} is given and is an axis: leave one of them out")
        try:
            keys[name].check(name, value)
        except ArgumentError as error:
            raise ArgumentError(f"{place(name)}{str(error).removeprefix(name)}") from None
    for name, key in keys.items():
        if key.needed and name not in table and name not in axes:
            way = ": give it, or make it an axis" if key.varies else ""
            raise ArgumentError(f"{place(name)} is missing{way}")
    if part == "process":
        _check_shapes(table, place)


def _check_shapes(table: Table, place: Callable[[str], str]) -> None:
    """Check what a process has for each of its inputs; ``dim`` is in the table, or is 1."""
    dim = table.get("dim", 1)
    for name, check in (("variance", check_covariance), ("direction", check_direction)):
        if name in table:
            try:
                check(table[name], dim)
            except ArgumentError as error:
                raise ArgumentError(f"{place(name)}{str(error).removeprefix(name)}") from None


def count_weights(model: Table, dim: int) -> int:
    """Return the number of weights of a model.

    Examples
    --------
    >>> count_weights({"kind": "polynomial", "degree": 2}, 2)  # 1, x, y, x^2, xy, y^2
    6
    """
    kind = model.get("kind", "linear")
    if kind == "polynomial":
        return math.comb(dim + model.get("degree", 2), dim)
    if kind == "fourier":
        return 1 + 2 * len(model["frequencies"])
    if kind == "radial":
        return 1 + len(model["centers"])
    if kind == "network":
        widths = (dim, *model.get("hidden", (20, 20)), 1)
        return sum((before + 1) * after for before, after in itertools.pairwise(widths))
    return dim + model.get("bias", True)
