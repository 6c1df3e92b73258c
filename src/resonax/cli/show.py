"""What the commands print."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from resonax.labels import CRITERIA

if TYPE_CHECKING:
    import xarray as xr

    from resonax.stability import Verdict

__all__ = ["progress", "show_map", "show_verdict"]

_COLOURS = {"converges": "green", "diverges": "red", "marginal": "yellow"}


@contextlib.contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar with the time left, on the error stream so that output can be piped."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("cells"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda count: bar.advance(task, count)


def show_verdict(verdict: Verdict, console: Console) -> None:
    """Print a verdict: one sentence, then the numbers behind it."""
    colour = _COLOURS[verdict.verdict]
    console.print(f"[bold {colour}]{verdict.verdict}[/]: {verdict.meaning()}.", soft_wrap=True)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("criterion")
    table.add_column("rate per step", justify="right")
    table.add_column("radius per period", justify="right")
    table.add_column("judges")
    for name, growth in (
        ("flow", verdict.flow),
        ("map", verdict.map),
        ("mean_square", verdict.mean_square),
    ):
        rate = f"{growth.rate:+.5f}" if growth else "-"
        radius = f"{growth.radius:.5g}" if growth else "-"
        table.add_row(name, rate, radius, CRITERIA[name] if growth else "never repeats: no period")
    interval = verdict.lyapunov
    table.add_row(
        "lyapunov",
        f"{interval.rate:+.5f}",
        "",
        f"{CRITERIA['lyapunov']}; 95% interval {interval.low:+.5f} to {interval.high:+.5f}",
    )
    console.print(table)


def show_map(dataset: xr.Dataset, paths: list[Path], console: Console) -> None:
    """Print in a line what a map shows, and where it is."""
    rate = dataset.rate
    share = float((rate > 0).mean())
    worst = rate.where(rate == rate.max(), drop=True)
    place = ", ".join(f"{name} {float(worst[name][0]):g}" for name in rate.dims)
    console.print(
        f"{share:.1%} of {rate.size} cells diverge; largest rate {float(rate.max()):+.5f} per step "
        f"at {place}.",
        soft_wrap=True,
    )
    console.print(f"written: {', '.join(str(path) for path in paths)}", soft_wrap=True)
