"""The command ``resonax audit``: a loader of one's own, and a file for which a model is trained."""

from __future__ import annotations

import json
import shlex
import sys
import traceback
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from resonax.cli.options import Plot, Seed, option
from resonax.cli.parsers import number, whole
from resonax.cli.show import check_path, show_line
from resonax.cli.statuses import Status
from resonax.core.errors import ArgumentError, ResonaxError, shorten
from resonax.core.labels import printable

if TYPE_CHECKING:
    from resonax.guards.audit import Audit

__all__ = ["TRAINED", "audit_command", "audit_file", "check_paths", "finish_audit"]

TRAINED = ("adam", "adamw")  # optimizers for which check trains a model
_RESULT, _LOADER = "Result", "Loader"
_COLOURS = {"harmful": "red", "harmless": "green", "none": "green", None: "yellow"}


def audit_command(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="What returns loader, model, loss_fn and optimizer, or the loader alone.",
            show_default=False,
        ),
    ],
    steps: Annotated[int, option("--steps", _LOADER, "Batches that are read.", whole)] = 512,
    budget: Annotated[
        float,
        option("--budget", _LOADER, "Steps that copies train at most, in multiples of it.", number),
    ] = 64.0,
    confidence: Annotated[
        float,
        option("--confidence", _LOADER, "Chance that a random order is called random.", number),
    ] = 0.99,
    seed: Seed = 0,
    html: Annotated[
        Path | None, option("--html", _RESULT, "Write a report: a .html file.", metavar="FILE")
    ] = None,
    plot: Plot = None,
    out: Annotated[
        Path | None, option("--out", _RESULT, "Keep the audit: a .json file.", metavar="FILE")
    ] = None,
    as_json: Annotated[bool, option("--json", _RESULT, "Print one JSON object.")] = False,
) -> None:
    """Audit a loader: does it shuffle, does its order harm training, why, and what ends that?

    FUNCTION takes no arguments and returns (loader, model, loss_fn, optimizer), as
    resonax.torch.audit takes them, or the loader alone. Copies are trained. The exit status is 1 if
    the order is harmful, or training fails; 0 if not; 2 for bad input.

    resonax audit train:make --steps 512 --html report.html
    """
    check_paths(html, plot, out)
    resolve_name("resonax.guards.audit:check_options")(steps, budget, confidence)
    given = _make(function)
    parts = given if isinstance(given, tuple) and len(given) == 4 else (given,)
    audit = resolve_name("resonax.torch.auditing:audit")
    finish_audit(
        audit(*parts, steps=steps, budget=budget, confidence=confidence, seed=seed),
        html,
        plot,
        out,
        as_json,
    )


def check_paths(html: Path | None, plot: Path | None, out: Path | None) -> None:
    """Raise `ArgumentError` unless all files can be written."""
    check_path("--html", html, ".html", ".htm")
    check_path("--plot", plot, ".png", ".svg", ".pdf")
    check_path("--out", out, ".json")


def _make(name: str) -> Any:
    """Return what a function of the user returns; an error in their code becomes one sentence."""
    try:
        return _load(name)()
    except ResonaxError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        file, line, text = last.filename, last.lineno, str(error)
        if isinstance(error, SyntaxError):
            file, line, text = error.filename, error.lineno, error.msg
        what = printable(f"{type(error).__name__}: {text}")
        raise ArgumentError(f"{name} fails in {printable(file)}, line {line}: {what}") from None


def _load(name: str) -> Any:
    """Return a function of a module that lies in the current folder, or is installed."""
    module, mark, _ = name.partition(":")
    if not (module and mark):
        raise ArgumentError(
            f"name what makes the loader as module:function, as train:make, got {shorten(name)}"
        )
    sys.path.insert(0, "")
    try:
        found = resolve_name(name)
    except ModuleNotFoundError as error:
        raise ArgumentError(f"{name}: there is no module {error.name}") from None
    except AttributeError:
        raise ArgumentError(
            f"{module} has no {name.partition(':')[2]}: name a function of it"
        ) from None
    except ValueError:
        raise ArgumentError(f"{shorten(name)} is no module:function") from None
    finally:
        sys.path.remove("")
    if not callable(found):
        raise ArgumentError(f"{name} must be a function, got {type(found).__name__}")
    return found


def audit_file(recording: Any, **options: Any) -> Audit:
    """Return the audit of the rows of a recording, for a model that is trained on them."""
    if recording.target is None:
        raise ArgumentError("name the column to predict: --target")
    audit_rows = resolve_name("resonax.torch.recorded:audit_rows")
    return audit_rows(recording.inputs, recording.target, notes=recording.notes, **options)


def finish_audit(
    found: Audit, html: Path | None, plot: Path | None, out: Path | None, as_json: bool
) -> None:
    """Write and print an audit, and end with the status that it has."""
    if plot is not None:
        from resonax.figures import save_figure

        save_figure(found.plot(), plot)
    if html is not None:
        from resonax.reports.audit import write_audit

        write_audit(found, html, command=shlex.join(["resonax", *sys.argv[1:]]))
    if out is not None:
        found.save(out)
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
    else:
        _show(found, [path for path in (plot, html, out) if path is not None], Console())
    raise typer.Exit(Status.DIVERGES if found.is_harmful else Status.ANSWERED)


def _show(found: Audit, written: list[Path], console: Console) -> None:
    from rich.table import Table
    from rich.text import Text

    head, mark, rest = found.verdict().partition(":")
    console.print(
        Text(head, style=f"bold {_COLOURS[found.harm]}") + Text(f"{mark}{rest}."), soft_wrap=True
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in found.details():
        table.add_row(Text(name), Text(printable(text, 10_000)))
    console.print(table)
    if written:
        show_line(f"written: {', '.join(str(path) for path in written)}", console)
