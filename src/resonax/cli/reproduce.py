"""The commands ``reproduce`` and ``sweep``: run, draw, judge, report."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from resonax.checks import ArgumentError, check_whole, suggest
from resonax.cli.claims import show_claims
from resonax.cli.show import show_line

if TYPE_CHECKING:
    from resonax.experiments.catalogue import Experiment
    from resonax.experiments.runner import Outcome

__all__ = ["reproduce", "sweep"]


@contextlib.contextmanager
def _chosen_device(name: str | None) -> Iterator[tuple[str, str]]:
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


def _run_all(
    experiments: list[Experiment], out: Path, *, seed: int, double: bool, device: str
) -> Iterator[Outcome]:
    """Run experiments one after the other, each with a bar that shows the time left."""
    from resonax.experiments.runner import run_experiment
    from resonax.results import make_folder

    folder = make_folder(out / "results")
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<20}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        for experiment in experiments:
            bar = bars.add_task(experiment.id, total=1.0)
            yield run_experiment(
                experiment,
                folder,
                seed=seed,
                device=device,
                double=double,
                advance=lambda share, bar=bar: bars.advance(bar, share),
            )
            bars.update(bar, completed=1.0)
            if not console.is_terminal:
                print(f"{experiment.id}: done", file=sys.stderr, flush=True)


def _draw(outcome: Outcome, out: Path) -> Path:
    """Draw the figure of an experiment from what is stored; return the PNG."""
    from resonax.figures import plot_experiment, save_figure
    from resonax.results import make_folder

    folder = make_folder(out / "figures")
    figure = plot_experiment(outcome.experiment.id, outcome.dataset)
    png, svg = (folder / f"{outcome.experiment.id}.{ending}" for ending in ("png", "svg"))
    save_figure(figure, png)
    figure.set_layout_engine("none")  # everything has its place now
    save_figure(figure, svg)
    return png


def _section(outcome: Outcome, figure: Path) -> Any:
    from resonax.experiments.report import Section

    experiment = outcome.experiment
    return Section(
        id=experiment.id,
        title=experiment.title,
        paper=experiment.paper,
        caption=experiment.caption,
        figure=figure,
        readings=experiment.readings,
        seconds=outcome.seconds,
        cells=experiment.cells if experiment.runs else None,
        runs=experiment.runs,
    )


def reproduce(
    ids: tuple[str, ...],
    *,
    scale: str,
    out: Path,
    device: str | None,
    seed: int,
    double: bool,
    networks: bool,
    as_json: bool,
    prepare: Callable[[], None],
) -> None:
    """Make figures, claims and report of the paper."""
    began = time.perf_counter()
    check_whole("seed", seed, low=0, high=2**63 - 1)
    if scale not in ("smoke", "paper"):
        raise suggest("scale", scale, ("smoke", "paper"))
    prepare()
    from resonax.experiments.catalogue import catalogue
    from resonax.experiments.claims import judge
    from resonax.experiments.report import Report, write_claims, write_report
    from resonax.labels import versions

    experiments = [item for item in catalogue(ids, scale) if networks or not item.networks]
    if not experiments:
        raise ArgumentError("nothing is left to make: leave out --no-networks")
    sections, datasets = [], {}
    with _chosen_device(device) as (kind, name):
        for outcome in _run_all(experiments, out, seed=seed, double=double, device=kind):
            sections.append(_section(outcome, _draw(outcome, out)))
            datasets[outcome.experiment.id] = outcome.dataset
    claims = judge(datasets)
    command = " ".join(["resonax reproduce", *ids, f"--scale {scale} --seed {seed}"])
    if not networks:
        command += " --no-networks"
    page = write_report(
        Report(
            sections=tuple(sections),
            claims=tuple(claims),
            scale=scale,
            seed=seed,
            device=name,
            versions=versions(),
            seconds=time.perf_counter() - began,
            command=command,
        ),
        out,
    )
    stored = write_claims(claims, out)
    if as_json:
        print(stored.read_text())
        return
    console = Console()
    if claims:
        show_claims(claims, console)
    else:
        show_line("no claim can be judged from these figures alone: name more of them", console)
    show_line(f"report: {page}", console)
    show_line(f"figures: {out / 'figures'}, numbers: {out / 'results'}, claims: {stored}", console)
    if scale == "smoke":
        show_line("this was the small scale; --scale paper makes the paper's own size", console)


def sweep(
    file: Path,
    *,
    out: Path,
    device: str | None,
    seed: int,
    double: bool,
    prepare: Callable[[], None],
) -> None:
    """Run a sweep of a person's own and draw it."""
    check_whole("seed", seed, low=0, high=2**63 - 1)
    prepare()
    from resonax.experiments.catalogue import IDS, from_sweep
    from resonax.experiments.specification import read_sweep

    experiment = from_sweep(read_sweep(file))
    if experiment.id in IDS:
        raise ArgumentError(
            f"{file.name}: id {experiment.id} is a figure of the paper: name another"
        )
    with _chosen_device(device) as (kind, _):
        outcome = next(_run_all([experiment], out, seed=seed, double=double, device=kind))
        figure = _draw(outcome, out)
    dataset = outcome.dataset
    share = float((dataset.rate > 0).sum() / dataset.rate.count())
    console = Console()
    show_line(f"{share:.1%} of {int(dataset.rate.count())} cells grow.", console)
    show_line(f"figure: {figure}, numbers: {out / 'results' / (experiment.id + '.zarr')}", console)
