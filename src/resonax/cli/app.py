"""The command ``resonax``. Heavy libraries are loaded by the command that needs them."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from resonax.checks import ArgumentError
from resonax.cli.build import build_setting, parse_axis

__all__ = ["app", "main"]

app = typer.Typer(
    help="Will SGD with momentum blow up because of the order in which the data arrives?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_STREAM, _LEARNER, _RESULT = "Stream", "Learner", "Result"


def _option(*names: str, panel: str, help: str, **rest: Any) -> Any:  # noqa: A002
    return typer.Option(*names, rich_help_panel=panel, help=help, show_default=False, **rest)


Process = Annotated[
    str,
    typer.Argument(
        help="How the inputs move: iid, sinusoid, square, ar2, switching or recorded.",
        show_default=False,
    ),
]
Number = Annotated[str | None, "a number, or for a map a range first:last:count[:log]"]
Period = Annotated[str | None, _option("--period", panel=_STREAM, help="Period, in steps.")]
Amplitude = Annotated[
    str | None,
    _option("--amplitude", panel=_STREAM, help="Amplitude (or standard deviation) of the mean."),
]
Variance = Annotated[
    str | None,
    _option(
        "--variance",
        panel=_STREAM,
        help="Variance of the inputs around their mean; "
        "one number, or one for each coordinate: 1,0.5.",
    ),
]
Swing = Annotated[
    float | None,
    _option("--swing", panel=_STREAM, help="How far the logarithm of the variance swings (0)."),
]
Phase = Annotated[float | None, _option("--phase", panel=_STREAM, help="Phase at step 0 (0).")]
Innovation = Annotated[
    float | None,
    _option(
        "--innovation",
        panel=_STREAM,
        help="ar2: variance of the innovations, as a share of the mean's (0.0001).",
    ),
]
Dim = Annotated[int | None, _option("--dim", panel=_STREAM, help="Number of inputs (1).")]
Direction = Annotated[
    str | None,
    _option("--direction", panel=_STREAM, help="Direction in which the mean moves: 1,0,2."),
]
Data = Annotated[
    Path | None, _option("--data", panel=_STREAM, help="recorded: a .npy or .csv file of inputs.")
]
Repeat = Annotated[
    bool | None,
    _option("--repeat", panel=_STREAM, help="recorded: replay the file again and again."),
]
Lr = Annotated[str | None, _option("--lr", panel=_LEARNER, help="Step size.")]
MomentumOption = Annotated[
    str | None, _option("--momentum", panel=_LEARNER, help="Momentum, from 0 to below 1.")
]
OptimizerOption = Annotated[
    str,
    _option("--optimizer", panel=_LEARNER, help="heavy_ball (the default), nesterov or sgd."),
]
Dampening = Annotated[
    float, _option("--dampening", panel=_LEARNER, help="Dampening of heavy_ball (0).")
]
WeightDecay = Annotated[float, _option("--weight-decay", panel=_LEARNER, help="Weight decay (0).")]
Batch = Annotated[str, _option("--batch", panel=_LEARNER, help="Samples drawn for each step (1).")]
Noise = Annotated[
    float, _option("--noise", panel=_LEARNER, help="Variance of the observation noise (1).")
]
Basis = Annotated[
    str,
    _option(
        "--basis",
        panel=_LEARNER,
        help="linear (the default), polynomial:DEGREE, fourier:FREQUENCIES or radial:CENTERS.",
    ),
]
Bias = Annotated[
    bool, _option("--bias/--no-bias", panel=_LEARNER, help="Whether the model has a bias (it has).")
]
Width = Annotated[float, _option("--width", panel=_LEARNER, help="Width of the radial basis (1).")]


def _single(name: str, text: str | None) -> float | None:
    """Return an option that must be one number here."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        raise ArgumentError(f"{name} must be a number, got {text!r}") from None


def _whole(name: str, text: str) -> int:
    number = _single(name, text)
    if number is None or number != number or number % 1 != 0:
        raise ArgumentError(f"{name} must be a whole number, got {text!r}")
    return int(number)


def _needed(name: str, number: float | None) -> float:
    if number is None:
        raise ArgumentError(f"--{name} is needed, a number above 0")
    return number


def _keep_compiled() -> None:
    """Let jax keep what it compiled, so that the second call of a command is quick."""
    import jax

    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    jax.config.update("jax_compilation_cache_dir", str(Path(home) / "resonax" / "jax"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.1)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)


@app.command("stability")
def stability_command(
    process: Process,
    lr: Lr = None,
    momentum: MomentumOption = None,
    batch: Batch = "1",
    period: Period = None,
    amplitude: Amplitude = None,
    variance: Variance = None,
    swing: Swing = None,
    phase: Phase = None,
    innovation: Innovation = None,
    dim: Dim = None,
    direction: Direction = None,
    data: Data = None,
    repeat: Repeat = None,
    optimizer: OptimizerOption = "heavy_ball",
    dampening: Dampening = 0.0,
    weight_decay: WeightDecay = 0.0,
    noise: Noise = 1.0,
    basis: Basis = "linear",
    bias: Bias = True,
    width: Width = 1.0,
    paths: Annotated[
        int, _option("--paths", panel=_RESULT, help="Sampled paths for lyapunov (64).")
    ] = 64,
    steps: Annotated[
        int, _option("--steps", panel=_RESULT, help="Steps of each path for lyapunov (4096).")
    ] = 4096,
    seed: Annotated[int, _option("--seed", panel=_RESULT, help="Seed of the paths (0).")] = 0,
    as_json: Annotated[bool, _option("--json", panel=_RESULT, help="Print one object.")] = False,
) -> None:
    """Judge one setting: does it converge, and how fast?

    resonax stability sinusoid --period 22 --amplitude 0.5 --lr 0.01 --momentum 0.97 --batch 20
    """
    setting = build_setting(
        process,
        {
            "period": _single("period", period),
            "amplitude": _single("amplitude", amplitude),
            "variance": variance,
            "swing": swing,
            "phase": phase,
            "innovation": innovation,
            "dim": dim,
            "direction": direction,
            "data": data,
            "repeat": repeat,
        },
        lr=_needed("lr", _single("lr", lr)),
        momentum=_single("momentum", momentum),
        optimizer=optimizer,
        dampening=dampening,
        weight_decay=weight_decay,
        batch=_whole("batch", batch),
        noise=noise,
        basis=basis,
        bias=bias,
        width=width,
    )
    _keep_compiled()
    from resonax.stability import verdict

    found = verdict(setting, paths=paths, steps=steps, seed=seed)
    if as_json:
        print(json.dumps(found.to_dict()))
        return
    from resonax.cli.show import show_verdict

    show_verdict(found, Console())


@app.command("map")
def map_command(
    process: Process,
    lr: Lr = None,
    momentum: MomentumOption = None,
    batch: Batch = "1",
    period: Period = None,
    amplitude: Amplitude = None,
    variance: Variance = None,
    swing: Swing = None,
    phase: Phase = None,
    innovation: Innovation = None,
    dim: Dim = None,
    direction: Direction = None,
    data: Data = None,
    repeat: Repeat = None,
    optimizer: OptimizerOption = "heavy_ball",
    dampening: Dampening = 0.0,
    weight_decay: WeightDecay = 0.0,
    noise: Noise = 1.0,
    basis: Basis = "linear",
    bias: Bias = True,
    width: Width = 1.0,
    criterion: Annotated[
        str,
        _option(
            "--criterion", panel=_RESULT, help="flow, map (the default), mean_square or lyapunov."
        ),
    ] = "map",
    out: Annotated[
        Path | None, _option("--out", panel=_RESULT, help="Write the numbers: a .nc file.")
    ] = None,
    plot: Annotated[
        Path | None, _option("--plot", panel=_RESULT, help="Draw: a .png, .svg or .pdf file.")
    ] = None,
) -> None:
    """Map the growth rate over two axes: give two options as ranges first:last:count[:log].

    resonax map sinusoid --lr 0.01 --momentum 0.95:0.999:100 --period 15:60:100 --plot map.png
    """
    from resonax.results import check_folder, save_dataset

    if out is None and plot is None:
        raise ArgumentError("a map needs --out FILE.nc, --plot FILE.png or both")
    for path, endings in ((out, (".nc",)), (plot, (".png", ".svg", ".pdf"))):
        if path is not None:
            if path.suffix not in endings:
                raise ArgumentError(f"{path} must end in {' or '.join(endings)}")
            check_folder(path)
    swept = {
        "momentum": momentum,
        "period": period,
        "lr": lr,
        "amplitude": amplitude,
        "batch": batch,
    }
    axes = {name: parse_axis(name, text) for name, text in swept.items() if text is not None}
    ranges = {name: axes[name] for name, text in swept.items() if text and ":" in text}
    if len(ranges) != 2:
        raise ArgumentError(
            f"a map needs two options as ranges first:last:count, got {len(ranges)}"
            + (f" ({', '.join(ranges)})" if ranges else "")
        )
    first = {name: float(array[0]) for name, array in axes.items()}
    setting = build_setting(
        process,
        {
            "period": first.get("period"),
            "amplitude": first.get("amplitude"),
            "variance": variance,
            "swing": swing,
            "phase": phase,
            "innovation": innovation,
            "dim": dim,
            "direction": direction,
            "data": data,
            "repeat": repeat,
        },
        lr=_needed("lr", first.get("lr")),
        momentum=first.get("momentum"),
        optimizer=optimizer,
        dampening=dampening,
        weight_decay=weight_decay,
        batch=_whole("batch", str(first["batch"])),
        noise=noise,
        basis=basis,
        bias=bias,
        width=width,
    )
    _keep_compiled()
    from resonax.cli.show import progress, show_map
    from resonax.stability import stability_map

    cells = math.prod(len(array) for array in ranges.values())
    with progress(f"{criterion} map", cells) as advance:
        dataset = stability_map(setting, criterion, advance=advance, **ranges)
    if out is not None:
        save_dataset(dataset, out)
    if plot is not None:
        from resonax.figures import plot_map, save_figure

        save_figure(plot_map(dataset), plot)
    show_map(dataset, [path for path in (out, plot) if path is not None], Console())


@app.command("reproduce")
def reproduce_command(
    out: Annotated[
        Path, _option("--out", panel=_RESULT, help="Folder for results and figures (out).")
    ] = Path("out"),
    points: Annotated[
        int, _option("--points", panel=_RESULT, help="Points of each axis of a map (100).")
    ] = 100,
) -> None:
    """Make the paper's theory maps; finished panels are kept and not computed again."""
    from resonax.checks import check_number

    check_number("points", points, low=2, high=2000)
    _keep_compiled()
    from resonax.cli.show import progress
    from resonax.experiments.theory_maps import PANELS, compute_theory_maps
    from resonax.figures import save_figure
    from resonax.figures.theory_maps import plot_theory_maps
    from resonax.results import make_folder

    cells = sum(points**2 * panel.finer for panel in PANELS)
    with progress("theory maps", cells) as advance:
        stored = compute_theory_maps(out, points, advance)
    figures = make_folder(out / "figures")
    figure = plot_theory_maps(stored)
    paths = [figures / f"theory-maps.{ending}" for ending in ("png", "svg")]
    for path in paths:
        save_figure(figure, path)
    console = Console()
    console.print(f"figures: {', '.join(str(path) for path in paths)}", soft_wrap=True)
    console.print(f"numbers: {out / 'results'}", soft_wrap=True)


def main() -> None:
    """Run the command line; a mistake of the caller is one sentence and exit status 2."""
    try:
        app()
    except ArgumentError as error:
        print(f"resonax: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        print("resonax: interrupted, nothing unfinished was written", file=sys.stderr)
        raise SystemExit(130) from None
