"""The options that commands share, declared once: a stream, a learner, and how a file is read.

Each group is a dataclass; `with_groups` gives a command that takes some of them all of their
options on the command line. Numbers are parsed on the way in: a command receives numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer

from resonax.cli.commands import completing
from resonax.cli.parsers import (
    axis,
    number,
    parser,
    variances,
    whole,
    whole_axis,
)
from resonax.spec.kinds import kinds
from resonax.spec.settings import parse_numbers

if TYPE_CHECKING:
    import numpy as np

    from resonax.store import Place

    Points: TypeAlias = float | np.ndarray
    Counts: TypeAlias = int | np.ndarray
    Numbers: TypeAlias = list[float]
    Folder: TypeAlias = Place
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
    "option",
]

_STREAM, _LEARNER, _DATA = "Stream", "Learner", "Data"
_ONE_NUMBER = (axis, whole_axis, number, whole)


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
