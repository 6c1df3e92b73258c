"""A server of `resonax explore` and a real browser, for tests of the page."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

TOKEN = "a-token-for-the-tests-of-the-page"
NO_BROWSER = "there is no chromium on PATH: install Debian's package chromium, as .ci/run does"


def find_browser() -> str:
    """Return the path of the browser; raise a sentence that says what to do if there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        raise RuntimeError(NO_BROWSER)
    return found


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


@dataclass
class Server:
    """The command in a process of its own, which can be stopped and started again."""

    argument: str | None = None
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[str] | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={TOKEN}"

    def start(self) -> None:
        command = [
            sys.executable,
            "-m",
            "resonax",
            "explore",
            "--no-browser",
            f"--port={self.port}",
        ]
        given = [] if self.argument is None else [self.argument]
        self.process = subprocess.Popen(
            command + given,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"RESONAX_EXPLORE_TOKEN": TOKEN},
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("http://127.0.0.1:"), line

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(timeout=20)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None


@contextmanager
def serving(argument: str | None = None) -> Iterator[Server]:
    """Run a server until the block ends."""
    server = Server(argument)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@dataclass
class Visit:
    """A tab, and what must not happen in it: errors in the console, requests to other hosts."""

    page: Any
    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        self.page.on("pageerror", lambda error: self.errors.append(error.stack or str(error)))
        self.page.on("console", self._hear)

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)

    def verdict(self, word: str = "") -> str:
        """Return the head of the page, once it says something, or once it says this word."""
        wanted = f"[data-verdict='{word}']" if word else "[data-verdict]:not([data-verdict=''])"
        head = f"main > :not([hidden]) h1{wanted}"
        self.page.wait_for_selector(head)
        return self.page.inner_text(head)

    def drawn(self, name: str) -> None:
        """Wait until a figure is drawn."""
        self.page.wait_for_selector(f"figure[data-name='{name}'] .plot .main-svg", state="attached")

    def shift(self) -> float:
        """Return how far things moved on the page that nobody moved: the browser's own measure."""
        return self.page.evaluate(
            """() => new Promise(done => {
                new PerformanceObserver(list => done(list.getEntries()
                    .filter(each => !each.hadRecentInput)
                    .reduce((sum, each) => sum + each.value, 0)))
                    .observe({type: "layout-shift", buffered: true});
                setTimeout(done, 300, 0); // there was none
            })"""
        )

    def rates(self) -> list[list[float]]:
        """Return the colours of the map, row by row."""
        return self.page.evaluate("document.querySelector('[data-name=map] .plot').data[0].z")

    def drop(self, path: Path) -> None:
        """Drop a file onto the page, as a person would."""
        self.page.evaluate(
            """([name, bytes]) => {
                const moved = new DataTransfer();
                moved.items.add(new File([new Uint8Array(bytes)], name));
                for (const kind of ["dragenter", "dragover", "drop"]) {
                    document.querySelector(".drop").dispatchEvent(new DragEvent(kind, {
                        bubbles: true, cancelable: true, dataTransfer: moved }));
                }
            }""",
            [path.name, list(path.read_bytes())],
        )


@contextmanager
def visiting(browser: Any, address: str, **look: Any) -> Iterator[Visit]:
    """Open a tab of its own; nothing may go wrong in it, and no other host may be asked."""
    context = browser.new_context(**{"viewport": {"width": 1440, "height": 900}} | look)
    context.set_default_timeout(120_000)
    visit = Visit(context.new_page())
    try:
        visit.page.goto(address)
        yield visit
    finally:
        context.close()
    assert not visit.errors, visit.errors
    others = visit.hosts - {urlsplit(address).netloc, ""}  # data: and blob: have no host
    assert not others, others
