"""Processes, models and optimizers by name: what each takes, and where it is made.

The command line, the tables of a sweep and `check` use this table, so that names, parameters and
messages are the same everywhere. No heavy library is imported: mistakes are found before jax is
loaded, and `Kind.load` imports what makes a kind. A test compares the table with the constructors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pkgutil import resolve_name
from typing import Any, NamedTuple

from resonax.core.errors import (
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

__all__ = ["KINDS", "Field", "Kind", "check_kind", "find_kind", "kinds", "without_zeros"]

_USES = ("stability", "sweep", "check")
_EVERY = (*_USES, "response")
_LAYERS, _WIDTH = 8, 4096  # of a network, at most


class Field(NamedTuple):
    """What a parameter of a kind may be."""

    check: Callable[[str, Any], None] = check_range  # told the name and the value
    varies: bool = True  # whether it may be an axis of a sweep
    needed: bool = False  # whether it has no default


class Kind(NamedTuple):
    """A process, a model or an optimizer."""

    maker: str  # module:name of what makes it
    fields: Mapping[str, Field]
    uses: tuple[str, ...]
    is_linear: bool = False  # of an optimizer: a `Momentum`, which the criteria can judge

    def load(self) -> Callable[..., Any]:
        """Import what makes it."""
        return resolve_name(self.maker)

    def varying(self) -> tuple[str, ...]:
        """Return the parameters that may be axes of a sweep."""
        return tuple(name for name, field in self.fields.items() if field.varies)


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
    check_numbers(name, as_array(name, value), (None, None))


def _widths(name: str, value: Any) -> None:
    if not isinstance(value, list | tuple) or not 1 <= len(value) <= _LAYERS:
        raise ArgumentError(
            f"{name} must be a list of 1 to {_LAYERS} widths of layers, got {shorten(value)}"
        )
    for width in value:
        check_whole(name, width, low=1, high=_WIDTH)


def _slow(name: str, value: Any) -> None:
    check_number(name, value, low=2, high=RANGES[name].high)  # no frequency is above 1/2


def _read(name: str, value: Any) -> None:
    """Leave it to the reader of recordings."""


_INPUTS = {"amplitude": Field(), "variance": Field(_plain_numbers), "dim": Field(_whole)}
_DIRECTION = {"direction": Field(_plain_numbers, varies=False)}
_MOVING = {"period": Field(needed=True), **_INPUTS, "swing": Field()}
_WAVE = {**_MOVING, **_DIRECTION, "phase": Field()}
_SLOW = {"period": Field(_slow, needed=True)}
_READING = ("target", "features", "order_by", "drop_missing", "separator", "decimal", "standardise")


def _process(name: str, fields: Mapping[str, Field], *uses: str) -> Kind:
    return Kind(f"resonax.streams:{name}", fields, uses or ("stability", "sweep"))


def _model(name: str, **fields: Field) -> Kind:
    fixed = {key: field._replace(varies=False) for key, field in fields.items()}
    return Kind(f"resonax.learners:{name}", fixed, ("sweep",) if name == "Network" else _USES)


def _numbers(*names: str, needed: Collection[str] = ("lr",)) -> dict[str, Field]:
    return {name: Field(needed=name in needed) for name in names}


_BOTH, _BETAS = ("lr", "momentum"), ("beta1", "beta2")
_ADAM = ("lr", *_BETAS, "eps")


def _linear(maker: str, *names: str, uses: tuple[str, ...] = _EVERY) -> Kind:
    needed = _BOTH[:1] if maker == "from_torch" else _BOTH  # whose momentum is 0 if left out
    return Kind(f"resonax.learners:{maker}", _numbers(*names, needed=needed), uses, is_linear=True)


def _optax(name: str, *names: str) -> Kind:
    return Kind(f"optax:{name}", _numbers(*names), ("sweep", "response"))


def _adaptive(maker: str, *names: str) -> Kind:
    uses = ("level", "sweep", "response") if maker == "adam" else ("level",)
    return Kind(f"resonax.learners:{maker}", _numbers("lr", *names), uses)


# Optimizers of optax are those whose update of a weight is a function of that weight and its
# gradients alone: a norm over a layer has no meaning for weights kept one by one.
KINDS: dict[str, dict[str, Kind]] = {
    "process": {
        "iid": _process("Iid", {**_INPUTS, **_DIRECTION}),
        "sinusoid": _process("Sinusoid", _WAVE),
        "square": _process("Square", _WAVE),
        "ar2": _process("AR2", {**_MOVING, **_DIRECTION, "innovation": Field(), **_SLOW}),
        "switching": _process("Switching", _MOVING),
        "recorded": _process(
            "Recorded.of",
            {"data": Field(_read, needed=True), "repeat": Field(_flag)}
            | {name: Field(_read) for name in _READING},
            "stability",
        ),
    },
    "model": {
        "linear": _model("Linear", bias=Field(_flag)),
        "polynomial": _model("Polynomial", degree=Field(_whole)),
        "fourier": _model("Fourier.of", frequencies=Field(_points, needed=True)),
        "radial": _model("Radial.of", centers=Field(_points, needed=True), width=Field()),
        "network": _model("Network", hidden=Field(_widths)),
    },
    "optimizer": {
        "heavy_ball": _linear("heavy_ball", *_BOTH, "dampening", "weight_decay"),
        "nesterov": _linear("nesterov", *_BOTH, "weight_decay"),
        "sgd": _linear("sgd", "lr", "weight_decay"),
        # As these libraries have it; river's linear models train the bias without momentum.
        "torch": _linear("from_torch", *_BOTH, "dampening", "weight_decay", uses=("check",)),
        "optax": _linear("heavy_ball", *_BOTH, uses=("check",)),
        "river": _linear("heavy_ball", *_BOTH, "weight_decay", uses=("check",)),
        "adam": _adaptive("adam", *_BETAS),
        "adamw": _adaptive("adamw", *_BETAS, "weight_decay"),
        "amsgrad": _adaptive("amsgrad", *_BETAS),
        "rmsprop": _adaptive("rmsprop", "beta2", "momentum"),
        "optax.adabelief": _optax("adabelief", *_ADAM, "eps_root"),
        "optax.adadelta": _optax("adadelta", "lr", "rho", "eps", "weight_decay"),
        "optax.adagrad": _optax("adagrad", "lr", "initial_accumulator_value", "eps"),
        "optax.adam": _optax("adam", *_ADAM, "eps_root"),
        "optax.adamax": _optax("adamax", *_ADAM),
        "optax.adamaxw": _optax("adamaxw", *_ADAM, "weight_decay"),
        "optax.adamw": _optax("adamw", *_ADAM, "eps_root", "weight_decay"),
        "optax.adan": _optax("adan", "lr", "eps", "weight_decay"),
        "optax.amsgrad": _optax("amsgrad", *_ADAM, "eps_root"),
        "optax.lion": _optax("lion", "lr", "beta1", "beta2", "weight_decay"),
        "optax.nadam": _optax("nadam", *_ADAM, "eps_root"),
        "optax.nadamw": _optax("nadamw", *_ADAM, "eps_root", "weight_decay"),
        "optax.optimistic_gradient_descent": _optax(
            "optimistic_gradient_descent", "lr", "alpha", "beta"
        ),
        "optax.radam": _optax("radam", *_ADAM, "eps_root", "threshold"),
        "optax.rmsprop": _optax("rmsprop", "lr", "decay", "eps", "initial_scale", "momentum"),
        "optax.rprop": _optax(
            "rprop", "lr", "eta_minus", "eta_plus", "min_step_size", "max_step_size"
        ),
        "optax.sgd": _optax("sgd", "lr", "momentum"),
        "optax.sign_sgd": _optax("sign_sgd", "lr"),
        "optax.yogi": _optax("yogi", *_ADAM),
    },
}


def kinds(family: str, use: str) -> tuple[str, ...]:
    """Return the names of a family for a use: ``stability``, ``level``, ``sweep``, ``check``, ...

    Examples
    --------
    >>> kinds("optimizer", "stability")
    ('heavy_ball', 'nesterov', 'sgd')
    """
    return tuple(name for name, kind in KINDS[family].items() if use in kind.uses)


def find_kind(family: str, name: Any, use: str, label: str | None = None) -> Kind:
    """Return a kind by its name; raise `ArgumentError` for one that is unknown or of another use.

    Examples
    --------
    >>> find_kind("optimizer", "adam", "check")
    Traceback (most recent call last):
    resonax.ArgumentError: the optimizer adam is for level, sweep and response alone, ...
    """
    known = KINDS[family]
    if not isinstance(name, str) or name not in known:
        word = name if isinstance(name, str) else shorten(name)
        raise suggest(label or family, word, kinds(family, use))
    if use not in known[name].uses:
        *most, last = known[name].uses
        uses = f"{', '.join(most)} and {last}" if most else last
        taken = ", ".join(kinds(family, use))
        raise ArgumentError(f"the {family} {name} is for {uses} alone, {use} takes {taken}")
    return known[name]


def check_kind(
    family: str,
    name: Any,
    given: Mapping[str, Any],
    *,
    use: str,
    axes: Collection[str] | None = None,
    place: Callable[[str], str] = str,
) -> Kind:
    """Return a kind, after its parameters were checked; raise `ArgumentError` for a wrong one.

    Parameters
    ----------
    family
        ``process``, ``model`` or ``optimizer``.
    name
        Of the kind.
    given
        Parameters by name.
    use
        ``stability``, ``level``, ``sweep``, ``check`` or ``response``.
    axes
        Names of the axes of a sweep, which stand for parameters that are not given.
    place
        How a parameter is spelled to who gave it: an option, or its path in a file.

    Examples
    --------
    >>> check_kind("optimizer", "sgd", {"lr": 0.1, "momentum": 0.9}, use="stability")
    Traceback (most recent call last):
    resonax.ArgumentError: momentum is not a parameter of sgd, which takes lr, weight_decay
    """
    kind = find_kind(family, name, use, place("kind") if axes is not None else None)
    for key, value in given.items():
        if key not in kind.fields:
            takes = ", ".join(key if axes is not None else place(key) for key in kind.fields)
            raise ArgumentError(f"{place(key)} is not a parameter of {name}, which takes {takes}")
        _placed(kind.fields[key].check, key, value, place)
    for key, field in kind.fields.items():
        if field.needed and key not in given and key not in (axes or ()):
            rule = f", {RANGES[key]}" if key in RANGES else ""
            rule += ", or as an axis" if axes is not None and field.varies else ""
            raise ArgumentError(f"{place(key)} is missing: {name} needs it{rule}")
    dim = given.get("dim", 1)  # what a process has for each of its inputs
    for key, check in (("variance", check_covariance), ("direction", check_direction)):
        if key in given:
            _placed(lambda _, value, check=check: check(value, dim), key, given[key], place)
    return kind


def _placed(check: Callable[..., Any], key: str, value: Any, place: Callable[[str], str]) -> None:
    try:
        check(key, value)
    except ArgumentError as error:
        raise ArgumentError(f"{place(key)}{str(error).removeprefix(key)}") from None


def without_zeros(kind: Kind, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was given, without a 0 for what a kind does not have: that says the same.

    Examples
    --------
    >>> without_zeros(KINDS["optimizer"]["sgd"], {"lr": 0.1, "momentum": 0.0})
    {'lr': 0.1}
    """
    plain = {name for name, number in numbers.items() if isinstance(number, int | float)}
    lacking = plain - kind.fields.keys()
    return {name: number for name, number in numbers.items() if name not in lacking or number != 0}
