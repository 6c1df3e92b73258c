"""The command ``resonax``. Heavy libraries are loaded by the command that needs them."""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
import traceback
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from resonax.checks import RANGES, ArgumentError, ResonaxError, check_range, check_whole, suggest
from resonax.cli.build import parse_axis
from resonax.cli.cache import keep_compiled
from resonax.cli.check import check_command
from resonax.cli.commands import Command, Group, completing
from resonax.cli.options import Options, option, taking_options, whole
from resonax.executors.interrupts import SENTENCE, STATUS, settle, was_interrupted
from resonax.labels import CRITERIA, plain
from resonax.paper.names import IDS

__all__ = ["app", "main"]

app = typer.Typer(
    help="Will SGD with momentum blow up because of the order in which the data arrives?",
    epilog="Rates are per step: the error grows by e^rate each step, so a negative rate converges. "
    "The radius per period is the factor of one period: below 1 converges.",
    cls=Group,
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


@app.command("stability", cls=Command)
@taking_options
def stability_command(
    options: Options,
    paths: Annotated[
        str, option("--paths", _RESULT, "Sampled paths for lyapunov.", metavar="NUMBER")
    ] = "64",
    steps: Annotated[
        str | None,
        option(
            "--steps",
            _RESULT,
            "Steps of each path for lyapunov; 4096 if left out, more where growth is slow.",
            metavar="NUMBER",
        ),
    ] = None,
    seed: Annotated[str, option("--seed", _RESULT, "Seed of the paths.", metavar="NUMBER")] = "0",
    as_json: Annotated[bool, option("--json", _RESULT, "Print one JSON object.")] = False,
) -> None:
    """Judge one setting: does it converge, and how fast?

    resonax stability sinusoid --period 22 --amplitude 0.5 --lr 0.01 --momentum 0.97 --batch 20
    """
    sampling = {
        "paths": whole("paths", paths),
        "steps": whole("steps", steps),
        "seed": whole("seed", seed),
    }
    for name, least in (("paths", 2), ("steps", 16), ("seed", 0)):
        if sampling[name] is not None:
            check_whole(name, sampling[name], low=least)
    setting = options.setting()
    keep_compiled()
    from resonax.stability import verdict

    found = verdict(setting, **sampling)  # pyright: ignore[reportArgumentType]
    if as_json:
        print(json.dumps(found.to_dict(), allow_nan=False))
        return
    from resonax.cli.show import show_verdict

    show_verdict(found, Console())


@app.command("map", cls=Command)
@taking_options
def map_command(
    options: Options,
    criterion: Annotated[
        str,
        option("--criterion", _RESULT, f"{', '.join(CRITERIA)}.", names=CRITERIA),
    ] = "map",
    out: Annotated[
        Path | None, option("--out", _RESULT, "Write the numbers: a .nc file.", metavar="FILE")
    ] = None,
    plot: Annotated[
        Path | None, option("--plot", _RESULT, "Draw: a .png, .svg or .pdf file.", metavar="FILE")
    ] = None,
) -> None:
    """Map the growth rate over two axes: give two options as ranges first:last:count[:log].

    resonax map sinusoid --lr 0.01 --momentum 0.95:0.999:100 --period 15:60:100 --plot map.png
    """
    from resonax.results import check_folder, save_dataset

    if criterion not in CRITERIA:
        raise suggest("criterion", criterion, CRITERIA)
    if out is None and plot is None:
        raise ArgumentError("a map needs --out FILE.nc, --plot FILE.png or both")
    for name, path, endings in (("out", out, (".nc",)), ("plot", plot, (".png", ".svg", ".pdf"))):
        if path is not None:
            if path.suffix.lower() not in endings:
                raise ArgumentError(f"--{name} must end in {' or '.join(endings)}, got {path}")
            check_folder(path)
    axes = {
        name: parse_axis(name, text)
        for name in ("momentum", "period", "lr", "amplitude", "batch")
        if (text := getattr(options, name)) and ":" in text
    }
    if len(axes) != 2:
        raise ArgumentError(
            f"a map needs two options as ranges first:last:count, got {len(axes)}"
            + (f" ({', '.join(axes)})" if axes else "")
        )
    if options.optimizer == "sgd" and "momentum" in axes:
        raise ArgumentError("momentum must be 0 for the optimizer sgd, got a range")
    for name in axes.keys() & RANGES.keys():
        check_range(name, axes[name])
    if "batch" in axes:
        axes["batch"] = axes["batch"].round(9)
    setting = options.setting(**{name: float(array[0]) for name, array in axes.items()})
    keep_compiled()
    from resonax.cli.show import progress, show_map
    from resonax.stability import stability_map

    cells = math.prod(len(array) for array in axes.values())
    with progress(f"{criterion} map", cells) as advance:
        dataset = stability_map(setting, criterion, advance=advance, **axes)
    if out is not None:
        save_dataset(dataset, out)
    if plot is not None:
        from resonax.figures import plot_map, save_figure

        save_figure(plot_map(dataset), plot)
    show_map(dataset, [path for path in (out, plot) if path is not None], Console())


app.command("check", cls=Command)(check_command)

_DEVICE = option("--device", _RESULT, "cpu or gpu; the GPU if there is one.", names=("cpu", "gpu"))
_DOUBLE = option("--double", _RESULT, "Simulate in 64 bits instead of 32.")


@app.command("reproduce", cls=Command)
def reproduce_command(
    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="ID",
            help=f"Figures to make: {', '.join(IDS)}; all if left out.",
            autocompletion=completing(IDS),
        ),
    ] = None,
    scale: Annotated[
        str,
        option("--scale", _RESULT, "smoke (coarse grids) or paper.", names=("smoke", "paper")),
    ] = "smoke",
    out: Annotated[
        Path, option("--out", _RESULT, "Folder for report and results.", metavar="FOLDER")
    ] = Path("out"),
    device: Annotated[str | None, _DEVICE] = None,
    seed: Annotated[
        str, option("--seed", _RESULT, "Seed of all random numbers.", metavar="NUMBER")
    ] = "0",
    double: Annotated[bool, _DOUBLE] = False,
    networks: Annotated[
        bool, option("--networks/--no-networks", _RESULT, "Whether to train the networks.")
    ] = True,
    as_json: Annotated[bool, option("--json", _RESULT, "Print the claims as JSON.")] = False,
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
        seed=whole("seed", seed) or 0,
        double=double,
        networks=networks,
        as_json=as_json,
        prepare=keep_compiled,
    )


@app.command("sweep", cls=Command)
def sweep_command(
    file: Annotated[Path, typer.Argument(metavar="FILE.toml", help="The sweep's specification.")],
    out: Annotated[
        Path, option("--out", _RESULT, "Folder for results and figure.", metavar="FOLDER")
    ] = Path("out"),
    device: Annotated[str | None, _DEVICE] = None,
    seed: Annotated[
        str, option("--seed", _RESULT, "Seed of all random numbers.", metavar="NUMBER")
    ] = "0",
    double: Annotated[bool, _DOUBLE] = False,
    yes: Annotated[bool, option("--yes", _RESULT, "Run a large sweep without a question.")] = False,
) -> None:
    """Run a sweep of your own: any process, model, optimizer and grid, as a TOML file.

    resonax sweep my.toml --out mine
    """
    from resonax.cli.sweep import sweep

    sweep(
        file,
        out=out,
        device=device,
        seed=whole("seed", seed) or 0,
        double=double,
        yes=yes,
        prepare=keep_compiled,
    )


def main() -> None:
    """Run the command line; a mistake of the caller is one sentence and exit status 2."""
    for stream in (sys.stdout, sys.stderr):  # a terminal that lacks a letter gets its number
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        status, sentence = _run(sys.argv[1:] or ["--help"])
    except Exception:  # a defect of ours: not 1, which says that training diverges
        traceback.print_exc()
        raise SystemExit(70) from None
    if status == STATUS:
        settle()
    if sentence:
        with contextlib.suppress(OSError):  # nobody listens
            print(f"resonax: {plain(' '.join(sentence.split()), 1000)}", file=sys.stderr)
    if status:
        raise SystemExit(status)


def _run(arguments: list[str]) -> tuple[int, str]:
    """Return the exit status, and what to say of a failure."""
    try:
        status = app(arguments, standalone_mode=False) or 0
        return status, SENTENCE if status == STATUS else ""
    except (KeyboardInterrupt, typer.Abort):
        return STATUS, SENTENCE
    except Exception as error:
        if was_interrupted():  # the error is what a library made of it
            return STATUS, SENTENCE
        return _answer(error)


def _answer(error: Exception) -> tuple[int, str]:
    """Return the exit status of an error, and what to say of it; raise it if it is a defect."""
    if isinstance(error, ResonaxError):
        return 2, str(error)
    if isinstance(error, MemoryError):
        return 2, "not enough memory: use fewer points, paths or inputs"
    if isinstance(error, BrokenPipeError):  # the reader has seen enough
        sys.stderr.close()
        return 1, ""
    if isinstance(error, OSError):
        return 2, f"could not write: {error.strerror or error}"
    # The parser's own errors (of click, or of typer's own) all have this method.
    message = getattr(error, "format_message", None)
    if message is None:
        raise error
    name, close = (getattr(error, key, None) for key in ("option_name", "possibilities"))
    if name and close:
        return 2, f"no such option {name}, did you mean {close[0]}?"
    return 2, f"{message().rstrip('.')}; see resonax --help"
