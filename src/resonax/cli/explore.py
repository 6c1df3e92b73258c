"""The command ``resonax explore``: a page in the browser, from a server on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from resonax.cli.cache import keep_compiled
from resonax.cli.options import option
from resonax.cli.parsers import whole

__all__ = ["explore_command"]


def explore_command(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA, AUDIT or FOLDER]",
            help="A data file to check, a kept audit (.json, .html), or a folder of results.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        option("--port", "Server", "Port to listen on; 0 for any that is free.", whole),
    ] = None,
    browser: Annotated[
        bool, option("--browser/--no-browser", "Server", "Whether to open the browser.")
    ] = True,
) -> None:
    """Explore resonance in the browser: maps, your data, results. Ctrl-C ends the server.

    resonax explore

    resonax explore data.csv --port 8765 --no-browser

    resonax explore audit.json
    """
    from resonax.explore.serve import explore

    explore(source, port=port, browser=browser, prepare=keep_compiled)
