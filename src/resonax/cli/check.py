"""The command ``resonax check``: a data file, a verdict, and an exit status for pipelines."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from resonax.cli.audit import TRAINED, audit_file, check_paths, finish_audit
from resonax.cli.cache import keep_compiled
from resonax.cli.options import (
    Data,
    Learner,
    Plot,
    Reading,
    Seed,
    given,
    option,
    single,
    with_groups,
)
from resonax.cli.parsers import number, option_name, whole
from resonax.cli.show import progress, say_time, show_line
from resonax.cli.statuses import Status
from resonax.core.errors import ArgumentError
from resonax.core.labels import printable
from resonax.data.example import EXAMPLE
from resonax.spec.checks import check_options

if TYPE_CHECKING:
    from resonax.checking.result import Check
    from resonax.recordings.recording import Recording

__all__ = ["check_command"]

_COLOURS = {"converges": "green", "diverges": "red", "rises": "red"}
_SECONDS, _COLUMNS = 2.5e-4, 60  # of a step, and columns that double them: on one core of x86
_LONG = 20.0  # seconds from which the time is said
_DATA, _LEARNER, _RESULT = "Data", "Learner", "Result"


@with_groups
def check_command(
    context: typer.Context,
    reading: Reading,
    learner: Learner,
    data: Data = None,
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
        int | None,
        option("--horizon", _DATA, "Predict the target this many rows later.", whole),
    ] = None,
    example: Annotated[
        bool, option("--example", _DATA, f"Check data that resonax brings: {EXAMPLE.title}.")
    ] = False,
    epochs: Annotated[int, option("--epochs", _LEARNER, "Passes over the rows.", whole)] = 1,
    loss: Annotated[
        str,
        option(
            "--loss",
            _LEARNER,
            "squared, or logistic for two classes.",
            names=("squared", "logistic"),
        ),
    ] = "squared",
    model: Annotated[
        str,
        option(
            "--model",
            _LEARNER,
            "linear, or mlp: a network of 32 hidden units, for which copies are trained.",
            names=("linear", "mlp"),
        ),
    ] = "linear",
    intercept_lr: Annotated[
        float | None,
        option(
            "--intercept-lr",
            _LEARNER,
            "Step size of a bias without momentum; 0.01 for river if left out.",
            number,
        ),
    ] = None,
    grid: Annotated[
        int, option("--grid", _RESULT, "Points along each axis of the map.", whole)
    ] = 32,
    seed: Seed = 0,
    html: Annotated[
        Path | None, option("--html", _RESULT, "Write a report: a .html file.", metavar="FILE")
    ] = None,
    plot: Plot = None,
    out: Annotated[
        Path | None,
        option("--out", _RESULT, "Keep the check, to draw it again: a .json file.", metavar="FILE"),
    ] = None,
    as_json: Annotated[bool, option("--json", _RESULT, "Print one JSON object.")] = False,
) -> None:
    """Check a data file before training: will momentum blow up on these rows in this order?

    The model is linear in its weights. The exit status is 1 if it diverges on these rows, or if
    the distance from the best weights rises more than 30-fold on the way; 0 if not; 2 for bad
    input. For adam, adamw and --model mlp a model is trained, as by resonax audit: the verdict is
    measured, not proved, and the exit status is 1 if the order is harmful.

    resonax check data.csv --target y --lr 0.01 --momentum 0.95 --html report.html

    resonax check --example
    """
    if example:
        if data is not None:
            raise ArgumentError(
                f"--example brings its own data: leave out {printable(data)}, or it"
            )
        data, horizon = EXAMPLE.path, horizon or 1
        reading = replace(reading, target=reading.target or "temp", order_by="date")
        usual = None if learner.optimizer == "sgd" else 0.95
        momentum = usual if learner.momentum is None else learner.momentum
        learner = replace(learner, lr=learner.lr or 0.01, momentum=momentum)
    elif data is None:
        raise ArgumentError("name a data file, or try --example: resonax check data.csv --lr 0.01")
    single(learner)
    if model != "linear" or learner.optimizer in TRAINED:
        _train(
            data,
            model,
            reading,
            learner,
            group_by,
            horizon,
            epochs,
            loss,
            seed,
            html,
            plot,
            out,
            as_json,
        )
    options: dict[str, Any] = {
        "epochs": epochs,
        "loss": loss,
        "intercept_lr": intercept_lr,
        "grid": grid,
    }
    options |= {"seed": seed, "group_by": group_by, "horizon": horizon}
    source = context.get_parameter_source("batch")
    if source is None or source.name != "DEFAULT":
        options["batch"] = learner.batch
    read, asked = check_options(given(reading) | given(learner) | options, option_name)
    check_paths(html, plot, out)
    from resonax.recordings.recording import read_recording

    recording = read_recording(data, **read)
    if example:
        chosen = {"target": reading.target, "horizon": horizon, "order_by": reading.order_by}
        numbers = {name: getattr(learner, name) for name in ("lr", "momentum")}
        chosen |= {name: number for name, number in numbers.items() if number is not None}
        taken = " ".join(f"{option_name(name)} {value}" for name, value in chosen.items())
        note = f"example of {EXAMPLE.title} ({EXAMPLE.licence}), checked with {taken}"
        recording = replace(recording, notes=(note, *recording.notes))
    _tell_time(recording, int(asked["batch"] or 1), epochs)
    keep_compiled()
    from resonax.checking.check import check
    from resonax.dynamics.build import build_basis

    basis = partial(build_basis, asked.pop("basis"))
    found = check(
        recording,
        basis=basis,
        stage=lambda name, steps: progress(name, steps, "steps"),
        **asked,
    )
    _write(found, html, plot)
    if out is not None:
        found.save(out)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        _show(found, [path for path in (plot, html, out) if path is not None], Console())
    raise typer.Exit(Status.DIVERGES if found.on_these_rows.is_harmful else Status.ANSWERED)


def _train(
    data: Path,
    model: str,
    reading: Reading,
    learner: Learner,
    group_by: str | None,
    horizon: int | None,
    epochs: int,
    loss: str,
    seed: int,
    html: Path | None,
    plot: Path | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Check by training: the command ends with the status of the audit."""
    check_paths(html, plot, out)
    if learner.lr is None:
        raise ArgumentError("--lr is needed: the step size")
    if learner.basis != "linear" or not learner.bias or learner.width is not None:
        raise ArgumentError("leave out --basis, --width and --no-bias where a model is trained")
    is_adam = learner.optimizer in TRAINED
    wrong = learner.momentum if is_adam else learner.beta1
    if wrong is not None:
        names = ("--beta1", "--momentum") if is_adam else ("--momentum", "--beta1")
        raise ArgumentError("{} takes {} in place of {}".format(learner.optimizer, *names))
    from resonax.recordings.recording import read_recording

    options = given(reading) | {"group_by": group_by, "horizon": horizon}
    features = options.pop("features", None)
    if features is not None:
        options["features"] = features.split(",")
    recording = read_recording(data, labels=loss == "logistic", **options)
    numbers = {"beta2": learner.beta2, "weight_decay": learner.weight_decay}
    found = audit_file(
        recording,
        model=model,
        optimizer=learner.optimizer,
        lr=float(learner.lr),
        momentum=learner.beta1 if is_adam else learner.momentum,
        batch=int(learner.batch),
        epochs=epochs,
        loss=loss,
        seed=seed,
        **{name: value for name, value in numbers.items() if value is not None},
    )
    finish_audit(found, html, plot, out, as_json)


def _tell_time(recording: Recording, batch: int, epochs: int) -> None:
    """Say on the error stream how long it takes, where it takes long, before anything begins."""
    from resonax.rows.intervals import MAX_ROWS

    rows, columns = recording.inputs.shape
    steps = rows // batch * epochs
    seconds = steps * _SECONDS * (1 + columns / _COLUMNS)
    if seconds > _LONG and rows * epochs <= MAX_ROWS:  # more are refused
        print(
            f"resonax: {steps:,} steps, which take about {say_time(seconds)}; with fewer --epochs "
            "it is faster, and what each further pass does is part of the answer",
            file=sys.stderr,
            flush=True,
        )


def _write(found: Check, html: Path | None, plot: Path | None) -> None:
    if plot is not None:
        from resonax.figures import save_figure

        save_figure(found.plot(), plot)
    if html is not None:
        from resonax.reports.check import write_check

        write_check(found, html, command=shlex.join(["resonax", *sys.argv[1:]]))


def _show(found: Check, written: list[Path], console: Console) -> None:
    """Print the verdict, the cause, the remedies and what was done, in this order."""
    from rich.table import Table
    from rich.text import Text

    from resonax.checking.result import sentence
    from resonax.rows.answers import factor

    confidence = f"{found.settings['confidence']:.0%}"
    verdict = Text(found.verdict, style=f"bold {_COLOURS[found.verdict]}")
    console.print(verdict + Text(f": {found.model}."), soft_wrap=True)
    for text in (found.on_these_rows.meaning(), found.on_more.meaning()):
        console.print(Text(f"{text[0].upper()}{text[1:]}."), soft_wrap=True)
    if found.question:
        console.print(Text(found.question.replace("batch=N", "--batch N")), soft_wrap=True)
    rows = [
        (
            "growth per step",
            f"{found.rate:+.3g}; on further data like this {confidence} interval "
            f"{found.low:+.3g} to {found.high:+.3g}",
        ),
        (
            "the same rows shuffled",
            f"{found.shuffled_rate:+.3g}; {confidence} interval of the mean "
            f"{found.shuffled_low:+.3g} "
            f"to {found.shuffled_high:+.3g}; rises up to {factor(found.log_shuffled_rise)}-fold",
        ),
    ]
    if found.on_these_rows.log_pass_radius is not None:
        text = factor(found.on_these_rows.log_pass_radius)
        rows.append(("further passes", f"each multiplies the distance by {text} in the end"))
    rows.append(("cause", found.explanation()))
    rows += [tuple(sentence(remedy).split(": ", 1)) for remedy in found.remedies]
    rows += [tuple(text.split(": ", 1)) for text in found.explained]
    rows.append(("every order", found.order_proof.meaning("rows")))
    rows += [("note", note) for note in found.notes]
    rows += [(name, text) for name, text in found.facts if name == "preprocessing"]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in rows:
        table.add_row(Text(name), Text(printable(text, 10_000)))
    console.print(table)
    if written:
        show_line(f"written: {', '.join(str(path) for path in written)}", console)
