"""A server of `resonax explore` and a real browser, for tests of the page."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

from browser import MISSING, find_browser, is_required
from resonax.cli.cache import keep_compiled
from resonax.explore import check_process, check_worker
from resonax.explore.security import Site
from resonax.explore.serve import build_server

TOKEN = "a-token-for-the-tests-of-the-page"


def free_port() -> int:
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        return each.getsockname()[1]


@contextmanager
def open_tab(size: dict[str, int]) -> Iterator[Any]:
    """Open a tab of a browser until the block ends; without a browser the test is left out."""
    from playwright.sync_api import sync_playwright

    path = find_browser()
    if path is None:
        (pytest.fail if is_required() else pytest.skip)(MISSING)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        context = browser.new_context(viewport=size)
        context.set_default_timeout(300_000)
        yield context.new_page()
        browser.close()


@dataclass
class Server:
    """The server of the command in a thread, which can be stopped and started again.

    So it shares what other tests have loaded and compiled; that the command starts it in a process,
    and ends it, is tested elsewhere.
    """

    results: Path | None = None
    data: Path | None = None
    port: int = field(default_factory=free_port)
    _server: Any = None
    _thread: Thread | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={TOKEN}"

    def start(self) -> None:
        # What it would compute ahead of the first visitor, the first visit computes as well.
        site = Site(TOKEN, self.port, self.data, self.results, prepare=keep_compiled, warm=False)
        self._server = build_server(site)
        listener = socket.create_server(("127.0.0.1", self.port))
        self._thread = Thread(target=self._server.run, args=([listener],), daemon=True)
        self._thread.start()

    def stop(self) -> None:
        if self._thread is not None:
            self._server.should_exit = True
            self._thread.join()
            for pool in self._server.config.app.state.threads._pools.values():
                pool.shutdown()  # else it would compile in the middle of another test
            self._thread = None


class EndOfChecks(Connection):
    """The end of a pipe whose owner ends, without a word, where nobody hears it any more."""

    def send(self, obj: Any) -> None:
        try:
            super().send(obj)
        except OSError:
            raise SystemExit from None


class ThreadOfChecks(Thread):
    """In place of a process that loads and compiles anew what this one has."""

    def __init__(self, target: Any, args: tuple[Connection, Any], daemon: bool) -> None:
        pipe, prepare = args
        self._pipe = EndOfChecks(os.dup(pipe.fileno()))  # whoever starts a process closes its end
        super().__init__(target=target, args=(self._pipe, prepare), daemon=daemon)

    def run(self) -> None:
        with self._pipe, suppress(SystemExit):
            super().run()

    def kill(self) -> None:
        """Let it end with the next that it says."""
        with suppress(OSError), socket.socket(fileno=os.dup(self._pipe.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)


def check_in_threads(patch: pytest.MonkeyPatch) -> None:
    """Let checks of a server run in this process: that they have their own is tested elsewhere."""
    context = SimpleNamespace(Pipe=Pipe, Process=ThreadOfChecks)
    there = SimpleNamespace(get_context=lambda _: context)
    patch.setattr(check_process, "multiprocessing", there)
    patch.setattr(
        check_worker, "signal", SimpleNamespace(signal=lambda *_: None, SIGINT=0, SIG_IGN=0)
    )
    patch.setattr(check_worker, "_follow_parent", lambda: None)


@contextmanager
def serving(results: Path | None = None, data: Path | None = None) -> Iterator[Server]:
    """Run a server until the block ends."""
    server = Server(results, data)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@dataclass
class Visit:
    """A tab, and what must not happen in it: errors in the console, requests to other hosts."""

    page: Any
    expected: str | None = None  # what the browser may note of answers that a test provokes
    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)

    def _watchers(self) -> dict[str, Any]:
        return {
            "request": lambda request: self.hosts.add(urlsplit(request.url).netloc),
            "pageerror": lambda error: self.errors.append(error.stack or str(error)),
            "console": self._hear,
        }

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Listen to what happens in the tab; nothing may go wrong, and no other host be asked."""
        watchers = self._watchers()
        for name, watcher in watchers.items():
            self.page.on(name, watcher)
        try:
            yield
        finally:
            for name, watcher in watchers.items():
                self.page.remove_listener(name, watcher)
        assert not self.errors, self.errors
        others = self.hosts - {urlsplit(self.page.url).netloc, ""}  # data: and blob: have no host
        assert not others, others

    def _hear(self, message: Any) -> None:
        address = message.location["url"]
        is_expected = self.expected is not None and self.expected in message.text
        # A question that a newer one has superseded, where the server was slower than the hand.
        is_expected |= "409 (Conflict)" in message.text
        # The file that `visiting` opens first names no icon: the browser looks for one.
        is_expected |= address.endswith("/favicon.ico")
        if message.type in ("error", "warning") and not is_expected:
            self.errors.append(f"{message.text} {address}")

    def verdict(self, word: str = "") -> str:
        """Return the head of the page, once it says something of now, or once it says this word."""
        wanted = f"[data-verdict='{word}']" if word else "[data-verdict]:not([data-verdict=''])"
        head = f"main > :not([hidden]) h1{wanted}:not([data-state])"
        self.page.wait_for_selector(head)
        return self.page.inner_text(head)

    def drawn(self, name: str) -> None:
        """Wait until a figure is drawn."""
        figure = f"figure[data-name='{name}']:not([data-state]) .plot .main-svg"
        self.page.wait_for_selector(figure, state="attached")

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
def visiting(page: Any, address: str) -> Iterator[Visit]:
    """Load the page anew in a tab, with nothing that an earlier visit left there.

    The tab stays within one site: the browser then keeps its process and what that has compiled,
    which takes most of the time of a new tab.
    """
    page.goto(address.partition("#")[0].replace("/?", "/icon.svg?"))
    page.evaluate("localStorage.clear()")
    visit = Visit(page)
    with visit.watched():
        page.goto(address)
        yield visit
