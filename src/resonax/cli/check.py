"""The command ``resonax check``: a data file, a verdict, and an exit status for pipelines."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from resonax.checks import ArgumentError
from resonax.cli.build import build_features
from resonax.cli.cache import keep_compiled
from resonax.cli.options import number, option, whole
from resonax.cli.show import progress, show_line

if TYPE_CHECKING:
    from resonax.diagnostics import Check

__all__ = ["check_command"]

_COLOURS = {"converges": "green", "diverges": "red", "marginal": "yellow"}
_DATA, _TRAINING, _RESULT = "Data", "Training", "Result"


def check_command(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA", help="A .csv, .tsv, .parquet, .npy or .npz file.", show_default=False
        ),
    ],
    lr: Annotated[str, option("--lr", _TRAINING, "Step size.", metavar="NUMBER")],
    momentum: Annotated[
        str | None,
        option("--momentum", _TRAINING, "Momentum, from 0 to below 1.", metavar="NUMBER"),
    ] = None,
    target: Annotated[
        str | None, option("--target", _DATA, "Column to predict, by name or number.")
    ] = None,
    features: Annotated[
        str | None,
        option("--features", _DATA, "Columns to learn from: a,b,c (all but the target)."),
    ] = None,
    order_by: Annotated[
        str | None, option("--order-by", _DATA, "Column of numbers or dates to sort the rows by.")
    ] = None,
    standardise: Annotated[
        bool,
        option(
            "--standardise/--as-is", _DATA, "Bring columns to mean 0 and variance 1 (they are)."
        ),
    ] = True,
    batch: Annotated[
        str, option("--batch", _TRAINING, "Rows of one update (1).", metavar="NUMBER")
    ] = "1",
    epochs: Annotated[
        str, option("--epochs", _TRAINING, "Passes over the rows (1).", metavar="NUMBER")
    ] = "1",
    optimizer: Annotated[
        str,
        option(
            "--optimizer",
            _TRAINING,
            "heavy_ball (the default), nesterov, sgd, torch, optax, or river, whose linear models "
            "train the bias without momentum.",
        ),
    ] = "heavy_ball",
    intercept_lr: Annotated[
        str | None,
        option(
            "--intercept-lr",
            _TRAINING,
            "Step size of a bias without momentum (river: 0.01).",
            metavar="NUMBER",
        ),
    ] = None,
    dampening: Annotated[
        str, option("--dampening", _TRAINING, "Dampening (0).", metavar="NUMBER")
    ] = "0",
    weight_decay: Annotated[
        str, option("--weight-decay", _TRAINING, "Weight decay (0).", metavar="NUMBER")
    ] = "0",
    basis: Annotated[
        str,
        option(
            "--basis",
            _TRAINING,
            "linear (the default), polynomial:DEGREE, fourier:FREQUENCIES or radial:CENTERS.",
        ),
    ] = "linear",
    bias: Annotated[
        bool, option("--bias/--no-bias", _TRAINING, "Whether a linear model has a bias (it has).")
    ] = True,
    width: Annotated[
        str | None,
        option("--width", _TRAINING, "Width of the radial basis (1).", metavar="NUMBER"),
    ] = None,
    grid: Annotated[
        str, option("--grid", _RESULT, "Points along each axis of the map (32).", metavar="NUMBER")
    ] = "32",
    seed: Annotated[str, option("--seed", _RESULT, "Seed of the shuffles (0).")] = "0",
    html: Annotated[Path | None, option("--html", _RESULT, "Write a report: a .html file.")] = None,
    plot: Annotated[
        Path | None, option("--plot", _RESULT, "Draw: a .png, .svg or .pdf file.")
    ] = None,
    as_json: Annotated[bool, option("--json", _RESULT, "Print one JSON object.")] = False,
) -> None:
    """Check a data file before training: will momentum blow up on these rows in this order?

    The exit status is 1 if it diverges, 0 if not, 2 for bad input.

    resonax check data.csv --target y --lr 0.01 --momentum 0.95 --html report.html
    """
    from resonax.results import check_folder

    if momentum is None and optimizer != "sgd":
        raise ArgumentError(f"the optimizer {optimizer} needs --momentum, at least 0 and below 1")
    for name, path, endings in (
        ("html", html, (".html", ".htm")),
        ("plot", plot, (".png", ".svg", ".pdf")),
    ):
        if path is not None:
            if path.suffix.lower() not in endings:
                raise ArgumentError(f"--{name} must end in {' or '.join(endings)}, got {path}")
            check_folder(path)
    radius = number("width", width)
    keep_compiled()
    from resonax.diagnostics import check

    found = check(
        data,
        target,
        lr=number("lr", lr) or 0.0,
        momentum=number("momentum", momentum) or 0.0,
        batch=whole("batch", batch) or 0,
        features=features,
        order_by=order_by,
        optimizer=optimizer,
        dampening=number("dampening", dampening) or 0.0,
        weight_decay=number("weight_decay", weight_decay) or 0.0,
        basis=lambda columns: build_features(basis, bias, radius, columns),
        intercept_lr=number("intercept_lr", intercept_lr),
        standardise=standardise,
        epochs=whole("epochs", epochs) or 0,
        grid=whole("grid", grid) or 0,
        seed=whole("seed", seed) or 0,
        stage=lambda name, steps: progress(name, steps, "steps"),
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

    from resonax.diagnostics.result import sentence

    level = f"{found.settings['level']:.0%}"
    verdict = Text(found.verdict, style=f"bold {_COLOURS[found.verdict]}")
    console.print(verdict + Text(f": {found.meaning()}."), soft_wrap=True)
    rows = [
        (
            "growth per step",
            f"{found.rate:+.3g}, {level} interval {found.low:+.3g} to {found.high:+.3g}",
        ),
        (
            "the same rows shuffled",
            f"{found.shuffled_rate:+.3g}, interval of the mean {found.shuffled_low:+.3g} to "
            f"{found.shuffled_high:+.3g}",
        ),
    ]
    if found.pass_radius is not None:
        rows.append(("one pass multiplies by", f"{found.pass_radius:.3g}"))
    rows.append(("cause", found.explanation()))
    rows += [tuple(sentence(remedy).split(": ", 1)) for remedy in found.remedies]
    rows += [("note", note) for note in found.notes]
    rows += [(name, text) for name, text in found.facts if name == "done"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(Text(name), Text(text))
    console.print(table)
    if written:
        show_line(f"written: {', '.join(str(path) for path in written)}", console)
