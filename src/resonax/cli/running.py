"""Running experiments: in turn, or side by side in processes; each is drawn when it is done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
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
from resonax.executors.interrupts import at_once, held
from resonax.results import clear, locked, make_folder

if TYPE_CHECKING:
    import xarray as xr

    from resonax.executors.processes import Workers
    from resonax.sweeps.experiment import Experiment
    from resonax.sweeps.runner import Outcome, Run

__all__ = [
    "RunOptions",
    "check_device",
    "chosen_device",
    "figure_path",
    "holding",
    "run_in_turn",
    "run_side_by_side",
    "wake",
]


class RunOptions(NamedTuple):
    """How experiments are run, and where they go."""

    out: Path
    device: str | None
    seed: int
    double: bool


@contextlib.contextmanager
def holding(out: Path) -> Iterator[None]:
    """Hold the folder of results for this command, and leave nothing unfinished in it."""
    is_new = not out.exists()

    def tidy() -> None:
        _clear(out)  # what workers left that were ended in the middle of a file
        if is_new:
            with contextlib.suppress(OSError):  # unless there is something in it
                out.rmdir()

    with contextlib.ExitStack() as stack:
        with held():
            stack.callback(tidy)
            lock = stack.enter_context(locked(make_folder(out)))
            stack.enter_context(at_once(tidy))
            stack.enter_context(at_once(lock.unlink))
        _clear(out)
        yield


def _clear(out: Path) -> None:
    for folder in (out, out / "figures", out / "results", *out.glob("results/*.zarr")):
        clear(folder)


def check_device(name: str | None) -> None:
    """Raise `ArgumentError` for a kind of device that is not known."""
    if name not in (None, "cpu", "gpu"):
        raise suggest("device", str(name), ("cpu", "gpu"))


@contextlib.contextmanager
def chosen_device(name: str | None) -> Iterator[tuple[str, str]]:
    """Compute on a device; give its kind, and its name for the record."""
    check_device(name)
    import jax

    try:
        device = jax.devices(name)[0] if name else jax.devices()[0]
    except RuntimeError:
        raise ArgumentError(f"there is no {name} here: leave out --device {name}") from None
    kind = "cpu" if device.platform == "cpu" else "gpu"
    with jax.default_device(device):
        yield kind, "CPU" if kind == "cpu" else str(device.device_kind)


@contextlib.contextmanager
def _bars() -> Iterator[Callable[[str, float], None]]:
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
    bars: dict[str, Any] = {}
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:

        def advance(name: str, share: float) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=1.0)
            progress.advance(bars[name], share)

        yield advance


def _say_done(name: str) -> None:
    if not sys.stderr.isatty():
        print(f"{name}: done", file=sys.stderr, flush=True)


def figure_path(out: Path, name: str, dark: bool = False) -> Path:
    """Return where the picture of an experiment is, or the one for dark pages."""
    return out / "figures" / f"{name}{'-dark' if dark else ''}.png"


def _draw(run: Run, out: Path) -> xr.Dataset:
    """Draw the figure of an experiment from what is stored: PNG, SVG, and PNG for dark pages."""
    from resonax.figures import darken, plot_experiment, save_figure

    dataset = run.load()
    png = figure_path(out, run.experiment.id)
    make_folder(png.parent)
    figure = plot_experiment(run.experiment.id, dataset)
    save_figure(figure, png)
    figure.set_layout_engine("none")  # everything has its place now
    save_figure(figure, png.with_suffix(".svg"))
    darken(figure)
    save_figure(figure, figure_path(out, run.experiment.id, dark=True))
    return dataset


def _run_of(experiment: Experiment, options: RunOptions, kind: str) -> Run:
    from resonax.sweeps.runner import Run

    folder = make_folder(options.out / "results")
    return Run(experiment, folder, seed=options.seed, device=kind, double=options.double)


def _open(run: Run) -> tuple[int, ...]:
    """Return the parts that are missing, after a word on those that were damaged."""
    missing = run.open()
    if missing.damaged:
        share = f"{missing.damaged} of {run.parts} parts"
        print(f"{run.path}: {share} damaged or missing, computed again", file=sys.stderr)
    return missing.parts


def run_in_turn(experiments: list[Experiment], options: RunOptions) -> Iterator[Outcome]:
    """Run and draw experiments one after the other, each with a bar that shows the time left."""
    from resonax.sweeps.runner import Outcome

    with chosen_device(options.device) as (kind, _), _bars() as advance:
        runs = {item.id: _run_of(item, options, kind) for item in experiments}
        opened = {name: _open(run) for name, run in runs.items()}
        for name, run in runs.items():
            advance(name, 1 - len(opened[name]) / run.parts)
        for experiment in experiments:
            name, run = experiment.id, runs[experiment.id]
            missing = opened[name]
            seconds = [
                run.make(part, lambda share, name=name: advance(name, share)) for part in missing
            ]
            dataset = _draw(run, options.out)
            _say_done(name)
            yield Outcome(experiment, dataset, sum(seconds) if seconds else None)


class _Job(NamedTuple):
    """Parts of an experiment for a worker, in words; to draw it, if none are named."""

    id: str
    scale: str
    options: RunOptions
    prepare: Callable[[], None]
    parts: tuple[int, ...] = ()


def wake() -> None:
    """Load the libraries that every job of a worker needs."""


def _make(job: _Job, advance: Callable[[float], None]) -> float:
    """Make parts of an experiment, or draw it; return the seconds that were computed."""
    job.prepare()
    from resonax.paper.catalogue import catalogue

    (experiment,) = catalogue((job.id,), job.scale)
    advance(0.0)  # it has begun
    with chosen_device(job.options.device) as (kind, _):
        run = _run_of(experiment, job.options, kind)
        if not job.parts:
            _draw(run, job.options.out)
        return sum(run.make(part, advance) for part in job.parts)


def run_side_by_side(
    workers: Workers,
    experiments: list[Experiment],
    scale: str,
    options: RunOptions,
    prepare: Callable[[], None],
) -> Iterator[Outcome]:
    """Let workers run and draw experiments, the long ones first; give the outcomes in order."""
    from resonax.sweeps.runner import Outcome

    long_first = sorted(
        experiments, key=lambda item: (not item.networks, -item.cells * (item.runs or 1))
    )
    with chosen_device(options.device) as (kind, _):
        runs = {item.id: _run_of(item, options, kind) for item in long_first}
    missing = {name: _open(run) for name, run in runs.items()}
    left = {name: len(parts) for name, parts in missing.items()}
    seconds: dict[str, float] = {}
    draw = _Job("", scale, options, prepare)
    jobs = [draw._replace(id=name) for name in left if not left[name]]
    for name, parts in missing.items():  # a worker compiles once for all parts of a group
        groups = (set(parts).intersection(group) for group in runs[name].experiment.groups)
        jobs += [draw._replace(id=name, parts=tuple(sorted(group))) for group in groups if group]

    def then(job: _Job, taken: float) -> list[_Job]:
        """Draw an experiment after the last of its parts."""
        if not job.parts:
            _say_done(job.id)
            return []
        seconds[job.id] = seconds.get(job.id, 0.0) + taken
        left[job.id] -= len(job.parts)
        return [] if left[job.id] else [draw._replace(id=job.id)]

    with _bars() as advance:
        for name, run in runs.items():  # a bar for each, also for those that begin later
            advance(name, 1 - left[name] / run.parts)
        workers.run(_make, jobs, lambda job, share: advance(job.id, share), then)
    for experiment in experiments:  # all is stored now
        yield Outcome(experiment, runs[experiment.id].load(), seconds.get(experiment.id))
