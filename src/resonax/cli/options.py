"""The options that commands share, declared once: a stream, a learner, and how a file is read.

Each group is a dataclass; `with_groups` gives a command that takes some of them all of their
options on the command line. Numbers are parsed on the way in: a command receives numbers.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from resonax.cli.parsers import (
    OptionError,
    axis,
    number,
    option_name,
    parser,
    variances,
    whole,
    whole_axis,
)
from resonax.spec.kinds import kinds
from resonax.spec.settings import parse_numbers

if TYPE_CHECKING:
    import numpy as np

    from resonax.store import Location

    Points: TypeAlias = float | np.ndarray
    Counts: TypeAlias = int | np.ndarray
    Numbers: TypeAlias = list[float]
    Folder: TypeAlias = Location
else:  # what a parser returns is no matter to typer, and numpy takes its time
    # A path would be: typer 0.19 makes one of what was parsed, even of a URL.
    Points, Counts, Numbers, Folder = float, int, str, str

__all__ = [
    "Data",
    "Folder",
    "Learner",
    "Noise",
    "Plot",
    "Reading",
    "Seed",
    "Stream",
    "Target",
    "completing",
    "given",
    "option",
    "single",
    "with_groups",
]

_STREAM, _LEARNER, _TARGET, _DATA = "Stream", "Learner", "Target", "Data"
_ONE_NUMBER = (axis, whole_axis, number, whole)


def completing(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Return a function that completes the beginning of a name, for a shell.

    Examples
    --------
    >>> completing(["sgd", "sinusoid", "square"])("s")
    ['sgd', 'sinusoid', 'square']
    """
    known = list(names)
    return lambda incomplete: [name for name in known if name.startswith(incomplete)]


def option(
    name: str,
    panel: str,
    text: str,
    kind: Callable[[str, str], Any] | None = None,
    *,
    names: Iterable[str] | None = None,
    **rest: Any,
) -> Any:
    """Declare an option: of a ``kind`` of numbers, or with ``names`` that a shell can complete."""
    if kind is not None:
        metavar = "NUMBER" if kind in _ONE_NUMBER else "NUMBERS"
        rest = {"metavar": metavar, "parser": parser(kind, name), **rest}
    if names is not None:
        rest = {"metavar": "NAME", "autocompletion": completing(names), **rest}
    return typer.Option(name, rich_help_panel=panel, help=text, **rest)


_OPTIMIZERS = dict.fromkeys(
    name for use in ("check", "level", "response") for name in kinds("optimizer", use)
)
Data = Annotated[
    Path | None,
    typer.Argument(
        metavar="DATA", help="A .csv, .tsv, .parquet, .npy or .npz file.", show_default=False
    ),
]
Seed = Annotated[int, option("--seed", "Result", "Seed of all random numbers.", whole)]
Plot = Annotated[
    Path | None, option("--plot", "Result", "Draw: a .png, .svg or .pdf file.", metavar="FILE")
]
Noise = Annotated[Points, option("--noise", _LEARNER, "Variance of the observation noise.", axis)]


@dataclass(frozen=True)
class Stream:
    """A process and its numbers."""

    process: Annotated[
        str,
        typer.Argument(
            metavar="PROCESS",
            help=f"How the inputs move: {', '.join(kinds('process', 'stability'))}.",
            show_default=False,
            autocompletion=completing(kinds("process", "stability")),
        ),
    ] = ""
    period: Annotated[Points | None, option("--period", _STREAM, "Period, in steps.", axis)] = None
    amplitude: Annotated[
        Points | None,
        option("--amplitude", _STREAM, "Amplitude of the mean; 0.5 if left out.", axis),
    ] = None
    variance: Annotated[
        Numbers | None,
        option(
            "--variance",
            _STREAM,
            "Variance around the mean, one for each input as 1,0.5; 1 if left out.",
            variances,
        ),
    ] = None
    swing: Annotated[
        Points | None,
        option(
            "--swing",
            _STREAM,
            "How far the variance moves too, by factors up to e^swing; not at all if left out.",
            axis,
        ),
    ] = None
    phase: Annotated[
        Points | None,
        option("--phase", _STREAM, "Phase at step 0, in radians; 0 if left out.", axis),
    ] = None
    innovation: Annotated[
        Points | None,
        option(
            "--innovation",
            _STREAM,
            "ar2: how noisy the rhythm is, as a share; 0.0001 if left out.",
            axis,
        ),
    ] = None
    dim: Annotated[
        int | None, option("--dim", _STREAM, "Number of inputs; 1 if left out.", whole)
    ] = None
    direction: Annotated[
        Numbers | None,
        option(
            "--direction",
            _STREAM,
            "Direction in which the mean moves, as 1,0,2; that of the first if left out.",
            parse_numbers,
        ),
    ] = None
    data: Annotated[
        Path | None,
        option(
            "--data",
            _STREAM,
            "recorded: a .csv, .tsv, .parquet, .npy or .npz file of inputs.",
            metavar="FILE",
        ),
    ] = None
    repeat: Annotated[
        bool, option("--repeat", _STREAM, "recorded: replay the file again and again.")
    ] = False


@dataclass(frozen=True)
class Learner:
    """A model, an optimizer and their numbers."""

    lr: Annotated[Points | None, option("--lr", _LEARNER, "Step size.", axis)] = None
    momentum: Annotated[
        Points | None,
        option("--momentum", _LEARNER, "Momentum, from 0 to below 1.", axis),
    ] = None
    beta1: Annotated[
        Points | None, option("--beta1", _LEARNER, "Adam's decay of the mean.", axis)
    ] = None
    beta2: Annotated[
        Points | None, option("--beta2", _LEARNER, "Adam's decay of the squares.", axis)
    ] = None
    batch: Annotated[
        Counts, option("--batch", _LEARNER, "Samples or rows of each step.", whole_axis)
    ] = 1
    optimizer: Annotated[
        str,
        option(
            "--optimizer",
            _LEARNER,
            f"{', '.join(kinds('optimizer', 'stability'))}; stability and map also take "
            f"{', '.join(kinds('optimizer', 'level'))}; check also takes torch, optax, and "
            "river, whose linear models train the bias without momentum; response also takes adam "
            "and those of optax.",
            names=_OPTIMIZERS,
        ),
    ] = "heavy_ball"
    dampening: Annotated[
        Points | None, option("--dampening", _LEARNER, "Dampening; 0 if left out.", axis)
    ] = None
    weight_decay: Annotated[
        Points | None, option("--weight-decay", _LEARNER, "Weight decay; 0 if left out.", axis)
    ] = None
    basis: Annotated[
        str,
        option(
            "--basis",
            _LEARNER,
            "linear, polynomial:DEGREE, fourier:FREQUENCIES or radial:CENTERS.",
            names=kinds("model", "stability"),
        ),
    ] = "linear"
    bias: Annotated[
        bool, option("--bias/--no-bias", _LEARNER, "Whether a linear model has a bias.")
    ] = True
    width: Annotated[
        float | None,
        option("--width", _LEARNER, "Width of the radial basis; 1 if left out.", number),
    ] = None


@dataclass(frozen=True)
class Target:
    """How the best weights move with the inputs."""

    drift: Annotated[
        Points | None,
        option(
            "--drift",
            _TARGET,
            "How far the best weights move with the inputs; not at all if left out.",
            axis,
        ),
    ] = None
    drift_direction: Annotated[
        Numbers | None,
        option(
            "--drift-direction",
            _TARGET,
            "Direction in which they move, a number for each weight; the first if left out.",
            parse_numbers,
        ),
    ] = None
    omitted: Annotated[
        str | None,
        option(
            "--omitted",
            _TARGET,
            "Features of the target that the model leaves out, as polynomial:2.",
            names=kinds("model", "stability"),
        ),
    ] = None
    omitted_weights: Annotated[
        Numbers | None,
        option(
            "--omitted-weights", _TARGET, "Their weights in the target, as 0,0,1.", parse_numbers
        ),
    ] = None


@dataclass(frozen=True)
class Reading:
    """How a file of rows is read."""

    target: Annotated[
        str | None,
        option("--target", _DATA, "Column to predict, by name or number.", metavar="COLUMN"),
    ] = None
    features: Annotated[
        str | None,
        option(
            "--features",
            _DATA,
            "Columns to learn from, as a,b,c; all but the target if left out.",
            metavar="COLUMNS",
        ),
    ] = None
    order_by: Annotated[
        str | None,
        option(
            "--order-by", _DATA, "Column of numbers or dates to sort the rows by.", metavar="COLUMN"
        ),
    ] = None
    drop_missing: Annotated[
        bool, option("--drop-missing", _DATA, "Leave out rows with missing values.")
    ] = False
    separator: Annotated[
        str | None,
        option(
            "--separator",
            _DATA,
            "What separates the columns of text: ';', tab, ...; guessed if left out.",
            metavar="MARK",
        ),
    ] = None
    decimal: Annotated[
        str | None,
        option(
            "--decimal",
            _DATA,
            "Decimal mark of text: . or , ; guessed if left out.",
            metavar="MARK",
        ),
    ] = None
    standardise: Annotated[
        bool,
        option(
            "--standardise/--as-is", _DATA, "Whether to bring columns to mean 0 and variance 1."
        ),
    ] = True


def given(group: Any) -> dict[str, Any]:
    """Return the options of a group that differ from what they are if left out."""
    found = {item.name: getattr(group, item.name) for item in fields(group)}
    return {item.name: found[item.name] for item in fields(group) if _differs(found, item)}


def _differs(found: dict[str, Any], item: Any) -> bool:
    value = found[item.name]
    return value is not item.default and (hasattr(value, "shape") or value != item.default)


def single(*groups: Any, **options: Any) -> None:
    """Raise `OptionError` for an option that is a range."""
    for found in (*map(given, groups), options):
        for name, value in found.items():
            if hasattr(value, "shape"):
                raise OptionError(
                    f"{option_name(name)} must be a number: a range is for resonax map"
                )


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all options of the groups that it takes, in their place."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    parameters: list[inspect.Parameter] = []
    for item in inspect.signature(command).parameters.values():
        group = groups.get(item.name)
        if group is None:
            parameters.append(item.replace(annotation=hints[item.name]))
        else:
            own = typing.get_type_hints(group, include_extras=True)
            parameters += [
                part.replace(annotation=own[part.name])
                for part in inspect.signature(group).parameters.values()
            ]

    @functools.wraps(command)
    def wrapper(**options: Any) -> None:
        made = {
            name: group(**{item.name: options.pop(item.name) for item in fields(group)})
            for name, group in groups.items()
        }
        command(**made, **options)

    wrapper.__signature__ = inspect.Signature(  # pyrefly: ignore[missing-attribute]
        [item.replace(kind=item.KEYWORD_ONLY) for item in parameters]
    )
    wrapper.__annotations__ = {item.name: item.annotation for item in parameters}
    return wrapper
