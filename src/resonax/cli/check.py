"""The command ``resonax check``: a data file, a verdict, and an exit status for pipelines."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from resonax.checks import ArgumentError
from resonax.cli.build import BASES, OPTIMIZERS, build_features
from resonax.cli.cache import keep_compiled
from resonax.cli.options import number, option, whole
from resonax.cli.show import progress, show_line
from resonax.data.example import EXAMPLE
from resonax.labels import plain

if TYPE_CHECKING:
    from resonax.checking.result import Check

__all__ = ["check_command"]

_COLOURS = {"converges": "green", "diverges": "red", "marginal": "yellow"}
_DATA, _TRAINING, _RESULT = "Data", "Training", "Result"


def check_command(
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="DATA", help="A .csv, .tsv, .parquet, .npy or .npz file.", show_default=False
        ),
    ] = None,
    lr: Annotated[str | None, option("--lr", _TRAINING, "Step size.", metavar="NUMBER")] = None,
    momentum: Annotated[
        str | None,
        option("--momentum", _TRAINING, "Momentum, from 0 to below 1.", metavar="NUMBER"),
    ] = None,
    target: Annotated[
        str | None,
        option("--target", _DATA, "Column to predict, by name or number.", metavar="COLUMN"),
    ] = None,
    features: Annotated[
        str | None,
        option(
            "--features",
            _DATA,
            "Columns to learn from, as a,b,c; all but the target if left out.",
            metavar="COLUMNS",
        ),
    ] = None,
    order_by: Annotated[
        str | None,
        option(
            "--order-by", _DATA, "Column of numbers or dates to sort the rows by.", metavar="COLUMN"
        ),
    ] = None,
    group_by: Annotated[
        str | None,
        option(
            "--group-by",
            _DATA,
            "Column that tells several series apart, each a run of its own.",
            metavar="COLUMN",
        ),
    ] = None,
    horizon: Annotated[
        str | None,
        option("--horizon", _DATA, "Predict the target this many rows later.", metavar="NUMBER"),
    ] = None,
    drop_missing: Annotated[
        bool, option("--drop-missing", _DATA, "Leave out rows with missing values.")
    ] = False,
    separator: Annotated[
        str | None,
        option(
            "--separator",
            _DATA,
            "What separates the columns of text: ';', tab, ...; guessed if left out.",
            metavar="MARK",
        ),
    ] = None,
    decimal: Annotated[
        str | None,
        option(
            "--decimal",
            _DATA,
            "Decimal mark of text: . or , ; guessed if left out.",
            metavar="MARK",
        ),
    ] = None,
    example: Annotated[
        bool, option("--example", _DATA, f"Check data that resonax brings: {EXAMPLE.title}.")
    ] = False,
    standardise: Annotated[
        bool,
        option(
            "--standardise/--as-is", _DATA, "Whether to bring columns to mean 0 and variance 1."
        ),
    ] = True,
    batch: Annotated[
        str, option("--batch", _TRAINING, "Rows of one update.", metavar="NUMBER")
    ] = "1",
    epochs: Annotated[
        str, option("--epochs", _TRAINING, "Passes over the rows.", metavar="NUMBER")
    ] = "1",
    loss: Annotated[
        str,
        option(
            "--loss",
            _TRAINING,
            "squared, or logistic for two classes.",
            names=("squared", "logistic"),
        ),
    ] = "squared",
    optimizer: Annotated[
        str,
        option(
            "--optimizer",
            _TRAINING,
            "heavy_ball, nesterov, sgd, torch, optax, or river, whose linear models train the bias "
            "without momentum.",
            names=(*OPTIMIZERS, "torch", "optax", "river"),
        ),
    ] = "heavy_ball",
    intercept_lr: Annotated[
        str | None,
        option(
            "--intercept-lr",
            _TRAINING,
            "Step size of a bias without momentum; 0.01 for river if left out.",
            metavar="NUMBER",
        ),
    ] = None,
    dampening: Annotated[
        str, option("--dampening", _TRAINING, "Dampening.", metavar="NUMBER")
    ] = "0",
    weight_decay: Annotated[
        str, option("--weight-decay", _TRAINING, "Weight decay.", metavar="NUMBER")
    ] = "0",
    basis: Annotated[
        str,
        option(
            "--basis",
            _TRAINING,
            "linear, polynomial:DEGREE, fourier:FREQUENCIES or radial:CENTERS.",
            names=BASES,
        ),
    ] = "linear",
    bias: Annotated[
        bool, option("--bias/--no-bias", _TRAINING, "Whether a linear model has a bias.")
    ] = True,
    width: Annotated[
        str | None,
        option("--width", _TRAINING, "Width of the radial basis; 1 if left out.", metavar="NUMBER"),
    ] = None,
    grid: Annotated[
        str, option("--grid", _RESULT, "Points along each axis of the map.", metavar="NUMBER")
    ] = "32",
    seed: Annotated[
        str, option("--seed", _RESULT, "Seed of the shuffles.", metavar="NUMBER")
    ] = "0",
    html: Annotated[
        Path | None, option("--html", _RESULT, "Write a report: a .html file.", metavar="FILE")
    ] = None,
    plot: Annotated[
        Path | None, option("--plot", _RESULT, "Draw: a .png, .svg or .pdf file.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, option("--json", _RESULT, "Print one JSON object.")] = False,
) -> None:
    """Check a data file before training: will momentum blow up on these rows in this order?

    The exit status is 1 if it diverges, 0 if not, 2 for bad input.

    resonax check data.csv --target y --lr 0.01 --momentum 0.95 --html report.html

    resonax check --example
    """
    from resonax.checking.limits import check_asked
    from resonax.results import check_folder

    taken = ""
    if example:
        if data is not None:
            raise ArgumentError(f"--example brings its own data: leave out {plain(data)}, or it")
        data, target, horizon, order_by = EXAMPLE.path, target or "temp", horizon or "1", "date"
        lr = lr or "0.01"
        momentum = momentum or (None if optimizer == "sgd" else "0.95")
        given = {"target": target, "horizon": horizon, "order-by": order_by, "lr": lr}
        given |= {} if momentum is None else {"momentum": momentum}
        taken = " ".join(f"--{name} {value}" for name, value in given.items())
    elif data is None:
        raise ArgumentError("name a data file, or try --example: resonax check data.csv --lr 0.01")
    if lr is None:
        raise ArgumentError("--lr is needed, a number above 0")
    if momentum is None and optimizer != "sgd":
        raise ArgumentError(f"the optimizer {optimizer} needs --momentum, at least 0 and below 1")
    asked: dict[str, Any] = {
        "lr": number("lr", lr),
        "momentum": number("momentum", momentum) or 0.0,
        "batch": whole("batch", batch),
        "epochs": whole("epochs", epochs),
        "loss": loss,
        "optimizer": optimizer,
        "intercept_lr": number("intercept_lr", intercept_lr),
        "dampening": number("dampening", dampening) or 0.0,
        "weight_decay": number("weight_decay", weight_decay) or 0.0,
        "grid": whole("grid", grid),
        "seed": whole("seed", seed),
    }
    check_asked(**asked)
    radius = number("width", width)
    for name, path, endings in (
        ("html", html, (".html", ".htm")),
        ("plot", plot, (".png", ".svg", ".pdf")),
    ):
        if path is not None:
            if path.suffix.lower() not in endings:
                raise ArgumentError(f"--{name} must end in {' or '.join(endings)}, got {path}")
            check_folder(path)
    from resonax.recordings.recording import read_recording

    recording = read_recording(
        data,
        target,
        features=features,
        order_by=order_by,
        group_by=group_by,
        horizon=whole("horizon", horizon),
        drop_missing=drop_missing,
        separator=separator,
        decimal=decimal,
        standardise=standardise,
        labels=loss == "logistic",
    )
    if taken:
        note = f"example of {EXAMPLE.title} ({EXAMPLE.licence}), checked with {taken}"
        recording = replace(recording, notes=(note, *recording.notes))
    keep_compiled()
    from resonax.checking.check import check

    found = check(
        recording,
        basis=lambda columns: build_features(basis, bias, radius, columns),
        stage=lambda name, steps: progress(name, steps, "steps"),
        **asked,
    )
    if plot is not None:
        from resonax.figures import save_figure
        from resonax.figures.check import plot_check

        save_figure(plot_check(found), plot)
    if html is not None:
        from resonax.reports.check import write_check

        write_check(found, html, command=shlex.join(["resonax", *sys.argv[1:]]))
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        _show(found, [path for path in (plot, html) if path is not None], Console())
    raise typer.Exit(int(found.verdict == "diverges"))


def _show(found: Check, written: list[Path], console: Console) -> None:
    """Print the verdict, the cause, the remedies and what was done, in this order."""
    from rich.table import Table
    from rich.text import Text

    from resonax.checking.answers import factor
    from resonax.checking.result import sentence

    level = f"{found.settings['level']:.0%}"
    verdict = Text(found.verdict, style=f"bold {_COLOURS[found.verdict]}")
    console.print(verdict + Text(f": {found.meaning()}."), soft_wrap=True)
    console.print(Text(f"{found.on_more.meaning().capitalize()}."), soft_wrap=True)
    rows = [
        (
            "growth per step",
            f"{found.rate:+.3g}, on more of the same a {level} interval {found.low:+.3g} to "
            f"{found.high:+.3g}",
        ),
        (
            "the same rows shuffled",
            f"{found.shuffled_rate:+.3g}, interval of the mean {found.shuffled_low:+.3g} to "
            f"{found.shuffled_high:+.3g}",
        ),
    ]
    if found.on_these_rows.log_pass_radius is not None:
        text = factor(found.on_these_rows.log_pass_radius)
        rows.append(("each further pass multiplies by", text))
    rows.append(("cause", found.explanation()))
    rows += [tuple(sentence(remedy).split(": ", 1)) for remedy in found.remedies]
    rows += [("note", note) for note in found.notes]
    rows += [(name, text) for name, text in found.facts if name == "done"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(Text(name), Text(plain(text, 10_000)))
    console.print(table)
    if written:
        show_line(f"written: {', '.join(str(path) for path in written)}", console)
