"""Running experiments: in turn, or side by side in processes; each is drawn when it is done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from resonax.checks import ArgumentError, suggest

if TYPE_CHECKING:
    from resonax.cli.workers import Workers
    from resonax.experiments.catalogue import Experiment
    from resonax.experiments.runner import Outcome

__all__ = ["RunOptions", "chosen_device", "figure_path", "run_in_turn", "run_side_by_side", "wake"]


class RunOptions(NamedTuple):
    """How experiments are run, and where they go."""

    out: Path
    device: str | None
    seed: int
    double: bool


@contextlib.contextmanager
def chosen_device(name: str | None) -> Iterator[tuple[str, str]]:
    """Compute on a device; give its kind, and its name for the record."""
    import jax

    if name not in (None, "cpu", "gpu"):
        raise suggest("device", str(name), ("cpu", "gpu"))
    try:
        device = jax.devices(name)[0] if name else jax.devices()[0]
    except RuntimeError:
        raise ArgumentError(f"there is no {name} here: leave out --device {name}") from None
    kind = "cpu" if device.platform == "cpu" else "gpu"
    with jax.default_device(device):
        yield kind, "CPU" if kind == "cpu" else str(device.device_kind)


@contextlib.contextmanager
def _bars(experiments: list[Experiment]) -> Iterator[Callable[[int, float], None]]:
    """Give a function that is told the share of an experiment just finished, and shows it."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<20}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    bars: dict[int, Any] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def advance(number: int, share: float) -> None:
            if number not in bars:
                bars[number] = progress.add_task(experiments[number].id, total=1.0)
            progress.advance(bars[number], share)

        yield advance


def _say_done(experiment: Experiment) -> None:
    if not sys.stderr.isatty():
        print(f"{experiment.id}: done", file=sys.stderr, flush=True)


def figure_path(out: Path, name: str) -> Path:
    """Return where the picture of an experiment is."""
    return out / "figures" / f"{name}.png"


def _draw(outcome: Outcome, out: Path) -> None:
    """Draw the figure of an experiment from what is stored, as PNG and as SVG."""
    from resonax.figures import plot_experiment, save_figure
    from resonax.results import make_folder

    png = figure_path(out, outcome.experiment.id)
    make_folder(png.parent)
    figure = plot_experiment(outcome.experiment.id, outcome.dataset)
    save_figure(figure, png)
    figure.set_layout_engine("none")  # everything has its place now
    save_figure(figure, png.with_suffix(".svg"))


def _run(experiment: Experiment, options: RunOptions, advance: Callable[[float], None]) -> Outcome:
    from resonax.experiments.runner import run_experiment
    from resonax.results import make_folder

    with chosen_device(options.device) as (kind, _):
        return run_experiment(
            experiment,
            make_folder(options.out / "results"),
            seed=options.seed,
            device=kind,
            double=options.double,
            advance=advance,
        )


def run_in_turn(experiments: list[Experiment], options: RunOptions) -> Iterator[Outcome]:
    """Run and draw experiments one after the other, each with a bar that shows the time left."""
    with _bars(experiments) as advance:
        for number, experiment in enumerate(experiments):
            advance(number, 0.0)
            outcome = _run(experiment, options, lambda part, number=number: advance(number, part))
            _draw(outcome, options.out)
            _say_done(experiment)
            yield outcome


class _Job(NamedTuple):
    """An experiment for a worker, in words."""

    id: str
    scale: str
    options: RunOptions
    prepare: Callable[[], None]


def wake() -> None:
    """Load the libraries that every job of a worker needs."""
    import resonax.experiments.catalogue
    import resonax.experiments.runner
    import resonax.figures  # noqa: F401


def _make(job: _Job, advance: Callable[[float], None]) -> float | None:
    """Run an experiment into its store and draw it; return the seconds that were computed."""
    job.prepare()
    from resonax.experiments.catalogue import catalogue

    (experiment,) = catalogue((job.id,), job.scale)
    advance(0.0)
    outcome = _run(experiment, job.options, advance)
    _draw(outcome, job.options.out)
    return outcome.seconds


def run_side_by_side(
    workers: Workers,
    experiments: list[Experiment],
    scale: str,
    options: RunOptions,
    prepare: Callable[[], None],
) -> Iterator[Outcome]:
    """Let workers run and draw experiments, the long ones first; give the outcomes in order."""
    long_first = sorted(
        experiments, key=lambda item: (not item.networks, -item.cells * (item.runs or 1))
    )
    jobs = [_Job(item.id, scale, options, prepare) for item in long_first]
    seconds: dict[str, float | None] = {}
    with _bars(long_first) as advance:
        for number, taken in workers.run(_make, jobs, advance):
            seconds[long_first[number].id] = taken
            _say_done(long_first[number])
    for experiment in experiments:  # all is stored now
        outcome = _run(experiment, options, lambda _: None)
        yield replace(outcome, seconds=seconds[experiment.id])
