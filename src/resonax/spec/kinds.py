"""Streams, models and optimizers by name: what each takes, and where it is made.

A test compares the table with the constructors.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Annotated, Any

from pydantic import Field, Strict, ValidationInfo, create_model, field_validator, model_validator

from resonax.core.errors import (
    RANGES,
    ArgumentError,
    check_covariance,
    check_direction,
    check_number,
    shorten,
    suggest,
)
from resonax.spec.models import NameFormat, Spec, read

__all__ = ["KINDS", "Kind", "SettingPart", "check_kind", "family_names", "find_kind", "kinds"]

_USES = ("stability", "sweep", "check")
_EVERY = (*_USES, "response")
_COMMANDS = {"level": "stability"}  # where a use is not a command of its own
_READING = ("target", "features", "order_by", "drop_missing", "separator", "decimal", "standardise")
_WIDTH = Annotated[int, Field(ge=1, le=4096)]  # of a layer
_TYPES: dict[str, Any] = {  # of what is no plain number
    "bias": bool,
    "repeat": bool,
    "hidden": Annotated[tuple[_WIDTH, ...], Strict(False), Field(min_length=1, max_length=8)],
}


class _Parameters(Spec):
    """The parameters of a kind."""

    @classmethod
    def unknown(cls, info: ValidationInfo) -> str:
        """Say what the kind takes."""
        context = info.context or {}
        format_name = str if context.get("in_sweep") else context.get("format_name", str)
        takes = ", ".join(map(format_name, cls.model_fields))
        return f"is not a parameter of {cls.__name__}, which takes {takes}"

    @classmethod
    def missing(cls, name: str, info: ValidationInfo) -> str:
        """Say what the parameter may be."""
        rule = f", {RANGES[name]}" if name in RANGES else ""
        may_vary = (info.context or {}).get("in_sweep") and name in RANGES
        return f"is missing: {cls.__name__} needs it{rule}{', or as an axis' if may_vary else ''}"

    @model_validator(mode="after")
    def _check_shapes(self) -> _Parameters:
        """Check what there is one number of for each input."""
        dim = getattr(self, "dim", None) or 1
        for name, check in (("variance", check_covariance), ("direction", check_direction)):
            if name in self.model_fields_set:
                check(getattr(self, name), dim)
        return self


class _Slow(_Parameters):
    """Those of a stream that has no frequency above 1/2."""

    period: Any

    @field_validator("period")
    @classmethod
    def _check_period(cls, period: Any) -> Any:
        check_number("period", period, low=2, high=RANGES["period"].high)
        return period


@dataclass(frozen=True)
class Kind:
    """A stream, a model or an optimizer."""

    name: str
    maker: str  # module:name of what makes it
    parameters: type[Spec]
    uses: tuple[str, ...]
    is_linear: bool = False  # of an optimizer: a `Momentum`, which the criteria can judge
    varies: bool = True  # whether its numbers may be axes of a sweep

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(self.parameters.model_fields)

    @property
    def varying(self) -> tuple[str, ...]:
        """Names of the parameters that may be axes of a sweep."""
        return tuple(name for name in self.names if self.varies and name in RANGES)

    def needs(self, name: str) -> bool:
        """Return whether a parameter has no default."""
        return self.parameters.model_fields[name].is_required()

    def without_zeros(self, numbers: Mapping[str, Any]) -> dict[str, Any]:
        """Return what was given, without a 0 for what the kind does not have: that says the same.

        Examples
        --------
        >>> KINDS["optimizer"]["sgd"].without_zeros({"lr": 0.1, "momentum": 0.0})
        {'lr': 0.1}
        """
        return {
            name: number
            for name, number in numbers.items()
            if name in self.names or not isinstance(number, int | float) or number != 0
        }

    def load(self) -> Callable[..., Any]:
        """Import what makes it."""
        return resolve_name(self.maker)


@dataclass(frozen=True)
class SettingPart:
    """A part of a setting: its kind, and its parameters by name."""

    kind: Kind
    given: Mapping[str, Any]


def _kind(
    name: str,
    maker: str,
    names: str,
    uses: tuple[str, ...],
    needs: str = "",
    base: type[Spec] = _Parameters,
    **rest: bool,
) -> Kind:
    """Declare a kind; its parameters, and those without a default, are words of a text."""
    every, needed = names.split(), needs.split()
    fields: dict[str, Any] = {
        key: (_TYPES.get(key, Any), ... if key in needed else None) for key in every
    }
    return Kind(name, maker, create_model(name, __base__=base, **fields), uses, **rest)


def _stream(name: str, maker: str, names: str, needs: str = "period", **rest: Any) -> Kind:
    uses = rest.pop("uses", ("stability", "sweep"))
    return _kind(name, f"resonax.streams:{maker}", names, uses, needs, **rest)


def _model(name: str, maker: str, names: str, needs: str = "", **rest: Any) -> Kind:
    uses = rest.pop("uses", _USES)
    return _kind(name, f"resonax.learners:{maker}", names, uses, needs, varies=False)


def _linear(name: str, maker: str, names: str, needs: str = "lr momentum", **rest: Any) -> Kind:
    uses = rest.pop("uses", _EVERY)
    return _kind(name, f"resonax.learners:{maker}", names, uses, needs, is_linear=True)


def _adaptive(name: str, names: str, *uses: str) -> Kind:
    return _kind(name, f"resonax.learners:{name}", names, ("level", *uses), "lr")


def _optax(name: str, names: str) -> Kind:
    return _kind(f"optax.{name}", f"optax:{name}", names, ("sweep", "response"), "lr")


_INPUTS = "amplitude variance dim"
_MOVING = f"period {_INPUTS} swing"
_WAVE = f"{_MOVING} direction phase"
_ADAM = "lr beta1 beta2 eps"

# Optimizers of optax are those whose update of a weight is a function of that weight and its
# gradients alone: a norm over a layer has no meaning for weights kept one by one.
KINDS: dict[str, dict[str, Kind]] = {
    family: {kind.name: kind for kind in table}
    for family, table in {
        "process": (
            _stream("iid", "Iid", f"{_INPUTS} direction", ""),
            _stream("sinusoid", "Sinusoid", _WAVE),
            _stream("square", "Square", _WAVE),
            _stream("ar2", "AR2", f"{_MOVING} direction innovation", base=_Slow),
            _stream("switching", "Switching", _MOVING),
            _stream(
                "recorded",
                "Recorded.of",
                " ".join(("data", "repeat", *_READING)),
                "data",
                uses=("stability",),
            ),
        ),
        "model": (
            _model("linear", "Linear", "bias"),
            _model("polynomial", "Polynomial", "degree"),
            _model("fourier", "Fourier.of", "frequencies", "frequencies"),
            _model("radial", "Radial.of", "centers width", "centers"),
            _model("network", "Network", "hidden", uses=("sweep",)),
        ),
        "optimizer": (
            _linear("heavy_ball", "heavy_ball", "lr momentum dampening weight_decay"),
            _linear("nesterov", "nesterov", "lr momentum weight_decay"),
            _linear("sgd", "sgd", "lr weight_decay", "lr"),
            # As these libraries have it; river's linear models train the bias without momentum.
            _linear(
                "torch",
                "from_torch",
                "lr momentum dampening weight_decay",
                "lr",  # whose momentum is 0 if left out
                uses=("check",),
            ),
            _linear("optax", "heavy_ball", "lr momentum", uses=("check",)),
            _linear("river", "heavy_ball", "lr momentum weight_decay", uses=("check",)),
            _adaptive("adam", "lr beta1 beta2", "sweep", "response"),
            _adaptive("adamw", "lr beta1 beta2 weight_decay"),
            _adaptive("amsgrad", "lr beta1 beta2"),
            _adaptive("rmsprop", "lr beta2 momentum"),
            _optax("adabelief", f"{_ADAM} eps_root"),
            _optax("adadelta", "lr rho eps weight_decay"),
            _optax("adagrad", "lr initial_accumulator_value eps"),
            _optax("adam", f"{_ADAM} eps_root"),
            _optax("adamax", _ADAM),
            _optax("adamaxw", f"{_ADAM} weight_decay"),
            _optax("adamw", f"{_ADAM} eps_root weight_decay"),
            _optax("adan", "lr eps weight_decay"),
            _optax("amsgrad", f"{_ADAM} eps_root"),
            _optax("lion", "lr beta1 beta2 weight_decay"),
            _optax("nadam", f"{_ADAM} eps_root"),
            _optax("nadamw", f"{_ADAM} eps_root weight_decay"),
            _optax("optimistic_gradient_descent", "lr alpha beta"),
            _optax("radam", f"{_ADAM} eps_root threshold"),
            _optax("rmsprop", "lr decay eps initial_scale momentum"),
            _optax("rprop", "lr eta_minus eta_plus min_step_size max_step_size"),
            _optax("sgd", "lr momentum"),
            _optax("sign_sgd", "lr"),
            _optax("yogi", _ADAM),
        ),
    }.items()
}


def kinds(family: str, use: str) -> tuple[str, ...]:
    """Return the names of a family for a use: ``stability``, ``level``, ``sweep``, ``check``, ...

    Examples
    --------
    >>> kinds("optimizer", "stability")
    ('heavy_ball', 'nesterov', 'sgd')
    """
    return tuple(name for name, kind in KINDS[family].items() if use in kind.uses)


def family_names(family: str) -> set[str]:
    """Return the names of all parameters of a family."""
    return {name for kind in KINDS[family].values() for name in kind.names}


def find_kind(family: str, name: Any, use: str, label: str | None = None) -> Kind:
    """Return a kind by its name; raise `ArgumentError` for one that is unknown or of another use.

    Examples
    --------
    >>> find_kind("optimizer", "adam", "check")
    Traceback (most recent call last):
    resonax.ArgumentError: check does not cover the optimizer adam, only heavy_ball, nesterov, ...
    """
    known = KINDS[family]
    if not isinstance(name, str) or name not in known:
        word = name if isinstance(name, str) else shorten(name)
        raise suggest(label or family, word, kinds(family, use))
    if use not in known[name].uses:
        commands = dict.fromkeys(_COMMANDS.get(other, other) for other in known[name].uses)
        raise ArgumentError(
            f"{_COMMANDS.get(use, use)} does not cover the {family} {name}, only "
            f"{', '.join(kinds(family, use))}; for {name} use "
            f"{' or '.join(', '.join(commands).rsplit(', ', 1))}"
        )
    return known[name]


def check_kind(
    family: str,
    name: Any,
    given: Mapping[str, Any],
    *,
    use: str,
    format_name: NameFormat = str,
    axes: Collection[str] | None = None,
) -> Kind:
    """Return a kind, after its parameters were checked; raise `ArgumentError` for a wrong one.

    Parameters
    ----------
    family
        ``process``, ``model`` or ``optimizer``.
    name
        Of the kind.
    given
        Parameters by name. A number may be an array, of which every entry is checked.
    use
        ``stability``, ``level``, ``sweep``, ``check`` or ``response``.
    format_name
        Formats the name of a parameter for error messages: an option, or its path in a file.
    axes
        Names of the axes of a sweep, which are among ``given``.

    Examples
    --------
    >>> check_kind("optimizer", "sgd", {"lr": 0.1, "momentum": 0.9}, use="stability")
    Traceback (most recent call last):
    resonax.ArgumentError: momentum is not a parameter of sgd, which takes lr, weight_decay
    """
    in_sweep = axes is not None
    kind = find_kind(family, name, use, format_name("kind") if in_sweep else None)
    read(kind.parameters, given, format_name=format_name, in_sweep=in_sweep)
    return kind
