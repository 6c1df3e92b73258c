"""The command ``resonax``. Heavy libraries are loaded by the command that needs them."""

from __future__ import annotations

import contextlib
import functools
import io
import re
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from resonax.cli.audit import audit_command
from resonax.cli.cache import find_fault, keep_compiled
from resonax.cli.check import check_command
from resonax.cli.doctor import doctor_command
from resonax.cli.explore import explore_command
from resonax.cli.judge import map_command, stability_command
from resonax.cli.options import Folder, Seed, completing, option, with_groups
from resonax.cli.order import order_command
from resonax.cli.parsers import location
from resonax.cli.response import response_command
from resonax.cli.status import status_command
from resonax.cli.statuses import STATUSES, Status
from resonax.cli.work import Work
from resonax.core.errors import ResonaxError
from resonax.core.labels import printable
from resonax.paper.catalogue import EXPERIMENTS
from resonax.run.interrupts import SENTENCE

__all__ = ["app", "main"]

app = typer.Typer(
    help="Will SGD with momentum blow up because of the order in which the data arrives?",
    epilog="Rates are per step: the error grows by e^rate each step, so a negative rate converges. "
    "The radius per period is the factor of one period: below 1 converges. "
    f"{STATUSES}",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_RESULT = "Result"


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"resonax {version('resonax')}")
        raise typer.Exit


@app.callback()
def top(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Show the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Hold the options that belong to no command."""
    del version


app.command("stability")(stability_command)
app.command("map")(map_command)
app.command("check")(check_command)
app.command("audit")(audit_command)
app.command("order")(order_command)
app.command("response")(response_command)
app.command("explore")(explore_command)
app.command("status")(status_command)
app.command("doctor")(doctor_command)

_DEVICE = option("--device", _RESULT, "cpu or gpu; the GPU if there is one.", names=("cpu", "gpu"))
_out = functools.partial(option, "--out", _RESULT, kind=location, metavar="FOLDER")
_DOUBLE = option("--double", _RESULT, "Simulate in 64 bits instead of 32.")
_DRY_RUN = option("--dry-run", _RESULT, "Say what it takes; compute and write nothing.")


@app.command("reproduce")
@with_groups
def reproduce_command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help=f"Figures to make: {', '.join(EXPERIMENTS)}; all if left out.",
            autocompletion=completing(EXPERIMENTS),
        ),
    ] = None,
    scale: Annotated[
        str,
        option("--scale", _RESULT, "smoke (coarse grids) or paper.", names=("smoke", "paper")),
    ] = "smoke",
    out: Annotated[Folder, _out("Folder or URL for report and results.")] = Path("out"),
    device: Annotated[str | None, _DEVICE] = None,
    seed: Seed = 0,
    double: Annotated[bool, _DOUBLE] = False,
    networks: Annotated[
        bool, option("--networks/--no-networks", _RESULT, "Whether to train the networks.")
    ] = True,
    as_json: Annotated[bool, option("--json", _RESULT, "Print the claims as JSON.")] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
    *,
    work: Work,
) -> None:
    """Make the paper's figures and judge its claims; what is stored is not computed again.

    resonax reproduce sinusoid-map --scale paper
    """
    from resonax.cli.reproduce import reproduce

    reproduce(
        tuple(ids or ()),
        scale=scale,
        out=out,
        device=device,
        seed=seed,
        double=double,
        networks=networks,
        as_json=as_json,
        dry_run=dry_run,
        work=work,
        prepare=keep_compiled,
    )


@app.command("sweep")
@with_groups
def sweep_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The sweep's specification.")],
    out: Annotated[Folder, _out("Folder or URL for results and figure.")] = Path("out"),
    device: Annotated[str | None, _DEVICE] = None,
    seed: Seed = 0,
    double: Annotated[bool, _DOUBLE] = False,
    yes: Annotated[bool, option("--yes", _RESULT, "Run a large sweep without a question.")] = False,
    dry_run: Annotated[bool, _DRY_RUN] = False,
    *,
    work: Work,
) -> None:
    """Run a sweep of your own: any process, model, optimizer and grid, as a TOML file.

    resonax sweep my.toml --out mine
    """
    from resonax.cli.sweep import sweep

    sweep(
        file,
        out=out,
        device=device,
        seed=seed,
        double=double,
        yes=yes,
        dry_run=dry_run,
        work=work,
        prepare=keep_compiled,
    )


def main() -> None:
    """Run the command line; what is wrong is one sentence, and a `Status`."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a letter gets its number
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status, sentence = _run(sys.argv[1:] or ["--help"])
    except Exception:
        traceback.print_exc()
        raise SystemExit(Status.DEFECT) from None
    if sentence:
        with contextlib.suppress(OSError):  # nobody listens
            print(f"resonax: {printable(' '.join(sentence.split()), 1000)}", file=sys.stderr)
    if status:
        raise SystemExit(status)


@functools.cache
def _commands() -> Any:
    """Return all commands with their options, which takes typer as long as all the rest."""
    return typer.main.get_command(app)


def _run(arguments: list[str]) -> tuple[int, str]:
    """Return the exit status, and what to say of a failure."""
    try:
        status = _commands()(arguments, standalone_mode=False) or 0
        return status, SENTENCE if status == Status.INTERRUPTED else ""
    except (KeyboardInterrupt, typer.Abort):
        return Status.INTERRUPTED, SENTENCE
    except SystemExit as end:
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        return _answer(end.__context__)  # of which the parser makes an exit with status 1
    except Exception as error:
        return _answer(error)


def _as_options(sentence: str) -> str:
    """Return a sentence with the names of arguments spelled as options.

    In Python an argument is named as the first word of a sentence, or between backticks.
    """
    commands = _commands().commands.values()
    names = {name for command in commands for item in command.params for name in item.opts}
    words = {name[2:].replace("-", "_"): name for name in names if name.startswith("--")}
    first, space, rest = sentence.partition(" ")
    quoted = re.sub(r"`(\w+)`", lambda match: words.get(match[1], match[1]), rest)
    return f"{words.get(first, first)}{space}{quoted}"


def _answer(error: Exception) -> tuple[int, str]:
    """Return the exit status of an error, and what to say of it; raise it if it is a defect."""
    if isinstance(error, ResonaxError):
        for line in getattr(error, "failures", ()):  # of tasks, while all others are done
            print(printable(str(line), 1000), file=sys.stderr)
        status = Status.TASKS_FAILED if hasattr(error, "failures") else Status.BAD_INPUT
        return status, _as_options(str(error))
    if isinstance(error, MemoryError) or str(error).startswith("RESOURCE_EXHAUSTED"):  # of jax
        return Status.BAD_INPUT, "not enough memory: use fewer points, paths or inputs"
    if isinstance(error, BrokenPipeError):  # the reader has seen enough
        return Status.BROKEN_PIPE, ""
    if isinstance(error, OSError):
        name = f" {error.filename}" if error.filename else ""
        return Status.BAD_INPUT, f"could not write{name}: {error.strerror or error}"
    # The parser's own errors (of click, or of typer's own) all have this method.
    message = getattr(error, "format_message", None)
    if message is None:
        if fault := find_fault():
            return Status.BAD_INPUT, fault
        raise error
    name, close = (getattr(error, key, None) for key in ("option_name", "possibilities"))
    if name and close:
        return Status.BAD_INPUT, f"no such option {name}, did you mean {close[0]}?"
    said = message().rstrip(".").replace(". Did you mean", ", did you mean")  # one sentence
    return Status.BAD_INPUT, said if said.endswith("?") else f"{said}; see resonax --help"
