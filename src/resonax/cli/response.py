"""The command ``resonax response``: natural period and damping, and which rhythms are dangerous."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.console import Console

from resonax.cli.cache import keep_compiled
from resonax.cli.options import (
    Learner,
    Noise,
    Plot,
    Points,
    Reading,
    Seed,
    Stream,
    given,
    option,
    single,
    with_groups,
)
from resonax.cli.parsers import axis, number, option_name, whole
from resonax.cli.show import check_path, progress, show_line
from resonax.core.errors import ArgumentError, check_range, check_whole, suggest
from resonax.spec.kinds import KINDS
from resonax.spec.settings import check_basis, check_optimizer, check_process

if TYPE_CHECKING:
    from resonax.checking.response import Response

__all__ = ["response_command"]

_RESULT = "Result"
_KINDS = ("sinusoid", "switching")


@with_groups
def response_command(
    stream: Stream,
    learner: Learner,
    reading: Reading,
    noise: Noise = 1.0,
    mode: Annotated[
        int,
        option("--mode", _RESULT, "Which curvature is excited: 0 for the largest, 1, ...", whole),
    ] = 0,
    shuffle: Annotated[
        bool,
        option("--shuffle/--in-order", _RESULT, "Whether the rows come at random, or in order."),
    ] = True,
    sweep: Annotated[
        Points | None,
        option("--sweep", _RESULT, "Periods to replay too, as first:last:count[:log].", axis),
    ] = None,
    kind: Annotated[
        str,
        option(
            "--kind",
            _RESULT,
            "How a sweep arranges the rows of a file: sinusoid or switching.",
            names=_KINDS,
        ),
    ] = "sinusoid",
    realisations: Annotated[
        int | None,
        option("--realisations", _RESULT, "Pairs of copies; 32 if left out.", whole),
    ] = None,
    excitation: Annotated[
        float | None,
        option("--excitation", _RESULT, "Its amplitude, relative to the learner's error.", number),
    ] = None,
    seed: Seed = 0,
    plot: Plot = None,
    as_json: Annotated[bool, option("--json", _RESULT, "Print one JSON object.")] = False,
) -> None:
    """Measure the natural period and damping of a learner, on a process or a data FILE.

    resonax response sinusoid --period 22 --lr 0.01 --momentum 0.98 --batch 20

    resonax response data.csv --target y --optimizer adam --lr 0.01 --beta1 0.95 --plot r.png
    """
    single(stream, learner, noise=noise)
    check_path("--plot", plot, ".png", ".svg", ".pdf")
    check_whole("mode", mode, low=0)
    if kind not in _KINDS:
        raise suggest("kind of sweep", kind, _KINDS)
    if excitation is not None:
        check_range("excitation", excitation)
    check_whole("batch", learner.batch, low=1)
    rows = _rows_of(stream, reading)
    optimizer = check_optimizer(given(learner), "response", option_name)
    basis = check_basis(given(learner), option_name)
    inputs, target, notes = rows()
    keep_compiled()
    from resonax.checking.response import response
    from resonax.dynamics.build import build_basis
    from resonax.learners import make_optimizer

    found = response(
        make_optimizer(optimizer.kind, optimizer.given),
        inputs,
        target,
        batch=int(learner.batch),
        model=build_basis(basis, inputs.dim if hasattr(inputs, "dim") else inputs.shape[1]),
        mode=mode,
        shuffle=shuffle,
        sweep=sweep,
        kind=kind,
        noise=float(noise),
        realisations=realisations,
        excitation=excitation,
        seed=seed,
        stage=lambda name, steps: progress(name, steps, "steps"),
    )
    if plot is not None:
        from resonax.figures import save_figure

        save_figure(found.plot(), plot)
    if as_json:
        print(json.dumps(found.to_dict() | {"notes": [*found.notes, *notes]}, allow_nan=False))
    else:
        _show(found, notes, plot, Console())


def _rows_of(stream: Stream, reading: Reading) -> Callable[[], tuple[Any, Any, tuple[str, ...]]]:
    """Return what makes the process, or reads the file, that the first argument names."""
    path = Path(stream.process)
    if stream.process in KINDS["process"] or not path.suffix:
        part = check_process(given(stream) | given(reading), option_name)

        def sample() -> tuple[Any, Any, tuple[str, ...]]:
            from resonax.dynamics.build import build_process

            made, notes = build_process(part)
            return made, None, notes

        return sample
    extra = [name for name in given(stream) if name != "process"]
    if extra:
        raise ArgumentError(f"{option_name(extra[0])} is for a process, and {path} is a file")

    def read() -> tuple[Any, Any, tuple[str, ...]]:
        from resonax.recordings.recording import read_recording

        recording = read_recording(path, **given(reading))
        return recording.inputs, recording.target, recording.notes

    return read


def _show(found: Response, notes: tuple[str, ...], plot: Path | None, console: Console) -> None:
    """Print the numbers and the sentence, then what stands behind them."""
    for line in str(found).splitlines():
        show_line(line, console)
    for place, (period, depth) in enumerate(
        zip(found.dangerous_periods, found.depths, strict=True), start=1
    ):
        least = "no swing is enough to resonate"
        if depth is not None:
            least = f"resonates if the swing exceeds {depth:.0%}"
        show_line(f"period {period:.4g} ({place}/2 of the natural one): {least}", console)
    if "ratio" in found.dataset:
        swept = found.dataset
        for period, ratio in zip(swept.period.values, swept.ratio.values, strict=True):
            show_line(f"period {period:.4g}: {ratio:.3g} times the error of random order", console)
    for note in (*found.notes, *notes):
        show_line(f"note: {note}.", console)
    if plot is not None:
        show_line(f"written: {plot}", console)
