"""The options that describe a setting, declared once for all commands."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from resonax.checks import ArgumentError, shorten
from resonax.cli.build import BASES, OPTIMIZERS, PROCESSES, build_setting
from resonax.cli.commands import completing

if TYPE_CHECKING:
    from resonax.dynamics import Setting

__all__ = ["Options", "number", "option", "taking_options", "whole"]

_STREAM, _LEARNER = "Stream", "Learner"


def option(
    name: str, panel: str, text: str, *, names: Iterable[str] | None = None, **rest: Any
) -> Any:
    """Declare an option; numbers are taken as text, so that a slip is told in our own words.

    ``names`` are the words that it takes, which a shell can complete.
    """
    if names is not None:
        rest = {"metavar": "NAME", "autocompletion": completing(names), **rest}
    return typer.Option(name, rich_help_panel=panel, help=text, **rest)


def _number_option(name: str, panel: str, text: str) -> Any:
    return option(name, panel, text, metavar="NUMBER")


def number(name: str, text: str | None) -> float | None:
    """Return an option that must be one number."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(f"{name} must be a number, got {shorten(text)}") from None


_MOST_DIGITS = 40


def whole(name: str, text: str | None) -> int | None:
    """Return an option that must be one whole number, exact whatever its size.

    Examples
    --------
    >>> whole("seed", "9007199254740993"), whole("steps", "1e4")
    (9007199254740993, 10000)
    """
    if text is None:
        return None
    try:
        value = Decimal(text)
        if not value.is_finite() or value != value.to_integral_value():
            raise ArithmeticError
    except ArithmeticError:
        raise ArgumentError(f"{name} must be a whole number, got {shorten(text)}") from None
    if value.adjusted() >= _MOST_DIGITS:
        raise ArgumentError(
            f"{name} must be a whole number of at most {_MOST_DIGITS} digits, got {shorten(text)}"
        )
    return int(value)


@dataclass(frozen=True)
class Options:
    """A process, what learns from it, and how."""

    process: Annotated[
        str,
        typer.Argument(
            metavar="PROCESS",
            help=f"How the inputs move: {', '.join(PROCESSES)}.",
            show_default=False,
            autocompletion=completing(PROCESSES),
        ),
    ] = ""
    lr: Annotated[str | None, _number_option("--lr", _LEARNER, "Step size.")] = None
    momentum: Annotated[
        str | None, _number_option("--momentum", _LEARNER, "Momentum, from 0 to below 1.")
    ] = None
    batch: Annotated[str, _number_option("--batch", _LEARNER, "Samples drawn for each step.")] = "1"
    optimizer: Annotated[
        str, option("--optimizer", _LEARNER, f"{', '.join(OPTIMIZERS)}.", names=OPTIMIZERS)
    ] = "heavy_ball"
    dampening: Annotated[
        str, _number_option("--dampening", _LEARNER, "Dampening of heavy_ball.")
    ] = "0"
    weight_decay: Annotated[str, _number_option("--weight-decay", _LEARNER, "Weight decay.")] = "0"
    noise: Annotated[
        str, _number_option("--noise", _LEARNER, "Variance of the observation noise.")
    ] = "1"
    basis: Annotated[
        str,
        option(
            "--basis",
            _LEARNER,
            "linear, polynomial:DEGREE, fourier:FREQUENCIES or radial:CENTERS.",
            names=BASES,
        ),
    ] = "linear"
    bias: Annotated[
        bool, option("--bias/--no-bias", _LEARNER, "Whether a linear model has a bias.")
    ] = True
    width: Annotated[
        str | None, _number_option("--width", _LEARNER, "Width of the radial basis; 1 if left out.")
    ] = None
    period: Annotated[str | None, _number_option("--period", _STREAM, "Period, in steps.")] = None
    amplitude: Annotated[
        str | None,
        _number_option(
            "--amplitude",
            _STREAM,
            "Amplitude (or standard deviation) of the mean; 0.5 if left out (ar2: 0.32, iid: 0).",
        ),
    ] = None
    variance: Annotated[
        str | None,
        _number_option(
            "--variance",
            _STREAM,
            "Variance of the inputs around their mean: one number, or one for each input as 1,0.5; "
            "1 if left out (switching: 0.25).",
        ),
    ] = None
    swing: Annotated[
        str | None,
        _number_option(
            "--swing",
            _STREAM,
            "How far the variance moves too, by factors up to e^swing; not at all if left out.",
        ),
    ] = None
    phase: Annotated[
        str | None,
        _number_option("--phase", _STREAM, "Phase at step 0, in radians; 0 if left out."),
    ] = None
    innovation: Annotated[
        str | None,
        _number_option(
            "--innovation", _STREAM, "ar2: how noisy the rhythm is, as a share; 0.0001 if left out."
        ),
    ] = None
    dim: Annotated[
        str | None, _number_option("--dim", _STREAM, "Number of inputs; 1 if left out.")
    ] = None
    direction: Annotated[
        str | None,
        option(
            "--direction",
            _STREAM,
            "Direction in which the mean moves, as 1,0,2; that of the first if left out.",
            metavar="NUMBERS",
        ),
    ] = None
    data: Annotated[
        Path | None,
        option("--data", _STREAM, "recorded: a .npy or .csv file of inputs.", metavar="FILE"),
    ] = None
    repeat: Annotated[
        bool, option("--repeat", _STREAM, "recorded: replay the file again and again.")
    ] = False

    def setting(self, **axes: float) -> Setting:
        """Return the setting, with some numbers replaced by the first value of their range."""
        if not self.process:
            raise ArgumentError(f"name a process first: one of {', '.join(PROCESSES)}")
        numbers = {
            name: axes[name] if name in axes else number(name, getattr(self, name))
            for name in ("lr", "momentum", "period", "amplitude")
        }
        if numbers["lr"] is None:
            raise ArgumentError("--lr is needed, a number above 0")
        process = {
            "period": numbers["period"],
            "amplitude": numbers["amplitude"],
            "variance": self.variance,
            "swing": number("swing", self.swing),
            "phase": number("phase", self.phase),
            "innovation": number("innovation", self.innovation),
            "dim": whole("dim", self.dim),
            "direction": self.direction,
            "data": self.data,
            "repeat": self.repeat or None,
        }
        return build_setting(
            self.process,
            process,
            lr=numbers["lr"],
            momentum=numbers["momentum"],
            optimizer=self.optimizer,
            dampening=number("dampening", self.dampening) or 0.0,
            weight_decay=number("weight_decay", self.weight_decay) or 0.0,
            batch=whole("batch", str(axes.get("batch", self.batch))) or 0,
            noise=number("noise", self.noise) or 0.0,
            basis=self.basis,
            bias=self.bias,
            width=number("width", self.width),
        )


def taking_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command, whose first argument is `Options`, all of its options on the command line."""
    names = [item.name for item in fields(Options)]
    hints = typing.get_type_hints(Options, include_extras=True)
    own = typing.get_type_hints(command, include_extras=True)
    first, *rest = inspect.signature(command).parameters.values()
    shared = inspect.signature(Options).parameters.values()

    @functools.wraps(command)
    def wrapper(**given: Any) -> None:
        options = Options(**{name: given.pop(name) for name in names})
        command(options, **given)

    keywords = [*shared, *rest]
    types = {**hints, **own}
    types.pop(first.name)
    wrapper.__signature__ = inspect.Signature(  # pyright: ignore[reportAttributeAccessIssue]
        [
            item.replace(kind=item.KEYWORD_ONLY, annotation=types[item.name])
            for item in sorted(keywords, key=lambda item: item.default is not item.empty)
        ]
    )
    wrapper.__annotations__ = types
    return wrapper
