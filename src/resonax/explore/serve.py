"""Start the server, print its address, and end it with Ctrl-C."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import secrets
import signal
import socket
import sys
import threading
import webbrowser
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from resonax.core.errors import ArgumentError, check_whole

if TYPE_CHECKING:
    import uvicorn

    from resonax.explore.security import Site

__all__ = ["TOKEN_VARIABLE", "build_server", "explore"]

TOKEN_VARIABLE = "RESONAX_EXPLORE_TOKEN"
_MAX_CONNECTIONS = 200  # more are answered with status 503
_DEFAULT_PORT = 8765  # tried first where no port is named
_NEEDS = {"starlette": "starlette", "uvicorn": "uvicorn", "plotly": "plotly"}
_NEEDS |= {"python_multipart": "python-multipart"}


def explore(
    source: Path | None = None,
    *,
    port: int | None = None,
    browser: bool = True,
    prepare: Callable[[], None] | None = None,
) -> None:
    """Serve the page until Ctrl-C; the first line that is printed is its address.

    Parameters
    ----------
    source
        A data file to check, the file of an audit, or a folder of results to look at.
    port
        Port of 127.0.0.1 to listen on, 0 for any that is free; a usual one, or any, by default.
    browser
        Whether to open the address in a browser.
    prepare
        Called once in each process before jax is used.
    """
    _check_installed()
    from resonax.explore.security import Site

    data, results = check_source(source)
    token = _token()
    with _open_socket(port) as listener:
        number = listener.getsockname()[1]
        site = Site(token, number, data, results, prepare, warm=True)
        print(site.address, flush=True)
        if browser:
            threading.Thread(target=webbrowser.open, args=(site.address,), daemon=True).start()
        _run(site, listener)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # do not wait for threads that still compute


def _check_installed() -> None:
    for module, package in _NEEDS.items():
        if find_spec(module) is None:
            raise ArgumentError(f'resonax explore needs {package}: pip install "resonax[explore]"')


def check_source(source: Path | None) -> tuple[Path | None, Path | None]:
    """Return the file to check and the results: a folder or an audit; at most one is named."""
    if source is None:
        return None, None
    if source.is_dir():
        if not (any((source / "results").glob("*.zarr")) or _holds_audits(source)):
            raise ArgumentError(
                f"{source} holds no results: name a folder that reproduce or sweep wrote, or one "
                "with kept audits"
            )
        return None, source.resolve()
    if not source.is_file():
        raise ArgumentError(f"there is no file or folder {source}: check its name")
    if source.suffix.lower() in (".json", ".html", ".htm"):
        from resonax.explore.audits import describe_audit

        describe_audit(source)  # one that cannot be read ends the command
        return None, source.resolve()
    return source.resolve(), None


def _holds_audits(folder: Path) -> bool:
    from resonax.explore.audits import audit_names

    return bool(audit_names(folder))


def _token() -> str:
    given = os.environ.get(TOKEN_VARIABLE)
    if given is None:
        return secrets.token_urlsafe(24)
    if not re.fullmatch(r"[A-Za-z0-9_-]{16,200}", given):
        raise ArgumentError(
            f"{TOKEN_VARIABLE} must have 16 to 200 letters, digits, - or _: unset it for a new one"
        )
    return given


def _open_socket(port: int | None) -> socket.socket:
    """Return a socket that listens on loopback: connections wait there until they are served."""
    if port is not None:
        check_whole("port", port, low=0, high=65535)
    try:
        return socket.create_server(
            ("127.0.0.1", _DEFAULT_PORT if port is None else port), backlog=256
        )
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        if port is None:
            return socket.create_server(("127.0.0.1", 0), backlog=256)
        word = "in use" if error.errno == errno.EADDRINUSE else "not allowed"
        raise ArgumentError(f"port {port} is {word}: name another, or 0 for any free one") from None


def _run(site: Site, listener: socket.socket) -> None:
    # uvicorn ends at Ctrl-C, and then raises the signal once more for whoever handled it before.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        build_server(site).run(sockets=[listener])


def build_server(site: Site) -> uvicorn.Server:
    """Return the server of a site, which listens on the sockets it is run with."""
    import uvicorn

    from resonax.explore.app import build_app

    for name in ("uvicorn.error", "python_multipart"):  # errors are answers here
        logging.getLogger(name).setLevel(logging.CRITICAL)
    config = uvicorn.Config(
        build_app(site),
        log_config=None,
        access_log=False,
        lifespan="on",
        ws="none",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_MAX_CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=0,  # a stream of events would never end by itself
    )
    return uvicorn.Server(config)
