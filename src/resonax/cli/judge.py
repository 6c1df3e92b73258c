"""The commands ``stability`` and ``map``: judge one setting, or many at once."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from resonax.cli.cache import keep_compiled
from resonax.cli.options import (
    Learner,
    Noise,
    Plot,
    Reading,
    Seed,
    Stream,
    Target,
    given,
    option,
    single,
    with_groups,
)
from resonax.cli.parsers import option_name, whole
from resonax.cli.show import check_path, progress, show_line, show_map, show_verdict
from resonax.cli.statuses import Status
from resonax.core.errors import ArgumentError, check_whole, suggest
from resonax.core.labels import CRITERIA
from resonax.spec.settings import AXES, check_setting, is_adaptive, is_driven

__all__ = ["map_command", "stability_command"]

_RESULT = "Result"


@with_groups
def stability_command(
    stream: Stream,
    learner: Learner,
    target: Target,
    reading: Reading,
    noise: Noise = 1.0,
    paths: Annotated[int, option("--paths", _RESULT, "Sampled paths for lyapunov.", whole)] = 64,
    steps: Annotated[
        int | None,
        option(
            "--steps",
            _RESULT,
            "Steps of each path for lyapunov; 4096 if left out, more where growth is slow.",
            whole,
        ),
    ] = None,
    seed: Seed = 0,
    as_json: Annotated[bool, option("--json", _RESULT, "Print one JSON object.")] = False,
) -> None:
    """Judge one setting: does it converge, and how fast? With Adam: does it settle, and where?

    With --drift or --omitted the best weights move, and the orbit on which the error settles is
    said too.

    The exit status is 1 if it diverges, 0 if not or if that is undecided, 2 for bad input.

    resonax stability sinusoid --period 22 --amplitude 0.5 --lr 0.01 --momentum 0.97 --batch 20
    """
    for name, number, least in (("paths", paths, 2), ("steps", steps, 16), ("seed", seed, 0)):
        if number is not None:
            check_whole(name, number, low=least)
    single(stream, learner, target, noise=noise)
    asked = given(stream) | given(learner) | given(target) | given(reading) | {"noise": noise}
    parts = check_setting(asked, option_name)
    _check_data(stream)
    from resonax.dynamics.build import build_setting

    setting, notes = build_setting(parts)
    keep_compiled()
    console = Console()
    from resonax.dynamics import Setting
    from resonax.theory import Level, level, verdict

    if is_adaptive(asked):
        reached = level(setting)
        assert isinstance(reached, Level)
        if as_json:
            print(json.dumps({"level": reached.to_dict()}, allow_nan=False))
        else:
            show_line(f"{reached.scoped(setting)}.", console)  # pyrefly: ignore[missing-attribute]
            for note in (*reached.notes, *notes):
                show_line(f"note: {note}.", console)
        raise typer.Exit(_status(reached.verdict))
    found = verdict(setting, paths=paths, steps=steps, seed=seed)  # pyrefly: ignore[bad-argument-type]
    assert isinstance(setting, Setting)
    driven = level(setting) if is_driven(asked) else None
    if as_json:
        more = {} if driven is None else {"level": driven.to_dict()}
        print(json.dumps(found.to_dict() | more, allow_nan=False))
    else:
        show_verdict(found, setting, console)  # pyrefly: ignore[bad-argument-type]
        if driven is not None:
            for line in f"level: {driven}".splitlines():
                show_line(f"{line}.", console)
        for note in (*(() if driven is None else driven.notes), *notes):
            show_line(f"note: {note}.", console)
    raise typer.Exit(_status(found.verdict))


def _check_data(stream: Stream) -> None:
    """Raise `DataError` for what is no file of rows, before jax is loaded."""
    if stream.data is not None:
        from resonax.recordings.sources import check_file

        check_file(stream.data)


def _status(verdict: str) -> Status:
    return Status.DIVERGES if verdict == "diverges" else Status.ANSWERED


def _whole_periods(periods: Any) -> tuple[Any, list[str]]:
    """Return the whole periods nearest to those given, each once, and what to say of it.

    A cycle of a level has all steps of a whole period, and of many of a broken one.
    """
    import numpy as np

    whole_ones = np.unique(np.round(periods))
    if np.array_equal(whole_ones, periods):
        return periods, []
    count = "1 whole period" if len(whole_ones) == 1 else f"{len(whole_ones)} whole periods"
    return whole_ones, [f"a map of levels is over whole periods: {count} for {len(periods)} points"]


@with_groups
def map_command(
    stream: Stream,
    learner: Learner,
    target: Target,
    reading: Reading,
    noise: Noise = 1.0,
    criterion: Annotated[
        str,
        option(
            "--criterion",
            _RESULT,
            f"{', '.join(CRITERIA)}; level: where the error settles.",
            names=(*CRITERIA, "level"),
        ),
    ] = "map",
    out: Annotated[
        Path | None, option("--out", _RESULT, "Write the numbers: a .nc file.", metavar="FILE")
    ] = None,
    plot: Plot = None,
) -> None:
    """Map the growth rate over two axes: give two options as ranges first:last:count[:log].

    resonax map sinusoid --lr 0.01 --momentum 0.95:0.999:100 --period 15:60:100 --plot map.png
    """
    if criterion not in (*CRITERIA, "level"):
        raise suggest("criterion", criterion, (*CRITERIA, "level"))
    if is_adaptive(given(learner)) and criterion != "level":
        raise ArgumentError(f"criterion must be level for the optimizer {learner.optimizer}")
    if out is None and plot is None:
        raise ArgumentError("a map needs --out FILE.nc, --plot FILE.png or both")
    check_path("--out", out, ".nc")
    check_path("--plot", plot, ".png", ".svg", ".pdf")
    numbers: dict[str, Any] = given(stream) | given(learner) | given(target) | {"noise": noise}
    rounded = []
    if is_adaptive(given(learner)) and hasattr(numbers.get("period"), "shape"):
        numbers["period"], rounded = _whole_periods(numbers["period"])
    axes = {name: numbers[name] for name in AXES if hasattr(numbers.get(name), "shape")}
    if len(axes) != 2:
        raise ArgumentError(
            f"a map needs two options as ranges first:last:count, got {len(axes)}"
            + (f" ({', '.join(axes)})" if axes else "")
        )
    parts = check_setting(numbers | given(reading), option_name)
    _check_data(stream)
    from resonax.dynamics.build import build_setting

    setting, notes = build_setting(parts)
    keep_compiled()
    from resonax.store.saved import save_dataset
    from resonax.theory import stability_map

    cells = math.prod(len(array) for array in axes.values())
    with progress(f"{criterion} map", cells) as advance:
        dataset = stability_map(setting, criterion, advance=advance, **axes)  # pyrefly: ignore[bad-argument-type]
    if out is not None:
        save_dataset(dataset, out)
    if plot is not None:
        from resonax.figures import plot_map, save_figure

        save_figure(plot_map(dataset), plot)
    console = Console()
    show_map(dataset, [path for path in (out, plot) if path is not None], console)
    for note in (*rounded, *notes):
        show_line(f"note: {note}.", console)
