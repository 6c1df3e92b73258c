"""What a person sees of experiments that run: bars, and a figure of each when it is done."""

from __future__ import annotations

import contextlib
import sys
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

from resonax.run.interrupts import clean_up_on_exit
from resonax.store import Location, Remote, check_reachable, locked, make_folder, remove_leftovers

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from resonax.sweeps.computation import Computation

__all__ = ["draw", "figure_path", "holding", "progress_bars", "say_done"]


@contextlib.contextmanager
def holding(out: Location, is_shared: bool = False) -> Iterator[None]:
    """Hold the folder of results for this command, and leave nothing unfinished in it.

    A URL is not held, nor a folder that commands share which do a part each: files are whole or
    not there, and equal ones are written twice at worst.
    """
    if isinstance(out, Remote):
        check_reachable(out)
        yield
        return
    if is_shared:
        make_folder(out)
        yield
        return
    is_new = not out.exists()

    def tidy() -> None:
        _clear(out)  # what workers left that were ended in the middle of a file
        if is_new:
            with contextlib.suppress(OSError):  # unless there is something in it
                out.rmdir()

    with contextlib.ExitStack() as stack:
        stack.callback(tidy)
        stack.enter_context(clean_up_on_exit(tidy))
        lock = stack.enter_context(locked(make_folder(out)))
        stack.enter_context(clean_up_on_exit(lock.unlink))
        _clear(out)
        yield


def _clear(out: Path) -> None:
    for folder in (out, out / "figures", out / "results", *out.glob("results/*.zarr")):
        remove_leftovers(folder)


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str, float], None]]:
    """Give a function that shows progress, called with the share of an experiment just finished."""
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
    progress = Progress(*columns, console=console, disable=not console.is_terminal)
    with clean_up_on_exit(progress.stop), progress:  # which shows the cursor again

        def advance(name: str, share: float) -> None:
            if name not in bars:
                bars[name] = progress.add_task(name, total=1.0)
            progress.advance(bars[name], share)

        yield advance


def say_done(name: str) -> None:
    """Say that an experiment is finished, where there are no bars."""
    if not sys.stderr.isatty():
        print(f"{name}: done", file=sys.stderr, flush=True)


def figure_path(out: Location, name: str, dark: bool = False) -> Location:
    """Return where the picture of an experiment is, or the one for dark pages."""
    return out / "figures" / f"{name}{'-dark' if dark else ''}.png"


def save_figures(figure: Figure, out: Location, name: str) -> None:
    """Write the figure of an experiment: PNG, SVG, and PNG for dark pages."""
    from resonax.figures import darken, save_figure

    png = figure_path(out, name)
    make_folder(png.parent)
    save_figure(figure, png)
    # Everything has its place now: to write a figure with a layout is to draw it twice.
    figure.set_layout_engine(None)
    save_figure(figure, png.with_suffix(".svg"))
    darken(figure)
    save_figure(figure, figure_path(out, name, dark=True))


def draw(computation: Computation) -> None:
    """Draw an experiment from what is stored."""
    from resonax.figures import drawn_part, plot_sweep

    experiment = computation.experiment
    figure = (
        experiment.draw(computation.load())
        if experiment.draw
        else plot_sweep(computation.load(*drawn_part(experiment.layout)))
    )
    save_figures(figure, computation.folder.parent, experiment.id)
