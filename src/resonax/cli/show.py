"""What the commands print."""

from __future__ import annotations

import contextlib
import time
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

from resonax.core.errors import ArgumentError
from resonax.core.labels import CRITERIA, printable

if TYPE_CHECKING:
    import xarray as xr

    from resonax.dynamics import Setting
    from resonax.theory import Verdict

__all__ = ["check_path", "progress", "say_time", "show_line", "show_map", "show_verdict"]

_SILENT = 30.0  # seconds between two lines of progress
_COLOURS = {"converges": "green", "diverges": "red", "rises": "red", "marginal": "yellow"}


def check_path(name: str, path: Path | None, *endings: str) -> None:
    """Raise `ArgumentError` unless a file with one of these endings can be written."""
    from resonax.store import check_folder

    if path is not None:
        if path.suffix.lower() not in endings:
            raise ArgumentError(f"{name} must end in {' or '.join(endings)}, got {path}")
        check_folder(path)


@contextlib.contextmanager
def progress(title: str, total: int, unit: str = "cells") -> Iterator[Callable[[int], None]]:
    """Show a bar with the time left, on the error stream so that output can be piped.

    A total of 0 is one that is not known. Where there is no terminal, long work prints a line from
    time to time.
    """
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(title, total=total or None)
        if console.is_terminal or not total:
            yield lambda count: bar.advance(task, count)
            return
        begun = shown = time.monotonic()
        done = 0

        def advance(count: int) -> None:
            nonlocal shown, done
            done, now = done + count, time.monotonic()
            if now - shown > _SILENT and 0 < done < total:
                shown = now
                left = say_time((now - begun) * (total - done) / done)
                console.print(f"{title}: {done:,} of {total:,} {unit}, about {left} left")

        yield advance


def show_verdict(verdict: Verdict, setting: Setting, console: Console) -> None:
    """Print a verdict: one sentence, then the numbers behind it."""
    colour = _COLOURS[verdict.verdict]
    console.print(
        f"[bold {colour}]{verdict.verdict}[/]: {verdict.scoped(setting)}.", soft_wrap=True
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("criterion", no_wrap=True, min_width=11)
    table.add_column("rate per step", justify="right", no_wrap=True, min_width=13)
    table.add_column("radius per period", justify="right", no_wrap=True, min_width=17)
    table.add_column("judges")
    for name, growth in (
        ("flow", verdict.flow),
        ("map", verdict.map),
        ("mean_square", verdict.mean_square),
    ):
        rate = f"{growth.rate:+.3g}" if growth else "-"
        radius = _factor(growth.radius) if growth else "-"
        judged = CRITERIA[name] if growth else "does not apply"
        if growth and name == "mean_square":
            judged += "; the radius is of the square of the error"
        table.add_row(name, rate, radius, judged)
    interval = verdict.lyapunov
    judged = "more rows of the same kind" if verdict.on_these_rows else CRITERIA["lyapunov"]
    table.add_row(
        "lyapunov",
        f"{interval.rate:+.3g}",
        "",
        f"{judged}; 95% interval {interval.low:+.3g} to {interval.high:+.3g}",
    )
    console.print(table)
    show_line(f"every order: {verdict.order_proof.meaning()}.", console)
    for note in verdict.notes:
        show_line(f"not computed: {note}.", console)


def _factor(radius: float) -> str:
    if radius > 1e300:
        return "above 1e+300"
    return f"{radius:.5g}" if radius > 1e-300 else "below 1e-300"


def show_map(dataset: xr.Dataset, paths: list[Path], console: Console) -> None:
    """Print in a line what a map shows, and where it is."""
    if "distance" in dataset:
        _show_levels(dataset.distance, console)
        show_line(f"written: {', '.join(str(path) for path in paths)}", console)
        return
    rate = dataset.rate
    if known := int(rate.count()):
        share = float((dataset.get("low", rate) > 0).sum() / known)
        words = f"{share:.1%} of {known} cells diverge"
        if "low" in dataset:  # estimates with an interval
            undecided = float(((dataset.low <= 0) & (dataset.high >= 0)).sum() / known)
            words += f", {undecided:.1%} are undecided"
        show_line(
            f"{words}; largest rate {float(rate.max()):+.3g} per step at {_largest(rate)}.", console
        )
    for reason, count in dataset.resonax.reasons().items():
        show_line(f"{count} of {rate.size} cells could not be computed: {reason}.", console)
    show_line(f"written: {', '.join(str(path) for path in paths)}", console)


def _largest(values: xr.DataArray) -> str:
    place = values.argmax(...)
    return ", ".join(f"{name} {float(values[name][place[name]]):g}" for name in values.dims)


def _show_levels(distance: xr.DataArray, console: Console) -> None:
    known = int(distance.count())
    if known:
        show_line(
            f"predicted distances from {float(distance.min()):.3g} to "
            f"{float(distance.max()):.3g}; largest at {_largest(distance)}.",
            console,
        )
    if none := distance.size - known:
        show_line(
            f"no distance is predicted for {none} of {distance.size} cells: `resonax stability` "
            "says of each whether it diverges or is undecided.",
            console,
        )


def show_line(text: str, console: Console) -> None:
    """Print a line as it is: names of files are neither mark-up nor commands to the terminal."""
    console.print(printable(text, 10_000), soft_wrap=True, markup=False, highlight=False)


def say_time(seconds: float) -> str:
    """Return a time as people say it.

    Examples
    --------
    >>> [say_time(seconds) for seconds in (0.42, 42, 250, 9000, 1e6)]
    ['0.4 s', '42 s', '4 min', '2.5 h', '11.6 d']
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    for unit, length, most in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds / length:.{1 if unit == 'h' else 0}f} {unit}"
    return f"{seconds / 86_400:.1f} d"
