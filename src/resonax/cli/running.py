"""What a person sees of experiments that run: bars, and a figure of each when it is done."""

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

from resonax.executors.helper import begin_in_copy
from resonax.executors.interrupts import clean_up_on_exit, defer_interrupts
from resonax.results import Place, Remote, clear, locked, make_folder

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

    from resonax.executors.helper import Helper
    from resonax.sweeps.computation import Computation
    from resonax.sweeps.stored_results import StoredResults

__all__ = [
    "draw",
    "draw_elsewhere",
    "figure_path",
    "holding",
    "progress_bars",
    "save_figures",
    "say_done",
]


@contextlib.contextmanager
def holding(out: Place, is_shared: bool = False) -> Iterator[None]:
    """Hold the folder of results for this command, and leave nothing unfinished in it.

    A URL is not held, nor a folder that commands share which do a part each: files are whole or
    not there, and equal ones are written twice at worst.
    """
    if isinstance(out, Remote):
        out.reach()
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
        with defer_interrupts():
            stack.callback(tidy)
            lock = stack.enter_context(locked(make_folder(out)))
            stack.enter_context(clean_up_on_exit(tidy))
            stack.enter_context(clean_up_on_exit(lock.unlink))
        _clear(out)
        yield


def _clear(out: Path) -> None:
    for folder in (out, out / "figures", out / "results", *out.glob("results/*.zarr")):
        clear(folder)


@contextlib.contextmanager
def progress_bars() -> Iterator[Callable[[str, float], None]]:
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


def say_done(name: str) -> None:
    """Say that an experiment is finished, where there are no bars."""
    if not sys.stderr.isatty():
        print(f"{name}: done", file=sys.stderr, flush=True)


def figure_path(out: Place, name: str, dark: bool = False) -> Place:
    """Return where the picture of an experiment is, or the one for dark pages."""
    return out / "figures" / f"{name}{'-dark' if dark else ''}.png"


def save_figures(figure: Figure, out: Place, name: str, in_copy: bool = False) -> None:
    """Write the figure of an experiment: PNG, SVG, and PNG for dark pages.

    The last may be written by a copy of this process, at the same time.
    """
    from resonax.figures import darken, save_figure

    def save_dark() -> None:
        darken(figure)
        save_figure(figure, figure_path(out, name, dark=True))

    png = figure_path(out, name)
    make_folder(png.parent)
    is_done = begin_in_copy(save_dark) if in_copy else None
    save_figure(figure, png)
    # Everything has its place now: to write a figure with a layout is to draw it twice.
    figure.set_layout_engine(None)
    save_figure(figure, png.with_suffix(".svg"))
    if is_done is None or not is_done():
        save_dark()


class Drawing(NamedTuple):
    """What is needed to draw an experiment: less than to compute it, so that jax is not loaded."""

    results: StoredResults
    draw: Callable[[xr.Dataset], Figure] | None
    out: Place
    id: str


def draw(computation: Computation) -> None:
    """Draw an experiment from what is stored."""
    _draw(_drawing(computation))


def draw_elsewhere(helper: Helper, meanwhile: Callable[[], Any], computation: Computation) -> None:
    """Let another process do so, and do something else in this one."""
    helper.call(_draw_in_two, _drawing(computation), meanwhile)


def _drawing(computation: Computation) -> Drawing:
    experiment, out = computation.experiment, computation.folder.parent
    return Drawing(computation.results, experiment.draw, out, experiment.id)


def _draw_in_two(asked: Drawing) -> None:
    # A connection to a server has threads, which a copy would not have; and what a helper was
    # asked for, a process does itself that has jax, where the helper has ended.
    _draw(asked, in_copy=not isinstance(asked.out, Remote) and "jax" not in sys.modules)


def _draw(asked: Drawing, in_copy: bool = False) -> None:
    from resonax.figures import drawn_part, plot_sweep

    results, layout = asked.results, asked.results.store.layout
    figure = (
        asked.draw(results.load()) if asked.draw else plot_sweep(results.load(*drawn_part(layout)))
    )
    save_figures(figure, asked.out, asked.id, in_copy)
