"""The command ``sweep``: read, estimate, ask, run, draw."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from rich.console import Console

from resonax.cli.dry_run import show_cost
from resonax.cli.running import draw, figure_path, holding, progress_bars, say_done
from resonax.cli.show import show_line
from resonax.cli.work import Work, check_work, started
from resonax.core.errors import ArgumentError, check_whole
from resonax.paper.catalogue import EXPERIMENTS
from resonax.run.executors import count_workers
from resonax.store import Location
from resonax.sweeps.devices import check_device

if TYPE_CHECKING:
    from resonax.spec.sweeps import Sweep
    from resonax.sweeps.cost import Cost

__all__ = ["sweep"]

_MEANING = (
    "A cell is a point of the grid. It grows if the error of its runs, on average, grows from the "
    "middle of a run to its end. Where runs have settled it stays undecided."
)
_LONG = 60.0  # seconds from which on it pays to start processes


def sweep(
    file: Path,
    *,
    out: Location,
    device: str | None,
    seed: int,
    double: bool,
    yes: bool,
    dry_run: bool,
    work: Work,
    prepare: Callable[[], None],
) -> None:
    """Run a sweep of a person's own and draw it."""
    from resonax.spec.sweep_checks import read_sweep
    from resonax.sweeps.cost import check_cost

    check_whole("seed", seed, low=0, high=2**63 - 1)
    check_device(device)
    check_work(work)
    described = read_sweep(file)
    try:
        parts = work.part[1] if work.part else work.workers or 1
        cost = check_cost(described, double=double, streams=True, workers=parts)
    except ArgumentError as error:
        raise ArgumentError(f"{file.name}: {error}") from None
    if described.id in EXPERIMENTS:
        raise ArgumentError(
            f"{file.name}: id {described.id} is a figure of the paper: name another"
        )
    settings: _Settings = {"seed": seed, "double": double, "device": device}
    if dry_run:
        from resonax.sweeps.experiment import from_sweep

        show_line(f"{described.id}: {cost.size}", Console())
        show_cost([from_sweep(described)], work.count(_usual(cost)), double=double)
    else:
        _agree(file.name, str(cost), cost.is_large and not yes)
        _run(described, cost, out, work, settings, prepare)


class _Settings(TypedDict):
    """What the bits depend on, beside the sweep."""

    seed: int
    double: bool
    device: str | None


def _run(
    described: Sweep,
    cost: Cost,
    out: Location,
    work: Work,
    settings: _Settings,
    prepare: Callable[[], None],
) -> None:
    """Run a sweep into a store, draw it, and say where all is."""
    device = settings["device"]
    executor = started(
        work, usual=_usual(cost), device=device, task_bytes=cost.engine, prepare=prepare
    )
    with holding(out, is_shared=work.part is not None), executor as executor:
        show_line(f"{described.id}: {cost}", Console(stderr=True))
        from resonax.sweeps.experiment import from_sweep
        from resonax.sweeps.runner import run_experiments

        with progress_bars() as progress:
            outcomes = run_experiments(
                [from_sweep(described)],
                out,
                **settings,
                executor=executor,
                shard=work.part,
                progress=progress,
                finish=draw,
                done=say_done,
            )
    console = Console()
    if not outcomes:
        show_line(f"part {work.shard} is done; resonax status {out} says what is left", console)
        return
    found = outcomes[0].computation.count_growing()
    if described.run.runs > 1:
        words = "95% confidence for all cells together"
    else:
        words = "a single run has no interval: set runs to 3 or more"
    show_line(f"{found} ({words}).", console)
    show_line(_MEANING, console)
    numbers = out / "results" / f"{described.id}.zarr"
    show_line(f"figure: {figure_path(out, described.id)}, numbers: {numbers}", console)


def _usual(cost: Cost) -> int:
    """Return how many processes do a sweep by themselves: one, unless it takes a while."""
    if cost.seconds < _LONG:
        return 1
    from resonax.sweeps.cost import memory

    return count_workers(max(min(cost.tasks, memory() // cost.bytes), 1))


def _agree(name: str, cost: str, ask: bool) -> None:
    """Ask a person whether a large sweep is meant; where nobody can answer, refuse it."""
    if not ask:
        return
    from resonax.sweeps.cost import LARGE

    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise ArgumentError(f"{name}: {cost}, which is more than {LARGE}: add --yes to run it")
    import typer

    if not typer.confirm(f"{name}: {cost}. Run it?", err=True):
        raise ArgumentError(f"{name}: not run")
