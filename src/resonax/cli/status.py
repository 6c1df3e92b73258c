"""The command ``status``: how far results are, from anywhere, while others work on them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from resonax.cli.options import Folder, option
from resonax.cli.parsers import location, parser
from resonax.cli.show import say_time, show_line

if TYPE_CHECKING:
    from resonax.sweeps.status import Status

__all__ = ["status_command"]


def status_command(
    out: Annotated[
        Folder,
        typer.Argument(
            metavar="FOLDER", help="Folder or URL of results.", parser=parser(location, "FOLDER")
        ),
    ] = Path("out"),
    as_json: Annotated[bool, option("--json", "Result", "Print one JSON object.")] = False,
) -> None:
    """Show the progress of a folder of results: tasks that are stored, and the time left.

    resonax status mine
    """
    from resonax.sweeps.status import read_status

    found = read_status(out)
    if as_json:
        table = {one.id: {**asdict(one), "seconds_left": one.seconds_left} for one in found}
        print(json.dumps(table))
        raise typer.Exit(_exit_status(found))
    console = Console()
    for one in found:
        if one.error:
            show_line(f"{one.id}: {one.error}", console)
            continue
        words = [f"{one.done} of {one.tasks} tasks marked done"]
        if one.age is not None and one.done < one.tasks:
            words.append(f"the last {say_time(one.age)} ago")
        words += [f"about {say_time(one.seconds_left)} left"] if one.seconds_left else []
        show_line(f"{one.id}: {', '.join(words)}", console)
    show_line(
        "A task computes one part of the results and stores it: a block of cells, each of which is "
        "one point of a figure. This command counts marks and reads no numbers; the command that "
        "made the results, run again, checks all of them.",
        console,
    )
    raise typer.Exit(_exit_status(found))


def _exit_status(found: Iterable[Status]) -> int:
    return 2 if any(one.error for one in found) else 0
