"""A setting by the names of its parts, checked before jax is loaded.

The command line and the page describe a setting by the same options, a flat mapping like
``{"process": "sinusoid", "period": 22, "lr": 0.01, "momentum": 0.97}``. What is left out has its
default. Numbers that vary are arrays, of which every entry is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from resonax.core.errors import RANGES, ArgumentError, shorten
from resonax.spec.kinds import SettingPart, check_kind, family_names, find_kind, kinds
from resonax.spec.models import NameFormat, Spec, read

__all__ = [
    "AXES",
    "SIGNALLED",
    "AxisName",
    "SettingParts",
    "check_basis",
    "check_optimizer",
    "check_process",
    "check_setting",
    "first_points",
    "is_adaptive",
    "is_driven",
    "parse_numbers",
]

AxisName = Literal[
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
    "drift",
]
AXES: tuple[AxisName, ...] = get_args(AxisName)  # that may be ranges, in this order

_OPTIMIZER = "heavy_ball"  # if none is named
SIGNALLED = ("sinusoid", "square", "ar2", "switching")  # whose inputs a target may follow


class _OtherOptions(Spec):
    batch: Any = 1
    noise: Any = 1.0
    drift: Any = 0.0
    drift_direction: Any = None
    omitted: Any = None
    omitted_weights: Any = None


@dataclass(frozen=True)
class SettingParts:
    """What a setting is made of."""

    process: SettingPart
    optimizer: SettingPart
    basis: SettingPart
    batch: Any
    noise: Any
    drift: Any = 0.0
    drift_direction: Any = None
    omitted: SettingPart | None = None  # features that the model leaves out of the target
    omitted_weights: Any = None


def is_adaptive(options: Mapping[str, Any]) -> bool:
    """Return whether the optimizer has a level in place of a growth rate."""
    return options.get("optimizer", _OPTIMIZER) in kinds("optimizer", "level")


def check_optimizer(
    options: Mapping[str, Any], use: str, format_name: NameFormat = str
) -> SettingPart:
    """Return the optimizer that some options name.

    Examples
    --------
    >>> check_optimizer({"lr": 0.1, "momentum": 0.9, "period": 22}, "stability").given
    {'lr': 0.1, 'momentum': 0.9}
    """
    name = options.get("optimizer", _OPTIMIZER)
    kind, known = find_kind("optimizer", name, use), family_names("optimizer")
    own = kind.without_zeros({key: value for key, value in options.items() if key in known})
    return SettingPart(check_kind("optimizer", name, own, use=use, format_name=format_name), own)


def parse_numbers(name: str, text: str) -> list[float]:
    """Return numbers separated by commas.

    Examples
    --------
    >>> parse_numbers("direction", "1,0,2")
    [1.0, 0.0, 2.0]
    """
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ArgumentError(
            f"{name} must be numbers separated by commas, got {shorten(text)}"
        ) from None


def check_basis(
    options: Mapping[str, Any], format_name: NameFormat = str, key: str = "basis"
) -> SettingPart:
    """Return the basis, given as ``name`` or ``name:numbers`` under a key.

    Numbers of a Fourier or a radial basis go along each coordinate: here they are one column.
    """
    basis = options.get(key, "linear")
    if not isinstance(basis, str):
        raise ArgumentError(f"{format_name(key)} must be a name, got {shorten(basis)}")
    name, colon, text = basis.partition(":")
    kind = find_kind("model", name, "stability", key)
    own = kind.names[0]  # what the numbers are
    if colon and not text.strip():
        raise ArgumentError(
            f"{format_name(key)} {shorten(basis)} names no numbers: write {name} alone, or one of "
            "polynomial:2, fourier:1,2 and radial:-1,0,1 with numbers of yours"
        )
    given: dict[str, Any] = {key: options[key] for key in ("bias", "width") if key in options}
    for key in given:
        if key not in kind.names:
            raise ArgumentError(f"{format_name(key)} is not for the basis {name}")
    if name == "linear" and text:
        raise ArgumentError(f"the linear basis takes no numbers, got {shorten(basis)}")
    if name == "polynomial" and text:
        if not text.isdecimal() or len(text) > 9:
            raise ArgumentError(
                f"the degree of a polynomial must be a whole number from 1 to 8, "
                f"got {shorten(text)}"
            )
        given[own] = int(text)
    if kind.needs(own):
        given[own] = [[point] for point in parse_numbers(format_name(key), text or "1")]
    check_kind("model", name, given, use="stability", format_name=format_name)
    return SettingPart(kind, given)


def _check_omitted(options: Mapping[str, Any], format_name: NameFormat) -> SettingPart | None:
    """Return the features of what is omitted, given as a basis is, with a weight for each."""
    one, other = options.get("omitted"), options.get("omitted_weights")
    if (one is None) != (other is None):
        missing = "omitted_weights" if other is None else "omitted"
        raise ArgumentError(
            f"{format_name(missing)} is missing: omitted features and weights go together"
        )
    if one is None:
        return None
    return check_basis({"omitted": one}, format_name, "omitted")


def is_driven(options: Mapping[str, Any]) -> bool:
    """Return whether the best weights move with the inputs.

    Examples
    --------
    >>> is_driven({"drift": 0.5}), is_driven({"omitted": "polynomial:2"}), is_driven({"drift": 0})
    (True, True, False)
    """
    return options.get("omitted") is not None or bool(np.any(np.asarray(options.get("drift", 0.0))))


def check_process(options: Mapping[str, Any], format_name: NameFormat = str) -> SettingPart:
    """Return the process that some options name."""
    name, known = options.get("process"), family_names("process")
    if not name:
        choices = ", ".join(kinds("process", "stability"))
        raise ArgumentError(f"name a process first: one of {choices}")
    own = {key: value for key, value in options.items() if key in known}
    if isinstance(own.get("direction"), list | tuple):
        own.setdefault("dim", len(own["direction"]))
    variance = own.get("variance")
    if isinstance(variance, list | tuple) and len(variance) == 1:
        own["variance"] = variance[0]
    checked = dict(own)
    if isinstance(variance, np.ndarray):  # a range, where a list is one for each input
        for end in (variance.max(), variance.min()):
            checked["variance"] = float(end)
            check_kind("process", name, checked, use="stability", format_name=format_name)
    return SettingPart(
        check_kind("process", name, checked, use="stability", format_name=format_name), own
    )


def check_setting(options: Mapping[str, Any], format_name: NameFormat = str) -> SettingParts:
    """Return the parts of the setting that some options describe.

    Parameters
    ----------
    options
        Names and numbers, by the options of the command line.
    format_name
        Formats the name of a parameter for error messages.

    Examples
    --------
    >>> options = {"process": "sinusoid", "period": 22, "lr": 0.01, "momentum": 0.97, "batch": 20}
    >>> parts = check_setting(options)
    >>> parts.process.given, parts.optimizer.kind.name, parts.batch, parts.noise
    ({'period': 22}, 'heavy_ball', 20, 1.0)
    """
    process = check_process(options, format_name)
    use = "level" if is_adaptive(options) else "stability"
    optimizer = check_optimizer(options, use, format_name)
    basis = check_basis(options, format_name)
    own = {key: options[key] for key in _OtherOptions.model_fields if options.get(key) is not None}
    rest = read(_OtherOptions, own, format_name=format_name)
    omitted = _check_omitted(options, format_name)
    if is_driven(options):
        if use == "level":
            raise ArgumentError(
                f"{format_name('drift')} and {format_name('omitted')} are for SGD with momentum: "
                "leave them out"
            )
        if process.kind.name not in SIGNALLED and omitted is None:
            raise ArgumentError(
                f"{format_name('drift')} needs inputs that move, one of {', '.join(SIGNALLED)}"
            )
    return SettingParts(
        process,
        optimizer,
        basis,
        rest.batch,
        rest.noise,
        rest.drift,
        rest.drift_direction,
        omitted,
        rest.omitted_weights,
    )


def first_points(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with the first point of every range in its place."""
    return {
        name: float(value[0]) if name in RANGES and isinstance(value, np.ndarray) else value
        for name, value in given.items()
    }
